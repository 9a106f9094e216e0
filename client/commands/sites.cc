// tidemark sites: which code allocated what is held, at a moment; and how to find who holds it.
#include <algorithm>
#include <charconv>
#include <memory>

#include "client/commands/commands.h"
#include "client/commands/holders.h"
#include "client/commands/render.h"
#include "client/rank_view.h"
#include "client/report_tables.h"
#include "client/units.h"

namespace tidemark::client {
namespace {

bool Wanted(const v1::Site& site, const SitesView& view) {
  return (view.under.empty() || AnyFrameContains(site, view.under)) &&
         (view.memory_class.empty() || site.memory_class() == view.memory_class) &&
         (view.site_id == 0 || site.id() == view.site_id);
}

std::vector<SiteRow> Rows(const v1::Snapshot& snapshot, const SitesView& view) {
  std::vector<SiteRow> rows = FoldSites(ByRank(snapshot), view.at);
  std::erase_if(rows, [&](const SiteRow& row) { return !Wanted(*row.site, view); });
  return rows;
}

std::string MomentText(At at) {
  switch (at) {
    case At::kNow:
      return "";
    case At::kLoad:
      return " at the end of loading";
    case At::kPeak:
      return " at the peak";
    case At::kLastStep:
      return " at the end of the last step";
  }
  return "";
}

std::string Stack(const v1::Site& site, const Ink& ink) {
  std::string text;
  for (int i = 0; i < site.frames_size(); ++i) {
    const v1::Frame& frame = site.frames(i);
    std::string line = "      " + FrameText(frame) + "  " + ink.Faint(Printable(frame.file()));
    text += (i == site.blamed_frame() ? "    > " + line.substr(6) : line) + "\n";
  }
  if (site.truncated()) text += "      ... deeper frames were not kept\n";
  return text;
}

struct Options {
  SourceOptions source;
  SitesView view;
  std::string at = "now";
  std::string site;
  bool holders = false;
};

Result<uint64_t> ParseSiteId(const std::string& text) {
  uint64_t id = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id, 16);
  if (error != std::errc() || end != text.data() + text.size() || id == 0) {
    return Error{"read --site " + text, "a site's id is up to 16 hexadecimal digits",
                 "`tidemark sites --json` lists them as \"id\""};
  }
  return id;
}

int Run(Context& context, Options options) {
  if (!options.site.empty()) {
    const Result<uint64_t> id = ParseSiteId(options.site);
    if (!id) return Fail(context, id.error(), kUsage);
    options.view.site_id = *id;
  }
  const auto at = AtFromText(options.at);
  if (!at) {
    return Fail(context,
                {"read --at " + options.at, "there is no such moment",
                 "use load, peak, last-step, exit or now"},
                kUsage);
  }
  options.view.at = *at;
  if (options.holders) return PrintHolders(context, options.source, options.view);
  return LoadAndPrint(
      context, options.source, {},
      {[&](const v1::Snapshot& snapshot, const Ink& ink) {
         return SitesText(snapshot, options.view, ink);
       },
       [&](const v1::Snapshot& snapshot) { return SitesJson(snapshot, options.view); }});
}

}  // namespace

std::string SitesText(const v1::Snapshot& snapshot, const SitesView& view, const Ink& ink) {
  const std::vector<SiteRow> rows = Rows(snapshot, view);
  if (rows.empty()) return "No site holds memory" + MomentText(view.at) + ".\n";
  const size_t limit = view.limit == 0 ? rows.size() : view.limit;
  std::string text;
  if (!MomentText(view.at).empty()) text += ink.Bold("live" + MomentText(view.at)) + "\n";
  if (view.frames) {
    for (size_t i = 0; i < std::min(limit, rows.size()); ++i) {
      text += SitesTable({rows[i]}, 1).Text() + Stack(*rows[i].site, ink) + "    site " +
              SiteIdText(rows[i].site->id()) + "\n";
    }
  } else {
    text += SitesTable(rows, limit).Text();
  }
  if (rows.size() > limit) {
    int64_t rest = 0;
    for (size_t i = limit; i < rows.size(); ++i) {
      rest += rows[i].each.bytes() * static_cast<int64_t>(rows[i].processes.size());
    }
    text += "and " + FormatCount(rows.size() - limit) + " more with " + FormatBytes(rest) +
            " in all (--limit 0 shows them)\n";
  }
  int64_t omitted = 0;
  for (const v1::Process& process : snapshot.processes()) omitted += process.sites_omitted();
  if (omitted > 0) text += FormatCount(omitted) + " smaller sites were left out\n";
  text += ink.Faint("allocated here; who holds it: tidemark sites --holders") + "\n";
  return text;
}

Json SitesJson(const v1::Snapshot& snapshot, const SitesView& view) {
  Json sites = Json::array();
  for (const v1::Process* process : ByRank(snapshot)) {
    for (const v1::Site& site : process->sites()) {
      const v1::BytesAndCount held = BytesAt(site, view.at);
      if (!Wanted(site, view) || (held.bytes() == 0 && held.count() == 0)) continue;
      Json entry = {{"rank", process->identity().rank()},
                    {"pid", process->pid()},
                    {"training_job", process->identity().training_job()},
                    {"bytes", held.bytes()},
                    {"count", held.count()},
                    {"allocated_at", SiteText(site)}};
      entry.update(ToJson(site));
      sites.push_back(std::move(entry));
    }
  }
  return {{"node", snapshot.node()}, {"sites", std::move(sites)}};
}

void AddSites(CommandLine& line) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      line.Add("sites", "The code that allocated what is held: bytes, count x size, age",
               [options](Context& context) { return Run(context, *options); });
  options->source.AddTo(*command);
  command->add_option("--at", options->at, "Moment: load, peak, last-step, exit or now");
  command->add_option("--under", options->view.under,
                      "Only call paths with a frame whose function or file:line contains this");
  command->add_option("--class", options->view.memory_class, "Only this class, such as fw_live");
  command->add_option("--site", options->site, "Only the site with this id");
  command->add_option("--limit", options->view.limit, "Rows to show (0 = all)");
  command->add_flag("--frames", options->view.frames, "Show whole call paths");
  command->add_flag("--holders", options->holders,
                    "Print Python for the job that finds who keeps the live blocks");
}

}  // namespace tidemark::client
