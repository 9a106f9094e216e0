#include "daemon/store/history.h"

#include <pthread.h>
#include <spdlog/spdlog.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/store/history_database.h"
#include "daemon/store/history_sampler.h"
#include "tidemark/v1/tidemark.pb.h"

namespace tidemark {

using std::chrono::steady_clock;

class History::Writer {
 public:
  explicit Writer(HistoryOptions options)
      : options_(std::move(options)),
        database_(options_.directory / "history.db", options_.cap_bytes),
        sampler_([this](const ProcessKey& key) { return database_.KnownOf(key); }) {}

  void Offer(std::shared_ptr<const NodeSnapshot> snapshot) {
    {
      std::lock_guard lock(mutex_);
      if (stopping_) return;
      if (waiting_.size() >= kMostWaiting) {
        waiting_.pop_front();
        ++state_.lost_snapshots;
      }
      waiting_.push_back(std::move(snapshot));
    }
    wake_.notify_all();
  }

  void Note(const ProcessKey& key, HistoryMarkRow mark) {
    std::lock_guard lock(mutex_);
    if (notes_.size() < kMostWaiting) notes_.emplace_back(key, std::move(mark));
  }

  HistoryState state() const {
    std::lock_guard lock(mutex_);
    return state_;
  }

  void FlushNow(steady_clock::time_point deadline) {
    std::unique_lock lock(mutex_);
    if (stopping_) return;
    // The flush under way may have begun before the latest snapshot came: the next one counts.
    const uint64_t wanted = flushes_begun_ + 1;
    flush_wanted_ = true;
    wake_.notify_all();
    wake_.wait_until(lock, std::min(deadline, steady_clock::now() + std::chrono::seconds(1)),
                     [&] { return flushes_done_ >= wanted || done_; });
  }

  void SuspectDamage() {
    std::lock_guard lock(mutex_);
    suspected_ = true;
  }

  std::filesystem::path path() const { return options_.directory / "history.db"; }

  void Run() {
    ::pthread_setname_np(::pthread_self(), "history");
    Open();
    auto flush_at = steady_clock::now() + kFlushEvery;
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait_until(lock, flush_at,
                       [this] { return stopping_ || flush_wanted_ || !waiting_.empty(); });
      const bool stopping = stopping_;
      const bool wanted = std::exchange(flush_wanted_, false);
      const bool flush = stopping || wanted || steady_clock::now() >= flush_at;
      if (flush) ++flushes_begun_;
      const auto snapshots = std::exchange(waiting_, {});
      const auto notes = std::exchange(notes_, {});
      lock.unlock();
      for (const auto& snapshot : snapshots) {
        sampler_.Absorb(*snapshot);
        now_ms_ = snapshot->unix_ns / 1'000'000;
      }
      for (const auto& [key, mark] : notes) sampler_.Note(key, mark);
      if (flush) {
        Flush();
        flush_at = steady_clock::now() + kFlushEvery;
      }
      lock.lock();
      if (flush) {
        flushes_done_ = flushes_begun_;
        wake_.notify_all();
      }
      if (stopping) break;
    }
    done_ = true;
    lock.unlock();
    wake_.notify_all();
  }

  // Whether the thread has finished.
  bool StopWithin(std::chrono::seconds patience) {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    wake_.notify_all();
    return wake_.wait_for(lock, patience, [this] { return done_; });
  }

 private:
  void Open() {
    const uint64_t aside = database_.set_aside();
    const int64_t before = database_.file_id();
    const Result<void> opened = database_.Open();
    if (database_.file_id() != before) sampler_.Forget();
    if (database_.set_aside() != aside) {
      spdlog::warn("the history is begun anew: {}", database_.why_set_aside());
    }
    {
      std::lock_guard lock(mutex_);
      ++state_.generation;
      suspected_ = false;
    }
    Tell(opened);
  }

  void Flush() {
    bool suspected = false;
    {
      std::lock_guard lock(mutex_);
      suspected = suspected_;
    }
    if (suspected || database_.WantsOpen()) Open();
    if (!database_.is_open() || now_ms_ == 0) return;
    Result<void> written = database_.Write(&sampler_, now_ms_);
    if (!written.ok() && database_.WantsOpen()) {
      Open();
      if (database_.is_open()) written = database_.Write(&sampler_, now_ms_);
    }
    Tell(written);
  }

  void Tell(const Result<void>& result) {
    const uint64_t bytes = database_.BytesOnDisk();
    std::lock_guard lock(mutex_);
    if (result.ok() && !state_.works && state_.failed_writes > 0) {
      spdlog::info("history is kept again");
    } else if (!result.ok() && (state_.works || state_.failed_writes == 0)) {
      spdlog::warn("no history is kept for now: {}", result.error().ToString());
    }
    state_.works = result.ok();
    // Without the path: it is a label of a metric, and those name no directories.
    state_.reason = result.ok() ? "" : result.error().why;
    if (!result.ok() && !result.error().hint.empty()) state_.reason += "; " + result.error().hint;
    state_.failed_writes += result.ok() ? 0 : 1;
    state_.lost_rows = sampler_.lost_rows();
    state_.set_aside = database_.set_aside();
    state_.bytes_on_disk = bytes;
  }

  const HistoryOptions options_;
  HistoryDatabase database_;  // the thread's
  HistorySampler sampler_;    // the thread's
  uint64_t now_ms_ = 0;       // the thread's: of the latest snapshot

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::shared_ptr<const NodeSnapshot>> waiting_;
  std::vector<std::pair<ProcessKey, HistoryMarkRow>> notes_;
  HistoryState state_;
  uint64_t flushes_begun_ = 0;
  uint64_t flushes_done_ = 0;
  bool flush_wanted_ = false;
  bool suspected_ = false;
  bool stopping_ = false;
  bool done_ = false;
};

History::History(HistoryOptions options) : writer_(std::make_shared<Writer>(std::move(options))) {
  std::thread([writer = writer_] { writer->Run(); }).detach();
}

History::~History() { Stop(); }

void History::Offer(std::shared_ptr<const NodeSnapshot> snapshot) {
  writer_->Offer(std::move(snapshot));
}

void History::NotePostMortem(const ProcessKey& key, uint64_t unix_ns, std::string name) {
  v1::HistoryMark message;
  message.set_kind("post_mortem");
  message.set_start_unix_ns(unix_ns);
  message.set_text(name);
  writer_->Note(key, {"post_mortem", name, unix_ns / 1'000'000, 0, message.SerializeAsString()});
}

void History::Flush(std::chrono::steady_clock::time_point deadline) { writer_->FlushNow(deadline); }

HistoryState History::state() const { return writer_->state(); }
void History::SuspectDamage() { writer_->SuspectDamage(); }
std::filesystem::path History::path() const { return writer_->path(); }

void History::Stop() {
  if (!writer_->StopWithin(std::chrono::seconds(2))) {
    spdlog::warn("the history's disk does not answer: its last seconds are lost");
  }
}

}  // namespace tidemark
