#include "daemon/store/region_store.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "base/unique_fd.h"

namespace tidemark {
namespace {

constexpr size_t kMostWaiting = 64;
constexpr uint64_t kBlockBytes = 4096;

bool AllZero(const char* data, size_t bytes) {
  return std::all_of(data, data + bytes, [](char c) { return c == 0; });
}

}  // namespace

RegionStore::RegionStore(std::filesystem::path directory, uint64_t cap_bytes)
    : directory_(std::move(directory)), cap_bytes_(cap_bytes) {}

RegionStore::~RegionStore() { Stop(); }

Result<void> RegionStore::Start() {
  std::error_code error;
  std::filesystem::create_directories(directory_, error);
  if (error) {
    return Error{"make " + directory_.string(), error.message(),
                 "set state.directory to a folder that can be written"};
  }
  // File paths in stacks are the job owner's business.
  ::chmod(directory_.c_str(), 0700);
  thread_ = std::thread([this] { Run(); });
  return {};
}

void RegionStore::Stop() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void RegionStore::Keep(std::string name, std::unique_ptr<RegionReader> region) {
  if (region == nullptr) return;
  std::lock_guard lock(mutex_);
  if (!thread_.joinable() || waiting_.size() >= kMostWaiting) {
    ++lost_;
    return;
  }
  waiting_.emplace_back(std::move(name), std::move(region));
  wake_.notify_all();
}

uint64_t RegionStore::kept() const {
  std::lock_guard lock(mutex_);
  return kept_;
}

uint64_t RegionStore::lost() const {
  std::lock_guard lock(mutex_);
  return lost_;
}

void RegionStore::Run() {
  ::pthread_setname_np(::pthread_self(), "tidemark-store");
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [&] { return stopping_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    auto [name, region] = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    const bool written = Write(name, *region);
    region.reset();
    Prune();
    lock.lock();
    ++(written ? kept_ : lost_);
  }
}

bool RegionStore::Write(const std::string& name, const RegionReader& region) const {
  const std::filesystem::path path = directory_ / (name + ".region");
  const std::filesystem::path temporary = directory_ / (name + ".partial");
  UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!fd.valid()) return false;
  uint64_t written = 0;
  bool good = ::ftruncate(fd.get(), static_cast<off_t>(region.copy().header.region_bytes)) == 0;
  good = good && region.CopyUsedParts([&](uint64_t offset, const char* data, size_t bytes) {
    for (size_t at = 0; at < bytes; at += kBlockBytes) {
      const size_t part = std::min<size_t>(kBlockBytes, bytes - at);
      if (AllZero(data + at, part)) continue;  // stays a hole
      written += part;
      if (written > cap_bytes_ ||
          ::pwrite(fd.get(), data + at, part, static_cast<off_t>(offset + at)) !=
              static_cast<ssize_t>(part)) {
        return false;
      }
    }
    return true;
  });
  good = good && ::fsync(fd.get()) == 0 && ::rename(temporary.c_str(), path.c_str()) == 0;
  if (!good) ::unlink(temporary.c_str());
  return good;
}

void RegionStore::Prune() const {
  struct File {
    std::filesystem::path path;
    timespec time;
    uint64_t bytes;
  };
  std::vector<File> files;
  uint64_t total = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator it(directory_, error), end; !error && it != end;
       it.increment(error)) {
    struct stat status = {};
    if (it->path().extension() != ".region" || ::stat(it->path().c_str(), &status) != 0) continue;
    files.push_back({it->path(), status.st_mtim, static_cast<uint64_t>(status.st_blocks) * 512});
    total += files.back().bytes;
  }
  std::sort(files.begin(), files.end(), [](const File& a, const File& b) {
    return std::pair(a.time.tv_sec, a.time.tv_nsec) < std::pair(b.time.tv_sec, b.time.tv_nsec);
  });
  for (const File& file : files) {
    if (total <= cap_bytes_) return;
    ::unlink(file.path.c_str());
    total -= file.bytes;
  }
}

}  // namespace tidemark
