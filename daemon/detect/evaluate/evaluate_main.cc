// build/bin/evaluate: how good is the judgement? Random jobs of known truth, and the labelled
// cases, through the detector and through two baselines, in one call. Prints Markdown.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "daemon/detect/analyze.h"
#include "daemon/detect/evaluate/baselines.h"
#include "daemon/detect/evaluate/families.h"
#include "daemon/detect/evaluate/labelled_cases.h"
#include "daemon/detect/evaluate/statistics.h"
#include "daemon/detect/evaluate/trial.h"

namespace tidemark::detect::evaluate {
namespace {

struct Options {
  int jobs = 200;
  uint64_t steps = 20000;
  uint64_t seed = 1;
  std::vector<double> rates = {0.1, 0.5, 1.0};
  std::vector<double> noise = {1.0};
  std::vector<std::string> families;
  std::string mode = "both";
  std::string cases;
  int case_seeds = 5;
  bool curve = false;
  double seconds_per_step = 1.0;
};

struct Tally {
  uint64_t jobs = 0;
  uint64_t at_end = 0;
  uint64_t ever = 0;
  uint64_t before_onset = 0;
  uint64_t suspect = 0;
  uint64_t alarms = 0;
  uint64_t least_squares = 0;
  uint64_t mann_kendall = 0;
  uint64_t sites_right = 0;
  uint64_t sites_asked = 0;
  std::vector<double> suspect_after;
  std::vector<double> confirmed_after;
  std::vector<double> retracted_after;

  void Add(const Trial& trial) {
    ++jobs;
    at_end += trial.confirmed_at_end;
    ever += trial.confirmed_ever;
    before_onset += trial.confirmed_before_onset;
    suspect += trial.suspect_ever;
    alarms += trial.alarms;
    if (trial.right_site) {
      ++sites_asked;
      sites_right += *trial.right_site;
    }
    const auto take = [](const std::optional<uint64_t>& value, std::vector<double>& list) {
      if (value) list.push_back(static_cast<double>(*value));
    };
    take(trial.suspect_after, suspect_after);
    take(trial.confirmed_after, confirmed_after);
    take(trial.retracted_after, retracted_after);
  }
};

bool Wanted(const Options& options, std::string_view family) {
  return options.families.empty() || std::find(options.families.begin(), options.families.end(),
                                               family) != options.families.end();
}

Tally RunFamily(const Options& options, std::string_view family, const FamilyOptions& draw,
                bool live, const DetectorOptions& detector, bool baselines) {
  Tally tally;
  for (int i = 0; i < options.jobs; ++i) {
    const uint64_t seed = options.seed * 1'000'003 + static_cast<uint64_t>(i);
    const Job job = DrawJob(family, seed, draw);
    tally.Add(live ? RunLive(job, seed) : RunSeries(job, detector));
    if (baselines) {
      const std::vector<int64_t> bytes = SumOf(job);
      tally.least_squares += LeastSquaresSaysLeak(bytes);
      tally.mann_kendall += MannKendallSaysLeak(bytes);
    }
  }
  return tally;
}

void RunMode(const Options& options, bool live, double noise) {
  std::printf("\n## %s, noise x %.1f: %d jobs a family, %llu steps, seed %llu\n\n",
              live ? "With classes and sites" : "Bare series", noise, options.jobs,
              static_cast<unsigned long long>(options.steps),
              static_cast<unsigned long long>(options.seed));
  FamilyOptions draw;
  draw.steps = options.steps;
  draw.noise_factor = noise;
  const DetectorOptions detector;
  std::printf(
      "| healthy family | confirmed at end | ever confirmed | ever suspect | false alarms / 1000 "
      "job-hours | steps to retraction | least squares | Mann-Kendall |\n"
      "|---|---|---|---|---|---|---|---|\n");
  Tally healthy;
  for (std::string_view family : HealthyFamilies()) {
    if (!Wanted(options, family)) continue;
    const Tally t = RunFamily(options, family, draw, live, detector, true);
    const double hours = static_cast<double>(t.jobs) * static_cast<double>(options.steps) *
                         options.seconds_per_step / 3600;
    std::printf("| %s | %s | %s | %s | %s | %s | %s | %s |\n", std::string(family).c_str(),
                Share(t.at_end, t.jobs).c_str(), Share(t.ever, t.jobs).c_str(),
                Share(t.suspect, t.jobs).c_str(), PerThousandHours(t.alarms, hours).c_str(),
                Median(t.retracted_after).c_str(), Share(t.least_squares, t.jobs).c_str(),
                Share(t.mann_kendall, t.jobs).c_str());
    std::fflush(stdout);
    healthy.jobs += t.jobs;
    healthy.at_end += t.at_end;
    healthy.ever += t.ever;
    healthy.suspect += t.suspect;
    healthy.alarms += t.alarms;
    healthy.least_squares += t.least_squares;
    healthy.mann_kendall += t.mann_kendall;
    healthy.retracted_after.insert(healthy.retracted_after.end(), t.retracted_after.begin(),
                                   t.retracted_after.end());
  }
  const double hours = static_cast<double>(healthy.jobs) * static_cast<double>(options.steps) *
                       options.seconds_per_step / 3600;
  std::printf(
      "| **all** | %s | %s | %s | %s | %s | %s | %s |\n",
      Share(healthy.at_end, healthy.jobs).c_str(), Share(healthy.ever, healthy.jobs).c_str(),
      Share(healthy.suspect, healthy.jobs).c_str(), PerThousandHours(healthy.alarms, hours).c_str(),
      Median(healthy.retracted_after).c_str(), Share(healthy.least_squares, healthy.jobs).c_str(),
      Share(healthy.mann_kendall, healthy.jobs).c_str());

  for (const double rate : options.rates) {
    draw.rate_mib = rate;
    std::printf(
        "\n| leak family, %.2f MiB a step | recall at end | steps to suspect | steps to confirmed "
        "| MiB at confirmed | confirmed before onset | right site | least squares | Mann-Kendall "
        "|\n|---|---|---|---|---|---|---|---|---|\n",
        rate);
    Tally leaks;
    for (std::string_view family : LeakFamilies()) {
      if (!Wanted(options, family)) continue;
      const Tally t = RunFamily(options, family, draw, live, detector, true);
      std::vector<double> mib;
      for (double steps : t.confirmed_after) mib.push_back(steps * rate);
      std::printf("| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", std::string(family).c_str(),
                  Share(t.at_end, t.jobs).c_str(), Median(t.suspect_after).c_str(),
                  Median(t.confirmed_after).c_str(), Median(mib).c_str(),
                  Share(t.before_onset, t.jobs).c_str(),
                  Share(t.sites_right, t.sites_asked).c_str(),
                  Share(t.least_squares, t.jobs).c_str(), Share(t.mann_kendall, t.jobs).c_str());
      std::fflush(stdout);
      leaks.jobs += t.jobs;
      leaks.at_end += t.at_end;
      leaks.least_squares += t.least_squares;
      leaks.mann_kendall += t.mann_kendall;
    }
    std::printf(
        "\nPrecision at the end of the job, at this rate: %s; least squares %s; "
        "Mann-Kendall %s.\n",
        Share(leaks.at_end, leaks.at_end + healthy.at_end).c_str(),
        Share(leaks.least_squares, leaks.least_squares + healthy.least_squares).c_str(),
        Share(leaks.mann_kendall, leaks.mann_kendall + healthy.mann_kendall).c_str());
  }
}

// How the wish to be early and the wish to be right pull apart, on a bare series.
void RunCurve(const Options& options) {
  struct Point {
    uint64_t patience;
    double min_t;
  };
  const Point points[] = {{50, 5},  {100, 5}, {200, 5},  {400, 3}, {400, 5},
                          {400, 8}, {800, 5}, {1600, 5}, {3200, 5}};
  std::printf(
      "\n## Trade-off on a bare series\n\n| patience, points | regularity t | confirmed at end | "
      "healthy jobs ever confirmed | false alarms / 1000 job-hours | recall at 0.1 | recall at 0.5 "
      "| median steps to confirmed at 1 MiB a step |\n|---|---|---|---|---|---|---|---|\n");
  for (const Point& point : points) {
    DetectorOptions detector;
    detector.patience_points = point.patience;
    detector.min_t = point.min_t;
    FamilyOptions draw;
    draw.steps = options.steps;
    Tally healthy;
    for (std::string_view family : HealthyFamilies()) {
      const Tally t = RunFamily(options, family, draw, false, detector, false);
      healthy.jobs += t.jobs;
      healthy.at_end += t.at_end;
      healthy.ever += t.ever;
      healthy.alarms += t.alarms;
    }
    std::map<double, Tally> leaks;
    for (const double rate : {0.1, 0.5, 1.0}) {
      draw.rate_mib = rate;
      for (std::string_view family : LeakFamilies()) {
        const Tally t = RunFamily(options, family, draw, false, detector, false);
        leaks[rate].jobs += t.jobs;
        leaks[rate].at_end += t.at_end;
        auto& list = leaks[rate].confirmed_after;
        list.insert(list.end(), t.confirmed_after.begin(), t.confirmed_after.end());
      }
    }
    const double hours = static_cast<double>(healthy.jobs) * static_cast<double>(options.steps) *
                         options.seconds_per_step / 3600;
    std::printf("| %llu | %.0f | %s | %s | %s | %s | %s | %s |\n",
                static_cast<unsigned long long>(point.patience), point.min_t,
                Share(healthy.at_end, healthy.jobs).c_str(),
                Share(healthy.ever, healthy.jobs).c_str(),
                PerThousandHours(healthy.alarms, hours).c_str(),
                Share(leaks[0.1].at_end, leaks[0.1].jobs).c_str(),
                Share(leaks[0.5].at_end, leaks[0.5].jobs).c_str(),
                Median(leaks[1.0].confirmed_after).c_str());
    std::fflush(stdout);
  }
}

int RunCases(const Options& options) {
  std::ifstream in(options.cases);
  const auto cases = nlohmann::json::parse(in, nullptr, false);
  if (!cases.is_array()) {
    std::cerr << "read " << options.cases << ": no JSON array of cases\n";
    return 2;
  }
  std::printf(
      "\n## Labelled cases, %d seeds each\n\n| case | label | right | class | flagged at "
      "(wish) |\n|---|---|---|---|---|\n",
      options.case_seeds);
  uint64_t right = 0;
  uint64_t asked = 0;
  for (const auto& one : cases) {
    if (one["series"].empty()) continue;
    const bool must_leak = !one["suggested_alert_by_sample"].is_null();
    const auto label = one["expected_verdict"].get<std::string>();
    uint64_t good = 0;
    std::vector<double> flagged;
    std::map<std::string, int> classes;
    for (int seed = 0; seed < options.case_seeds; ++seed) {
      std::istringstream csv(CsvOfCase(one, options.seed + static_cast<uint64_t>(seed)));
      const auto analysis = AnalyzeStream(csv, one["id"].get<std::string>());
      if (!analysis.ok()) {
        std::cerr << analysis.error().ToString() << "\n";
        return 2;
      }
      const bool leak = analysis->verdict == FileVerdict::kLeak;
      good += must_leak ? leak : label == "leak" || !leak;
      if (leak && analysis->first_flagged_sample) {
        flagged.push_back(static_cast<double>(*analysis->first_flagged_sample));
      }
      ++classes[std::string(analysis->cause == Cause::kNone ? ToString(analysis->state)
                                                            : ToString(analysis->cause))];
    }
    std::string names;
    for (const auto& [name, count] : classes) names += (names.empty() ? "" : ", ") + name;
    std::printf("| %s %s | %s | %llu of %d | %s | %s (%s) |\n",
                one["id"].get<std::string>().c_str(), one["title"].get<std::string>().c_str(),
                label.c_str(), static_cast<unsigned long long>(good), options.case_seeds,
                names.c_str(), Median(flagged).c_str(),
                must_leak ? one["suggested_alert_by_sample"].dump().c_str() : "-");
    right += good;
    asked += static_cast<uint64_t>(options.case_seeds);
  }
  std::printf("\nRight: %s.\n", Share(right, asked).c_str());
  return 0;
}

}  // namespace
}  // namespace tidemark::detect::evaluate

int main(int argc, char** argv) {
  using namespace tidemark::detect::evaluate;  // NOLINT: the program's own
  Options options;
  CLI::App app("How good is Tidemark's judgement? Prints Markdown tables to standard output.");
  app.add_option("--jobs", options.jobs, "jobs a family")->check(CLI::Range(1, 100000));
  app.add_option("--steps", options.steps, "steps a job")->check(CLI::Range(100, 2000000));
  app.add_option("--seed", options.seed, "seed of all draws");
  app.add_option("--rates", options.rates, "leak rates, MiB a step")->delimiter(',');
  app.add_option("--noise", options.noise, "factors on the noise of each job")->delimiter(',');
  app.add_option("--families", options.families, "only these")->delimiter(',');
  app.add_option("--mode", options.mode, "series, sites or both")
      ->check(CLI::IsMember({"series", "sites", "both", "none"}));
  app.add_option("--cases", options.cases, "judge the labelled cases of this cases.json too");
  app.add_option("--case-seeds", options.case_seeds, "seeds a labelled case");
  app.add_option("--seconds-per-step", options.seconds_per_step, "to turn steps into job-hours");
  app.add_flag("--curve", options.curve, "print the trade-off curve too");
  CLI11_PARSE(app, argc, argv);
  for (const double noise : options.noise) {
    if (options.mode == "series" || options.mode == "both") RunMode(options, false, noise);
    if (options.mode == "sites" || options.mode == "both") RunMode(options, true, noise);
  }
  if (options.curve) RunCurve(options);
  return options.cases.empty() ? 0 : RunCases(options);
}
