// What others do with a slope, for comparison in the same call.
#pragma once

#include <cstdint>
#include <vector>

namespace tidemark::detect::evaluate {

// Least squares over the whole series: rises, and R^2 above 0.8.
bool LeastSquaresSaysLeak(const std::vector<int64_t>& bytes);

// Mann-Kendall's rank test, one-sided at 0.05.
bool MannKendallSaysLeak(const std::vector<int64_t>& bytes);

}  // namespace tidemark::detect::evaluate
