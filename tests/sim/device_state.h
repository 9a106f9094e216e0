// What the simulated devices hold, shared by every process that uses them: the file that stands for
// the hardware. The simulated driver writes its process's slot, the simulated NVML reads all slots.
//
//   file TIDEMARK_SIM_STATE/devices (default /tmp/tidemark-sim-UID/devices)
//   +--------+--------+--------+-----
//   | header | slot 0 | slot 1 | ...      one slot a process: who it is, bytes per device
//   +--------+--------+--------+-----
//
// A slot is written by its owner only. A process that is killed leaves its slot behind; whoever
// claims a slot or reads the figures finds the owner gone and takes it as empty, as a real driver
// frees what a dead process held.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace tidemark::sim {

inline constexpr int kMaxDevices = 16;
inline constexpr size_t kMaxSlots = 2048;
inline constexpr uint64_t kMiB = 1 << 20;

struct Slot {
  std::atomic<int32_t> pid;  // as the owner sees itself; 0 when free
  std::atomic<uint64_t> start_time;
  std::atomic<uint64_t> pid_namespace;  // inode of /proc/self/ns/pid
  std::array<std::atomic<uint64_t>, kMaxDevices> bytes;
  std::array<std::atomic<uint32_t>, kMaxDevices> contexts;
};

struct StateFile {
  std::atomic<uint32_t> slots_in_use;  // every used slot has a smaller index
  Slot slots[kMaxSlots];
};

// Devices there are (TIDEMARK_SIM_DEVICES, default 8) and bytes that programs can use on each
// (TIDEMARK_SIM_DEVICE_BYTES, default that of an H200; suffixes KiB, MiB, GiB are understood).
int DeviceCount();
uint64_t DeviceBytes();

// Bytes that the driver keeps of each device for itself: in NVML's total, not in cuMemGetInfo's.
inline constexpr uint64_t kReservedBytes = 615 * kMiB;

std::string DeviceUuid(int device);  // "GPU-..."

// Bytes in `text` ("8MiB", "512", "2GiB"); `otherwise` when it is null or not a number.
uint64_t ParseBytes(const char* text, uint64_t otherwise);

// Start time of a process in clock ticks since boot, field 22 of /proc/PID/stat; 0 when it is gone.
uint64_t ProcessStartTime(pid_t pid);

// The mapped file, or null when it cannot be made (then the devices hold what this process says).
StateFile* MapState(bool create);

// A slot of this process; null when all are taken. Callers keep it for the process's lifetime.
Slot* ClaimSlot(StateFile* state);

// Whether the owner lives. A slot of another pid namespace is taken at its word.
bool OwnerAlive(const Slot& slot);

// Sum over all living processes of the bytes on `device`.
uint64_t UsedBytes(const StateFile& state, int device, bool check_owners);

}  // namespace tidemark::sim
