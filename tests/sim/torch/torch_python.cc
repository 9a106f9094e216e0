// libtorch_python.so: imports the engine's entry and the record functions from libtorch_cpu.so, as
// the real one does, and offers the C face of simtorch.h.
#include <cstdlib>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>

#include "tests/sim/torch/c10.h"
#include "tests/sim/torch/caching_allocator.h"
#include "tests/sim/torch/cudart.h"
#include "tests/sim/torch/simtorch.h"
#include "tests/sim/torch/torch_cpu.h"

using namespace tidemark::abi;  // NOLINT
namespace allocator = c10::cuda::CUDACachingAllocator;

namespace torch::autograd::python {

// Overrides execute, as the real PythonEngine does, and calls the base through its import.
class PythonEngine : public Engine {
 public:
  std::vector<at::Tensor> execute(const std::vector<Edge>& roots,
                                  const std::vector<at::Tensor>& inputs, bool keep_graph,
                                  bool create_graph, bool accumulate_grad,
                                  const std::vector<Edge>& outputs) override {
    return Engine::execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
  }
};

}  // namespace torch::autograd::python

namespace {

thread_local std::string last_error;

// Never inlined into its caller, so that stacks show it.
__attribute__((noinline)) int THPEngine_run_backward(
    const std::vector<torch::autograd::Edge>& roots) {
  static auto* const engine = new torch::autograd::python::PythonEngine;
  try {
    engine->execute(roots, {}, false, false, true, {});
    return 0;
  } catch (const std::exception& error) {
    last_error = error.what();
    return -1;
  }
}

struct AccumulateGrad : torch::autograd::Node {
  AccumulateGrad(void** activation, size_t bytes, int device, bool fail)
      : activation(activation), bytes(bytes), device(device), fail(fail) {}

  void apply() override {
    void* grad = bytes == 0 ? nullptr : allocator::raw_alloc(bytes, device);
    if (activation != nullptr && *activation != nullptr) {
      allocator::raw_delete(*activation);
      *activation = nullptr;
    }
    allocator::raw_delete(grad);
    if (fail) throw std::runtime_error("backward: a node failed as it was told to");
  }

  void** activation;
  size_t bytes;
  int device;
  bool fail;
};

struct CallNode : torch::autograd::Node {
  CallNode(void (*call)(void*), void* argument) : call(call), argument(argument) {}
  void apply() override { call(argument); }
  void (*call)(void*);
  void* argument;
};

struct NestedBackward : torch::autograd::Node {
  explicit NestedBackward(std::vector<torch::autograd::Edge> inner) : inner(std::move(inner)) {}
  void apply() override {
    if (THPEngine_run_backward(inner) != 0) throw std::runtime_error(last_error);
  }
  std::vector<torch::autograd::Edge> inner;
};

struct Vmm {
  size_t bytes;
  CUmemGenericAllocationHandle handle;
};
std::mutex vmm_mutex;
std::map<void*, Vmm> vmm;

template <typename F>
F* Driver(const char* name) {
  return reinterpret_cast<F*>(cudaSimDriverEntryPoint(name));
}

}  // namespace

extern "C" {

int simtorch_set_device(int device) {
  const int result = cudaSetDevice(device);
  if (result == 0) return 0;
  last_error = "cudaSetDevice: error " + std::to_string(result);
  return -1;
}

const char* simtorch_last_error() { return last_error.c_str(); }

void* simtorch_empty(size_t bytes, int device) {
  try {
    return device < 0 ? c10::DefaultCPUAllocator::allocate(bytes)
                      : allocator::raw_alloc(bytes, device);
  } catch (const std::exception& error) {
    last_error = error.what();
    return nullptr;
  }
}

void simtorch_delete(void* tensor, int device) {
  if (device < 0) {
    c10::DefaultCPUAllocator::ReportAndDelete(tensor);
  } else {
    allocator::raw_delete(tensor);
  }
}

void* simtorch_pin_memory(size_t bytes) { return at::cuda::CachingHostAllocator_allocate(bytes); }
void simtorch_unpin_memory(void* tensor) { at::cuda::CachingHostAllocator_free(tensor); }

void simtorch_empty_cache() { allocator::emptyCache(); }
size_t simtorch_memory_allocated(int device) { return allocator::getDeviceStats(device).allocated; }
size_t simtorch_memory_reserved(int device) { return allocator::getDeviceStats(device).reserved; }
size_t simtorch_max_memory_allocated(int device) {
  return allocator::getDeviceStats(device).max_allocated;
}
size_t simtorch_max_memory_reserved(int device) {
  return allocator::getDeviceStats(device).max_reserved;
}
size_t simtorch_cpu_allocated() { return c10::profiledCPUMemoryReporter().allocated(); }
size_t simtorch_block_size(void* tensor) { return allocator::block_size(tensor); }

int simtorch_backward(void** activations, const size_t* grad_bytes, int count, int device,
                      int nested, int fail) {
  std::vector<torch::autograd::Edge> roots;
  for (int i = 0; i < count; ++i) {
    void** activation = activations == nullptr ? nullptr : &activations[i];
    const bool fails = fail != 0 && i == count - 1;
    roots.push_back(
        {std::make_shared<AccumulateGrad>(activation, grad_bytes[i], device, fails), 0});
  }
  if (nested != 0) {
    return THPEngine_run_backward({{std::make_shared<NestedBackward>(std::move(roots)), 0}});
  }
  return THPEngine_run_backward(roots);
}

int simtorch_backward_with(void (*apply)(void*), void* argument) {
  return THPEngine_run_backward({{std::make_shared<CallNode>(apply, argument), 0}});
}

void simtorch_user_scope(const char* name, void (*body)(void*), void* argument) {
  const at::RecordFunction scope(at::RecordScope::USER_SCOPE, name);
  if (body != nullptr) body(argument);
}

void* simtorch_cuda_malloc(size_t bytes) {
  void* address = nullptr;
  return cudaMalloc(&address, bytes) == 0 ? address : nullptr;
}
int simtorch_cuda_free(void* address) { return -cudaFree(address); }

void* simtorch_cuda_malloc_async(size_t bytes) {
  void* address = nullptr;
  return cudaMallocAsync(&address, bytes, nullptr) == 0 ? address : nullptr;
}
int simtorch_cuda_free_async(void* address) { return -cudaFreeAsync(address, nullptr); }
int simtorch_cuda_synchronize() { return -cudaDeviceSynchronize(); }
int simtorch_cuda_host_register(void* address, size_t bytes) {
  return -cudaHostRegister(address, bytes, 0);
}
int simtorch_cuda_host_unregister(void* address) { return -cudaHostUnregister(address); }
int simtorch_cuda_set_stack_limit(size_t bytes) {
  return -cudaDeviceSetLimit(CU_LIMIT_STACK_SIZE, bytes);
}

int simtorch_cuda_load_modules(int count) {
  static auto* const load = Driver<CUresult(CUmodule*, const void*)>("cuModuleLoadData");
  for (int i = 0; i < count; ++i) {
    CUmodule module = nullptr;
    if (const CUresult result = load(&module, nullptr); result != CUDA_SUCCESS) return -result;
  }
  return 0;
}

int simtorch_cuda_launch() { return -cudaLaunchKernel(nullptr); }

void* simtorch_vmm_alloc(size_t bytes, int device) {
  static auto* const reserve =
      Driver<CUresult(CUdeviceptr*, size_t, size_t, CUdeviceptr, unsigned long long)>(
          "cuMemAddressReserve");
  static auto* const create =
      Driver<CUresult(CUmemGenericAllocationHandle*, size_t, const CUmemAllocationProp*,
                      unsigned long long)>("cuMemCreate");
  static auto* const map = Driver<CUresult(
      CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long)>("cuMemMap");
  constexpr size_t kGranularity = 2 << 20;
  bytes = (bytes + kGranularity - 1) / kGranularity * kGranularity;
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr at = 0;
  if (create(&handle, bytes, &properties, 0) != CUDA_SUCCESS) return nullptr;
  if (reserve(&at, bytes, 0, 0, 0) != CUDA_SUCCESS ||
      map(at, bytes, 0, handle, 0) != CUDA_SUCCESS) {
    return nullptr;
  }
  auto* address = reinterpret_cast<void*>(at);
  std::lock_guard lock(vmm_mutex);
  vmm[address] = {bytes, handle};
  return address;
}

int simtorch_vmm_free(void* address) {
  static auto* const unmap = Driver<CUresult(CUdeviceptr, size_t)>("cuMemUnmap");
  static auto* const release = Driver<CUresult(CUmemGenericAllocationHandle)>("cuMemRelease");
  static auto* const unreserve = Driver<CUresult(CUdeviceptr, size_t)>("cuMemAddressFree");
  std::lock_guard lock(vmm_mutex);
  const auto it = vmm.find(address);
  if (it == vmm.end()) return -CUDA_ERROR_INVALID_VALUE;
  const auto at = reinterpret_cast<CUdeviceptr>(address);
  unmap(at, it->second.bytes);
  release(it->second.handle);
  unreserve(at, it->second.bytes);
  vmm.erase(it);
  return 0;
}

void simtorch_profiler_start() { libkineto::startTrace(); }

void simtorch_profiler_stop(int64_t* api_records, int64_t* memory_records) {
  const libkineto::ProfileResult result = libkineto::stopTrace();
  *api_records = result.cupti ? static_cast<int64_t>(result.api_records) : -1;
  *memory_records = result.cupti ? static_cast<int64_t>(result.memory_records) : -1;
}
}
