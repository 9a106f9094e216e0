// Memory of other processes, and memory nodes of graphs.
#include <unistd.h>

#include <cstring>

#include "tests/sim/cuda/driver.h"

namespace tidemark::sim {
namespace {

constexpr uint64_t kStep = 2 * kMiB;
constexpr uint64_t kGraphPoolStep = 32 * kMiB;
constexpr uint64_t kIpcMagic = 0x746d73696d697063;

struct IpcContents {
  uint64_t magic;
  int32_t pid;
  int32_t device;
  uint64_t address;
  uint64_t bytes;
};
static_assert(sizeof(IpcContents) <= sizeof(CUipcMemHandle));

// MEMORY2 shows graph memory without an address and a context, as the graph pool's steps.
void TellGraph(Records* records, CUpti_ActivityMemoryOperationType operation, int device,
               uint64_t bytes) {
  if (bytes == 0 || tidemark_sim_tools.memory_enabled.load(std::memory_order_relaxed) == 0) return;
  MemoryEvent event = {};
  event.operation = operation;
  event.kind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
  event.bytes = bytes;
  event.device = static_cast<uint32_t>(device);
  event.context_uid = kInvalidContextId;
  event.stream = kInvalidStreamId;
  records->memory.push_back(event);
}

}  // namespace

CUresult Driver::IpcGet(CUipcMemHandle* handle, CUdeviceptr address) {
  std::lock_guard lock(mutex_);
  const auto it = blocks_.find(address);
  if (handle == nullptr || it == blocks_.end() || it->second.kind != BlockKind::kDevice) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const IpcContents contents = {kIpcMagic, getpid(), it->second.context->device, address,
                                it->second.bytes};
  *handle = {};
  memcpy(handle, &contents, sizeof(contents));
  return CUDA_SUCCESS;
}

CUresult Driver::IpcOpen(CUdeviceptr* address, const CUipcMemHandle& handle) {
  const CUcontext context = Current();
  IpcContents contents;
  memcpy(&contents, &handle, sizeof(contents));
  std::lock_guard lock(mutex_);
  if (const CUresult result = Usable(context); result != CUDA_SUCCESS) return result;
  if (address == nullptr || contents.magic != kIpcMagic || contents.bytes == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (contents.pid == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  const auto key = std::make_pair(contents.pid, contents.address);
  if (const auto it = ipc_open_.find(key); it != ipc_open_.end()) {
    ++blocks_[it->second].opens;
    *address = it->second;
    return CUDA_SUCCESS;
  }
  const uint64_t taken = device(context->device).imported.Take(RoundUp(contents.bytes, kStep));
  if (taken == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  blocks_[taken] = {BlockKind::kIpc, contents.bytes, context, nullptr, 1};
  ipc_open_[key] = taken;
  *address = taken;
  return CUDA_SUCCESS;
}

CUresult Driver::IpcClose(CUdeviceptr address) {
  std::lock_guard lock(mutex_);
  const auto it = blocks_.find(address);
  if (it == blocks_.end() || it->second.kind != BlockKind::kIpc) return CUDA_ERROR_INVALID_VALUE;
  if (--it->second.opens != 0) return CUDA_SUCCESS;
  device(it->second.context->device).imported.Give(address, RoundUp(it->second.bytes, kStep));
  blocks_.erase(it);
  std::erase_if(ipc_open_, [&](const auto& entry) { return entry.second == address; });
  return CUDA_SUCCESS;
}

CUresult Driver::GraphCreate(CUgraph* graph) {
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(mutex_);
  auto created = std::make_unique<CUgraph_st>();
  *graph = created.get();
  graphs_[*graph] = std::move(created);
  return CUDA_SUCCESS;
}

CUresult Driver::GraphDestroy(CUgraph graph) {
  std::lock_guard lock(mutex_);
  const auto it = graphs_.find(graph);
  if (it == graphs_.end()) return CUDA_ERROR_INVALID_VALUE;
  for (const auto& [address, bytes] : graph->allocations) {
    reserved_space_.Give(address, RoundUp(bytes, kStep));
  }
  graphs_.erase(it);
  return CUDA_SUCCESS;
}

CUresult Driver::GraphAddAlloc(CUgraphNode* node, CUgraph graph,
                               CUDA_MEM_ALLOC_NODE_PARAMS* params) {
  std::lock_guard lock(mutex_);
  if (node == nullptr || params == nullptr || params->bytesize == 0 || graphs_.count(graph) == 0 ||
      params->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!ValidDevice(params->poolProps.location.id)) return CUDA_ERROR_INVALID_DEVICE;
  const uint64_t taken = reserved_space_.Take(RoundUp(params->bytesize, kStep));
  if (taken == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  graph->device = params->poolProps.location.id;
  graph->allocations[taken] = params->bytesize;
  graph->alloc_bytes += params->bytesize;
  graph->nodes.push_back(std::make_unique<CUgraphNode_st>(CUgraphNode_st{graph}));
  *node = graph->nodes.back().get();
  params->dptr = taken;
  return CUDA_SUCCESS;
}

CUresult Driver::GraphAddFree(CUgraphNode* node, CUgraph graph, CUdeviceptr address) {
  std::lock_guard lock(mutex_);
  if (node == nullptr || graphs_.count(graph) == 0) return CUDA_ERROR_INVALID_VALUE;
  const auto it = graph->allocations.find(address);
  if (it == graph->allocations.end()) return CUDA_ERROR_INVALID_VALUE;
  reserved_space_.Give(address, RoundUp(it->second, kStep));
  graph->allocations.erase(it);
  graph->nodes.push_back(std::make_unique<CUgraphNode_st>(CUgraphNode_st{graph}));
  *node = graph->nodes.back().get();
  return CUDA_SUCCESS;
}

CUresult Driver::GraphInstantiate(CUgraphExec* exec, CUgraph graph) {
  std::lock_guard lock(mutex_);
  if (exec == nullptr || graphs_.count(graph) == 0) return CUDA_ERROR_INVALID_VALUE;
  uint64_t unfreed = 0;
  for (const auto& [address, bytes] : graph->allocations) unfreed += bytes;
  auto created =
      std::make_unique<CUgraphExec_st>(CUgraphExec_st{graph->device, graph->alloc_bytes, unfreed});
  *exec = created.get();
  graph_execs_[*exec] = std::move(created);
  return CUDA_SUCCESS;
}

CUresult Driver::GraphLaunch(CUgraphExec exec, Records* records) {
  std::lock_guard lock(mutex_);
  if (graph_execs_.count(exec) == 0) return CUDA_ERROR_INVALID_HANDLE;
  Device& dev = device(exec->device);
  // Graphs take turns in the pool: it is as large as the largest of them, plus what stays.
  const uint64_t needed =
      RoundUp(exec->alloc_bytes +
                  (exec->launched ? dev.graph_unfreed - exec->unfreed_bytes : dev.graph_unfreed),
              kGraphPoolStep);
  if (exec->alloc_bytes != 0 && needed > dev.graph_bytes) {
    const uint64_t more = needed - dev.graph_bytes;
    if (!Charge(exec->device, more)) return CUDA_ERROR_OUT_OF_MEMORY;
    dev.graph_bytes = needed;
    if (!dev.graph_pool_told) TellGraphPool(exec->device, records);
    dev.graph_pool_told = true;
    TellGraph(records, CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION, exec->device, more);
  }
  if (!exec->launched) dev.graph_unfreed += exec->unfreed_bytes;
  exec->launched = true;
  return CUDA_SUCCESS;
}

CUresult Driver::GraphExecDestroy(CUgraphExec exec) {
  std::lock_guard lock(mutex_);
  const auto it = graph_execs_.find(exec);
  if (it == graph_execs_.end()) return CUDA_ERROR_INVALID_HANDLE;
  if (exec->launched) device(exec->device).graph_unfreed -= exec->unfreed_bytes;
  graph_execs_.erase(it);
  return CUDA_SUCCESS;
}

CUresult Driver::GraphTrim(CUdevice ordinal, Records* records) {
  if (!ValidDevice(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  std::lock_guard lock(mutex_);
  Device& dev = device(ordinal);
  const uint64_t keep = RoundUp(dev.graph_unfreed, kGraphPoolStep);
  if (dev.graph_bytes > keep) {
    const uint64_t dropped = dev.graph_bytes - keep;
    Credit(ordinal, dropped);
    dev.graph_bytes = keep;
    TellGraph(records, CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE, ordinal, dropped);
  }
  return CUDA_SUCCESS;
}

}  // namespace tidemark::sim
