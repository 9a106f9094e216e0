// What ranks of a job are compared by.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tidemark/v1/tidemark.pb.h"

namespace tidemark::client {

struct RankMeasure {
  const char* title;
  const char* key;
  std::optional<int64_t> (*get)(const v1::Process&);  // bytes; absent where nobody knows
};
std::span<const RankMeasure> RankMeasures();

// The lower of the two in the middle.
std::optional<int64_t> MedianOf(std::vector<int64_t> values);

// The ranks of a snapshot by job, each job's in order.
std::map<std::string, std::vector<const v1::Process*>> RanksByJob(const v1::Snapshot& snapshot);

}  // namespace tidemark::client
