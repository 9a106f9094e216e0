// Draws the series of a labelled case (tests/fixtures/cases) with a seed, as CSV.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace tidemark::detect::evaluate {

// `labelled_case` is one object of cases.json with a series; throws nlohmann's exceptions when it
// is malformed (the file is ours).
std::string CsvOfCase(const nlohmann::json& labelled_case, uint64_t seed);

}  // namespace tidemark::detect::evaluate
