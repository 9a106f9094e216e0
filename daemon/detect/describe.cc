#include "daemon/detect/describe.h"

#include <cmath>

namespace tidemark::detect {

std::string DescribeGrowth(const SeriesFinding& finding, AlignedTo aligned_to) {
  const std::string unit(UnitName(aligned_to));
  switch (finding.end) {
    case GrowthEnd::kNone:
      break;
    case GrowthEnd::kGivenBack:
      return "what had grown since " + unit + " " + std::to_string(finding.onset) +
             " was given back";
    case GrowthEnd::kLevelledOff:
      return "the growth since " + unit + " " + std::to_string(finding.onset) + " has ended";
    case GrowthEnd::kSlowedDown:
      return "the growth since " + unit + " " + std::to_string(finding.onset) +
             " has slowed down to a quarter or less";
    case GrowthEnd::kOverdue:
      return "the rises since " + unit + " " + std::to_string(finding.onset) + " have not gone on";
  }
  if (finding.pattern == GrowthPattern::kNone) return "no growth that could be told";
  std::string line = "the floor rose by " + FormatBytes(static_cast<double>(finding.grown_bytes)) +
                     " since " + unit + " " + std::to_string(finding.onset) + ": " +
                     FormatBytes(finding.slope.per_unit) + " per " + unit + " (" +
                     FormatBytes(finding.slope.low) + " to " + FormatBytes(finding.slope.high) +
                     ")";
  if (finding.pattern == GrowthPattern::kStairs) {
    line += ", in " + std::to_string(finding.stair_count) + " rises of about " +
            FormatBytes(finding.stair_bytes) + " every " +
            std::to_string(std::llround(finding.stair_units)) + " " + unit + "s";
  } else {
    line += ", in every part of the window and without slowing down";
  }
  return line;
}

}  // namespace tidemark::detect
