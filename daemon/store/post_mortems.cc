#include "daemon/store/post_mortems.h"

#include <fcntl.h>
#include <pthread.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "daemon/store/post_mortem.h"
#include "daemon/store/recent_bytes.h"
#include "tidemark/v1/tidemark.pb.h"

namespace tidemark {
namespace {

constexpr uint64_t kMostFileBytes = 16u << 20;
// A job may catch its failed allocations and go on failing.
constexpr uint64_t kAgainAfterNs = 60'000'000'000;

Error WhyNot(const std::string& what) { return {what, std::strerror(errno), ""}; }

// Seen by everybody once this returns; the file is still to be flushed.
Result<UniqueFd> WriteFile(const std::filesystem::path& path, const std::string& bytes) {
  const std::string partial = path.string() + ".partial";
  UniqueFd fd(::open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!fd.valid()) return WhyNot("write a post-mortem");
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::write(fd.get(), bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      const Error error = WhyNot("write a post-mortem");
      ::unlink(partial.c_str());
      return error;
    }
    done += static_cast<size_t>(n);
  }
  if (::rename(partial.c_str(), path.c_str()) == 0) return fd;
  const Error error = WhyNot("write a post-mortem");
  ::unlink(partial.c_str());
  return error;
}

bool ReadMessage(const std::filesystem::path& path, v1::Postmortem* out) {
  std::error_code error;
  const uint64_t bytes = std::filesystem::file_size(path, error);
  if (error || bytes > kMostFileBytes) return false;
  std::ifstream file(path, std::ios::binary);
  return file && out->ParseFromIstream(&file);
}

}  // namespace

class PostMortems::Writer {
 public:
  explicit Writer(PostMortemOptions options) : options_(std::move(options)) {}

  void Offer(std::shared_ptr<const NodeSnapshot> snapshot) {
    std::lock_guard lock(mutex_);
    if (stopping_) return;
    if (waiting_.size() >= kMostWaiting) {
      // Ended processes stand in later snapshots too: only the course of the minutes suffers.
      waiting_.pop_front();
    }
    waiting_.push_back(std::move(snapshot));
    wake_.notify_all();
  }

  void Run() {
    ::pthread_setname_np(::pthread_self(), "tidemark-death");
    LoadIndex();
    WriteLeftOver();
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
      const auto snapshots = std::exchange(waiting_, {});
      const bool stopping = stopping_;
      lock.unlock();
      for (const auto& snapshot : snapshots) {
        recent_.Absorb(*snapshot);
        Look(*snapshot);
      }
      lock.lock();
      if (stopping && waiting_.empty()) break;
    }
    done_ = true;
    wake_.notify_all();
  }

  bool StopWithin(std::chrono::seconds patience) {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    wake_.notify_all();
    return wake_.wait_for(lock, patience, [this] { return done_; });
  }

  PostMortemState state() const {
    std::lock_guard lock(mutex_);
    return state_;
  }

  void List(const Sees& sees, v1::ListPostmortemsResponse* out) const {
    std::lock_guard lock(mutex_);
    std::vector<const Entry*> order;
    for (const auto& [id, entry] : index_) {
      if (sees(entry.uid)) order.push_back(&entry);
    }
    std::ranges::stable_sort(order, [](const Entry* a, const Entry* b) {
      return a->summary.unix_ns() > b->summary.unix_ns();
    });
    for (const Entry* entry : order) *out->add_postmortems() = entry->summary;
  }

  Result<void> Get(const std::string& id, const Sees& sees, v1::Postmortem* out) const {
    const std::string tried = "read post-mortem " + id;
    {
      std::lock_guard lock(mutex_);
      const auto entry = index_.find(id);
      if (entry == index_.end() || !sees(entry->second.uid)) {
        return Error{tried, "there is none of that id here", "`tidemark postmortem` lists them"};
      }
    }
    if (ReadMessage(PathOf(id), out)) return {};
    return Error{tried, "its file cannot be read any more", ""};
  }

 private:
  struct Entry {
    v1::PostmortemSummary summary;
    uid_t uid = 0;
    uint64_t bytes = 0;
  };
  // What has been written of a process.
  struct Written {
    std::string how;
    uint64_t failing_call_unix_ns = 0;
    uint64_t tried_unix_ns = 0;  // 0 = it was written
  };

  std::filesystem::path PathOf(const std::string& id) const {
    return options_.directory / (id + ".pb");
  }

  void LoadIndex() {
    std::error_code error;
    std::filesystem::create_directories(options_.directory, error);
    // File paths in stacks are the job owner's business.
    ::chmod(options_.directory.c_str(), 0700);
    std::map<std::string, Entry> found;
    for (std::filesystem::directory_iterator it(options_.directory, error), end;
         !error && it != end; it.increment(error)) {
      if (it->path().extension() != ".pb") continue;
      v1::Postmortem message;
      const std::string id = it->path().stem();
      if (!ReadMessage(it->path(), &message) || message.summary().id() != id) continue;
      std::error_code ignored;
      found[id] = {message.summary(), message.process().identity().uid(),
                   std::filesystem::file_size(it->path(), ignored)};
    }
    std::lock_guard lock(mutex_);
    index_ = std::move(found);
  }

  void WriteLeftOver() {
    if (!options_.left_over) return;
    for (const NodeSnapshot& snapshot : options_.left_over()) {
      for (const ProcessSnapshot& process : snapshot.processes) {
        if (CauseOf(process).empty() || Has(PostMortemId(process.key))) continue;
        Write(snapshot, process);
      }
    }
  }

  bool Has(const std::string& id) const {
    std::lock_guard lock(mutex_);
    return index_.contains(id);
  }

  void Look(const NodeSnapshot& snapshot) {
    std::set<std::string> here;
    for (const ProcessSnapshot& process : snapshot.processes) {
      const std::string id = PostMortemId(process.key);
      const auto before = written_.find(id);
      const bool known = before != written_.end();
      if (known) here.insert(id);
      const EventView* call = FailingCall(process);
      const uint64_t call_ns = call != nullptr ? call->unix_ns : 0;
      if (known && before->second.tried_unix_ns > 0 &&
          snapshot.unix_ns - before->second.tried_unix_ns < kAgainAfterNs) {
        continue;
      }
      if (known && before->second.tried_unix_ns == 0) {
        const bool ended = before->second.how != process.exit_reason;
        if (ended && (call_ns == 0 || call_ns == before->second.failing_call_unix_ns) &&
            before->second.failing_call_unix_ns > 0) {
          // What it held when it failed says more than what its end left.
          TellEnd(process, id);
          written_[id].how = process.exit_reason;
          continue;
        }
        const bool fails_on = call_ns > before->second.failing_call_unix_ns + kAgainAfterNs;
        if (!ended && !fails_on) continue;
      }
      if (CauseOf(process).empty()) continue;
      const bool good = Write(snapshot, process);
      written_[id] = {process.exit_reason, call_ns, good ? 0 : snapshot.unix_ns};
      here.insert(id);
    }
    std::erase_if(written_, [&](const auto& entry) { return !here.contains(entry.first); });
  }

  bool Write(const NodeSnapshot& snapshot, const ProcessSnapshot& process) {
    v1::Postmortem message;
    MakePostMortem(snapshot, process, recent_, &message);
    if (!Keep(message, process.identity.uid)) return false;
    spdlog::info("post-mortem {} of pid {}: {}; {}", message.summary().id(), process.key.pid,
                 process.exit_reason.empty() ? "an allocation failed" : process.exit_reason,
                 message.summary().biggest_grower());
    std::lock_guard lock(mutex_);
    // Once stopping, whoever wanted to know may be gone.
    if (options_.written && !stopping_) {
      options_.written(process.key, snapshot.unix_ns, message.summary().id());
    }
    return true;
  }

  void TellEnd(const ProcessSnapshot& process, const std::string& id) {
    v1::Postmortem message;
    if (!ReadMessage(PathOf(id), &message)) return;
    message.mutable_summary()->set_how(process.exit_reason);
    if (CauseOf(process) == "oom_killer") message.mutable_summary()->set_cause("oom_killer");
    message.mutable_process()->set_exit_reason(process.exit_reason);
    message.mutable_process()->set_liveness(process.liveness == Liveness::kKilled   ? "killed"
                                            : process.liveness == Liveness::kExited ? "exited"
                                                                                    : "alive");
    Keep(message, process.identity.uid);
  }

  bool Keep(const v1::Postmortem& message, uid_t uid) {
    const std::string bytes = message.SerializeAsString();
    std::error_code ignored;
    std::filesystem::create_directories(options_.directory, ignored);  // somebody may clean up
    const std::string& id = message.summary().id();
    const Result<UniqueFd> written =
        bytes.size() <= kMostFileBytes
            ? WriteFile(PathOf(id), bytes)
            : Result<UniqueFd>(Error{"write a post-mortem", "it is too large", ""});
    std::vector<std::string> old;
    {
      std::lock_guard lock(mutex_);
      if (!written.ok()) {
        if (state_.reason.empty()) {
          spdlog::warn("a post-mortem is lost: {}", written.error().ToString());
        }
        state_.reason = written.error().why;
        ++state_.lost;
        return false;
      }
      state_.reason.clear();
      ++state_.written;
      index_[id] = {message.summary(), uid, bytes.size()};
      old = TakeOldest();
    }
    for (const std::string& name : old) ::unlink(PathOf(name).c_str());
    // Against a crash of the machine only, and a slow disk may take seconds: after everything else.
    ::fsync(written->get());
    return true;
  }

  // Under mutex_: what is too much, oldest first. The latest stays, however large.
  std::vector<std::string> TakeOldest() {
    std::vector<std::string> old;
    uint64_t total = 0;
    for (const auto& [id, entry] : index_) total += entry.bytes;
    while (index_.size() > 1 &&
           (index_.size() > options_.most_files || total > options_.cap_bytes)) {
      const auto oldest = std::ranges::min_element(
          index_, {}, [](const auto& entry) { return entry.second.summary.unix_ns(); });
      total -= oldest->second.bytes;
      old.push_back(oldest->first);
      index_.erase(oldest);
    }
    return old;
  }

  const PostMortemOptions options_;
  RecentBytes recent_;                      // the thread's
  std::map<std::string, Written> written_;  // the thread's: of processes in the latest snapshot

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::shared_ptr<const NodeSnapshot>> waiting_;
  std::map<std::string, Entry> index_;  // of the files, by id
  PostMortemState state_;
  bool stopping_ = false;
  bool done_ = false;
};

PostMortems::PostMortems(PostMortemOptions options)
    : writer_(std::make_shared<Writer>(std::move(options))) {
  std::thread([writer = writer_] { writer->Run(); }).detach();
}

PostMortems::~PostMortems() { Stop(); }

void PostMortems::Offer(std::shared_ptr<const NodeSnapshot> snapshot) {
  writer_->Offer(std::move(snapshot));
}

void PostMortems::Stop() {
  if (!writer_->StopWithin(std::chrono::seconds(2))) {
    spdlog::warn("the disk of the post-mortems does not answer: the last ones are lost");
  }
}

PostMortemState PostMortems::state() const { return writer_->state(); }

void PostMortems::List(const Sees& sees, v1::ListPostmortemsResponse* out) const {
  writer_->List(sees, out);
}

Result<void> PostMortems::Get(const std::string& id, const Sees& sees, v1::Postmortem* out) const {
  return writer_->Get(id, sees, out);
}

}  // namespace tidemark
