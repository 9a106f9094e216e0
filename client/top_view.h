// What `tidemark top` shows, and what its keys do, without a terminal: the latest snapshot, a short
// history for the trends, and where the reader is. One thread. Text that came from a job is made
// printable here.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "client/site_view.h"
#include "tidemark/v1/tidemark.pb.h"

namespace tidemark::client {

enum class Look { kPlain, kTitle, kHeader, kSelected, kFaint, kLeak, kWarning };

struct TopLine {
  std::string text;
  Look look = Look::kPlain;
};

enum class TopKey { kUp, kDown, kPageUp, kPageDown, kEnter, kBack, kSort, kReverse, kJob, kMoment };

class TopView {
 public:
  static constexpr size_t kTrend = 20;  // snapshots, and columns

  // `unicode`: the terminal can draw blocks.
  explicit TopView(bool unicode) : unicode_(unicode) {}

  void Take(v1::Snapshot snapshot);
  // Says above everything that the figures are old, and why; empty: they are not.
  void SetTrouble(std::string why) { trouble_ = std::move(why); }
  void Press(TopKey key);

  // Exactly `rows` lines or fewer, none wider than `columns`.
  std::vector<TopLine> Lines(size_t rows, size_t columns) const;

 private:
  enum class Page { kProcesses, kSites, kFrames };
  enum class Sort { kRank, kGpu, kFigure, kHost, kPinned, kStep, kGrowth };
  static constexpr int kSorts = 7;

  std::vector<const v1::Process*> Shown() const;
  const v1::Process* Chosen() const;
  std::vector<SiteRow> Sites() const;
  size_t& Cursor();
  size_t Count() const;
  double Growth(const v1::Process& process) const;
  std::string Trend(const v1::Process& process) const;

  void AddProcesses(std::vector<TopLine>& lines, size_t rows) const;
  void AddSites(std::vector<TopLine>& lines, size_t rows) const;
  void AddFrames(std::vector<TopLine>& lines, size_t rows) const;

  const bool unicode_;
  v1::Snapshot snapshot_;
  bool received_ = false;
  std::string trouble_;
  std::map<int32_t, std::deque<int64_t>> trends_;  // by pid: GPU bytes

  Page page_ = Page::kProcesses;
  Sort sort_ = Sort::kRank;
  bool reversed_ = false;
  std::string job_;   // empty = every job
  At at_ = At::kNow;  // of sites
  int32_t chosen_pid_ = 0;
  uint64_t chosen_site_ = 0;
  size_t process_cursor_ = 0;
  size_t site_cursor_ = 0;
  size_t frame_cursor_ = 0;
};

}  // namespace tidemark::client
