// Start, contexts and what they cost.
#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "tests/sim/cuda/driver.h"

namespace tidemark::sim {
namespace {

constexpr uint64_t kContextBytes = 518 * kMiB;
constexpr uint64_t kModuleBytes = 2 * kMiB;
// Threads that an H200 keeps a local-memory stack for (132 SMs of 2048): raising the stack limit to
// 16384 costs (16384 - 1024) * 270336 = 3960 MiB.
constexpr uint64_t kResidentThreads = 132 * 2048;
constexpr size_t kDefaultStackBytes = 1024;

constexpr uint64_t kWindow = 1ULL << 39;  // 512 GiB of addresses for each use on each device
constexpr uint64_t Window(int device, int use) {
  return 0x0100'0000'0000 + (static_cast<uint64_t>(device) * 4 + use) * kWindow;
}

struct ContextStack {
  CUcontext contexts[16];
  int depth;
};
thread_local ContextStack current = {};

}  // namespace

Driver::Device::Device(int ordinal)
    : large(Window(ordinal, 0), kWindow),
      small(Window(ordinal, 1), kWindow, 2 * kMiB, 512),
      imported(Window(ordinal, 2), kWindow),
      default_pool(new CUmemPoolHandle_st(ordinal, Window(ordinal, 3), kWindow)),
      current_pool(default_pool.get()) {
  primary.device = ordinal;
  primary.primary = true;
}

Driver::Driver()
    : pool_windows_(0x4200'0000'0000, 0x0800'0000'0000),
      reserved_space_(0x4a00'0000'0000, 0x0800'0000'0000) {}

Driver& Driver::Get() {
  static Driver* const driver = new Driver;  // never destroyed: other exit handlers may call in
  return *driver;
}

CUresult Driver::Init() {
  std::lock_guard lock(init_mutex_);  // recursive: the injected library may call cuInit itself
  if (forked()) return CUDA_ERROR_NOT_INITIALIZED;
  if (initialized()) return CUDA_SUCCESS;
  if (DeviceCount() == 0) return CUDA_ERROR_NO_DEVICE;
  pthread_atfork(nullptr, nullptr, [] { Get().forked_ = true; });
  initialized_ = true;
  Inject();
  return CUDA_SUCCESS;
}

// As measured: a missing file, a library without the entry, and an entry that returns 0 all leave
// the program running as if nothing was set, and say nothing.
void Driver::Inject() {
  const char* path = getenv("CUDA_INJECTION64_PATH");
  if (path == nullptr || *path == '\0') return;
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return;
  auto* entry = reinterpret_cast<int (*)()>(dlsym(library, "InitializeInjection"));
  if (entry != nullptr) entry();
}

Slot* Driver::slot() {
  if (slot_ == nullptr) {
    state_ = MapState(/*create=*/true);
    if (state_ != nullptr) slot_ = ClaimSlot(state_);
    if (slot_ == nullptr) slot_ = &private_slot_;
  }
  return slot_;
}

bool Driver::Charge(int device, uint64_t bytes) {
  Slot* own = slot();
  const uint64_t capacity = DeviceBytes();
  uint64_t used = state_ != nullptr ? UsedBytes(*state_, device, /*check_owners=*/false)
                                    : own->bytes[device].load();
  if (used + bytes > capacity && state_ != nullptr) {
    used = UsedBytes(*state_, device, /*check_owners=*/true);
  }
  if (bytes > capacity || used + bytes > capacity) return false;
  own->bytes[device].store(own->bytes[device].load(std::memory_order_relaxed) + bytes);
  return true;
}

void Driver::Credit(int device, uint64_t bytes) {
  Slot* own = slot();
  own->bytes[device].store(own->bytes[device].load(std::memory_order_relaxed) - bytes);
}

Driver::Device& Driver::device(int ordinal) {
  auto& device = devices_[ordinal];
  if (device == nullptr) device = std::make_unique<Device>(ordinal);
  return *device;
}

CUcontext Driver::Current() {
  return current.depth == 0 ? nullptr : current.contexts[current.depth - 1];
}

uint32_t Driver::CurrentUid() {
  const CUcontext context = Current();
  return context == nullptr ? 0 : context->uid;
}

CUresult Driver::Usable(CUcontext context) const {
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return context->uid == 0 ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS;
}

CUresult Driver::SetCurrent(CUcontext context) {
  if (current.depth == 0) {
    if (context != nullptr) current.contexts[current.depth++] = context;
  } else if (context == nullptr) {
    --current.depth;
  } else {
    current.contexts[current.depth - 1] = context;
  }
  return CUDA_SUCCESS;
}

CUresult Driver::Push(CUcontext context) {
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (current.depth == static_cast<int>(std::size(current.contexts))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  current.contexts[current.depth++] = context;
  return CUDA_SUCCESS;
}

CUresult Driver::Pop(CUcontext* context) {
  if (current.depth == 0) return CUDA_ERROR_INVALID_CONTEXT;
  const CUcontext top = current.contexts[--current.depth];
  if (context != nullptr) *context = top;
  return CUDA_SUCCESS;
}

CUresult Driver::Activate(CUcontext context) {
  if (!Charge(context->device, kContextBytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  context->bytes = kContextBytes;
  context->stack_limit = kDefaultStackBytes;
  context->uid = next_uid_++;
  ++slot()->contexts[context->device];
  return CUDA_SUCCESS;
}

// A context takes with it what was allocated in it. Stream-ordered and VMM memory belong to the
// device and stay, as measured. Which releases MEMORY2 tells is measured too: those of arrays only
// for a primary context, all for another.
void Driver::Deactivate(CUcontext context, bool tell_all, Records* records) {
  for (auto it = arrays_.begin(); it != arrays_.end();) {
    const CUarray array = *it++;
    if (array->context == context && array->whole == nullptr) DropArray(array, records);
  }
  for (auto it = mipmaps_.begin(); it != mipmaps_.end();) {
    const CUmipmappedArray whole = *it;
    if (whole->levels.front()->context != context) {
      ++it;
      continue;
    }
    for (const CUarray level : whole->levels) DropArray(level, records);
    it = mipmaps_.erase(it);
    delete whole;
  }
  Records untold;
  Records* told = tell_all ? records : &untold;
  for (auto it = blocks_.begin(); it != blocks_.end();) {
    if (it->second.context != context) {
      ++it;
      continue;
    }
    const CUdeviceptr address = it->first;
    const Block block = it->second;
    it = blocks_.erase(it);
    if (block.kind == BlockKind::kDevice) {
      GiveDevice(context->device, address, block.bytes);
      Tell(told, CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE, CUPTI_ACTIVITY_MEMORY_KIND_DEVICE,
           address, block.bytes, context);
    } else if (block.kind == BlockKind::kManaged) {
      munmap(reinterpret_cast<void*>(address), RoundUp(block.bytes, 4096));
      Tell(told, CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE, CUPTI_ACTIVITY_MEMORY_KIND_MANAGED,
           address, block.bytes, context);
    } else if (block.kind == BlockKind::kIpc) {
      device(context->device).imported.Give(address, RoundUp(block.bytes, 2 * kMiB));
      std::erase_if(ipc_open_, [&](const auto& entry) { return entry.second == address; });
    }
  }
  for (auto it = host_.begin(); it != host_.end();) {
    if (it->second.context != context) {
      ++it;
      continue;
    }
    if (!it->second.registered) {
      munmap(reinterpret_cast<void*>(it->first), RoundUp(it->second.bytes, 4096));
    }
    Tell(told, CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE, CUPTI_ACTIVITY_MEMORY_KIND_PINNED,
         it->first, it->second.bytes, context);
    it = host_.erase(it);
  }
  std::erase_if(modules_, [&](CUmodule module) {
    if (module->context != context) return false;
    delete module;
    return true;
  });
  Credit(context->device, context->bytes);
  --slot()->contexts[context->device];
  context->bytes = 0;
  context->uid = 0;
}

CUresult Driver::PrimaryRetain(CUcontext* context, CUdevice ordinal) {
  if (!ValidDevice(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  std::lock_guard lock(mutex_);
  CUctx_st& primary = device(ordinal).primary;
  if (primary.uid == 0) {
    if (const CUresult result = Activate(&primary); result != CUDA_SUCCESS) return result;
  }
  ++primary.retains;
  *context = &primary;
  return CUDA_SUCCESS;
}

CUresult Driver::PrimaryRelease(CUdevice ordinal, Records* records) {
  if (!ValidDevice(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  std::lock_guard lock(mutex_);
  CUctx_st& primary = device(ordinal).primary;
  if (primary.retains == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--primary.retains == 0 && primary.uid != 0) Deactivate(&primary, /*tell_all=*/false, records);
  return CUDA_SUCCESS;
}

CUresult Driver::PrimaryReset(CUdevice ordinal, Records* records) {
  if (!ValidDevice(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  std::lock_guard lock(mutex_);
  CUctx_st& primary = device(ordinal).primary;
  if (primary.uid == 0) return CUDA_SUCCESS;
  // The count of retains stays: whoever retained before must still release.
  Deactivate(&primary, /*tell_all=*/false, records);
  return CUDA_SUCCESS;
}

CUresult Driver::PrimaryState(CUdevice ordinal, int* active) {
  if (!ValidDevice(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  std::lock_guard lock(mutex_);
  *active = device(ordinal).primary.uid != 0 ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult Driver::CreateContext(CUcontext* context, CUdevice ordinal) {
  if (!ValidDevice(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  {
    std::lock_guard lock(mutex_);
    device(ordinal);
    auto created = std::make_unique<CUctx_st>();
    created->device = ordinal;
    if (const CUresult result = Activate(created.get()); result != CUDA_SUCCESS) return result;
    *context = created.release();
    contexts_.insert(*context);
  }
  return Push(*context);
}

CUresult Driver::DestroyContext(CUcontext context, Records* records) {
  std::lock_guard lock(mutex_);
  if (contexts_.count(context) == 0 || context->uid == 0) return CUDA_ERROR_INVALID_CONTEXT;
  Deactivate(context, /*tell_all=*/true, records);
  if (Current() == context) --current.depth;
  // The object stays: another thread may have it current, and must then hear that it is destroyed.
  return CUDA_SUCCESS;
}

CUresult Driver::SetLimit(CUlimit limit, size_t value) {
  const CUcontext context = Current();
  std::lock_guard lock(mutex_);
  if (const CUresult result = Usable(context); result != CUDA_SUCCESS) return result;
  if (limit != CU_LIMIT_STACK_SIZE) return CUDA_SUCCESS;
  const auto stack_bytes = [](size_t stack_limit) {
    return (std::max(stack_limit, kDefaultStackBytes) - kDefaultStackBytes) * kResidentThreads;
  };
  const uint64_t before = stack_bytes(context->stack_limit);
  const uint64_t after = stack_bytes(value);
  if (after > before && !Charge(context->device, after - before)) return CUDA_ERROR_OUT_OF_MEMORY;
  if (after < before) Credit(context->device, before - after);
  context->bytes += after - before;
  context->stack_limit = value;
  return CUDA_SUCCESS;
}

CUresult Driver::GetLimit(size_t* value, CUlimit limit) {
  const CUcontext context = Current();
  std::lock_guard lock(mutex_);
  if (const CUresult result = Usable(context); result != CUDA_SUCCESS) return result;
  *value = limit == CU_LIMIT_STACK_SIZE ? context->stack_limit : 0;
  return CUDA_SUCCESS;
}

CUresult Driver::Synchronize(Records* records) {
  const CUcontext context = Current();
  std::lock_guard lock(mutex_);
  if (const CUresult result = Usable(context); result != CUDA_SUCCESS) return result;
  SynchronizeDevice(context->device, /*of_context=*/true, records);
  return CUDA_SUCCESS;
}

CUresult Driver::SynchronizeStream(CUstream stream, Records* records) {
  const CUcontext context = Current();
  std::lock_guard lock(mutex_);
  if (const CUresult result = Usable(context); result != CUDA_SUCCESS) return result;
  if (!ValidStream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  SynchronizeDevice(context->device, /*of_context=*/false, records);
  return CUDA_SUCCESS;
}

bool Driver::ValidStream(CUstream stream) const {
  // 0, 1 and 2 are the default, legacy and per-thread streams.
  return reinterpret_cast<uintptr_t>(stream) <= 2 || streams_.count(stream) != 0;
}

CUresult Driver::StreamCreate(CUstream* stream) {
  const CUcontext context = Current();
  std::lock_guard lock(mutex_);
  if (const CUresult result = Usable(context); result != CUDA_SUCCESS) return result;
  *stream = new CUstream_st{context, next_stream_id_++};
  streams_.insert(*stream);
  return CUDA_SUCCESS;
}

CUresult Driver::StreamDestroy(CUstream stream) {
  std::lock_guard lock(mutex_);
  if (streams_.erase(stream) == 0) return CUDA_ERROR_INVALID_HANDLE;
  delete stream;
  return CUDA_SUCCESS;
}

CUresult Driver::ModuleLoad(CUmodule* module) {
  const CUcontext context = Current();
  std::lock_guard lock(mutex_);
  if (const CUresult result = Usable(context); result != CUDA_SUCCESS) return result;
  if (!Charge(context->device, kModuleBytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  context->bytes += kModuleBytes;
  *module = new CUmod_st{context};
  modules_.insert(*module);
  return CUDA_SUCCESS;
}

CUresult Driver::ModuleUnload(CUmodule module) {
  std::lock_guard lock(mutex_);
  if (modules_.erase(module) == 0) return CUDA_ERROR_INVALID_HANDLE;
  module->context->bytes -= kModuleBytes;
  Credit(module->context->device, kModuleBytes);
  delete module;
  return CUDA_SUCCESS;
}

void Tell(Records* records, CUpti_ActivityMemoryOperationType operation,
          CUpti_ActivityMemoryKind kind, uint64_t address, uint64_t bytes, CUcontext context) {
  if (tidemark_sim_tools.memory_enabled.load(std::memory_order_relaxed) == 0) return;
  MemoryEvent event = {};
  event.operation = operation;
  event.kind = kind;
  event.address = address;
  event.bytes = bytes;
  event.device = static_cast<uint32_t>(context->device);
  event.context_uid = context->uid;
  event.stream = kInvalidStreamId;
  records->memory.push_back(event);
}

}  // namespace tidemark::sim
