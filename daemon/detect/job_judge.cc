#include "daemon/detect/job_judge.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <tuple>

namespace tidemark::detect {
namespace {

constexpr std::array<std::string_view, 3> kSpreadNames = {"one_rank", "subset", "all_ranks"};

double MedianOf(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

struct Member {
  int32_t rank;
  const Verdict* verdict;
};

JobVerdict Fold(const std::vector<Member>& members, size_t role_size) {
  // The one that has come furthest speaks for all; the slope is the median.
  const Member& furthest =
      *std::max_element(members.begin(), members.end(), [](const Member& a, const Member& b) {
        if (a.verdict->state != b.verdict->state) return a.verdict->state < b.verdict->state;
        return a.verdict->slope.per_unit < b.verdict->slope.per_unit;
      });
  JobVerdict job;
  job.verdict = *furthest.verdict;
  job.verdict.ranks.clear();
  std::vector<double> slopes, lows, highs;
  std::map<uint64_t, size_t> blamed;
  for (const Member& member : members) {
    job.verdict.ranks.push_back(member.rank);
    slopes.push_back(member.verdict->slope.per_unit);
    lows.push_back(member.verdict->slope.low);
    highs.push_back(member.verdict->slope.high);
    if (member.verdict->site) ++blamed[member.verdict->site->site_id];
  }
  std::sort(job.verdict.ranks.begin(), job.verdict.ranks.end());
  job.verdict.slope = {MedianOf(slopes), MedianOf(lows), MedianOf(highs)};
  for (const Member& member : members) {
    if (!member.verdict->site) continue;
    const auto most = std::max_element(blamed.begin(), blamed.end(),
                                       [](auto& a, auto& b) { return a.second < b.second; });
    if (member.verdict->site->site_id == most->first) {
      job.verdict.site = member.verdict->site;
      break;
    }
  }
  job.spread = members.size() == role_size ? RankSpread::kAllRanks
               : members.size() == 1       ? RankSpread::kOneRank
                                           : RankSpread::kSubset;
  job.job_wide = members.size() > 1 && job.spread == RankSpread::kAllRanks;
  std::string ranks;
  for (int32_t rank : job.verdict.ranks) {
    ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
  }
  if (role_size > 1) {
    job.verdict.evidence.push_back(job.spread == RankSpread::kAllRanks
                                       ? "every rank of " + std::to_string(role_size) + " does it"
                                       : "only rank " + ranks + " of " + std::to_string(role_size) +
                                             " does it");
  }
  return job;
}

void CompareLevels(const std::string& role, const std::vector<const RankState*>& ranks,
                   const JobOptions& options, std::vector<JobVerdict>& out) {
  // By class, devices of one rank added up: rank r's device is not rank s's.
  std::map<MemoryClass, std::vector<std::pair<int32_t, double>>> by_class;
  for (const RankState* rank : ranks) {
    if (!rank->past_load) return;
    std::map<MemoryClass, double> sums;
    for (const SeriesPoint& point : rank->totals) {
      sums[point.id.memory_class] += static_cast<double>(point.floor_bytes);
    }
    for (const auto& [memory_class, bytes] : sums) {
      by_class[memory_class].emplace_back(rank->rank, bytes);
    }
  }
  for (const auto& [memory_class, values] : by_class) {
    if (values.size() != ranks.size() || values.size() < 2) continue;
    std::vector<double> bytes;
    for (const auto& value : values) bytes.push_back(value.second);
    const double median = MedianOf(bytes);
    std::vector<double> distances;
    for (double b : bytes) distances.push_back(std::fabs(b - median));
    // Three deviations (1.48 x the median distance) beyond what the ranks usually differ by, and
    // enough to matter.
    const double matters =
        std::max({options.skew_share * median, static_cast<double>(options.skew_bytes),
                  3 * 1.4826 * MedianOf(distances)});
    JobVerdict found;
    found.verdict.state = VerdictState::kSteady;
    found.verdict.memory_class = memory_class;
    const auto [least, most] = std::minmax_element(bytes.begin(), bytes.end());
    for (const auto& [rank, b] : values) {
      if (std::fabs(b - median) > matters) found.verdict.ranks.push_back(rank);
    }
    std::sort(found.verdict.ranks.begin(), found.verdict.ranks.end());
    const std::string range =
        FormatBytes(*least) + " to " + FormatBytes(*most) + ", median " + FormatBytes(median);
    if (!found.verdict.ranks.empty()) {
      const bool one = found.verdict.ranks.size() == 1 && values.size() > 2;
      found.verdict.cause = one ? Cause::kRankOutlier : Cause::kConstantSkew;
      found.spread = one ? RankSpread::kOneRank : RankSpread::kSubset;
      found.verdict.evidence.push_back("ranks hold " + range);
    } else if (*most - *least <= 1e-3 * median && median >= static_cast<double>(1 << 20)) {
      found.verdict.cause = Cause::kSameBytesOnEveryRank;
      found.spread = RankSpread::kAllRanks;
      found.job_wide = true;
      for (const auto& value : values) found.verdict.ranks.push_back(value.first);
      std::sort(found.verdict.ranks.begin(), found.verdict.ranks.end());
      found.verdict.evidence.push_back("every rank holds " + FormatBytes(median) +
                                       (role.empty() ? "" : " (role " + role + ")"));
    } else {
      continue;
    }
    out.push_back(std::move(found));
  }
}

}  // namespace

std::string_view ToString(RankSpread spread) { return kSpreadNames[static_cast<size_t>(spread)]; }

std::vector<JobVerdict> JudgeJob(std::span<const RankState> ranks, const JobOptions& options) {
  std::map<std::string, std::vector<const RankState*>> roles;
  for (const RankState& rank : ranks) roles[rank.role].push_back(&rank);
  std::vector<JobVerdict> out;
  for (const auto& [role, members] : roles) {
    std::map<std::tuple<MemoryClass, Cause>, std::vector<Member>> growing;
    for (const RankState* rank : members) {
      for (const Verdict& verdict : rank->verdicts) {
        const bool grows =
            verdict.state == VerdictState::kSuspect || verdict.state == VerdictState::kConfirmed;
        if (!grows) continue;
        growing[{verdict.memory_class, verdict.cause}].push_back({rank->rank, &verdict});
      }
    }
    for (const auto& [key, group] : growing) out.push_back(Fold(group, members.size()));
    CompareLevels(role, members, options, out);
  }
  return out;
}

}  // namespace tidemark::detect
