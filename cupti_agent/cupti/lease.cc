#include "cupti_agent/cupti/lease.h"

#include <dlfcn.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "cupti_agent/cupti/static_cupti.h"
#include "cupti_agent/hooks/import_hooks.h"
#include "cupti_agent/ledger/monotonic.h"

namespace tidemark::agent {

using wire::Feature;
using wire::FeatureState;

Lease g_lease;

// glibc's, as static destructors use it: unlike atexit it names this library.
extern "C" {
int __cxa_atexit(void (*function)(void*), void* argument, void* dso) noexcept;
extern void* __dso_handle __attribute__((visibility("hidden")));
}

namespace {

// A call of one of these means that somebody wants CUPTI for himself.
constexpr const char* kClaims[] = {"cuptiSubscribe", "cuptiSubscribe_v2",
                                   "cuptiActivityRegisterCallbacks", "cuptiFinalize"};
// Single ones: the domain as a whole calls once a kernel launch.
constexpr abi::CUpti_CallbackId kResourceCbids[] = {abi::CUPTI_CBID_RESOURCE_CONTEXT_CREATED,
                                                    abi::CUPTI_CBID_RESOURCE_MODULE_LOADED};
constexpr uint64_t kMostWaitNs = 2'000'000'000;
constexpr uint64_t kMostExitWaitNs = 200'000'000;
constexpr uint64_t kModulesEveryNs = 500'000'000;  // a first step loads hundreds
constexpr int kFastTicks = 2;  // of too many records in a row before they go off

class KeepErrno {
 public:
  KeepErrno() : saved_(errno) {}
  ~KeepErrno() { errno = saved_; }

 private:
  int saved_;
};

// "libtorch_cpu.so", or "the program".
const char* ModuleAt(uint64_t address, Dl_info* info) {
  if (dladdr(reinterpret_cast<void*>(address), info) == 0 || info->dli_fname == nullptr) {
    return "unknown code";
  }
  const char* slash = strrchr(info->dli_fname, '/');
  return slash == nullptr ? info->dli_fname : slash + 1;
}

void OnClaim(const HookCall& call) {
  if (!g_lease.held()) {
    g_lease.Yield("");  // waits for a yield under way on another thread
    return;
  }
  Dl_info info;
  g_lease.Yield(ModuleAt(call.return_address, &info));
}

void OnLookup(const char* name) {
  if (strncmp(name, "cupti", 5) != 0) return;
  for (const char* claim : kClaims) {
    if (strcmp(name, claim) == 0) {
      char who[64];
      snprintf(who, sizeof(who), "a lookup of %s", name);
      return g_lease.Yield(who);
    }
  }
}

void Nap() {
  timespec nap{0, 100'000};
  nanosleep(&nap, nullptr);
}

}  // namespace

void Lease::AddHooks() {
  for (const char* claim : kClaims) AddHook({claim, /*prefix=*/false, OnClaim});
  SetLookupObserver(OnLookup);
}

void Lease::Unavailable(const char* reason) {
  state_.store(State::kUnavailable, std::memory_order_release);
  if (Ledger* ledger = Active()) {
    ledger->SetFeature(Feature::kCuptiCallbacks, FeatureState::kUnavailable, reason);
    ledger->SetFeature(Feature::kCuptiRecords, FeatureState::kUnavailable, reason);
  }
}

void Lease::Take(const LeaseOptions& options) {
  options_ = options;
  char text[112];
  char module[64];
  if (FindStaticCupti(module, sizeof(module))) {
    snprintf(text, sizeof(text), "CUPTI is linked statically into %s", module);
    return Unavailable(text);
  }
  if (const char* failed = cupti_.Load(options.cuda_home)) return Unavailable(failed);
  driver_.Load();
  if (!tap_.Init(&cupti_, &driver_) ||
      !buffers_.Init(cupti_.ActivityGetNextRecord, cupti_.version)) {
    return Unavailable("no memory for tables");
  }
  if (Ledger* ledger = Active()) ledger->SetCuptiVersion(cupti_.version);
  own_thread_ = ThisThread();
  const char* failed = Subscribe();
  own_thread_ = 0;
  if (failed != nullptr) return Unavailable(failed);
  // Handlers run in the reverse order of their registration: this one before CUPTI's own, which
  // were registered when it was loaded and subscribed to.
  __cxa_atexit([](void* lease) { static_cast<Lease*>(lease)->FlushAtExit(); }, this, &__dso_handle);
}

const char* Lease::Subscribe() {
  const abi::CUptiResult result = cupti_.Subscribe(&subscriber_, &Lease::OnCallback, this);
  if (result == abi::CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED ||
      result == abi::CUPTI_ERROR_MAX_LIMIT_REACHED) {
    return "another tool holds CUPTI";
  }
  if (result != abi::CUPTI_SUCCESS) {
    const char* text = nullptr;
    cupti_.GetResultString(result, &text);
    return text == nullptr ? "cuptiSubscribe failed" : text;
  }
  for (const abi::CUpti_CallbackId cbid : DriverTapCbids()) {
    // An older driver does not know the newest ids; it has no such calls either.
    cupti_.EnableCallback(1, subscriber_, abi::CUPTI_CB_DOMAIN_DRIVER_API, cbid);
  }
  for (const abi::CUpti_CallbackId cbid : kResourceCbids) {
    cupti_.EnableCallback(1, subscriber_, abi::CUPTI_CB_DOMAIN_RESOURCE, cbid);
  }
  state_.store(State::kHeld, std::memory_order_release);
  if (Ledger* ledger = Active()) {
    ledger->SetFeature(Feature::kCuptiCallbacks, FeatureState::kOn, "held");
  }
  StartRecords();
  return nullptr;
}

void Lease::StartRecords() {
  Ledger* ledger = Active();
  if (ledger == nullptr) return;
  if (abi::Memory2RecordBytes(cupti_.version) == 0) {
    return ledger->SetFeature(Feature::kCuptiRecords, FeatureState::kUnavailable,
                              "this CUPTI writes no MEMORY2 records");
  }
  if (cupti_.ActivityRegisterCallbacks(&Lease::OnRequest, &Lease::OnComplete) !=
          abi::CUPTI_SUCCESS ||
      cupti_.ActivityEnable(abi::CUPTI_ACTIVITY_KIND_MEMORY2) != abi::CUPTI_SUCCESS) {
    return ledger->SetFeature(Feature::kCuptiRecords, FeatureState::kUnavailable,
                              "CUPTI refuses MEMORY2 records");
  }
  cupti_.ActivityEnable(abi::CUPTI_ACTIVITY_KIND_MEMORY_POOL);  // absent before 11.3
  records_on_ = true;
  ledger->SetFeature(Feature::kCuptiRecords, FeatureState::kOn, "");
}

void Lease::StopRecords() {
  if (!records_on_.exchange(false)) return;
  cupti_.ActivityDisable(abi::CUPTI_ACTIVITY_KIND_MEMORY2);
  cupti_.ActivityDisable(abi::CUPTI_ACTIVITY_KIND_MEMORY_POOL);
  cupti_.ActivityFlushAll(abi::kActivityFlagFlushForced);
}

void Lease::Yield(const char* who) { Leave(FeatureState::kYielded, who); }

void Lease::GiveUp(const char* reason) { Leave(FeatureState::kOff, reason); }

void Lease::Leave(FeatureState to, const char* reason) {
  // CUPTI's own calls of these functions while we take or give it back are not somebody else's.
  if (own_thread_.load(std::memory_order_relaxed) == ThisThread()) return;
  State expected = State::kHeld;
  if (!state_.compare_exchange_strong(expected, State::kYielding)) {
    const uint64_t start = MonotonicNs();
    while (state_.load(std::memory_order_acquire) == State::kYielding &&
           MonotonicNs() - start < kMostWaitNs) {
      Nap();
    }
    return;
  }
  const KeepErrno keep_errno;
  own_thread_ = ThisThread();
  const uint64_t start = MonotonicNs();
  while (inside_.load(std::memory_order_acquire) != 0 && MonotonicNs() - start < kMostWaitNs) Nap();
  StopRecords();
  for (const abi::CUpti_CallbackId cbid : DriverTapCbids()) {
    cupti_.EnableCallback(0, subscriber_, abi::CUPTI_CB_DOMAIN_DRIVER_API, cbid);
  }
  for (const abi::CUpti_CallbackId cbid : kResourceCbids) {
    cupti_.EnableCallback(0, subscriber_, abi::CUPTI_CB_DOMAIN_RESOURCE, cbid);
  }
  cupti_.Unsubscribe(subscriber_);
  own_thread_ = 0;
  state_.store(State::kYielded, std::memory_order_release);
  if (Ledger* ledger = Active()) {
    ledger->SetFeature(Feature::kCuptiCallbacks, to, reason);
    ledger->SetFeature(Feature::kCuptiRecords, to, reason);
    ledger->RecordEvent({.type = wire::EventType::kLeaseChange, .text = reason});
  }
}

void Lease::Flush() {
  inside_.fetch_add(1, std::memory_order_acq_rel);
  if (held() && records_on_) {
    cupti_.ActivityFlushAll(abi::kActivityFlagFlushForced);
    size_t dropped = 0;
    const bool counted =
        cupti_.ActivityGetNumDroppedRecords(nullptr, 0, &dropped) == abi::CUPTI_SUCCESS;
    if (Ledger* ledger = Active()) {
      if (counted && dropped != 0) ledger->CountLoss(wire::Loss::kRecordsDropped, dropped);
      ledger->RecordsFlushed();
    }
  }
  inside_.fetch_sub(1, std::memory_order_acq_rel);
}

// A forked child that exits comes here too: it is not alive, and CUPTI would hang it.
void Lease::FlushAtExit() {
  if (Active() == nullptr || !held()) return;
  const KeepErrno keep_errno;
  const uint64_t start = MonotonicNs();
  while (inside_.load(std::memory_order_acquire) != 0) {
    if (MonotonicNs() - start > kMostExitWaitNs) return;
    Nap();
  }
  Flush();
}

void Lease::Tick(double seconds) {
  if (!held() || !records_on_) return;
  Flush();
  const uint64_t work = buffers_.records() + tap_.stream_ordered_calls();
  const double rate = static_cast<double>(work - seen_work_) / seconds;
  seen_work_ = work;
  const bool fast = options_.max_records_per_second != 0 &&
                    rate > static_cast<double>(options_.max_records_per_second);
  fast_ticks_ = fast ? fast_ticks_ + 1 : 0;
  if (fast_ticks_ < kFastTicks) return;
  inside_.fetch_add(1, std::memory_order_acq_rel);
  if (held()) StopRecords();
  inside_.fetch_sub(1, std::memory_order_acq_rel);
  char text[112];
  snprintf(text, sizeof(text), "rate: %.0f records a second, over %llu", rate,
           static_cast<unsigned long long>(options_.max_records_per_second));
  if (Ledger* ledger = Active()) {
    ledger->SetFeature(Feature::kCuptiRecords, FeatureState::kOff, text);
  }
}

void Lease::CheckModules() {
  char module[64];
  if (!held() || !FindStaticCupti(module, sizeof(module))) return;
  char who[96];
  snprintf(who, sizeof(who), "%s (CUPTI linked statically)", module);
  Yield(who);
}

// Code takes device memory that no call asks for (a kernel's at its first launch): that it was
// loaded gives the rise its name.
void Lease::OnModuleLoaded(Ledger* ledger) {
  const uint32_t loaded = modules_loaded_.fetch_add(1, std::memory_order_relaxed) + 1;
  const uint64_t now = MonotonicNs();
  uint64_t last = modules_told_ns_.load(std::memory_order_relaxed);
  if (last != 0 && now - last < kModulesEveryNs) return;
  if (!modules_told_ns_.compare_exchange_strong(last, now)) return;
  ledger->RecordEvent({.type = wire::EventType::kModuleLoaded,
                       .code = static_cast<int32_t>(loaded),
                       .text = "modules loaded so far"});
}

void Lease::OnCallback(void* self, abi::CUpti_CallbackDomain domain, abi::CUpti_CallbackId cbid,
                       const void* data) {
  Ledger* ledger = Active();
  if (ledger == nullptr || data == nullptr) return;
  const KeepErrno keep_errno;
  auto* lease = static_cast<Lease*>(self);
  if (domain == abi::CUPTI_CB_DOMAIN_DRIVER_API) {
    lease->tap_.OnCallback(ledger, cbid, *static_cast<const abi::CUpti_CallbackData*>(data));
  } else if (domain == abi::CUPTI_CB_DOMAIN_RESOURCE &&
             cbid == abi::CUPTI_CBID_RESOURCE_MODULE_LOADED) {
    lease->OnModuleLoaded(ledger);
  } else if (domain == abi::CUPTI_CB_DOMAIN_RESOURCE) {
    lease->context_seen_.store(true, std::memory_order_relaxed);
  }
}

void Lease::OnRequest(uint8_t** buffer, size_t* bytes, size_t* max_records) {
  g_lease.buffers_.Request(buffer, bytes);
  *max_records = 0;
}

void Lease::OnComplete(abi::CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid_bytes) {
  const KeepErrno keep_errno;
  g_lease.buffers_.Complete(Active(), buffer, valid_bytes);
}

}  // namespace tidemark::agent
