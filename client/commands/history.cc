// tidemark history: memory over time or over steps, and what happened meanwhile.
#include <algorithm>
#include <array>
#include <charconv>
#include <ctime>
#include <memory>

#include "client/commands/commands.h"
#include "client/commands/render.h"
#include "client/rank_view.h"
#include "client/recording.h"
#include "client/recording_history.h"
#include "client/site_view.h"
#include "client/table.h"
#include "client/units.h"
#include "daemon/serve/export_stacks.h"

namespace tidemark::client {
namespace {

constexpr size_t kSparkCells = 24;

struct Options {
  SourceOptions source;
  std::string memory_class;
  std::optional<int> device;
  std::string over;
  std::string site;
  int points = 0;
  bool sites = false;
  bool steps = false;
};

std::string ClockText(uint64_t unix_ns) {
  const auto seconds = static_cast<time_t>(unix_ns / 1'000'000'000);
  std::tm local = {};
  ::localtime_r(&seconds, &local);
  char text[16];
  std::strftime(text, sizeof(text), "%H:%M:%S", &local);
  return text;
}

// Eight heights between the smallest and the largest mean.
std::string Spark(const v1::Series& series) {
  static constexpr std::array<const char*, 8> kHeights = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const auto& values = series.mean_bytes();
  if (values.empty()) return "";
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  const auto size = static_cast<size_t>(values.size());
  const size_t cells = std::min(kSparkCells, size);
  std::string text;
  for (size_t cell = 0; cell < cells; ++cell) {
    const int64_t value = values.Get(static_cast<int>(cell * size / cells));
    const double share = *most == *least
                             ? 0
                             : (static_cast<double>(value) - static_cast<double>(*least)) /
                                   (static_cast<double>(*most) - static_cast<double>(*least));
    text += kHeights[static_cast<size_t>(share * 7.999)];
  }
  return text;
}

std::string SiteOf(const v1::Series& series) {
  if (series.site_id() == 0) return "";
  v1::Site site;
  *site.mutable_frames() = series.frames();
  site.set_blamed_frame(series.frames().empty() ? -1 : series.blamed_frame());
  return SiteText(site);
}

std::string Text(const v1::QueryRangeResponse& past, const Ink& ink) {
  if (past.series().empty() && past.marks().empty()) return "Nothing is known of that time.\n";
  Table table({{"process"},
               {"memory"},
               {"where"},
               {"from", Align::kRight},
               {"to", Align::kRight},
               {"change", Align::kRight},
               {"lowest", Align::kRight},
               {"highest", Align::kRight},
               {"course"},
               {"allocated at"}});
  for (const v1::Series& series : past.series()) {
    const int points = series.mean_bytes_size();
    if (points == 0 || series.min_bytes_size() != points || series.max_bytes_size() != points) {
      continue;
    }
    const int64_t first = series.mean_bytes(0);
    const int64_t last = series.mean_bytes(points - 1);
    const int64_t least = *std::min_element(series.min_bytes().begin(), series.min_bytes().end());
    const int64_t most = *std::max_element(series.max_bytes().begin(), series.max_bytes().end());
    if (least == 0 && most == 0) continue;
    table.Add({Printable(exports::ProcessName(series.process())), Printable(series.memory_class()),
               series.device() < 0 ? "host" : "GPU " + std::to_string(series.device()),
               FormatBytes(first), FormatBytes(last),
               last == first ? "" : FormatDelta(last - first), FormatBytes(least),
               FormatBytes(most), Spark(series), SiteOf(series)});
  }
  std::string text = table.empty() ? "" : table.Text();
  if (past.marks().empty()) return text;
  text += "\n" + ink.Bold("what happened") + "\n";
  Table marks({{""}, {""}, {""}, {""}});
  for (const v1::HistoryMark& mark : past.marks()) {
    marks.Add({ClockText(mark.start_unix_ns()), Printable(exports::ProcessName(mark.process())),
               Printable(mark.kind()), Printable(mark.text())});
  }
  return text + marks.Text(2);
}

Result<uint64_t> SiteId(const std::string& text) {
  uint64_t id = 0;
  if (text.empty()) return id;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id, 16);
  if (error == std::errc() && end == text.data() + text.size() && id != 0) return id;
  return Error{"read --site " + text, "a site's id is up to 16 hexadecimal digits",
               "`tidemark sites --json` lists them as \"id\""};
}

bool Wanted(const Options& options, uint64_t site, const v1::Series& series) {
  const bool of_site = series.site_id() != 0;
  return (options.memory_class.empty() || series.memory_class() == options.memory_class) &&
         (!options.device || series.device() == *options.device) &&
         (site != 0 ? series.site_id() == site : of_site == options.sites);
}

Result<v1::QueryRangeResponse> FromRecording(const Options& options, uint64_t site,
                                             uint64_t span_ns) {
  Result<v1::Recording> recording = ReadRecording(options.source.from);
  if (!recording) return recording.error();
  exports::Input input = InputOf(*recording, options.source);
  const uint64_t end = recording->snapshot().unix_ns();
  const uint64_t start = span_ns == 0 ? 0 : end - std::min(span_ns, end);
  v1::QueryRangeResponse past;
  for (v1::Series& series : options.steps ? input.steps : input.series) {
    if (!Wanted(options, site, series)) continue;
    if (series.unix_ns().empty() || series.unix_ns(series.unix_ns_size() - 1) < start) continue;
    *past.add_series() = std::move(series);
  }
  for (v1::HistoryMark& mark : input.marks) {
    if (std::max(mark.start_unix_ns(), mark.end_unix_ns()) >= start) {
      *past.add_marks() = std::move(mark);
    }
  }
  return past;
}

v1::QueryRangeRequest RequestOf(const Options& options, uint64_t site, uint64_t span_ns) {
  v1::QueryRangeRequest request;
  timespec now = {};
  ::clock_gettime(CLOCK_REALTIME, &now);
  const uint64_t now_ns =
      static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
  if (span_ns > 0) request.set_start_unix_ns(now_ns - std::min(span_ns, now_ns));
  if (options.source.pid) request.add_pids(*options.source.pid);
  if (options.source.rank) request.add_ranks(*options.source.rank);
  request.set_training_job(options.source.job);
  if (!options.memory_class.empty()) request.add_memory_classes(options.memory_class);
  if (options.device) request.add_devices(*options.device);
  if (site != 0) request.add_site_ids(site);
  request.set_all_sites(options.sites);
  request.set_align(options.steps ? "step" : "time");
  request.set_max_points(options.points);
  request.set_include_marks(true);
  request.set_fresh(true);
  return request;
}

int Run(Context& context, const Options& options) {
  const Result<uint64_t> site = SiteId(options.site);
  if (!site) return Fail(context, site.error(), kUsage);
  uint64_t span = 0;
  if (!options.over.empty()) {
    const Result<uint64_t> parsed = ParseSpan(options.over);
    if (!parsed) return Fail(context, parsed.error(), kUsage);
    span = *parsed;
  }
  v1::QueryRangeResponse past;
  if (options.source.from.empty()) {
    Result<Connection> connection = options.source.Connect(context);
    if (!connection) return Fail(context, connection.error(), kNoDaemon);
    Result<v1::QueryRangeResponse> answer = connection->QueryRange(RequestOf(options, *site, span));
    if (!answer) {
      return Fail(context, answer.error(), connection->refused() ? kRefused : kNoDaemon);
    }
    past = std::move(*answer);
  } else {
    Result<v1::QueryRangeResponse> answer = FromRecording(options, *site, span);
    if (!answer) return Fail(context, answer.error(), kBadFile);
    past = std::move(*answer);
  }
  if (options.source.json) {
    context.out << JsonText(
        {{"series", ToJsonArray(past.series())}, {"marks", ToJsonArray(past.marks())}});
  } else {
    context.out << Text(past, context.ink);
  }
  return kOk;
}

}  // namespace

void AddHistory(CommandLine& line) {
  auto options = std::make_shared<Options>();
  CLI::App* command = line.Add("history", "Memory over time or steps, and what happened meanwhile",
                               [options](Context& context) { return Run(context, *options); });
  options->source.AddTo(*command);
  command->add_option("--over", options->over, "How far back: 15m (default), 2h, 7d");
  command->add_flag("--steps", options->steps, "By step rather than by time");
  command->add_option("--class", options->memory_class, "Only this class, such as fw_live");
  command->add_option("--device", options->device, "Only this device; -1 is the host");
  command->add_flag("--sites", options->sites, "The largest sites rather than classes");
  command->add_option("--site", options->site, "The site with this id");
  command->add_option("--points", options->points, "Points of a series in --json (0 = 600)");
}

}  // namespace tidemark::client
