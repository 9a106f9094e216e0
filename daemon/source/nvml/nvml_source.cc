#include "daemon/source/nvml/nvml_source.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

namespace tidemark {
namespace {

constexpr int kAnswersUntilRetry = 30;  // a driver may be loaded later
constexpr unsigned kMostDevices = 256;

uint64_t MonotonicNs() {
  timespec now = {};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000ull + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace

NvmlSource::NvmlSource(std::string library) : library_name_(std::move(library)) {}

NvmlSource::~NvmlSource() { Stop(); }

Result<void> NvmlSource::Start() {
  event_.Reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event_.valid()) return Error{"make an eventfd for NVML", std::strerror(errno), ""};
  thread_ = std::thread([this] { Run(); });
  return {};
}

void NvmlSource::Stop() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void NvmlSource::Request() {
  {
    std::lock_guard lock(mutex_);
    requested_ = true;
  }
  changed_.notify_all();
}

void NvmlSource::DrainEvent() {
  uint64_t count = 0;
  (void)!::read(event_.get(), &count, sizeof(count));
}

std::shared_ptr<const NvmlSample> NvmlSource::Latest() const {
  std::lock_guard lock(mutex_);
  return latest_;
}

Result<void> NvmlSource::Release() {
  std::unique_lock lock(mutex_);
  release_wanted_ = true;
  changed_.notify_all();
  if (changed_.wait_for(lock, std::chrono::seconds(1), [&] { return !open_; })) return {};
  return Error{"close NVML", "a call into the driver has not come back yet",
               "it will be closed as soon as it does; check with lsof /dev/nvidia*"};
}

void NvmlSource::Resume() {
  {
    std::lock_guard lock(mutex_);
    release_wanted_ = false;
  }
  changed_.notify_all();
}

void NvmlSource::Run() {
  ::pthread_setname_np(::pthread_self(), "tidemark-nvml");
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    changed_.wait(lock, [&] { return stopping_ || requested_ || (release_wanted_ && open_); });
    if (stopping_) break;
    const bool release = release_wanted_;
    const bool answer = requested_;
    requested_ = false;
    lock.unlock();
    if (release) {
      library_.reset();
      answers_until_retry_ = 0;
    }
    std::shared_ptr<const NvmlSample> sample;
    if (release) {
      auto released = std::make_shared<NvmlSample>();
      released->state = {"nvml", "off", "released: `tidemark release-gpu --resume` opens it again"};
      sample = std::move(released);
    } else {
      sample = Sample();
    }
    lock.lock();
    open_ = library_ != nullptr;
    latest_ = std::move(sample);
    changed_.notify_all();
    if (answer) {
      const uint64_t one = 1;
      (void)!::write(event_.get(), &one, sizeof(one));
    }
  }
  lock.unlock();
  library_.reset();
}

std::shared_ptr<const NvmlSample> NvmlSource::Sample() {
  auto sample = std::make_shared<NvmlSample>();
  if (library_ == nullptr && answers_until_retry_-- <= 0) {
    answers_until_retry_ = kAnswersUntilRetry;
    Result<std::unique_ptr<NvmlLibrary>> loaded = NvmlLibrary::Load(library_name_);
    if (loaded.ok()) {
      library_ = std::move(loaded).value();
    } else {
      load_error_ = loaded.error().ToString();
    }
  }
  if (library_ == nullptr) {
    sample->state = {"nvml", "unavailable", load_error_};
    return sample;
  }
  sample->begin_monotonic_ns = MonotonicNs();
  unsigned count = 0;
  const abi::nvmlReturn_t code = library_->device_count(&count);
  if (code != abi::NVML_SUCCESS) {
    // A driver that was unloaded under us: begin anew next time.
    sample->state = {"nvml", "unavailable", "count devices: " + library_->ErrorText(code)};
    library_.reset();
    answers_until_retry_ = 1;
    return sample;
  }
  sample->devices.resize(std::min(count, kMostDevices));
  for (unsigned i = 0; i < sample->devices.size(); ++i) SampleDevice(i, &sample->devices[i]);
  sample->end_monotonic_ns = MonotonicNs();
  sample->state = {"nvml", "on", ""};
  if (library_->processes == nullptr) {
    sample->state.reason = "this driver tells no figures by process: device-wide figures only";
  }
  return sample;
}

void NvmlSource::SampleDevice(unsigned index, NvmlDevice* device) const {
  device->view.index = static_cast<int>(index);
  abi::nvmlDevice_t handle = nullptr;
  const abi::nvmlReturn_t opened = library_->device_by_index(index, &handle);
  if (opened != abi::NVML_SUCCESS) {
    device->why = "open device: " + library_->ErrorText(opened);
    return;
  }
  char text[abi::kNvmlDeviceUuidBufferBytes] = {};
  if (library_->uuid != nullptr &&
      library_->uuid(handle, text, sizeof(text)) == abi::NVML_SUCCESS) {
    device->view.uuid.assign(text, ::strnlen(text, sizeof(text)));
  }
  if (library_->name != nullptr &&
      library_->name(handle, text, sizeof(text)) == abi::NVML_SUCCESS) {
    device->view.name.assign(text, ::strnlen(text, sizeof(text)));
  }
  unsigned current = abi::kNvmlDeviceMigDisable;
  unsigned pending = 0;
  if (library_->mig_mode != nullptr &&
      library_->mig_mode(handle, &current, &pending) == abi::NVML_SUCCESS) {
    device->view.mig = current == abi::kNvmlDeviceMigEnable;
  }
  abi::nvmlMemory_v2_t memory_v2 = {};
  memory_v2.version = abi::kNvmlMemoryV2;
  abi::nvmlMemory_t memory = {};
  if (library_->memory_info_v2 != nullptr &&
      library_->memory_info_v2(handle, &memory_v2) == abi::NVML_SUCCESS) {
    device->view.total_bytes = static_cast<int64_t>(memory_v2.total);
    device->view.used_bytes = static_cast<int64_t>(memory_v2.used);
    device->view.reserved_bytes = static_cast<int64_t>(memory_v2.reserved);
  } else if (library_->memory_info != nullptr &&
             library_->memory_info(handle, &memory) == abi::NVML_SUCCESS) {
    device->view.total_bytes = static_cast<int64_t>(memory.total);
    device->view.used_bytes = static_cast<int64_t>(memory.used);
  }
  if (library_->processes == nullptr) {
    device->why = "this driver tells no figures by process";
    return;
  }
  std::vector<abi::nvmlProcessInfo_t> rows(64);
  auto filled = static_cast<unsigned>(rows.size());
  abi::nvmlReturn_t code = library_->processes(handle, &filled, rows.data());
  // More may start between two calls: ask for some more than it said.
  for (int attempt = 0; attempt < 3 && code == abi::NVML_ERROR_INSUFFICIENT_SIZE; ++attempt) {
    rows.resize(std::min<size_t>(filled + 64, 65536));
    filled = static_cast<unsigned>(rows.size());
    code = library_->processes(handle, &filled, rows.data());
  }
  if (code != abi::NVML_SUCCESS) {
    device->why = "list processes: " + library_->ErrorText(code);
    return;
  }
  device->processes_known = true;
  rows.resize(std::min<size_t>(filled, rows.size()));
  for (const abi::nvmlProcessInfo_t& row : rows) {
    const bool told = row.usedGpuMemory != abi::kNvmlValueNotAvailable;
    device->processes.emplace_back(static_cast<pid_t>(row.pid),
                                   told ? static_cast<int64_t>(row.usedGpuMemory) : -1);
  }
}

}  // namespace tidemark
