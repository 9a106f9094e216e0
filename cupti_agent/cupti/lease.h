// The CUPTI lease. CUPTI (before 13.3) has one subscriber a process, and a profiler that finds the
// slot taken loses its data without a word. So the agent holds CUPTI only as long as nobody else
// wants it:
//
//   none --Take--> held --Yield--> yielding --> yielded         (for good)
//     \--> unavailable: why
//
// Yield runs on the job's thread, inside the import hook on the very call (cuptiSubscribe, ...),
// and returns when CUPTI is as if we had never been there; only then does the job's call proceed.
//
// CUPTI is never entered under a lock of ours. The agent's own thread says that it is inside CUPTI
// by a counter, for which Yield waits a bounded time.
#pragma once

#include <atomic>
#include <cstdint>

#include "cupti_agent/cupti/activity_records.h"
#include "cupti_agent/cupti/cupti_library.h"
#include "cupti_agent/cupti/driver_tap.h"

namespace tidemark::agent {

struct LeaseOptions {
  const char* cuda_home = nullptr;
  // Activity records a second above which they are switched off; 0 = never.
  uint64_t max_records_per_second = 2000;
};

class Lease {
 public:
  // Registers the hooks; before the first ScanForNewModules.
  void AddHooks();

  // Takes CUPTI if nobody else has it and nobody could take it unseen.
  void Take(const LeaseOptions& options);

  // Gives CUPTI up for `who`; nothing when it is not held. Any thread.
  void Yield(const char* who);
  // The same for a detach or a tap switched off; `reason` for the feature rows.
  void GiveUp(const char* reason);

  // From the agent's thread, once a second: fetches records, watches their rate.
  void Tick(double seconds);
  void Flush();
  // From the thread that ends the process: fetches the records since the last tick.
  void FlushAtExit();
  // From the agent's thread after modules were loaded: steps aside for a CUPTI linked into one.
  void CheckModules();

  bool held() const { return state_.load(std::memory_order_acquire) == State::kHeld; }
  // A context has been created since the lease was taken.
  bool context_seen() const { return context_seen_.load(std::memory_order_relaxed); }
  uint64_t ResidentBytes() const { return buffers_.ResidentBytes(); }

 private:
  enum class State : uint8_t { kNone, kHeld, kYielding, kYielded, kUnavailable };

  void Unavailable(const char* reason);
  const char* Subscribe();
  void StartRecords();
  void StopRecords();
  void Leave(wire::FeatureState state, const char* reason);
  void OnModuleLoaded(Ledger* ledger);
  static void OnCallback(void* self, abi::CUpti_CallbackDomain domain, abi::CUpti_CallbackId cbid,
                         const void* data);
  static void OnRequest(uint8_t** buffer, size_t* bytes, size_t* max_records);
  static void OnComplete(abi::CUcontext context, uint32_t stream, uint8_t* buffer, size_t bytes,
                         size_t valid_bytes);

  LeaseOptions options_;
  CuptiLibrary cupti_ = {};
  CudaDriver driver_ = {};
  DriverTap tap_;
  RecordBuffers buffers_;
  abi::CUpti_SubscriberHandle subscriber_ = nullptr;
  std::atomic<State> state_{State::kNone};
  std::atomic<bool> records_on_{false};
  std::atomic<bool> context_seen_{false};
  std::atomic<uint32_t> inside_{0};       // calls into CUPTI by the agent's thread
  std::atomic<uintptr_t> own_thread_{0};  // the thread that is taking or yielding
  std::atomic<uint32_t> modules_loaded_{0};
  std::atomic<uint64_t> modules_told_ns_{0};
  uint64_t seen_work_ = 0;  // records and stream-ordered calls at the last tick
  int fast_ticks_ = 0;
};

extern Lease g_lease;

}  // namespace tidemark::agent
