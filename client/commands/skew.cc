// tidemark skew: how far the ranks of a job stand apart, kind by kind, and which stand out.
#include <algorithm>
#include <cstdio>
#include <memory>

#include "client/commands/commands.h"
#include "client/commands/render.h"
#include "client/fleet.h"
#include "client/rank_measures.h"
#include "client/rank_view.h"
#include "client/table.h"
#include "client/units.h"

namespace tidemark::client {
namespace {

struct Spread {
  int64_t least = 0;
  int64_t median = 0;
  int64_t most = 0;
  std::vector<const v1::Process*> lowest;   // all that hold `least`
  std::vector<const v1::Process*> highest;  // all that hold `most`
  size_t known = 0;
};

// Nothing when no rank's bytes are known.
std::optional<Spread> SpreadOf(const std::vector<const v1::Process*>& ranks,
                               const RankMeasure& measure) {
  std::vector<int64_t> values;
  for (const v1::Process* rank : ranks) {
    if (const auto bytes = measure.get(*rank)) values.push_back(*bytes);
  }
  const auto median = MedianOf(values);
  if (!median) return std::nullopt;
  Spread spread{.least = *std::ranges::min_element(values),
                .median = *median,
                .most = *std::ranges::max_element(values),
                .lowest = {},
                .highest = {},
                .known = values.size()};
  for (const v1::Process* rank : ranks) {
    const auto bytes = measure.get(*rank);
    if (bytes == spread.least) spread.lowest.push_back(rank);
    if (bytes == spread.most) spread.highest.push_back(rank);
  }
  return spread;
}

// As the recording rule training_job_class:tidemark_memory_skew:ratio: 1 = all hold the same.
std::optional<double> RatioOf(const Spread& spread) {
  if (spread.median <= 0) return std::nullopt;
  return static_cast<double>(spread.most) / static_cast<double>(spread.median);
}

std::string RatioText(const Spread& spread) {
  const auto ratio = RatioOf(spread);
  if (!ratio) return "-";
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", *ratio);
  return text;
}

}  // namespace

std::string SkewText(const v1::Snapshot& snapshot, const Ink& ink) {
  std::string text;
  for (const auto& [job, ranks] : RanksByJob(snapshot)) {
    text += ink.Bold(job.empty() ? "no job name" : Printable(job)) + ", " +
            FormatCount(ranks.size()) + (ranks.size() == 1 ? " rank\n" : " ranks\n");
    Table table({{"memory"},
                 {"least", Align::kRight},
                 {"median", Align::kRight},
                 {"most", Align::kRight},
                 {"most / median", Align::kRight},
                 {"least on"},
                 {"most on"}});
    for (const RankMeasure& measure : RankMeasures()) {
      const auto spread = SpreadOf(ranks, measure);
      if (!spread) continue;
      const bool apart = spread->least != spread->most;
      table.Add({measure.title, FormatBytes(spread->least), FormatBytes(spread->median),
                 FormatBytes(spread->most), RatioText(*spread),
                 apart ? RanksPhrase(spread->lowest) : "all alike",
                 apart ? RanksPhrase(spread->highest) : ""});
    }
    text += table.Text(2) + "\n";
  }
  return text.empty() ? "No process has a rank; see `tidemark ps`.\n" : text;
}

Json SkewJson(const v1::Snapshot& snapshot) {
  const auto numbers = [](const std::vector<const v1::Process*>& ranks) {
    Json list = Json::array();
    for (const v1::Process* rank : ranks) list.push_back(rank->identity().rank());
    return list;
  };
  Json jobs = Json::array();
  for (const auto& [job, ranks] : RanksByJob(snapshot)) {
    Json entry = {{"training_job", job}, {"ranks", ranks.size()}, {"measures", Json::object()}};
    for (const RankMeasure& measure : RankMeasures()) {
      const auto spread = SpreadOf(ranks, measure);
      if (!spread) continue;
      const auto ratio = RatioOf(*spread);
      entry["measures"][measure.key] = {{"least_bytes", spread->least},
                                        {"median_bytes", spread->median},
                                        {"most_bytes", spread->most},
                                        {"ratio", ratio ? Json(*ratio) : Json(nullptr)},
                                        {"least_on", numbers(spread->lowest)},
                                        {"most_on", numbers(spread->highest)},
                                        {"known", spread->known}};
    }
    jobs.push_back(std::move(entry));
  }
  return {{"node", snapshot.node()}, {"jobs", std::move(jobs)}};
}

void AddSkew(CommandLine& line) {
  struct Options {
    SourceOptions source;
    FleetOptions fleet;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command =
      line.Add("skew", "How far the ranks of a job stand apart", [options](Context& context) {
        v1::GetSnapshotRequest request;
        request.set_omit_sites(true);
        request.set_omit_steps(true);
        return LoadAndPrintFleet(context, options->source, options->fleet, request,
                                 FleetView::kMerged, {SkewText, SkewJson});
      });
  options->source.AddTo(*command);
  options->fleet.AddTo(*command);
}

}  // namespace tidemark::client
