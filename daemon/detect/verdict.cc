#include "daemon/detect/verdict.h"

#include <array>
#include <cmath>
#include <cstdio>

namespace tidemark::detect {
namespace {

constexpr std::array<std::string_view, 5> kStateNames = {"warming_up", "steady", "suspect",
                                                         "confirmed", "retracted"};

}  // namespace

std::string_view ToString(VerdictState state) { return kStateNames[static_cast<size_t>(state)]; }

std::optional<VerdictState> VerdictStateFromString(std::string_view name) {
  for (size_t i = 0; i < kStateNames.size(); ++i) {
    if (kStateNames[i] == name) return static_cast<VerdictState>(i);
  }
  return std::nullopt;
}

std::string_view UnitName(AlignedTo aligned) {
  switch (aligned) {
    case AlignedTo::kSteps:
      return "step";
    case AlignedTo::kSeconds:
      return "second";
    case AlignedTo::kSamples:
      return "sample";
  }
  return "step";
}

bool RaisesLeakAlert(const Verdict& verdict) {
  return verdict.state == VerdictState::kConfirmed && IsLeak(verdict.cause);
}

bool RaisesNotice(const Verdict& verdict) {
  return InfoOf(verdict.cause).kind == CauseKind::kNotice;
}

std::string FormatBytes(double bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  if (!std::isfinite(bytes)) return bytes > 0 ? "unlimited" : "unknown";
  int unit = 0;
  while (std::fabs(bytes) >= 1024 && unit < 5) {
    bytes /= 1024;
    ++unit;
  }
  // Rounding must not print "1024 KiB" for what is 1 MiB to three digits.
  if (std::fabs(bytes) >= 1023.5 && unit < 5) {
    bytes /= 1024;
    ++unit;
  }
  char text[48];
  const double magnitude = std::fabs(bytes);
  const int decimals = unit == 0 && bytes == std::floor(bytes) ? 0
                       : magnitude >= 100                      ? 0
                       : magnitude >= 10                       ? 1
                                                               : 2;
  std::snprintf(text, sizeof text, "%.*f %s", decimals, bytes, kUnits[unit]);
  return text;
}

std::string Summarize(const Verdict& verdict) {
  const std::string where =
      verdict.device >= 0 ? "device " + std::to_string(verdict.device) + " " : "host ";
  const std::string unit(UnitName(verdict.aligned_to));
  std::string line = where + std::string(ToString(verdict.memory_class)) + ": ";
  const auto growth = [&] {
    return FormatBytes(verdict.slope.per_unit) + " per " + unit + " (" +
           FormatBytes(verdict.slope.low) + " to " + FormatBytes(verdict.slope.high) + ")";
  };
  switch (verdict.state) {
    case VerdictState::kWarmingUp:
      return line + "warming up";
    case VerdictState::kSteady:
      line += "steady; growth below " + FormatBytes(verdict.detection_floor) + " per " + unit +
              " cannot be told yet";
      break;
    case VerdictState::kSuspect:
      line += "suspect, " + growth() + " since " + unit + " " + std::to_string(verdict.onset);
      break;
    case VerdictState::kConfirmed:
      line += std::string(IsLeak(verdict.cause) ? "leak" : "grows") + ", " + growth() + " since " +
              unit + " " + std::to_string(verdict.onset);
      break;
    case VerdictState::kRetracted:
      line += "no longer suspect";
      break;
  }
  if (verdict.cause != Cause::kNone) line += "; " + Explain(verdict.cause);
  if (verdict.forecast && verdict.state != VerdictState::kRetracted) {
    const OutOfMemoryForecast& forecast = *verdict.forecast;
    line += "; out of memory (" + forecast.limit_name + ")";
    if (forecast.at_step) line += " at step " + std::to_string(*forecast.at_step);
    if (forecast.seconds_left) {
      const auto left = static_cast<long long>(*forecast.seconds_left);
      char text[48];
      std::snprintf(text, sizeof text, ", in %02lld:%02lld:%02lld", left / 3600, left / 60 % 60,
                    left % 60);
      line += text;
    }
  }
  return line;
}

}  // namespace tidemark::detect
