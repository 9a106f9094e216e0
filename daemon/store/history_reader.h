// Questions to the past: what QueryRange, Diff and Export read from the history's file.
//
// Thread-safe: each call opens a connection of its own, so that a file that was set aside or
// replaced is met by the next call. Requests are untrusted; so is what the file holds.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "daemon/snapshot/node_snapshot.h"
#include "daemon/store/history_block.h"

namespace tidemark::v1 {
class QueryRangeRequest;
class QueryRangeResponse;
}  // namespace tidemark::v1

namespace tidemark {

enum class QueryCode : uint8_t {
  kOk,
  kInvalid,      // the request cannot be meant
  kNotFound,     // it selects nothing
  kUnavailable,  // there is no history to ask
  kDeadline,     // it took too long
  kTooLarge,     // the answer would be larger than can be sent
};

struct QueryStatus {
  QueryCode code = QueryCode::kOk;
  std::string message = {};
  bool ok() const { return code == QueryCode::kOk; }
};

// Who asks, and for how long it may take.
struct QueryContext {
  std::function<bool(uid_t)> visible;  // processes of other users are left out without a trace
  std::chrono::steady_clock::time_point deadline;
  uint64_t now_unix_ns = 0;
};

class HistoryReader {
 public:
  static constexpr int kDefaultPoints = 600;
  static constexpr int kMostPoints = 10'000;
  static constexpr int kDefaultPage = 100;
  static constexpr int kMostSeries = 1'000;  // of a page
  static constexpr int kMostPointsOfPage = 1'000'000;
  static constexpr int kMostMarks = 5'000;

  // Who writes the file, where somebody does.
  struct Writer {
    std::function<void()> on_damage;  // the file contradicts itself
    // Write what waits, and come back when it is written or the time has come.
    std::function<void(std::chrono::steady_clock::time_point)> flush;
  };
  explicit HistoryReader(std::filesystem::path path)
      : HistoryReader(std::move(path), {[] {}, [](auto) {}}) {}
  HistoryReader(std::filesystem::path path, Writer writer)
      : path_(std::move(path)), writer_(std::move(writer)) {}

  QueryStatus QueryRange(const v1::QueryRangeRequest& request, const QueryContext& context,
                         v1::QueryRangeResponse* out) const;

  // Bytes of the process's sites, by key, at the latest sample that is not newer than `unix_ns`;
  // only the largest 64 of that moment are known. kNotFound when there is none within 10 minutes
  // before.
  struct SitesThen {
    uint64_t unix_ns = 0;
    std::map<SeriesKey, int64_t> sites;
    std::map<SeriesKey, int64_t> classes;
  };
  QueryStatus At(const ProcessKey& process, uint64_t unix_ns, const QueryContext& context,
                 SitesThen* out) const;

 private:
  const std::filesystem::path path_;
  const Writer writer_;
};

}  // namespace tidemark
