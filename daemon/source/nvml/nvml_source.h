// The devices' own word: what each process occupies on each device, by NVML.
//
// NVML takes locks that the job's driver calls take too, and may be slow: it is called on a thread
// of its own, at most once for each Request, and Request comes at most once a second. Whoever asks
// reads its other witnesses when the answer is there (event_fd), so that both are of one moment.
//
// Threads: Start, Request and Stop belong to one thread; Release, Resume and Latest may be called
// from any.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "daemon/snapshot/node_snapshot.h"
#include "daemon/source/nvml/nvml_library.h"

namespace tidemark {

struct NvmlDevice {
  DeviceView view;
  bool processes_known = false;
  std::string why;                                   // of !processes_known
  std::vector<std::pair<pid_t, int64_t>> processes;  // the driver's pids; -1 bytes = not told
};

struct NvmlSample {
  FeatureView state;  // "nvml"
  uint64_t begin_monotonic_ns = 0;
  uint64_t end_monotonic_ns = 0;
  std::vector<NvmlDevice> devices;
};

class NvmlSource {
 public:
  explicit NvmlSource(std::string library = "libnvidia-ml.so.1");
  ~NvmlSource();
  NvmlSource(const NvmlSource&) = delete;
  NvmlSource& operator=(const NvmlSource&) = delete;

  Result<void> Start();
  void Stop();

  void Request();
  // Readable when an answer came; DrainEvent makes it quiet again.
  int event_fd() const { return event_.get(); }
  void DrainEvent();
  std::shared_ptr<const NvmlSample> Latest() const;

  // Closes NVML and with it every device file; waits until it is done, at most a second. While
  // released, answers hold no devices.
  Result<void> Release();
  void Resume();

 private:
  void Run();
  std::shared_ptr<const NvmlSample> Sample();
  void SampleDevice(unsigned index, NvmlDevice* device) const;

  const std::string library_name_;
  UniqueFd event_;
  std::thread thread_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  bool requested_ = false;
  bool release_wanted_ = false;
  bool open_ = false;  // the library is loaded
  std::shared_ptr<const NvmlSample> latest_;

  // The thread's own.
  std::unique_ptr<NvmlLibrary> library_;
  std::string load_error_;
  int answers_until_retry_ = 0;
};

}  // namespace tidemark
