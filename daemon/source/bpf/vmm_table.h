// Memory behind handles (cuMemCreate) and where it is mapped. It is free when its last handle was
// released and its last mapping is gone, in either order.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

namespace tidemark {

class VmmTable {
 public:
  // What one call changed, so that it can be undone when the call turns out to have failed.
  struct Change {
    std::vector<uint64_t> freed;  // memory that is free now, by its first handle
    uint64_t released_handle = 0;
    struct Unmapped {
      uint64_t address;
      uint64_t bytes;
      uint64_t memory;
    };
    std::vector<Unmapped> unmapped;
  };

  // `handle` is a new one and names the memory from now on.
  void Create(uint64_t handle);
  // `handle`, maybe one already known, is one more for the memory mapped at `address`.
  void Retain(uint64_t handle, uint64_t address);
  void Map(uint64_t address, uint64_t bytes, uint64_t handle);

  Change Release(uint64_t handle);
  // Whole mappings only, as the driver has it: a range that cuts one changes nothing.
  Change Unmap(uint64_t address, uint64_t bytes);
  void Undo(const Change& change);

  void Clear();

 private:
  struct Memory {
    uint32_t handles = 0;
    uint32_t mappings = 0;
  };
  struct Mapped {
    uint64_t bytes;
    uint64_t memory;
  };

  void DropIfFree(uint64_t memory, Change* change);

  std::unordered_map<uint64_t, Memory> memory_;  // by first handle
  std::unordered_map<uint64_t, uint64_t> memory_of_handle_;
  std::map<uint64_t, Mapped> mappings_;  // by address
};

}  // namespace tidemark
