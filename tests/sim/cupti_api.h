// What the simulated libcupti.so.13 exports, for programs that link it as a profiler does.
#pragma once

#include "cupti_agent/abi/cupti_abi.h"

extern "C" {
using namespace tidemark::abi;  // NOLINT: this header speaks for libcupti, whose names are global

CUptiResult cuptiGetVersion(uint32_t* version);
CUptiResult cuptiGetResultString(CUptiResult result, const char** text);
CUptiResult cuptiGetLastError();
CUptiResult cuptiGetTimestamp(uint64_t* timestamp_ns);
CUptiResult cuptiGetDeviceId(CUcontext context, uint32_t* device);
CUptiResult cuptiGetContextId(CUcontext context, uint32_t* context_id);
CUptiResult cuptiSubscribe(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc callback,
                           void* user_data);
CUptiResult cuptiSubscribe_v2(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc callback,
                              void* user_data, CUpti_SubscriberParams* params);
CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle subscriber);
CUptiResult cuptiGetCallbackState(uint32_t* enabled, CUpti_SubscriberHandle subscriber,
                                  CUpti_CallbackDomain domain, CUpti_CallbackId cbid);
CUptiResult cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle subscriber,
                                CUpti_CallbackDomain domain, CUpti_CallbackId cbid);
CUptiResult cuptiEnableDomain(uint32_t enable, CUpti_SubscriberHandle subscriber,
                              CUpti_CallbackDomain domain);
CUptiResult cuptiEnableAllDomains(uint32_t enable, CUpti_SubscriberHandle subscriber);
CUptiResult cuptiGetCallbackName(CUpti_CallbackDomain domain, uint32_t cbid, const char** name);
CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind);
CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind);
CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc requested,
                                           CUpti_BuffersCallbackCompleteFunc completed);
CUptiResult cuptiActivityRegisterTimestampCallback(uint64_t (*now)());
CUptiResult cuptiActivityGetNextRecord(uint8_t* buffer, size_t valid_bytes,
                                       CUpti_Activity** record);
CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t stream_id,
                                              size_t* dropped);
CUptiResult cuptiActivityFlushAll(uint32_t flags);
CUptiResult cuptiActivityFlushPeriod(uint32_t milliseconds);
CUptiResult cuptiFinalize();
}
