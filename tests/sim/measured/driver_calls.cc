// Makes some 150 driver calls, refused ones included, and prints what each gave: results, what NVML
// then says of this process, and (with `traced`) CUPTI's callbacks and records. Its output on a
// real GPU is kept beside this file; the same program on the simulation must print the same
// (../fidelity_test.py). It is linked against the libraries by their real names and runs on either.
//
//   driver_calls [traced]
//
// Addresses are printed by the names they were given here, so that outputs can be compared.
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include "cupti_agent/abi/nvml_abi.h"
#include "tests/sim/cuda_api.h"
#include "tests/sim/cupti_api.h"

namespace abi = tidemark::abi;

namespace {

constexpr size_t kMiB = 1 << 20;
constexpr size_t kTooMuch = 1ULL << 50;

bool traced = false;
std::map<uint64_t, std::string> names;

uint64_t Number(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }
void Name(uint64_t address, const char* name) { names[address] = name; }

std::string Named(uint64_t address) {
  if (address == 0) return "0";
  const auto it = names.find(address);
  return it == names.end() ? "?" : it->second;
}

void Print(const char* call, CUresult result) {
  if (result == CUDA_SUCCESS) {
    printf("%s\n", call);
  } else {
    printf("%s -> %d\n", call, result);
  }
}
#define CALL(call) Print(#call, call)

// MiB that NVML reports of this process, and the change since the last time; "-" when it lists no
// such process. CUPTI takes device memory of its own, so a traced run is not asked.
void Nvml(const char* when) {
  if (traced) return;
  static abi::nvmlDevice_t device = nullptr;
  static abi::NvmlDeviceGetComputeRunningProcessesFn processes = nullptr;
  static long last = 0;
  if (device == nullptr) {
    void* nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (nvml == nullptr) {
      fprintf(stderr, "driver_calls: %s\n", dlerror());
      exit(1);
    }
    reinterpret_cast<abi::NvmlInitFn>(dlsym(nvml, "nvmlInit_v2"))();
    reinterpret_cast<abi::NvmlDeviceGetHandleByIndexFn>(
        dlsym(nvml, "nvmlDeviceGetHandleByIndex_v2"))(0, &device);
    processes = reinterpret_cast<abi::NvmlDeviceGetComputeRunningProcessesFn>(
        dlsym(nvml, "nvmlDeviceGetComputeRunningProcesses_v3"));
  }
  abi::nvmlProcessInfo_t infos[256];
  unsigned count = 256;
  processes(device, &count, infos);
  for (unsigned i = 0; i < count; ++i) {
    if (infos[i].pid != static_cast<unsigned>(getpid())) continue;
    const long now = static_cast<long>(infos[i].usedGpuMemory / kMiB);
    printf("   NVML %s: %ld (%+ld)\n", when, now, now - last);
    last = now;
    return;
  }
  printf("   NVML %s: -\n", when);
  last = 0;
}

void OnCall(void*, CUpti_CallbackDomain, CUpti_CallbackId cbid, const void* raw) {
  const char* name = abi::MemoryCbidName(cbid);
  if (name == nullptr) return;
  const auto& data = *static_cast<const CUpti_CallbackData*>(raw);
  printf("   %s %u %s context %u", data.callbackSite == CUPTI_API_ENTER ? "enter" : "exit", cbid,
         data.functionName, data.contextUid);
  if (data.callbackSite == CUPTI_API_EXIT) {
    printf(" result %d", *static_cast<int*>(data.functionReturnValue));
  }
  printf("\n");
}

void Request(uint8_t** buffer, size_t* bytes, size_t* max_records) {
  *bytes = kMiB;
  *buffer = static_cast<uint8_t*>(aligned_alloc(8, *bytes));
  *max_records = 0;
}

void Complete(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid_bytes) {
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid_bytes, &record) == CUPTI_SUCCESS) {
    if (record->kind == CUPTI_ACTIVITY_KIND_MEMORY2) {
      const auto& m = *reinterpret_cast<CUpti_ActivityMemory4*>(record);
      printf("   MEMORY2 %s kind %d address %s bytes %lu device %u context %d async %u",
             m.memoryOperationType == 1 ? "allocation" : "release", m.memoryKind,
             Named(m.address).c_str(), m.bytes, m.deviceId, static_cast<int>(m.contextId),
             m.isAsync);
      if (m.memoryPoolConfig.memoryPoolType != 0) {
        printf(" pool bytes %lu used %lu", m.memoryPoolConfig.pool.size,
               m.memoryPoolConfig.utilizedSize);
      }
      printf("\n");
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMORY_POOL) {
      const auto& p = *reinterpret_cast<CUpti_ActivityMemoryPool3*>(record);
      printf("   MEMORY_POOL operation %d bytes %lu used %lu keep %lu\n", p.memoryPoolOperationType,
             p.size, p.utilizedSize, p.minBytesToKeep);
    }
  }
  free(buffer);
}

void Flush() {
  if (traced) printf("flush %d\n", cuptiActivityFlushAll(abi::kActivityFlagFlushForced));
}

CUmemAllocationProp DeviceMemory(CUmemLocationType type = CU_MEM_LOCATION_TYPE_DEVICE, int id = 0) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {type, id};
  return properties;
}

CUmemPoolProps DevicePool() {
  CUmemPoolProps properties = {};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  return properties;
}

CUcontext context = nullptr;
CUdeviceptr managed = 0;
void* pinned = nullptr;
char* ours = nullptr;

void Contexts() {
  CUdeviceptr a = 0;
  CALL(cuInit(0));
  Nvml("before a context");
  CALL(cuMemAlloc_v2(&a, kMiB));
  CALL(cuDevicePrimaryCtxRetain(&context, 0));
  CALL(cuCtxSetCurrent(context));
  Nvml("context");
}

void Linear() {
  CUdeviceptr a = 0;
  CUdeviceptr b = 0;
  size_t pitch = 0;
  CALL(cuMemAlloc_v2(&a, 3 * kMiB));
  Name(a, "a");
  Nvml("3 MiB");
  CALL(cuMemAlloc_v2(&b, 3 * kMiB));
  Name(b, "b");
  printf("   b - a = %llu\n", b - a);
  CALL(cuMemFree_v2(a));
  CALL(cuMemAlloc_v2(&a, 3 * kMiB));
  printf("   again %s\n", Named(a).c_str());
  CALL(cuMemFree_v2(a));
  CALL(cuMemFree_v2(a));
  CALL(cuMemFree_v2(0));
  CALL(cuMemFree_v2(b + 4096));
  CALL(cuMemFree_v2(b));
  CALL(cuMemAlloc_v2(&a, 0));
  CALL(cuMemAlloc_v2(&a, kTooMuch));
  Nvml("freed");
  CALL(cuMemAlloc_v2(&a, 4096));
  CALL(cuMemAlloc_v2(&b, 4096));
  Name(a, "small");
  Name(b, "small 2");
  printf("   small 2 - small = %llu\n", b - a);
  Nvml("two of 4 KiB");
  CALL(cuMemFree_v2(a));
  CALL(cuMemFree_v2(b));
  CALL(cuMemAlloc_v2(&a, kMiB));
  Nvml("1 MiB");
  CALL(cuMemAlloc_v2(&b, kMiB + 4096));
  Nvml("1 MiB + 4 KiB");
  CALL(cuMemFree_v2(a));
  CALL(cuMemFree_v2(b));
  Nvml("freed");
  CALL(cuMemAllocPitch_v2(&a, &pitch, 1000, 1000, 4));
  printf("   pitch %zu\n", pitch);
  CALL(cuMemFree_v2(a));
  CALL(cuMemAllocPitch_v2(&a, &pitch, 0, 1000, 4));
}

void Host() {
  void* p = nullptr;
  names.clear();
  CALL(cuMemAllocHost_v2(&p, 5000));
  CALL(cuMemFreeHost(p));
  CALL(cuMemFreeHost(p));
  CALL(cuMemHostAlloc(&p, 6 * kMiB, 0));
  CALL(cuMemFreeHost(p));
  CALL(cuMemHostAlloc(&p, 0, 0));
  CALL(cuMemHostAlloc(&p, kTooMuch, 0));
  CALL(cuMemFreeHost(nullptr));
  CALL(cuMemHostAlloc(&pinned, kMiB, 2));
  ours = static_cast<char*>(
      mmap(nullptr, 16 * kMiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  Name(Number(ours), "ours");
  CALL(cuMemHostRegister_v2(ours, 8 * kMiB, 0));
  CALL(cuMemHostRegister_v2(ours, 8 * kMiB, 0));
  CALL(cuMemHostRegister_v2(ours + 4 * kMiB, 8 * kMiB, 0));
  CALL(cuMemHostUnregister(ours + 4096));
  CALL(cuMemHostUnregister(ours));
  CALL(cuMemHostUnregister(ours));
  CALL(cuMemHostRegister_v2(ours + 8 * kMiB, 0, 0));
  CALL(cuMemHostUnregister(pinned));
  CALL(cuMemFree_v2(Number(pinned)));
  CALL(cuMemHostRegister_v2(ours + 100, 1000, 0));
  Name(Number(ours + 100), "ours + 100");
  CALL(cuMemAllocManaged(&managed, 7 * kMiB, 1));
  CALL(cuMemFree_v2(managed));
  CALL(cuMemAllocManaged(&managed, 0, 1));
  CALL(cuMemAllocManaged(&managed, 3 * kMiB, 1));
  Nvml("host and managed");
}

void StreamOrdered() {
  CUdeviceptr a = 0;
  CUdeviceptr b = 0;
  const CUmemPoolProps properties = DevicePool();
  CUmemoryPool default_pool = nullptr;
  CUmemoryPool pool = nullptr;
  CALL(cuMemAllocAsync(&a, 5 * kMiB, nullptr));
  Nvml("5 MiB");
  CALL(cuMemAllocAsync(&b, 40 * kMiB, nullptr));
  printf("   b - a = %llu\n", b - a);
  Nvml("40 MiB");
  CALL(cuMemFreeAsync(a, nullptr));
  CALL(cuMemFreeAsync(a, nullptr));
  CALL(cuMemFree_v2(b));
  CALL(cuCtxSynchronize());
  Nvml("freed and synchronised");
  CALL(cuMemAllocAsync(&a, 0, nullptr));
  CALL(cuMemAllocAsync(&a, 1000, nullptr));
  CALL(cuMemAllocAsync(&a, kTooMuch, nullptr));
  CALL(cuMemFreeAsync(0, nullptr));
  Nvml("1000 bytes");
  CALL(cuMemAllocAsync(&a, 3 * kMiB, reinterpret_cast<CUstream>(2)));
  CALL(cuMemPoolCreate(&pool, &properties));
  CALL(cuMemAllocFromPoolAsync(&a, 8 * kMiB, pool, nullptr));
  Nvml("8 MiB from a pool");
  CALL(cuMemPoolTrimTo(pool, 0));
  CALL(cuMemPoolDestroy(pool));
  Nvml("pool destroyed");
  CALL(cuMemFreeAsync(a, nullptr));
  CALL(cuCtxSynchronize());
  Nvml("its block freed");
  CALL(cuDeviceGetDefaultMemPool(&default_pool, 0));
  CALL(cuMemPoolDestroy(default_pool));
}

void Arrays() {
  CUarray array = nullptr;
  CUmipmappedArray mipmap = nullptr;
  const CUDA_ARRAY_DESCRIPTOR flat = {1024, 1024, CU_AD_FORMAT_FLOAT, 1};
  const CUDA_ARRAY3D_DESCRIPTOR solid = {100, 100, 10, CU_AD_FORMAT_HALF, 4, 0};
  const CUDA_ARRAY3D_DESCRIPTOR square = {256, 256, 0, CU_AD_FORMAT_FLOAT, 1, 0};
  const CUDA_ARRAY3D_DESCRIPTOR empty = {0, 0, 0, CU_AD_FORMAT_FLOAT, 1, 0};
  CALL(cuArrayCreate_v2(&array, &flat));
  Name(Number(array), "an array");
  Nvml("array of 4 MiB");
  CALL(cuArrayDestroy(array));
  CALL(cuArray3DCreate_v2(&array, &solid));
  Name(Number(array), "an array");
  CALL(cuMipmappedArrayCreate(&mipmap, &square, 4));
  CALL(cuMipmappedArrayDestroy(mipmap));
  CALL(cuArray3DCreate_v2(&array, &empty));
  Nvml("arrays");
}

CUdeviceptr reserved = 0;

void Mapped() {
  CUmemAllocationProp properties = DeviceMemory();
  CUmemGenericAllocationHandle handle = 0;
  CUmemGenericAllocationHandle other = 0;
  size_t step = 0;
  CALL(cuMemGetAllocationGranularity(&step, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  printf("   granularity %zu\n", step);
  CALL(cuMemCreate(&handle, step + 1, &properties, 0));
  CALL(cuMemCreate(&handle, 9 * step, &properties, 0));
  CALL(cuMemCreate(&other, kTooMuch, &properties, 0));
  Nvml("18 MiB");
  CALL(cuMemAddressReserve(&reserved, 32 * step, 0, 0, 0));
  CALL(cuMemMap(reserved, 9 * step, 0, handle, 0));
  CALL(cuMemMap(reserved, 9 * step, 0, handle, 0));
  CALL(cuMemRetainAllocationHandle(&other, reinterpret_cast<void*>(reserved)));
  printf("   retained the same handle: %d\n", other == handle);
  CALL(cuMemRelease(handle));
  CALL(cuMemRelease(other));
  Nvml("released");
  CALL(cuMemUnmap(reserved, step));
  CALL(cuMemUnmap(reserved, 9 * step));
  Nvml("unmapped");
  CALL(cuMemUnmap(reserved, 9 * step));
  CALL(cuMemRelease(handle));
  properties = DeviceMemory(CU_MEM_LOCATION_TYPE_HOST_NUMA);
  CALL(cuMemCreate(&handle, 2 * step, &properties, 0));
  CALL(cuMemRelease(handle));
  properties = DeviceMemory(CU_MEM_LOCATION_TYPE_DEVICE, 99);
  CALL(cuMemCreate(&handle, 2 * step, &properties, 0));
}

void Graphs() {
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CUgraphNode allocate = nullptr;
  CUgraphNode release = nullptr;
  CUDA_MEM_ALLOC_NODE_PARAMS params = {};
  params.poolProps = DevicePool();
  params.bytesize = 11 * kMiB;
  CALL(cuGraphCreate(&graph, 0));
  CALL(cuGraphAddMemAllocNode(&allocate, graph, nullptr, 0, &params));
  CALL(cuGraphAddMemFreeNode(&release, graph, &allocate, 1, params.dptr));
  CALL(cuGraphInstantiateWithFlags(&exec, graph, 0));
  Nvml("instantiated");
  CALL(cuGraphLaunch(exec, nullptr));
  CALL(cuStreamSynchronize(nullptr));
  Nvml("launched");
  CALL(cuGraphExecDestroy(exec));
  CALL(cuGraphDestroy(graph));
  Nvml("destroyed");
  CALL(cuDeviceGraphMemTrim(0));
  Nvml("trimmed");
}

void StackLimit() {
  CALL(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 16384));
  Nvml("stack limit 16384");
  CALL(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1024));
  Nvml("stack limit 1024");
}

void Reset() {
  CUdeviceptr plain = 0;
  CUdeviceptr ordered = 0;
  CUdeviceptr pooled = 0;
  CUdeviceptr refused = 0;
  CUmemGenericAllocationHandle handle = 0;
  CUmemoryPool pool = nullptr;
  CUcontext again = nullptr;
  const CUmemAllocationProp memory = DeviceMemory();
  const CUmemPoolProps properties = DevicePool();
  CALL(cuMemAlloc_v2(&plain, 100 * kMiB));
  CALL(cuMemCreate(&handle, 100 * kMiB, &memory, 0));
  CALL(cuMemMap(reserved, 64 * kMiB, 0, handle, 0));
  CALL(cuMemAllocAsync(&ordered, 100 * kMiB, nullptr));
  CALL(cuMemPoolCreate(&pool, &properties));
  CALL(cuMemAllocFromPoolAsync(&pooled, 64 * kMiB, pool, nullptr));
  CALL(cuMemHostRegister_v2(ours, 4 * kMiB, 0));
  CALL(cuStreamSynchronize(nullptr));
  Nvml("before the reset");
  CALL(cuDevicePrimaryCtxReset_v2(0));
  Nvml("after the reset");
  CALL(cuMemRelease(handle));
  CALL(cuMemPoolDestroy(pool));
  CALL(cuMemAlloc_v2(&refused, kMiB));
  CALL(cuDevicePrimaryCtxRetain(&again, 0));
  printf("   the same context: %d\n", again == context);
  CALL(cuCtxSetCurrent(again));
  Nvml("retained again");
  CALL(cuMemFreeHost(pinned));
  CALL(cuMemHostUnregister(ours));
  CALL(cuMemFree_v2(managed));
  CALL(cuMemFree_v2(plain));
  CALL(cuMemFreeAsync(ordered, nullptr));
  CALL(cuMemFreeAsync(pooled, nullptr));
  CALL(cuStreamSynchronize(nullptr));
  Nvml("freed");
}

void SecondContext() {
  CUcontext second = nullptr;
  CUdeviceptr plain = 0;
  CUdeviceptr ordered = 0;
  void* host = nullptr;
  CALL(cuCtxCreate_v4(&second, nullptr, 0, 0));
  Nvml("second context");
  CALL(cuMemAlloc_v2(&plain, 50 * kMiB));
  CALL(cuMemAllocAsync(&ordered, 50 * kMiB, nullptr));
  CALL(cuMemHostAlloc(&host, kMiB, 0));
  Nvml("its allocations");
  CALL(cuCtxDestroy_v2(second));
  Nvml("destroyed");
  CALL(cuCtxSetCurrent(context));
  CALL(cuMemFree_v2(plain));
  CALL(cuMemFreeAsync(ordered, nullptr));
  CALL(cuMemFreeHost(host));
}

// An importer opens and closes; results come back as its exit status.
int Import() {
  CUipcMemHandle handle = {};
  CUcontext own = nullptr;
  CUdeviceptr first = 0;
  CUdeviceptr second = 0;
  if (read(STDIN_FILENO, &handle, sizeof(handle)) != sizeof(handle)) return 1;
  cuInit(0);
  cuDevicePrimaryCtxRetain(&own, 0);
  cuCtxSetCurrent(own);
  setvbuf(stdout, nullptr, _IOLBF, 0);
  CALL(cuIpcOpenMemHandle_v2(&first, handle, 1));
  CALL(cuIpcOpenMemHandle_v2(&second, handle, 1));
  printf("   the same address: %d\n", first == second);
  CALL(cuMemFree_v2(first));
  CALL(cuIpcCloseMemHandle(first));
  CALL(cuIpcCloseMemHandle(first));
  CALL(cuIpcCloseMemHandle(first));
  return 0;
}

void OtherProcesses() {
  CUdeviceptr address = 0;
  CUdeviceptr opened = 0;
  CUipcMemHandle handle = {};
  CALL(cuMemAlloc_v2(&address, 4 * kMiB));
  CALL(cuIpcGetMemHandle(&handle, address));
  CALL(cuIpcOpenMemHandle_v2(&opened, handle, 1));
  fflush(stdout);
  int input[2];
  if (pipe(input) != 0) return;
  const pid_t importer = fork();
  if (importer == 0) {
    dup2(input[0], STDIN_FILENO);
    execl("/proc/self/exe", "driver_calls", "import", nullptr);
    _exit(1);
  }
  if (write(input[1], &handle, sizeof(handle)) != sizeof(handle)) return;
  waitpid(importer, nullptr, 0);
  const pid_t child = fork();
  if (child == 0) _exit(cuMemAlloc_v2(&address, kMiB));
  int status = 0;
  waitpid(child, &status, 0);
  printf("cuMemAlloc in a forked child -> %d\n", WEXITSTATUS(status));
  Flush();
  CALL(cuDevicePrimaryCtxRelease_v2(0));  // one of two: the reset was not a release
  Nvml("released once");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && strcmp(argv[1], "import") == 0) return Import();
  setvbuf(stdout, nullptr, _IOLBF, 0);
  traced = argc > 1 && strcmp(argv[1], "traced") == 0;
  if (traced) {
    CUpti_SubscriberHandle subscriber = nullptr;
    printf("subscribe %d\n", cuptiSubscribe(&subscriber, &OnCall, nullptr));
    printf("enable %d\n", cuptiEnableDomain(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API));
    printf("register %d\n", cuptiActivityRegisterCallbacks(&Request, &Complete));
    printf("MEMORY2 %d\n", cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMORY2));
    printf("MEMORY_POOL %d\n", cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMORY_POOL));
  }
  Contexts();
  Linear();
  Flush();
  Host();
  Flush();
  StreamOrdered();
  Arrays();
  Flush();
  Mapped();
  Graphs();
  StackLimit();
  Flush();
  Reset();
  Flush();
  SecondContext();
  OtherProcesses();
  return 0;
}
