// One thread of the scripted allocator: a seeded sequence of calls over every entry point, failures
// included, with its own book. What a thread allocates it frees itself, or hands to another thread
// through the exchange.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "tests/sim/cuda_api.h"
#include "tests/sim/truth/book.h"

namespace tidemark::truth {

inline constexpr uint64_t kKiB = 1 << 10;
inline constexpr uint64_t kMiB = 1 << 20;

// No thread ever holds more than this in one (kind, device) outside barriers. At a barrier one
// block of more than all threads' most is added, so the peak is there and nowhere else.
inline constexpr uint64_t kMostPerThread = 64 * kMiB;

struct Allocation {
  Kind kind;
  int device;          // kHost for pinned and registered
  int context_device;  // whose context it was made in
  uint64_t address;    // or handle
  uint64_t bytes;
  uint64_t second = 0;  // vmm: the address it is mapped at, 0 when it is not
  bool in_context = true;
};

// Where threads leave allocations for one another.
class Exchange {
 public:
  void Put(const Allocation& allocation);
  bool Take(Allocation* allocation);

 private:
  std::mutex mutex_;
  std::vector<Allocation> waiting_;
};

// A handle of the exporter process that only this thread opens.
struct Exported {
  CUipcMemHandle handle;
  uint64_t bytes;
  uint64_t address = 0;
  int opens = 0;
  int device = 0;
};

class Script {
 public:
  Script(uint64_t seed, const CUcontext* contexts, Exchange* exchange,
         std::vector<Exported> exported);
  ~Script();

  void Run(int64_t operations);
  // Adds one block of every kind on every device, larger than all that the threads may hold.
  void RaiseToPeak(int threads);
  void DropPeak();

  const Book& book() const { return book_; }
  Book* mutable_book() { return &book_; }
  const std::vector<Allocation>& held() const { return held_; }
  // What a reset of every context frees of this thread's.
  void BookReset();

 private:
  uint64_t Random();
  uint64_t Below(uint64_t n) { return Random() % n; }
  uint64_t Size(uint64_t most);
  void UseDevice(int device);
  bool Fits(Kind kind, int device, uint64_t bytes) const;
  void Hold(const Allocation& allocation);

  void Operation();
  void AllocateSomething();
  void FreeSomething();
  void FailSomething();
  void DoRareThing();

  bool AllocateDevice(uint64_t bytes);
  bool AllocatePitch(uint64_t width, uint64_t height);
  bool AllocateManaged(uint64_t bytes);
  bool AllocatePinned(uint64_t bytes);
  bool Register(uint64_t bytes);
  bool AllocateAsync(uint64_t bytes);
  bool AllocateFromPool(uint64_t bytes);
  bool CreateVmm(uint64_t bytes, bool on_host);
  bool CreateArray(uint64_t width, uint64_t height);
  bool CreateMipmap(uint64_t width);
  bool AddGraphNode(uint64_t bytes);
  bool OpenExported();
  void Free(const Allocation& allocation);
  void FreeVmm(const Allocation& allocation);
  void SideContext();
  void DestroyPoolWithLiveBlock();

  uint64_t state_;
  const CUcontext* contexts_;
  Exchange* exchange_;
  std::vector<Exported> exported_;
  int device_ = 0;
  Book book_;
  std::vector<Allocation> held_;
  std::vector<Allocation> peak_;
  int64_t live_[kKinds][kDevices + 1] = {};  // of this thread, given away or not
  CUmemoryPool pools_[kDevices] = {};
  CUstream streams_[kDevices] = {};
  CUgraph graphs_[kDevices] = {};
  int graph_nodes_[kDevices] = {};
  int graph_live_[kDevices] = {};
  char* registrable_ = nullptr;  // address space to register parts of
  uint64_t registrable_used_ = 0;
  std::vector<std::pair<uint64_t, uint64_t>> registrable_free_;
};

}  // namespace tidemark::truth
