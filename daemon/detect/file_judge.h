// The verdict on a file of samples: every metric and rank through the daemon's detector, the ranks
// compared, and the metrics set against each other.
#pragma once

#include "daemon/detect/analyze.h"
#include "daemon/detect/sample_file.h"

namespace tidemark::detect {

Analysis JudgeSamples(const SampleFile& file);

}  // namespace tidemark::detect
