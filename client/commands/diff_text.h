// A difference of two runs as text and as JSON.
#pragma once

#include <string>

#include "client/json.h"
#include "client/run_diff.h"
#include "client/terminal.h"
#include "tidemark/v1/tidemark.pb.h"

namespace tidemark::client {

struct DiffNames {
  std::string a;
  std::string b;
};

std::string DiffText(const v1::Recording& a, const v1::Recording& b,
                     const RunDifference& difference, const DiffNames& names, size_t limit,
                     const Ink& ink);
Json DiffJson(const v1::Recording& a, const v1::Recording& b, const RunDifference& difference);

}  // namespace tidemark::client
