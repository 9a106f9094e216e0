#include "daemon/source/agent/symbolizer.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <vector>

#include "base/unique_fd.h"

namespace tidemark {
namespace {

constexpr size_t kMostSymbols = 200'000;
constexpr std::chrono::milliseconds kGather{50};  // so that a module is read once for many frames

// Opens `path` below `root`. A link in there must not lead out of the root, and nothing but a
// regular file is opened: a device or a pipe could do harm by being opened at all.
UniqueFd OpenBelow(const std::filesystem::path& root, const std::string& path) {
  const UniqueFd directory(::open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!directory.valid()) return {};
  open_how how = {};
  how.flags = O_PATH | O_CLOEXEC;
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
  const UniqueFd place(
      static_cast<int>(::syscall(SYS_openat2, directory.get(), path.c_str(), &how, sizeof(how))));
  struct stat status = {};
  if (!place.valid() || ::fstat(place.get(), &status) != 0 || !S_ISREG(status.st_mode)) return {};
  return UniqueFd(
      ::open(("/proc/self/fd/" + std::to_string(place.get())).c_str(), O_RDONLY | O_CLOEXEC));
}

}  // namespace

Symbolizer::Symbolizer(ProcRoot root) : root_(std::move(root)) {}

Symbolizer::~Symbolizer() { Stop(); }

void Symbolizer::Start() {
  thread_ = std::thread([this] { Run(); });
}

void Symbolizer::Stop() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

uint64_t Symbolizer::answered() const {
  std::lock_guard lock(mutex_);
  return answered_;
}

std::shared_ptr<const Symbol> Symbolizer::Find(pid_t pid, const std::string& path,
                                               const std::string& build_id, uint64_t address) {
  const std::string key =
      build_id.empty() ? std::to_string(pid) + ":" + path : "build-id:" + build_id;
  std::lock_guard lock(mutex_);
  if (kept_ >= kMostSymbols && !modules_.contains(key)) return unknown_;
  Module& module = modules_[key];
  module.pid = pid;
  module.path = path;
  module.build_id = build_id;
  const auto known = module.symbols.find(address);
  if (known != module.symbols.end()) return known->second;
  if (kept_ >= kMostSymbols) return unknown_;
  ++kept_;
  module.symbols[address] = nullptr;
  if (module.wanted.empty()) queue_.push_back(key);
  module.wanted.insert(address);
  wake_.notify_all();
  return nullptr;
}

void Symbolizer::Run() {
  ::pthread_setname_np(::pthread_self(), "tidemark-names");
  ::setpriority(PRIO_PROCESS, 0, 10);  // of this thread alone, on Linux
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
    if (stopping_) return;
    wake_.wait_for(lock, kGather, [&] { return stopping_; });
    const std::string key = queue_.front();
    queue_.pop_front();
    Module& module = modules_[key];
    const std::vector<uint64_t> addresses(module.wanted.begin(), module.wanted.end());
    module.wanted.clear();
    const pid_t pid = module.pid;
    const std::string path = module.path;
    const std::string build_id = module.build_id;
    lock.unlock();
    std::vector<Symbol> symbols;
    UniqueFd fd = OpenBelow(root_.Proc(pid) / "root", path);
    // The process is gone: the file at the same place here is the same one when its build id is.
    if (!fd.valid() && !build_id.empty()) fd = OpenBelow("/", path);
    if (fd.valid()) {
      Result<std::vector<Symbol>> read = ReadSymbols(fd.get(), build_id, addresses);
      if (read.ok()) symbols = std::move(read).value();
    }
    lock.lock();
    for (size_t i = 0; i < addresses.size(); ++i) {
      modules_[key].symbols[addresses[i]] =
          i < symbols.size() ? std::make_shared<const Symbol>(std::move(symbols[i])) : unknown_;
    }
    ++answered_;
  }
}

}  // namespace tidemark
