// A small job that knows what it holds and what its process looked like before the driver's first
// call. For agent_job_test.
//
//   agent_job hold       allocates 1000000 bytes, prints "ready", waits for the end of its input
//   agent_job last       the same, and allocates as much again right before it exits
//   agent_job promises   prints "unchanged", or a line for each thing that injection changed
//   agent_job slots      prints "slots same|changed" after injection and after each line of input
//   agent_job fork       a forked child reports blocks and steps; the parent then says "ready"
//   agent_job linked     a profiler of its own, by import: prints what it recorded
//   agent_job dlopen     the same by dlopen + dlsym
//   agent_job static     the same, linked statically (another program)
#include <dlfcn.h>
#include <link.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "tests/sim/cuda_api.h"
#include "tests/sim/cupti_api.h"
#include "tests/sim/torch/c10.h"

extern char** environ;

namespace {

constexpr size_t kHeldBytes = 1000000;

void Must(bool ok, const char* what) {
  if (ok) return;
  fprintf(stderr, "agent_job: %s failed\n", what);
  _exit(3);
}

void Say(const std::string& line) {
  printf("%s\n", line.c_str());
  fflush(stdout);
}

bool ReadLine() {
  char c;
  while (read(STDIN_FILENO, &c, 1) == 1) {
    if (c == '\n') return true;
  }
  return false;
}

CUdeviceptr Begin() {
  CUcontext context = nullptr;
  Must(cuInit(0) == CUDA_SUCCESS, "cuInit");
  Must(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS, "cuDevicePrimaryCtxRetain");
  Must(cuCtxSetCurrent(context) == CUDA_SUCCESS, "cuCtxSetCurrent");
  CUdeviceptr address = 0;
  Must(cuMemAlloc_v2(&address, kHeldBytes) == CUDA_SUCCESS, "cuMemAlloc");
  return address;
}

int Hold() {
  Begin();
  Say("ready");
  while (ReadLine()) {
  }
  return 0;
}

int Last() {
  Hold();
  CUdeviceptr address = 0;
  Must(cuMemAlloc_v2(&address, kHeldBytes) == CUDA_SUCCESS, "cuMemAlloc");
  return 0;
}

struct ProcessState {
  std::string environment;
  std::string mask;
  std::map<int, void (*)(int)> handlers;
  std::string directory;

  static ProcessState Now() {
    ProcessState state;
    for (char** v = environ; *v != nullptr; ++v) state.environment += std::string(*v) + "\n";
    sigset_t mask;
    sigprocmask(SIG_BLOCK, nullptr, &mask);
    for (int s = 1; s < 65; ++s) state.mask += sigismember(&mask, s) == 1 ? '1' : '0';
    for (int s = 1; s < 65; ++s) {
      struct sigaction action;
      if (sigaction(s, nullptr, &action) == 0) state.handlers[s] = action.sa_handler;
    }
    char path[4096];
    state.directory = getcwd(path, sizeof(path)) == nullptr ? "" : path;
    return state;
  }
};

int Promises() {
  const ProcessState before = ProcessState::Now();
  Begin();
  const ProcessState after = ProcessState::Now();
  bool same = true;
  auto differs = [&](bool different, const char* what) {
    if (!different) return;
    Say(std::string("changed: ") + what);
    same = false;
  };
  differs(before.environment != after.environment, "environment");
  differs(before.mask != after.mask, "signal mask");
  differs(before.handlers != after.handlers, "signal handlers");
  differs(before.directory != after.directory, "working directory");
  Say(same ? "unchanged" : "changed");
  while (ReadLine()) {
  }
  return 0;
}

// Every import slot of the modules that are here now, by address. The program runs with
// LD_BIND_NOW, so nothing but a hook changes one.
using Slots = std::map<void**, void*>;

int CollectSlots(dl_phdr_info* info, size_t, void* raw) {
  auto& slots = *static_cast<Slots*>(raw);
  if (strstr(info->dlpi_name, "linux-vdso") != nullptr) return 0;
  const ElfW(Dyn)* dynamic = nullptr;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    if (info->dlpi_phdr[i].p_type == PT_DYNAMIC) {
      dynamic = reinterpret_cast<const ElfW(Dyn)*>(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    }
  }
  ElfW(Addr) tables[2] = {};
  size_t bytes[2] = {};
  for (; dynamic != nullptr && dynamic->d_tag != DT_NULL; ++dynamic) {
    if (dynamic->d_tag == DT_JMPREL) tables[0] = dynamic->d_un.d_ptr;
    if (dynamic->d_tag == DT_PLTRELSZ) bytes[0] = dynamic->d_un.d_val;
    if (dynamic->d_tag == DT_RELA) tables[1] = dynamic->d_un.d_ptr;
    if (dynamic->d_tag == DT_RELASZ) bytes[1] = dynamic->d_un.d_val;
  }
  for (int t = 0; t < 2; ++t) {
    const auto* rela = reinterpret_cast<const ElfW(Rela)*>(tables[t]);
    for (size_t i = 0; i < bytes[t] / sizeof(ElfW(Rela)); ++i) {
      const auto type = ELF64_R_TYPE(rela[i].r_info);
      if (type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT) continue;
      auto** slot = reinterpret_cast<void**>(info->dlpi_addr + rela[i].r_offset);
      slots[slot] = *slot;
    }
  }
  return 0;
}

int CompareSlots() {
  Slots before;
  dl_iterate_phdr(CollectSlots, &before);
  Begin();
  do {
    size_t changed = 0;
    for (const auto& [slot, value] : before) changed += *slot != value;
    Say(changed == 0 ? "slots same" : "slots changed");
  } while (ReadLine());
  return 0;
}

int Fork() {
  Begin();
  const c10::Device device = {c10::DeviceType::CUDA, 0};
  c10::reportMemoryUsageToProfiler(reinterpret_cast<void*>(0x1000), 512, 512, 2048, device);
  for (int i = 0; i < 3; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      for (uint64_t n = 2; n < 500; ++n) {
        c10::reportMemoryUsageToProfiler(reinterpret_cast<void*>(n * 0x1000), 512, 512 * n, 2048,
                                         device);
        void* tensor = c10::DefaultCPUAllocator::allocate(64);
        if (n % 2 == 0) c10::DefaultCPUAllocator::ReportAndDelete(tensor);
      }
      if (auto* step = reinterpret_cast<void (*)()>(dlsym(RTLD_DEFAULT, "tidemark_step"))) step();
      exit(0);  // the exit handlers too
    }
    int status = 0;
    waitpid(child, &status, 0);
    Must(status == 0, "child");
  }
  Say("ready");
  while (ReadLine()) {
  }
  return 0;
}

// A profiler as Kineto is one: its own subscription, its own buffers, memory and driver-call
// records.
struct Profiler {
  decltype(&cuptiSubscribe) subscribe;
  decltype(&cuptiEnableCallback) enable_callback;
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks;
  decltype(&cuptiActivityEnable) enable;
  decltype(&cuptiActivityFlushAll) flush;
  decltype(&cuptiActivityGetNextRecord) next;
};
Profiler g_profiler;
std::map<int, int> g_records;
int g_callbacks = 0;

void Requested(uint8_t** buffer, size_t* bytes, size_t* most) {
  *bytes = 64 << 10;
  *buffer = static_cast<uint8_t*>(aligned_alloc(8, *bytes));
  *most = 0;
}

void Completed(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  CUpti_Activity* record = nullptr;
  while (g_profiler.next(buffer, valid, &record) == CUPTI_SUCCESS) ++g_records[record->kind];
  free(buffer);
}

int Profile() {
  CUpti_SubscriberHandle subscriber = nullptr;
  const CUptiResult subscribed = g_profiler.subscribe(
      &subscriber,
      [](void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) { ++g_callbacks; }, nullptr);
  std::string line = "subscribe " + std::to_string(subscribed);
  if (subscribed == CUPTI_SUCCESS) {
    g_profiler.enable_callback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API,
                               CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2);
  }
  line += " register " + std::to_string(g_profiler.register_callbacks(Requested, Completed));
  line += " enable " + std::to_string(g_profiler.enable(CUPTI_ACTIVITY_KIND_MEMORY2)) + " " +
          std::to_string(g_profiler.enable(CUPTI_ACTIVITY_KIND_DRIVER));
  for (int i = 0; i < 500; ++i) {
    CUdeviceptr address = 0;
    Must(cuMemAlloc_v2(&address, 4096) == CUDA_SUCCESS, "cuMemAlloc");
    Must(cuMemFree_v2(address) == CUDA_SUCCESS, "cuMemFree");
  }
  g_profiler.flush(1);
  line += " callbacks " + std::to_string(g_callbacks);
  for (const auto& [kind, count] : g_records) {
    line += " kind " + std::to_string(kind) + ": " + std::to_string(count);
  }
  Say(line);
  while (ReadLine()) {
  }
  return 0;
}

// Calls, not addresses: a compiler may read an address from its import slot long before injection.
int ProfileByImport() {
  Begin();
  g_profiler.subscribe = [](CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc callback,
                            void* data) { return cuptiSubscribe(subscriber, callback, data); };
  g_profiler.enable_callback = cuptiEnableCallback;
  g_profiler.register_callbacks = [](CUpti_BuffersCallbackRequestFunc requested,
                                     CUpti_BuffersCallbackCompleteFunc completed) {
    return cuptiActivityRegisterCallbacks(requested, completed);
  };
  g_profiler.enable = cuptiActivityEnable;
  g_profiler.flush = cuptiActivityFlushAll;
  g_profiler.next = cuptiActivityGetNextRecord;
  return Profile();
}

#ifndef AGENT_JOB_STATIC
int ProfileByLookup() {
  Begin();
  void* library = dlopen("libcupti.so.13", RTLD_NOW | RTLD_LOCAL);
  Must(library != nullptr, "dlopen");
  auto look = [&](auto* function, const char* name) {
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(dlsym(library, name));
  };
  look(&g_profiler.subscribe, "cuptiSubscribe");
  look(&g_profiler.enable_callback, "cuptiEnableCallback");
  look(&g_profiler.register_callbacks, "cuptiActivityRegisterCallbacks");
  look(&g_profiler.enable, "cuptiActivityEnable");
  look(&g_profiler.flush, "cuptiActivityFlushAll");
  look(&g_profiler.next, "cuptiActivityGetNextRecord");
  return Profile();
}
#endif

}  // namespace

#ifdef AGENT_JOB_STATIC
// What the real CUPTI adds to a program it is linked into; the simulated one is tiny.
__attribute__((used)) constexpr char kCuptiBytes[4 << 20] = {1};
#endif

int main(int argc, char** argv) {
  const std::string mode = argc == 2 ? argv[1] : "";
#ifdef AGENT_JOB_STATIC
  if (mode == "static") return ProfileByImport();
#else
  if (mode == "linked") return ProfileByImport();
  if (mode == "dlopen") return ProfileByLookup();
#endif
  if (mode == "hold") return Hold();
  if (mode == "last") return Last();
  if (mode == "promises") return Promises();
  if (mode == "slots") return CompareSlots();
  if (mode == "fork") return Fork();
  fprintf(stderr, "agent_job: unknown mode '%s'\n", mode.c_str());
  return 2;
}
