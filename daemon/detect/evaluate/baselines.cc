#include "daemon/detect/evaluate/baselines.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace tidemark::detect::evaluate {
namespace {

// Pairs i < j with values[i] > values[j], sorting on the way (merge sort): n log n, not n^2.
int64_t Falls(std::vector<int64_t>& values, std::vector<int64_t>& scratch, size_t from, size_t to) {
  if (to - from < 2) return 0;
  const size_t middle = from + (to - from) / 2;
  int64_t falls = Falls(values, scratch, from, middle) + Falls(values, scratch, middle, to);
  size_t left = from;
  size_t right = middle;
  for (size_t out = from; out < to; ++out) {
    if (left < middle && (right == to || values[left] <= values[right])) {
      scratch[out] = values[left++];
    } else {
      falls += static_cast<int64_t>(middle - left);
      scratch[out] = values[right++];
    }
  }
  std::copy(scratch.begin() + static_cast<ptrdiff_t>(from),
            scratch.begin() + static_cast<ptrdiff_t>(to),
            values.begin() + static_cast<ptrdiff_t>(from));
  return falls;
}

}  // namespace

bool LeastSquaresSaysLeak(const std::vector<int64_t>& bytes) {
  const auto n = static_cast<double>(bytes.size());
  double mean = 0;
  for (int64_t b : bytes) mean += static_cast<double>(b) / n;
  double xy = 0;
  double yy = 0;
  double xx = 0;
  for (size_t t = 0; t < bytes.size(); ++t) {
    const double x = static_cast<double>(t) - (n - 1) / 2;
    const double y = static_cast<double>(bytes[t]) - mean;
    xy += x * y;
    xx += x * x;
    yy += y * y;
  }
  return xy > 0 && yy > 0 && xy * xy / (xx * yy) > 0.8;
}

bool MannKendallSaysLeak(const std::vector<int64_t>& bytes) {
  std::vector<int64_t> sorted = bytes;
  std::vector<int64_t> scratch(bytes.size());
  const int64_t falls = Falls(sorted, scratch, 0, sorted.size());
  const auto n = static_cast<int64_t>(bytes.size());
  int64_t tied_pairs = 0;
  double ties = 0;
  for (size_t i = 0; i < sorted.size();) {
    size_t j = i;
    while (j < sorted.size() && sorted[j] == sorted[i]) ++j;
    const auto t = static_cast<int64_t>(j - i);
    tied_pairs += t * (t - 1) / 2;
    ties += static_cast<double>(t) * static_cast<double>(t - 1) * static_cast<double>(2 * t + 5);
    i = j;
  }
  const int64_t rises = n * (n - 1) / 2 - falls - tied_pairs;
  const double s = static_cast<double>(rises - falls);
  const auto m = static_cast<double>(n);
  const double variance = (m * (m - 1) * (2 * m + 5) - ties) / 18;
  return variance > 0 && (s - 1) / std::sqrt(variance) > 1.6449;
}

}  // namespace tidemark::detect::evaluate
