// Intervals for the figures of an evaluation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tidemark::detect::evaluate {

// A share with its 95 % interval (Wilson): "97.5 % (94.3 to 98.9)". "-" when there was nothing.
std::string Share(uint64_t yes, uint64_t of);

// A median with the 95 % interval of its rank: "120 (112 to 131)".
std::string Median(std::vector<double> values);

// Events per 1,000 hours with a 95 % interval (chi-square, by Wilson and Hilferty).
std::string PerThousandHours(uint64_t events, double hours);

}  // namespace tidemark::detect::evaluate
