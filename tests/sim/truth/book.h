// What the scripted allocator knows to be true: bytes and calls per kind and device, and per entry
// point. One book a thread, added up where the threads meet, so that keeping it costs no lock.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace tidemark::truth {

enum class Kind { kDevice, kPool, kVmm, kManaged, kArray, kGraph, kIpc, kPinned, kRegistered };
inline constexpr int kKinds = 9;
inline constexpr std::array<const char*, kKinds> kKindNames = {
    "device", "pool", "vmm", "managed", "array", "graph", "ipc", "pinned", "registered"};

inline constexpr int kDevices = 2;
inline constexpr int kHost = -1;  // "device" of host memory

struct Group {
  int64_t allocated = 0;
  int64_t freed = 0;             // by a call for it
  int64_t implicitly_freed = 0;  // with its context
  int64_t allocations = 0;
  int64_t frees = 0;
  int64_t implicit_frees = 0;
  int64_t peak = 0;  // known at barriers only

  int64_t live() const { return allocated - freed - implicitly_freed; }
};

struct Calls {
  int64_t calls = 0;  // failed ones included
  int64_t failed = 0;
  int64_t requested_bytes = 0;  // of failed ones too
};

class Book {
 public:
  Group& group(Kind kind, int device) { return groups_[static_cast<int>(kind)][device + 1]; }
  const Group& group(Kind kind, int device) const {
    return groups_[static_cast<int>(kind)][device + 1];
  }

  void Called(const char* entry_point, bool failed, uint64_t bytes = 0) {
    Calls& calls = calls_[entry_point];
    ++calls.calls;
    if (failed) ++calls.failed;
    calls.requested_bytes += static_cast<int64_t>(bytes);
  }
  void Allocated(Kind kind, int device, uint64_t bytes) {
    Group& g = group(kind, device);
    g.allocated += static_cast<int64_t>(bytes);
    ++g.allocations;
  }
  void Freed(Kind kind, int device, uint64_t bytes) {
    Group& g = group(kind, device);
    g.freed += static_cast<int64_t>(bytes);
    ++g.frees;
  }
  void FreedImplicitly(Kind kind, int device, uint64_t bytes) {
    Group& g = group(kind, device);
    g.implicitly_freed += static_cast<int64_t>(bytes);
    ++g.implicit_frees;
  }

  void Add(const Book& other) {
    for (int kind = 0; kind < kKinds; ++kind) {
      for (int device = 0; device <= kDevices; ++device) {
        Group& to = groups_[kind][device];
        const Group& from = other.groups_[kind][device];
        to.allocated += from.allocated;
        to.freed += from.freed;
        to.implicitly_freed += from.implicitly_freed;
        to.allocations += from.allocations;
        to.frees += from.frees;
        to.implicit_frees += from.implicit_frees;
        if (from.peak > to.peak) to.peak = from.peak;
      }
    }
    for (const auto& [name, calls] : other.calls_) {
      calls_[name].calls += calls.calls;
      calls_[name].failed += calls.failed;
      calls_[name].requested_bytes += calls.requested_bytes;
    }
  }

  nlohmann::json ToJson() const {
    nlohmann::json groups = nlohmann::json::array();
    for (int kind = 0; kind < kKinds; ++kind) {
      for (int device = kHost; device < kDevices; ++device) {
        const Group& g = groups_[kind][device + 1];
        if (g.allocations == 0) continue;
        // No block of another process is made at a barrier, so that peak is not known.
        const bool peak_known = static_cast<Kind>(kind) != Kind::kIpc;
        groups.push_back({{"kind", kKindNames[kind]},
                          {"device", device},
                          {"live", g.live()},
                          {"allocated", g.allocated},
                          {"freed", g.freed},
                          {"implicitly_freed", g.implicitly_freed},
                          {"peak", peak_known ? nlohmann::json(g.peak) : nlohmann::json()},
                          {"allocations", g.allocations},
                          {"frees", g.frees},
                          {"implicit_frees", g.implicit_frees}});
      }
    }
    nlohmann::json entry_points = nlohmann::json::object();
    for (const auto& [name, calls] : calls_) {
      entry_points[name] = {{"calls", calls.calls},
                            {"failed", calls.failed},
                            {"requested_bytes", calls.requested_bytes}};
    }
    return {{"groups", groups}, {"entry_points", entry_points}};
  }

 private:
  std::array<std::array<Group, kDevices + 1>, kKinds> groups_ = {};
  std::map<std::string, Calls, std::less<>> calls_;
};

}  // namespace tidemark::truth
