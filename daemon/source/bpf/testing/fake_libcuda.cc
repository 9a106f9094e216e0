// A stand-in for libcuda's memory calls, for tests of the probes: no memory behind it, addresses
// handed out last-freed-first so that threads reuse each other's at once, and calls that fail, die
// or leave by longjmp when asked to.
//
// Independent of the simulated CUDA stack on purpose: these tests must not inherit its mistakes.
#include "daemon/source/bpf/testing/fake_libcuda.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <csetjmp>
#include <mutex>
#include <stdexcept>
#include <unordered_map>
#include <vector>

namespace {

constexpr int kInvalidValue = 1;
constexpr int kOutOfMemory = 2;

struct Driver {
  std::mutex mutex;
  std::vector<unsigned long long> free_addresses;
  unsigned long long next_address = 0x7f0000000000ull;
  std::unordered_map<unsigned long long, size_t> live;
  std::unordered_map<unsigned long long, size_t> registered;
};

Driver& TheDriver() {
  static Driver* driver = new Driver();  // never destroyed: threads may outlive main
  return *driver;
}

int Allocate(unsigned long long* out, size_t bytes) {
  if (bytes == 0) return kInvalidValue;
  if (bytes > kFakeMaxBytes) return kOutOfMemory;
  Driver& driver = TheDriver();
  std::lock_guard lock(driver.mutex);
  if (driver.free_addresses.empty()) {
    *out = driver.next_address;
    driver.next_address += 0x200000;
  } else {
    *out = driver.free_addresses.back();
    driver.free_addresses.pop_back();
  }
  driver.live[*out] = bytes;
  return 0;
}

int Free(unsigned long long address) {
  if (address == 0) return 0;
  Driver& driver = TheDriver();
  std::lock_guard lock(driver.mutex);
  if (driver.live.erase(address) == 0) return kInvalidValue;
  driver.free_addresses.push_back(address);
  return 0;
}

}  // namespace

extern "C" {

jmp_buf fake_libcuda_escape;

int cuMemAllocHost_v2(void** out, size_t bytes) {
  return Allocate(reinterpret_cast<unsigned long long*>(out), bytes);
}

int cuMemHostAlloc(void** out, size_t bytes, unsigned int flags) {
  if (flags == kFakeDieInside) syscall(SYS_exit, 0);
  if (flags == kFakeLongjmpInside) longjmp(fake_libcuda_escape, 1);
  if (flags == kFakeNestInside) return cuMemAllocHost_v2(out, bytes);
  if (flags == kFakeSlow) usleep(200'000);
  return Allocate(reinterpret_cast<unsigned long long*>(out), bytes);
}

int cuMemFreeHost(void* address) { return Free(reinterpret_cast<unsigned long long>(address)); }

int cuMemHostRegister_v2(void* address, size_t bytes, unsigned int) {
  if (bytes == 0) return kInvalidValue;
  Driver& driver = TheDriver();
  std::lock_guard lock(driver.mutex);
  const bool is_new =
      driver.registered.emplace(reinterpret_cast<unsigned long long>(address), bytes).second;
  return is_new ? 0 : kInvalidValue;
}

int cuMemHostUnregister(void* address) {
  Driver& driver = TheDriver();
  std::lock_guard lock(driver.mutex);
  return driver.registered.erase(reinterpret_cast<unsigned long long>(address)) ? 0 : kInvalidValue;
}

int fake_throws(int value) {
  if (value % 2) throw std::runtime_error("across the library's edge");
  return value;
}

}  // extern "C"
