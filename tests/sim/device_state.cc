#include "tests/sim/device_state.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace tidemark::sim {
namespace {

uint64_t OwnPidNamespace() {
  struct stat st = {};
  return stat("/proc/self/ns/pid", &st) == 0 ? st.st_ino : 0;
}

std::string StateDirectory() {
  if (const char* dir = getenv("TIDEMARK_SIM_STATE"); dir != nullptr && *dir != '\0') return dir;
  return "/tmp/tidemark-sim-" + std::to_string(geteuid());
}

}  // namespace

uint64_t ParseBytes(const char* text, uint64_t otherwise) {
  if (text == nullptr) return otherwise;
  char* end = nullptr;
  const double number = strtod(text, &end);
  if (end == text || number < 0) return otherwise;
  const std::string unit = end;
  double factor = 1;
  if (unit == "K" || unit == "KiB") {
    factor = 1 << 10;
  } else if (unit == "M" || unit == "MiB") {
    factor = 1 << 20;
  } else if (unit == "G" || unit == "GiB") {
    factor = 1 << 30;
  } else if (!unit.empty() && unit != "B") {
    return otherwise;
  }
  return static_cast<uint64_t>(number * factor);
}

int DeviceCount() {
  static const int count = [] {
    const uint64_t n = ParseBytes(getenv("TIDEMARK_SIM_DEVICES"), 8);
    return static_cast<int>(n < kMaxDevices ? n : kMaxDevices);
  }();
  return count;
}

uint64_t DeviceBytes() {
  static const uint64_t bytes = ParseBytes(getenv("TIDEMARK_SIM_DEVICE_BYTES"), 143156 * kMiB);
  return bytes;
}

std::string DeviceUuid(int device) {
  char text[64];
  snprintf(text, sizeof(text), "GPU-71de3a4c-0000-4000-8000-%012x", device + 1);
  return text;
}

uint64_t ProcessStartTime(pid_t pid) {
  char path[64];
  snprintf(path, sizeof(path), "/proc/%d/stat", pid);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  char text[1024];
  const ssize_t n = read(fd, text, sizeof(text) - 1);
  close(fd);
  if (n <= 0) return 0;
  text[n] = '\0';
  // The command name may hold spaces and parentheses: fields are counted from the last ')'.
  const char* field = strrchr(text, ')');
  if (field == nullptr || field[1] == '\0' || field[2] == 'Z' || field[2] == 'X') return 0;
  for (int i = 2; i < 22 && field != nullptr; ++i) field = strchr(field + 1, ' ');
  return field == nullptr ? 0 : strtoull(field, nullptr, 10);
}

StateFile* MapState(bool create) {
  const std::string dir = StateDirectory();
  // Sticky and open to all, as a device is: jobs of several users share it.
  if (create && mkdir(dir.c_str(), 01777) == 0) chmod(dir.c_str(), 01777);
  const std::string path = dir + "/devices";
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC | (create ? O_CREAT : 0), 0666);
  if (fd < 0) return nullptr;
  void* map = MAP_FAILED;
  if (ftruncate(fd, sizeof(StateFile)) == 0) {
    map = mmap(nullptr, sizeof(StateFile), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  if (create) fchmod(fd, 0666);
  close(fd);
  return map == MAP_FAILED ? nullptr : static_cast<StateFile*>(map);
}

Slot* ClaimSlot(StateFile* state) {
  const std::string lock_path = StateDirectory() + "/lock";
  const int lock = open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (lock >= 0) {
    fchmod(lock, 0666);
    flock(lock, LOCK_EX);
  }
  Slot* claimed = nullptr;
  for (size_t i = 0; i < kMaxSlots; ++i) {
    Slot& slot = state->slots[i];
    if (slot.pid != 0 && OwnerAlive(slot)) continue;
    for (int d = 0; d < kMaxDevices; ++d) {
      slot.bytes[d] = 0;
      slot.contexts[d] = 0;
    }
    slot.pid_namespace = OwnPidNamespace();
    slot.start_time = ProcessStartTime(getpid());
    slot.pid = getpid();
    if (state->slots_in_use <= i) state->slots_in_use = static_cast<uint32_t>(i) + 1;
    claimed = &slot;
    break;
  }
  if (lock >= 0) close(lock);
  return claimed;
}

bool OwnerAlive(const Slot& slot) {
  if (slot.pid == 0) return false;
  if (slot.pid_namespace != OwnPidNamespace()) return true;
  const uint64_t start = ProcessStartTime(slot.pid);
  return start != 0 && start == slot.start_time;
}

uint64_t UsedBytes(const StateFile& state, int device, bool check_owners) {
  uint64_t sum = 0;
  const uint32_t n = state.slots_in_use;
  for (uint32_t i = 0; i < n && i < kMaxSlots; ++i) {
    const Slot& slot = state.slots[i];
    const uint64_t bytes = slot.bytes[device].load(std::memory_order_relaxed);
    if (bytes != 0 && (!check_owners || OwnerAlive(slot))) sum += bytes;
  }
  return sum;
}

}  // namespace tidemark::sim
