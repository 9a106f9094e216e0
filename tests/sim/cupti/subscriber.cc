// The callback half: one subscriber a process, callbacks enabled id by id.
#include <dlfcn.h>
#include <pthread.h>
#include <time.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>

#pragma GCC visibility push(default)
#include "tests/sim/cupti_api.h"
#pragma GCC visibility pop
#include "tests/sim/cupti/state.h"

#define SIM_EXPORT extern "C" __attribute__((visibility("default")))

namespace tidemark::abi {
struct CUpti_Subscriber_st {
  CUpti_CallbackFunc callback;
  void* user_data;
  char name[64];
};
}  // namespace tidemark::abi

namespace tidemark::sim {
namespace {

constexpr uint32_t kMaxDomain = 7;

std::mutex mutex;  // guards changes; calls read the atomics
std::atomic<CUpti_Subscriber_st*> subscriber{nullptr};
std::atomic<uint8_t> enabled[kMaxDomain][kMaxCbid];
std::atomic<uint32_t> next_correlation_id{1};
thread_local uint32_t correlation_id = 0;
std::atomic<bool> forked{false};

void OnCall(ApiCall* call, bool exit) {
  if (!exit) {
    call->start_ns = NowNs();
    call->correlation_id = next_correlation_id.fetch_add(1, std::memory_order_relaxed);
    correlation_id = call->correlation_id;
  }
  CUpti_Subscriber_st* to = subscriber.load(std::memory_order_acquire);
  if (to != nullptr && enabled[CUPTI_CB_DOMAIN_DRIVER_API][call->cbid] != 0) {
    CUpti_CallbackData data = {};
    data.callbackSite = exit ? CUPTI_API_EXIT : CUPTI_API_ENTER;
    data.functionName = call->name;
    data.functionParams = call->params;
    data.functionReturnValue = exit ? call->result : nullptr;
    data.context = call->context;
    data.contextUid = call->context_uid;
    data.correlationData = &call->correlation_data;
    data.correlationId = call->correlation_id;
    to->callback(to->user_data, CUPTI_CB_DOMAIN_DRIVER_API, call->cbid, &data);
  }
  if (exit && ApiRecordsEnabled()) RecordApiCall(*call, NowNs());
}

void OnResource(CUpti_CallbackIdResource id, CUcontext context) {
  CUpti_Subscriber_st* to = subscriber.load(std::memory_order_acquire);
  if (to == nullptr || enabled[CUPTI_CB_DOMAIN_RESOURCE][id] == 0) return;
  CUpti_ResourceData data = {};
  data.context = context;
  to->callback(to->user_data, CUPTI_CB_DOMAIN_RESOURCE, static_cast<uint32_t>(id), &data);
}

CUptiResult Subscribe(CUpti_SubscriberHandle* handle, CUpti_CallbackFunc callback, void* user_data,
                      const char* name) {
  if (handle == nullptr || callback == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  std::lock_guard lock(mutex);
  if (subscriber.load() != nullptr) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  ToolsInterface* tools = Tools();
  if (tools == nullptr) return CUPTI_ERROR_NOT_INITIALIZED;
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, [] { forked = true; }); });
  auto* made = new CUpti_Subscriber_st{callback, user_data, {}};
  snprintf(made->name, sizeof(made->name), "%s", name);
  tools->on_call = &OnCall;
  tools->on_resource = &OnResource;
  subscriber = made;
  *handle = made;
  return CUPTI_SUCCESS;
}

bool Valid(CUpti_SubscriberHandle handle) {
  return handle != nullptr && subscriber.load() == handle;
}

void DisableAll() {
  for (auto& domain : enabled) {
    for (auto& one : domain) one = 0;
  }
}

}  // namespace

ToolsInterface* Tools() {
  static ToolsInterface* const tools = [] {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    return driver == nullptr ? nullptr
                             : static_cast<ToolsInterface*>(dlsym(driver, "tidemark_sim_tools"));
  }();
  return tools;
}

uint32_t CuptiVersion() {
  static const uint32_t version = [] {
    const char* text = getenv("TIDEMARK_SIM_CUPTI_VERSION");
    const int number = text == nullptr ? 0 : atoi(text);
    return number > 0 ? static_cast<uint32_t>(number) : 130001U;
  }();
  return version;
}

uint64_t NowNs() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000 + static_cast<uint64_t>(now.tv_nsec);
}

void RefreshCallEnables() {
  ToolsInterface* tools = Tools();
  if (tools == nullptr) return;
  const bool all = ApiRecordsEnabled();
  if (all) tools->on_call = &OnCall;
  for (uint32_t cbid = 0; cbid < kMaxCbid; ++cbid) {
    tools->call_enabled[cbid] = all || enabled[CUPTI_CB_DOMAIN_DRIVER_API][cbid] != 0 ? 1 : 0;
  }
}

uint32_t CurrentCorrelationId() { return correlation_id; }
bool InForkedChild() { return forked; }

}  // namespace tidemark::sim

using namespace tidemark::sim;  // NOLINT: below are only the exported names

SIM_EXPORT CUptiResult cuptiGetVersion(uint32_t* version) {
  if (version == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  *version = CuptiVersion();
  return CUPTI_SUCCESS;
}

SIM_EXPORT CUptiResult cuptiGetResultString(CUptiResult result, const char** text) {
  switch (result) {
#define TEXT(code) \
  case code:       \
    *text = #code; \
    return CUPTI_SUCCESS
    TEXT(CUPTI_SUCCESS);
    TEXT(CUPTI_ERROR_INVALID_PARAMETER);
    TEXT(CUPTI_ERROR_INVALID_DEVICE);
    TEXT(CUPTI_ERROR_INVALID_CONTEXT);
    TEXT(CUPTI_ERROR_INVALID_OPERATION);
    TEXT(CUPTI_ERROR_OUT_OF_MEMORY);
    TEXT(CUPTI_ERROR_MAX_LIMIT_REACHED);
    TEXT(CUPTI_ERROR_NOT_READY);
    TEXT(CUPTI_ERROR_NOT_COMPATIBLE);
    TEXT(CUPTI_ERROR_NOT_INITIALIZED);
    TEXT(CUPTI_ERROR_INVALID_KIND);
    TEXT(CUPTI_ERROR_DISABLED);
    TEXT(CUPTI_ERROR_NOT_SUPPORTED);
    TEXT(CUPTI_ERROR_INSUFFICIENT_PRIVILEGES);
    TEXT(CUPTI_ERROR_OLD_PROFILER_API_INITIALIZED);
    TEXT(CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
    TEXT(CUPTI_ERROR_UNKNOWN);
#undef TEXT
  }
  return CUPTI_ERROR_INVALID_PARAMETER;
}

SIM_EXPORT CUptiResult cuptiGetLastError() { return CUPTI_SUCCESS; }

SIM_EXPORT CUptiResult cuptiGetTimestamp(uint64_t* timestamp_ns) {
  if (timestamp_ns == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  *timestamp_ns = NowNs();
  return CUPTI_SUCCESS;
}

SIM_EXPORT CUptiResult cuptiGetDeviceId(CUcontext context, uint32_t* device) {
  ToolsInterface* tools = Tools();
  if (tools == nullptr) return CUPTI_ERROR_NOT_INITIALIZED;
  const int found = tools->context_device(context);
  if (found < 0) return CUPTI_ERROR_INVALID_CONTEXT;
  *device = static_cast<uint32_t>(found);
  return CUPTI_SUCCESS;
}

SIM_EXPORT CUptiResult cuptiGetContextId(CUcontext context, uint32_t* context_id) {
  ToolsInterface* tools = Tools();
  if (tools == nullptr) return CUPTI_ERROR_NOT_INITIALIZED;
  *context_id = tools->context_uid(context);
  return *context_id == 0 ? CUPTI_ERROR_INVALID_CONTEXT : CUPTI_SUCCESS;
}

SIM_EXPORT CUptiResult cuptiSubscribe(CUpti_SubscriberHandle* handle, CUpti_CallbackFunc callback,
                                      void* user_data) {
  return Subscribe(handle, callback, user_data, "");
}

SIM_EXPORT CUptiResult cuptiSubscribe_v2(CUpti_SubscriberHandle* handle,
                                         CUpti_CallbackFunc callback, void* user_data,
                                         CUpti_SubscriberParams* params) {
  const char* name =
      params != nullptr && params->subscriberName != nullptr ? params->subscriberName : "";
  const CUptiResult result = Subscribe(handle, callback, user_data, name);
  if (result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED && params != nullptr &&
      params->oldSubscriberName != nullptr) {
    const CUpti_Subscriber_st* other = subscriber.load();
    snprintf(params->oldSubscriberName, params->oldSubscriberSize, "%s",
             other == nullptr ? "" : other->name);
  }
  return result;
}

SIM_EXPORT CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle handle) {
  std::lock_guard lock(mutex);
  if (!Valid(handle)) return CUPTI_ERROR_INVALID_PARAMETER;
  subscriber = nullptr;
  DisableAll();
  RefreshCallEnables();
  // The object stays: a call under way in another thread may still hold it.
  return CUPTI_SUCCESS;
}

SIM_EXPORT CUptiResult cuptiGetCallbackState(uint32_t* state, CUpti_SubscriberHandle handle,
                                             CUpti_CallbackDomain domain, CUpti_CallbackId cbid) {
  if (!Valid(handle) || state == nullptr || cbid >= kMaxCbid) return CUPTI_ERROR_INVALID_PARAMETER;
  *state = enabled[domain][cbid];
  return CUPTI_SUCCESS;
}

SIM_EXPORT CUptiResult cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle handle,
                                           CUpti_CallbackDomain domain, CUpti_CallbackId cbid) {
  std::lock_guard lock(mutex);
  if (!Valid(handle) || domain <= CUPTI_CB_DOMAIN_INVALID ||
      static_cast<uint32_t>(domain) >= kMaxDomain || cbid == 0 || cbid >= kMaxCbid) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  enabled[domain][cbid] = enable != 0 ? 1 : 0;
  RefreshCallEnables();
  return CUPTI_SUCCESS;
}

SIM_EXPORT CUptiResult cuptiEnableDomain(uint32_t enable, CUpti_SubscriberHandle handle,
                                         CUpti_CallbackDomain domain) {
  std::lock_guard lock(mutex);
  if (!Valid(handle) || domain <= CUPTI_CB_DOMAIN_INVALID ||
      static_cast<uint32_t>(domain) >= kMaxDomain) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  for (auto& one : enabled[domain]) one = enable != 0 ? 1 : 0;
  RefreshCallEnables();
  return CUPTI_SUCCESS;
}

SIM_EXPORT CUptiResult cuptiEnableAllDomains(uint32_t enable, CUpti_SubscriberHandle handle) {
  for (int domain = 1; domain < static_cast<int>(kMaxDomain); ++domain) {
    const CUptiResult result =
        cuptiEnableDomain(enable, handle, static_cast<CUpti_CallbackDomain>(domain));
    if (result != CUPTI_SUCCESS) return result;
  }
  return CUPTI_SUCCESS;
}

SIM_EXPORT CUptiResult cuptiGetCallbackName(CUpti_CallbackDomain domain, uint32_t cbid,
                                            const char** name) {
  if (domain != CUPTI_CB_DOMAIN_DRIVER_API || name == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  *name = tidemark::abi::MemoryCbidName(cbid);
  return *name == nullptr ? CUPTI_ERROR_INVALID_PARAMETER : CUPTI_SUCCESS;
}

SIM_EXPORT CUptiResult cuptiFinalize() {
  FinalizeActivity();
  std::lock_guard lock(mutex);
  subscriber = nullptr;
  DisableAll();
  RefreshCallEnables();
  return CUPTI_SUCCESS;
}
