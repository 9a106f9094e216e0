// Reads series out of a CSV (sample,rank,metric,value) or a Prometheus range query's JSON.
//
// The file is untrusted and judged strictly: a verdict on a file that was cut short or mixed up
// would be worse than none. Every refusal names the line (CSV, malformed JSON) or the series.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"

namespace tidemark::detect {

struct Sample {
  uint64_t at = 0;    // sample number; of a range query: steps of the query since its start
  int64_t value = 0;  // bytes or count
};

struct SampleFile {
  // By metric, then rank; samples strictly rising. Never empty.
  std::map<std::string, std::map<int32_t, std::vector<Sample>>> series;
  double seconds_per_sample = 0;   // 0 = not known (CSV)
  std::vector<std::string> notes;  // what a reader should know: labels that became ranks, ...
};

Result<SampleFile> ReadSamples(std::istream& in, const std::string& name);

}  // namespace tidemark::detect
