#include "cupti_agent/cupti/activity_records.h"

#include "cupti_agent/ledger/private_memory.h"

namespace tidemark::agent {

using wire::Kind;
using wire::Loss;

bool DecodeMemory(const abi::CUpti_Activity* record, uint32_t cupti_version, MemoryRecord* out) {
  if (record->kind != abi::CUPTI_ACTIVITY_KIND_MEMORY2 ||
      abi::Memory2RecordBytes(cupti_version) == 0) {
    return false;
  }
  // Later layouts begin with the first.
  const auto& r = *reinterpret_cast<const abi::CUpti_ActivityMemory2*>(record);
  switch (r.memoryOperationType) {
    case abi::CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION:
      out->release = false;
      break;
    case abi::CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE:
      out->release = true;
      break;
    default:
      return false;
  }
  const bool in_pool =
      r.memoryPoolConfig.memoryPoolType != abi::CUPTI_ACTIVITY_MEMORY_POOL_TYPE_INVALID;
  out->device = static_cast<int16_t>(r.deviceId);
  switch (r.memoryKind) {
    case abi::CUPTI_ACTIVITY_MEMORY_KIND_DEVICE:
      out->kind = r.address == 0                ? Kind::kGraph
                  : (in_pool || r.isAsync != 0) ? Kind::kPool
                                                : Kind::kDevice;
      break;
    case abi::CUPTI_ACTIVITY_MEMORY_KIND_PINNED:  // cudaHostRegister's too: not told apart
      out->kind = Kind::kPinned;
      out->device = -1;
      break;
    case abi::CUPTI_ACTIVITY_MEMORY_KIND_ARRAY:
      out->kind = Kind::kArray;
      break;
    case abi::CUPTI_ACTIVITY_MEMORY_KIND_MANAGED:
      out->kind = Kind::kManaged;
      break;
    default:
      return false;
  }
  out->address = r.address;
  out->bytes = r.bytes;
  out->context = r.contextId;
  out->stream = r.streamId;
  out->time_ns = r.timestamp;
  out->pool = in_pool ? r.memoryPoolConfig.address : 0;
  out->pool_bytes = r.memoryPoolConfig.memoryPoolType == abi::CUPTI_ACTIVITY_MEMORY_POOL_TYPE_LOCAL
                        ? r.memoryPoolConfig.pool.size
                        : 0;
  return true;
}

uint64_t ModuleStaticBytes(const abi::CUpti_Activity* record, uint32_t cupti_version) {
  if (record->kind != abi::CUPTI_ACTIVITY_KIND_MEMORY2 ||
      abi::Memory2RecordBytes(cupti_version) == 0) {
    return 0;
  }
  const auto& r = *reinterpret_cast<const abi::CUpti_ActivityMemory2*>(record);
  const bool is_static = r.memoryKind == abi::CUPTI_ACTIVITY_MEMORY_KIND_DEVICE_STATIC ||
                         r.memoryKind == abi::CUPTI_ACTIVITY_MEMORY_KIND_MANAGED_STATIC;
  return is_static ? r.bytes : 0;
}

bool DecodePool(const abi::CUpti_Activity* record, uint32_t cupti_version, PoolRecord* out) {
  const size_t bytes = abi::MemoryPoolRecordBytes(cupti_version);
  if (record->kind != abi::CUPTI_ACTIVITY_KIND_MEMORY_POOL || bytes == 0) return false;
  const auto& r = *reinterpret_cast<const abi::CUpti_ActivityMemoryPool*>(record);
  out->operation = r.memoryPoolOperationType;
  out->device = static_cast<int16_t>(r.deviceId);
  out->pool = r.address;
  out->bytes = r.size;
  out->used_bytes =
      bytes >= sizeof(abi::CUpti_ActivityMemoryPool2)
          ? reinterpret_cast<const abi::CUpti_ActivityMemoryPool2*>(record)->utilizedSize
          : 0;
  out->time_ns = r.timestamp;
  return true;
}

bool RecordBuffers::Init(abi::CuptiActivityGetNextRecordFn next_record, uint32_t cupti_version) {
  next_record_ = next_record;
  cupti_version_ = cupti_version;
  memory_ = MapPrivate<uint8_t>((kBuffers + 1) * kBufferBytes);
  return memory_ != nullptr;
}

void RecordBuffers::Request(uint8_t** buffer, size_t* bytes) {
  *bytes = kBufferBytes;
  for (uint32_t i = 0; i < kBuffers; ++i) {
    if (!out_[i].exchange(true, std::memory_order_acquire)) {
      *buffer = memory_ + i * kBufferBytes;
      return;
    }
  }
  *buffer = memory_ + kBuffers * kBufferBytes;
}

void RecordBuffers::Complete(Ledger* ledger, uint8_t* buffer, size_t valid_bytes) {
  if (buffer < memory_ || buffer >= memory_ + (kBuffers + 1) * kBufferBytes) return;  // not ours
  const size_t index = static_cast<size_t>(buffer - memory_) / kBufferBytes;
  if (index == kBuffers) {
    // Several of CUPTI's contexts may have written over one another here: only the number counts.
    const size_t each = abi::Memory2RecordBytes(cupti_version_);
    if (ledger != nullptr && each != 0 && valid_bytes != 0) {
      ledger->CountLoss(Loss::kRecordsDropped, (valid_bytes + each - 1) / each);
    }
    return;
  }
  if (ledger != nullptr && valid_bytes != 0) Book(ledger, buffer, valid_bytes);
  out_[index].store(false, std::memory_order_release);
}

void RecordBuffers::Book(Ledger* ledger, uint8_t* buffer, size_t valid_bytes) {
  if (valid_bytes > kBufferBytes) valid_bytes = kBufferBytes;
  uint64_t records = 0;
  PoolRecord trim;
  int32_t trims = 0;
  uint64_t static_bytes = 0;
  int32_t statics = 0;
  abi::CUpti_Activity* record = nullptr;
  while (next_record_(buffer, valid_bytes, &record) == abi::CUPTI_SUCCESS) {
    MemoryRecord memory;
    PoolRecord pool;
    ++records;
    if (DecodeMemory(record, cupti_version_, &memory)) {
      if (memory.release) {
        ledger->RecordFreed(memory.kind, memory.device, memory.bytes);
      } else {
        ledger->RecordAllocated(memory.kind, memory.device, memory.bytes);
      }
    } else if (DecodePool(record, cupti_version_, &pool)) {
      if (pool.operation != abi::CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_TRIMMED) continue;
      trim = pool;
      ++trims;
    } else if (uint64_t bytes = ModuleStaticBytes(record, cupti_version_); bytes != 0) {
      static_bytes += bytes;
      ++statics;
    } else {
      ledger->CountLoss(Loss::kRecordsUndecodable);
    }
  }
  // A pool may be trimmed at every synchronisation: one event a buffer, with how many there were.
  if (trims > 0) {
    ledger->RecordEvent({.type = wire::EventType::kPoolTrim,
                         .code = trims,
                         .device = trim.device,
                         .bytes = trim.bytes,
                         .address = trim.pool,
                         .text = "by records; bytes left in the pool"});
  }
  // Variables of loaded modules: no call allocates them, so no total may count them, but they are
  // what makes the device figure rise when kernels are first used.
  if (statics > 0) {
    ledger->RecordEvent({.type = wire::EventType::kModuleLoaded,
                         .code = statics,
                         .bytes = static_bytes,
                         .text = "static variables of modules"});
  }
  records_.fetch_add(records, std::memory_order_relaxed);
}

uint64_t RecordBuffers::ResidentBytes() const {
  return memory_ == nullptr ? 0 : agent::ResidentBytes(memory_, (kBuffers + 1) * kBufferBytes);
}

}  // namespace tidemark::agent
