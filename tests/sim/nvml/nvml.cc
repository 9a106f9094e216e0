// The simulated libnvidia-ml.so.1: devices, their memory and the processes on them, read from the
// state file that the simulated drivers of all processes write.
//
// Like the real one it speaks of pids as the caller's pid namespace sees them and drops the others.
//   TIDEMARK_SIM_NVML=blind         no process is reported (a container without the host's pids)
//   TIDEMARK_SIM_NVML=unsupported   asking for processes is NVML_ERROR_NOT_SUPPORTED
//   TIDEMARK_SIM_NVML=lost          every device call is NVML_ERROR_GPU_IS_LOST
//   TIDEMARK_SIM_MIG=N              device 0 is split into N equal instances; processes are on the
//                                   first
#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "cupti_agent/abi/nvml_abi.h"
#include "tests/sim/device_state.h"

#define SIM_EXPORT extern "C" __attribute__((visibility("default")))

using namespace tidemark::abi;  // NOLINT: this file speaks for NVML, whose names are global
using namespace tidemark::sim;  // NOLINT

namespace tidemark::abi {
struct nvmlDevice_st {
  int device;
  int instance;  // -1: the whole device
};
}  // namespace tidemark::abi

namespace {

constexpr int kMaxInstances = 7;
bool initialized = false;

bool Mode(const char* name) {
  const char* value = getenv("TIDEMARK_SIM_NVML");
  return value != nullptr && strcmp(value, name) == 0;
}

int Instances() {
  const auto n = static_cast<int>(ParseBytes(getenv("TIDEMARK_SIM_MIG"), 0));
  return n < kMaxInstances ? n : kMaxInstances;
}

nvmlDevice_st* Handle(int device, int instance) {
  static nvmlDevice_st handles[kMaxDevices][kMaxInstances + 1];
  nvmlDevice_st* handle = &handles[device][instance + 1];
  *handle = {device, instance};
  return handle;
}

// Mapped again at each question: a job may have made the file since.
StateFile* State() {
  static StateFile* state = nullptr;
  if (state == nullptr) state = MapState(/*create=*/false);
  return state;
}

nvmlReturn_t Check(nvmlDevice_t device) {
  if (!initialized) return NVML_ERROR_UNINITIALIZED;
  if (device == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  return Mode("lost") ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
}

// The pid by which this process knows the owner of `slot`, or 0 when it cannot see it.
unsigned PidHere(const Slot& slot) {
  struct stat own = {};
  if (stat("/proc/self/ns/pid", &own) == 0 && own.st_ino == slot.pid_namespace) {
    return OwnerAlive(slot) ? static_cast<unsigned>(slot.pid) : 0;
  }
  DIR* proc = opendir("/proc");
  if (proc == nullptr) return 0;
  unsigned found = 0;
  while (const dirent* entry = readdir(proc)) {
    const int pid = atoi(entry->d_name);
    if (pid <= 0) continue;
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/ns/pid", pid);
    struct stat ns = {};
    if (stat(path, &ns) != 0 || ns.st_ino != slot.pid_namespace) continue;
    if (ProcessStartTime(pid) != slot.start_time) continue;
    found = static_cast<unsigned>(pid);
    break;
  }
  closedir(proc);
  return found;
}

struct Process {
  unsigned pid;
  uint64_t bytes;
};

std::vector<Process> ProcessesOn(int device) {
  std::vector<Process> found;
  const StateFile* state = State();
  if (state == nullptr || Mode("blind")) return found;
  for (uint32_t i = 0; i < state->slots_in_use && i < kMaxSlots; ++i) {
    const Slot& slot = state->slots[i];
    if (slot.pid == 0 || slot.contexts[device] == 0) continue;
    if (const unsigned pid = PidHere(slot)) found.push_back({pid, slot.bytes[device]});
  }
  return found;
}

void Memory(const nvmlDevice_st& device, uint64_t* total, uint64_t* used) {
  const uint64_t busy = State() == nullptr ? 0 : UsedBytes(*State(), device.device, true);
  *total = DeviceBytes() + kReservedBytes;
  *used = busy;
  if (device.instance >= 0) {
    *total /= static_cast<uint64_t>(Instances());
    if (device.instance != 0) *used = 0;
  }
}

}  // namespace

SIM_EXPORT nvmlReturn_t nvmlInit_v2() {
  if (DeviceCount() == 0) return NVML_ERROR_DRIVER_NOT_LOADED;
  initialized = true;
  return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned) { return nvmlInit_v2(); }

SIM_EXPORT nvmlReturn_t nvmlShutdown() {
  if (!initialized) return NVML_ERROR_UNINITIALIZED;
  initialized = false;
  return NVML_SUCCESS;
}

SIM_EXPORT const char* nvmlErrorString(nvmlReturn_t result) {
  switch (result) {
    case NVML_SUCCESS:
      return "The operation was successful";
    case NVML_ERROR_UNINITIALIZED:
      return "NVML was not first initialized with nvmlInit()";
    case NVML_ERROR_INVALID_ARGUMENT:
      return "A supplied argument is invalid";
    case NVML_ERROR_NOT_SUPPORTED:
      return "The requested operation is not available on the target device";
    case NVML_ERROR_NO_PERMISSION:
      return "The current user does not have permission for the operation";
    case NVML_ERROR_NOT_FOUND:
      return "A query to find an object was unsuccessful";
    case NVML_ERROR_INSUFFICIENT_SIZE:
      return "An input argument is not large enough";
    case NVML_ERROR_DRIVER_NOT_LOADED:
      return "The NVIDIA driver is not loaded";
    case NVML_ERROR_TIMEOUT:
      return "The user-provided timeout passed";
    case NVML_ERROR_LIBRARY_NOT_FOUND:
      return "A shared library could not be found or loaded";
    case NVML_ERROR_FUNCTION_NOT_FOUND:
      return "The local version of NVML does not implement this function";
    case NVML_ERROR_GPU_IS_LOST:
      return "The GPU has fallen off the bus or has otherwise become inaccessible";
    case NVML_ERROR_ARGUMENT_VERSION_MISMATCH:
      return "The provided version is invalid or unsupported";
    case NVML_ERROR_UNKNOWN:
      return "An internal driver error occurred";
  }
  return "Unknown error";
}

SIM_EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char* version, unsigned length) {
  if (!initialized) return NVML_ERROR_UNINITIALIZED;
  snprintf(version, length, "580.159.04");
  return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned* count) {
  if (!initialized) return NVML_ERROR_UNINITIALIZED;
  *count = static_cast<unsigned>(DeviceCount());
  return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t* device) {
  if (!initialized) return NVML_ERROR_UNINITIALIZED;
  if (index >= static_cast<unsigned>(DeviceCount())) return NVML_ERROR_INVALID_ARGUMENT;
  if (Mode("lost")) return NVML_ERROR_GPU_IS_LOST;
  *device = Handle(static_cast<int>(index), -1);
  return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned* index) {
  if (const nvmlReturn_t result = Check(device); result != NVML_SUCCESS) return result;
  *index = static_cast<unsigned>(device->device);
  return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned* minor) {
  return nvmlDeviceGetIndex(device, minor);
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char* uuid, unsigned length) {
  if (const nvmlReturn_t result = Check(device); result != NVML_SUCCESS) return result;
  std::string text = DeviceUuid(device->device);
  if (device->instance >= 0) {
    text = "MIG-" + text.substr(4);
    text[4] = static_cast<char>('a' + device->instance);
  }
  if (text.size() >= length) return NVML_ERROR_INSUFFICIENT_SIZE;
  snprintf(uuid, length, "%s", text.c_str());
  return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char* name, unsigned length) {
  if (const nvmlReturn_t result = Check(device); result != NVML_SUCCESS) return result;
  snprintf(name, length, "Simulated H200");
  return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t* pci) {
  if (const nvmlReturn_t result = Check(device); result != NVML_SUCCESS) return result;
  *pci = {};
  pci->bus = static_cast<unsigned>(device->device) + 1;
  snprintf(pci->busIdLegacy, sizeof(pci->busIdLegacy), "0000:%02X:00.0", pci->bus);
  snprintf(pci->busId, sizeof(pci->busId), "00000000:%02X:00.0", pci->bus);
  return NVML_SUCCESS;
}

// The first version counts what the driver reserves as used, the second tells it apart.
SIM_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t* memory) {
  if (const nvmlReturn_t result = Check(device); result != NVML_SUCCESS) return result;
  uint64_t total = 0;
  uint64_t used = 0;
  Memory(*device, &total, &used);
  const uint64_t reserved = device->instance < 0 ? kReservedBytes : 0;
  *memory = {total, total - used - reserved, used + reserved};
  return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t* memory) {
  if (const nvmlReturn_t result = Check(device); result != NVML_SUCCESS) return result;
  if (memory == nullptr || memory->version != kNvmlMemoryV2) {
    return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  }
  uint64_t total = 0;
  uint64_t used = 0;
  Memory(*device, &total, &used);
  const uint64_t reserved = device->instance < 0 ? kReservedBytes : 0;
  *memory = {kNvmlMemoryV2, total, reserved, total - used - reserved, used};
  return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device,
                                                                unsigned* count,
                                                                nvmlProcessInfo_t* infos) {
  if (const nvmlReturn_t result = Check(device); result != NVML_SUCCESS) return result;
  if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (Mode("unsupported")) return NVML_ERROR_NOT_SUPPORTED;
  const auto processes =
      device->instance > 0 ? std::vector<Process>{} : ProcessesOn(device->device);
  const unsigned capacity = *count;
  *count = static_cast<unsigned>(processes.size());
  if (processes.size() > capacity || (infos == nullptr && !processes.empty())) {
    return NVML_ERROR_INSUFFICIENT_SIZE;
  }
  const bool split = device->device == 0 && Instances() > 0;
  for (size_t i = 0; i < processes.size(); ++i) {
    infos[i] = {processes[i].pid, processes[i].bytes, split ? 1 : kNvmlNoInstance,
                split ? 0 : kNvmlNoInstance};
  }
  return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device,
                                                                unsigned* count,
                                                                nvmlProcessInfo_t* infos) {
  return nvmlDeviceGetComputeRunningProcesses_v3(device, count, infos);
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned* current,
                                             unsigned* pending) {
  if (const nvmlReturn_t result = Check(device); result != NVML_SUCCESS) return result;
  *current = device->device == 0 && Instances() > 0 ? kNvmlDeviceMigEnable : kNvmlDeviceMigDisable;
  *pending = *current;
  return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned* count) {
  if (const nvmlReturn_t result = Check(device); result != NVML_SUCCESS) return result;
  *count = kMaxInstances;
  return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index,
                                                            nvmlDevice_t* mig_device) {
  if (const nvmlReturn_t result = Check(device); result != NVML_SUCCESS) return result;
  if (device->device != 0 || index >= static_cast<unsigned>(Instances())) {
    return NVML_ERROR_NOT_FOUND;
  }
  *mig_device = Handle(device->device, static_cast<int>(index));
  return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig_device,
                                                                     nvmlDevice_t* device) {
  if (const nvmlReturn_t result = Check(mig_device); result != NVML_SUCCESS) return result;
  if (mig_device->instance < 0) return NVML_ERROR_INVALID_ARGUMENT;
  *device = Handle(mig_device->device, -1);
  return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned* id) {
  if (const nvmlReturn_t result = Check(device); result != NVML_SUCCESS) return result;
  if (device->instance < 0) return NVML_ERROR_NOT_SUPPORTED;
  *id = static_cast<unsigned>(device->instance) + 1;
  return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned* id) {
  if (const nvmlReturn_t result = Check(device); result != NVML_SUCCESS) return result;
  if (device->instance < 0) return NVML_ERROR_NOT_SUPPORTED;
  *id = 0;
  return NVML_SUCCESS;
}
