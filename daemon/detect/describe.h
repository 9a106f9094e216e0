// Evidence in words.
#pragma once

#include <string>

#include "daemon/detect/series_detector.h"
#include "daemon/detect/verdict.h"

namespace tidemark::detect {

// "the floor rose by 480 MiB since step 120: 8.00 MiB per step (7.90 MiB to 8.10 MiB) ...".
std::string DescribeGrowth(const SeriesFinding& finding, AlignedTo aligned_to);

}  // namespace tidemark::detect
