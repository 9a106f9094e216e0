#include "cupti_agent/hooks/import_hooks.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <link.h>
#include <unwind.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

// The loader's own locks are not instrumented, so what it does under them looks like a race.
extern "C" const char* __tsan_default_suppressions() { return "race:ld-linux-x86-64.so\n"; }

namespace tidemark::agent {
namespace {

using testing::Contains;
using testing::HasSubstr;

const char* const kBindings[] = {"lazy", "now", "noplt", "relro"};

uint8_t alive = 1;
std::atomic<int> reports{0};
std::atomic<int> throwing_calls{0};
std::atomic<int> prefixed_calls{0};
std::atomic<int> many_calls{0};
std::vector<std::string> lookups;
std::vector<std::string> unwound;
uint64_t seen_integers[6];
double seen_vectors[8];

// Ruins every register an observer may ruin, so that whatever the thunk forgets shows.
void ClobberRegisters() {
  asm volatile(
      "mov $0x5a5a5a5a, %%rax; mov %%rax, %%rdi; mov %%rax, %%rsi; mov %%rax, %%rdx;"
      "mov %%rax, %%rcx; mov %%rax, %%r8; mov %%rax, %%r9; mov %%rax, %%r10; mov %%rax, %%r11;"
      "pcmpeqd %%xmm0, %%xmm0; pcmpeqd %%xmm1, %%xmm1; pcmpeqd %%xmm2, %%xmm2;"
      "pcmpeqd %%xmm3, %%xmm3; pcmpeqd %%xmm4, %%xmm4; pcmpeqd %%xmm5, %%xmm5;"
      "pcmpeqd %%xmm6, %%xmm6; pcmpeqd %%xmm7, %%xmm7" ::
          : "rax", "rdi", "rsi", "rdx", "rcx", "r8", "r9", "r10", "r11", "xmm0", "xmm1", "xmm2",
            "xmm3", "xmm4", "xmm5", "xmm6", "xmm7");
}

void OnReport(const HookCall&) {
  ++reports;
  errno = EDOM;
}
void OnThrows(const HookCall&) { ++throwing_calls; }
void OnPrefixed(const HookCall&) { ++prefixed_calls; }
void OnMany(const HookCall& call) {
  ++many_calls;
  memcpy(seen_integers, call.arguments, sizeof(seen_integers));
  for (int i = 0; i < 8; ++i) memcpy(&seen_vectors[i], call.vectors[i], sizeof(double));
  ClobberRegisters();
}
void OnReturnAddress(const HookCall&) {
  unwound.clear();
  _Unwind_Backtrace(
      [](_Unwind_Context* context, void*) {
        Dl_info info;
        bool named = dladdr(reinterpret_cast<void*>(_Unwind_GetIP(context)), &info) != 0 &&
                     info.dli_sname != nullptr;
        unwound.push_back(named ? info.dli_sname : "?");
        return _URC_NO_REASON;
      },
      nullptr);
}

HookId report_hook, throws_hook, prefixed_hook, many_hook, variadic_hook, absent_hook, static_hook;

std::string Library(const std::string& name) {
  return std::string(HOOKTEST_LIBRARIES) + "/libhooktest_" + name + ".so";
}

template <typename Function>
Function Lookup(void* handle, const char* name) {
  auto function = reinterpret_cast<Function>(dlsym(handle, name));
  EXPECT_NE(function, nullptr) << name;
  return function;
}

// Every import slot of every module, with its value and page protection: what a hook may not leave
// different.
struct SlotState {
  uint64_t value;
  std::string protection;
  bool operator==(const SlotState&) const = default;
};

std::string ProtectionOf(uint64_t address) {
  std::ifstream maps("/proc/self/maps");
  std::string line;
  while (std::getline(maps, line)) {
    uint64_t begin, end;
    char protection[5];
    if (sscanf(line.c_str(), "%lx-%lx %4s", &begin, &end, protection) == 3 && address >= begin &&
        address < end) {
      return protection;
    }
  }
  return "none";
}

std::map<uint64_t, SlotState> SlotsOf(void* handle) {
  link_map* map = nullptr;
  EXPECT_EQ(dlinfo(handle, RTLD_DI_LINKMAP, &map), 0);
  std::map<uint64_t, SlotState> slots;
  uint64_t tables[2] = {}, bytes[2] = {};
  for (const ElfW(Dyn)* d = map->l_ld; d->d_tag != DT_NULL; ++d) {
    if (d->d_tag == DT_JMPREL) tables[0] = d->d_un.d_ptr;
    if (d->d_tag == DT_PLTRELSZ) bytes[0] = d->d_un.d_val;
    if (d->d_tag == DT_RELA) tables[1] = d->d_un.d_ptr;
    if (d->d_tag == DT_RELASZ) bytes[1] = d->d_un.d_val;
  }
  for (int t = 0; t < 2; ++t) {
    auto* table = reinterpret_cast<const ElfW(Rela)*>(tables[t]);
    for (uint64_t i = 0; i < bytes[t] / sizeof(ElfW(Rela)); ++i) {
      uint64_t address = map->l_addr + table[i].r_offset;
      slots[address] = {*reinterpret_cast<uint64_t*>(address), ProtectionOf(address)};
    }
  }
  return slots;
}

// The thunks know their hooks for the life of the process, as in a job, so the tests share one set.
class ImportHooks : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    static bool done = false;
    if (done) return;
    done = true;
    InitHooks(&alive);
    report_hook = AddHook({"hooktest_report", false, OnReport});
    throws_hook = AddHook({"hooktest_throws", false, OnThrows});
    prefixed_hook = AddHook({"_ZN8hooktest8PrefixedE", true, OnPrefixed});
    many_hook = AddHook({"hooktest_many", false, OnMany});
    variadic_hook = AddHook({"hooktest_variadic", false, OnMany});
    AddHook({"hooktest_return_address", false, OnReturnAddress});
    absent_hook = AddHook({"hooktest_nobody_has_this", false, OnReport});
    static_hook = AddHook({"hooktest_statically_linked", false, OnReport});
    SetLookupObserver([](const char* name) { lookups.push_back(name); });
  }

  void SetUp() override {
    alive = 1;
    reports = throwing_calls = prefixed_calls = many_calls = 0;
    lookups.clear();
  }

  void* Open(const std::string& name) {
    void* handle = dlopen(Library(name).c_str(), RTLD_LAZY | RTLD_LOCAL);
    EXPECT_NE(handle, nullptr) << dlerror();
    handles_.push_back(handle);
    return handle;
  }

  void TearDown() override {
    for (void* handle : handles_) dlclose(handle);
  }

  std::vector<void*> handles_;
};

class EachBinding : public ImportHooks, public testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Bindings, EachBinding, testing::ValuesIn(kBindings),
                         [](const auto& info) { return info.param; });

TEST_P(EachBinding, SeesEveryCallAndLeavesTheResultAlone) {
  void* user = Open(GetParam());
  ScanForNewModules();
  auto report = Lookup<int (*)(int)>(user, "user_report");
  for (int i = 0; i < 5; ++i) EXPECT_EQ(report(i), i + 1);
  EXPECT_EQ(reports, 5);
  EXPECT_EQ(GetHookStatus(report_hook).state, HookState::kOn);
}

TEST_P(EachBinding, MatchesByPrefix) {
  void* user = Open(GetParam());
  ScanForNewModules();
  EXPECT_EQ(Lookup<int (*)(int)>(user, "user_prefixed")(1), 101);
  EXPECT_EQ(prefixed_calls, 1);
}

TEST_P(EachBinding, LeavesDataPointersAlone) {
  void* user = Open(GetParam());
  void* before = *Lookup<void**>(user, "user_pointer");
  ScanForNewModules();
  EXPECT_EQ(*Lookup<void**>(user, "user_pointer"), before);
  EXPECT_EQ(Lookup<int (*)(int)>(user, "user_report_by_pointer")(1), 2);
  EXPECT_EQ(reports, 0);
}

TEST_P(EachBinding, LetsAnExceptionThroughToTheCaller) {
  void* user = Open(GetParam());
  ScanForNewModules();
  auto catches = Lookup<int (*)(int)>(user, "user_catches");
  for (int i = 0; i < 30; ++i) EXPECT_EQ(catches(i), i % 2 != 0 ? -1 : i);
  EXPECT_EQ(throwing_calls, 30);
}

TEST_P(EachBinding, KeepsEveryArgumentRegisterAndTheStack) {
  void* user = Open(GetParam());
  double bare = Lookup<double (*)()>(user, "user_many")();
  double bare_variadic = Lookup<double (*)()>(user, "user_variadic")();
  ScanForNewModules();
  many_calls = 0;
  EXPECT_EQ(Lookup<double (*)()>(user, "user_many")(), bare);
  EXPECT_THAT(seen_integers, testing::ElementsAre(1, 3, 5, 7, 9, 11));
  EXPECT_EQ(seen_vectors[0], 2.5);
  float fourth;
  memcpy(&fourth, &seen_vectors[1], sizeof(fourth));
  EXPECT_EQ(fourth, 4.25f);
  EXPECT_EQ(seen_vectors[7], 16.5);
  // %al says how many vector registers a variadic call uses.
  EXPECT_EQ(Lookup<double (*)()>(user, "user_variadic")(), bare_variadic);
  EXPECT_EQ(bare_variadic, 45.0);
  EXPECT_EQ(many_calls, 2);
}

TEST_P(EachBinding, PutsEverySlotAndEveryPageProtectionBack) {
  // In a child: DetachHooks ends the hooks of a process for good.
  void* user = Open(GetParam());
  auto report = Lookup<int (*)(int)>(user, "user_report");
  auto before = SlotsOf(user);
  pid_t child = fork();
  if (child == 0) {
    ScanForNewModules();
    auto patched = SlotsOf(user);
    bool changed = patched != before;
    for (auto& [address, slot] : patched) changed &= slot.protection == before[address].protection;
    bool counted = report(1) == 2 && reports == 1;
    bool put_back = DetachHooks() > 0 && SlotsOf(user) == before;
    bool silent = report(1) == 2 && reports == 1;
    ScanForNewModules();
    bool stays = report(1) == 2 && reports == 1;
    _exit((changed ? 0 : 1) | (counted ? 0 : 2) | (put_back ? 0 : 4) | (silent ? 0 : 8) |
          (stays ? 0 : 16));
  }
  int status;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(ImportHooks, TheRealFunctionSeesItsCallersReturnAddress) {
  void* user = Open("lazy");
  ScanForNewModules();
  void* address = Lookup<void* (*)()>(user, "user_return_address")();
  Dl_info info;
  ASSERT_NE(dladdr(address, &info), 0);
  EXPECT_STREQ(info.dli_sname, "user_return_address");
}

TEST_F(ImportHooks, AnObserverCanUnwindThroughTheThunk) {
  void* user = Open("lazy");
  ScanForNewModules();
  Lookup<void* (*)()>(user, "user_return_address")();
  EXPECT_THAT(unwound, Contains("user_return_address"));
  EXPECT_THAT(unwound, Contains("main"));
}

TEST_F(ImportHooks, KeepsErrno) {
  void* user = Open("lazy");
  ScanForNewModules();
  errno = ENOENT;
  Lookup<int (*)(int)>(user, "user_report")(1);
  EXPECT_EQ(reports, 1);
  EXPECT_EQ(errno, ENOENT);
}

TEST_F(ImportHooks, DoesNothingWhileTheAliveByteIsZero) {
  void* user = Open("lazy");
  ScanForNewModules();
  alive = 0;
  EXPECT_EQ(Lookup<int (*)(int)>(user, "user_report")(1), 2);
  EXPECT_EQ(reports, 0);
}

TEST_F(ImportHooks, ASecondScanChangesNothing) {
  void* user = Open("lazy");
  ScanForNewModules();
  HookStatus before = GetHookStatus(report_hook);
  EXPECT_FALSE(ScanForNewModules());
  EXPECT_EQ(GetHookStatus(report_hook).slots, before.slots);
  Lookup<int (*)(int)>(user, "user_report")(1);
  EXPECT_EQ(reports, 1);
}

TEST_F(ImportHooks, SaysWhyAHookIsNotOn) {
  Open("lazy");
  ScanForNewModules();
  EXPECT_EQ(GetHookStatus(absent_hook).state, HookState::kNotLoaded);
  EXPECT_EQ(GetHookStatus(static_hook).state, HookState::kNotLoaded);
  Open("static");
  ScanForNewModules();
  EXPECT_EQ(GetHookStatus(static_hook).state, HookState::kNoImport);
}

TEST_F(ImportHooks, FindsADefinitionThatDlsymDoesNot) {
  void* target = Open("target");
  EXPECT_EQ(dlsym(RTLD_DEFAULT, "hooktest_report"), nullptr);
  EXPECT_EQ(FindDefinition("hooktest_report"), dlsym(target, "hooktest_report"));
  EXPECT_EQ(FindDefinition("_ZN8hooktest8PrefixedE", /*prefix=*/true),
            dlsym(target, "_ZN8hooktest8PrefixedEm"));
  EXPECT_EQ(FindDefinition("hooktest_nobody_has_this"), nullptr);
}

TEST_F(ImportHooks, CoversALibraryWhenItsLoaderLooksSomethingUpInIt) {
  void* first = Open("lazy");
  ScanForNewModules();
  auto load = Lookup<void* (*)(const char*)>(first, "user_load");
  auto lookup = Lookup<void* (*)(void*, const char*)>(first, "user_lookup");
  void* late = load(Library("now").c_str());
  ASSERT_NE(late, nullptr);
  handles_.push_back(late);
  auto report = reinterpret_cast<int (*)(int)>(lookup(late, "user_report"));
  EXPECT_EQ(report(1), 2);
  EXPECT_EQ(reports, 1);
  EXPECT_THAT(lookups, Contains("user_report"));
}

TEST_F(ImportHooks, LeavesTheMeaningOfRtldNextAlone) {
  void* user = Open("lazy");
  void* bare = Lookup<void* (*)(const char*)>(user, "user_lookup_next")("hooktest_report");
  ASSERT_NE(bare, nullptr);
  ScanForNewModules();
  EXPECT_EQ(Lookup<void* (*)(const char*)>(user, "user_lookup_next")("hooktest_report"), bare);
  EXPECT_THAT(lookups, Contains("hooktest_report"));
}

TEST_F(ImportHooks, ForgetsAnUnloadedLibraryAndTakesTheNextOneAtItsPlace) {
  for (const char* binding : {"lazy", "now", "lazy", "noplt", "relro", "relro", "lazy"}) {
    void* user = dlopen(Library(binding).c_str(), RTLD_LAZY | RTLD_LOCAL);
    ASSERT_NE(user, nullptr);
    ScanForNewModules();
    EXPECT_EQ(GetHookStatus(report_hook).slots, 1u) << binding;
    reports = 0;
    EXPECT_EQ(Lookup<int (*)(int)>(user, "user_report")(1), 2);
    EXPECT_EQ(reports, 1) << binding;
    dlclose(user);
    ScanForNewModules();
    EXPECT_EQ(GetHookStatus(report_hook).slots, 0u) << binding;
  }
}

TEST_F(ImportHooks, HoldsWhileOtherThreadsLoadAndUnload) {
  void* user = Open("lazy");
  ScanForNewModules();
  auto report = Lookup<int (*)(int)>(user, "user_report");
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (const char* binding : {"now", "noplt", "relro"}) {
    threads.emplace_back([&stop, binding] {
      while (!stop) {
        void* handle = dlopen(Library(binding).c_str(), RTLD_LAZY | RTLD_LOCAL);
        if (handle == nullptr) abort();
        auto function = reinterpret_cast<int (*)(int)>(dlsym(handle, "user_report"));
        if (function(1) != 2) abort();
        dlclose(handle);
      }
    });
  }
  for (int i = 0; i < 300; ++i) {
    ScanForNewModules();
    ASSERT_EQ(report(i), i + 1);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  ScanForNewModules();
  EXPECT_EQ(GetHookStatus(report_hook).slots, 1u);
  EXPECT_GE(reports, 300);
}

TEST_F(ImportHooks, RepairsASlotThatALazyBindingOverwrote) {
  void* user = Open("lazy");
  auto bound = SlotsOf(user);
  ScanForNewModules();
  auto patched = SlotsOf(user);
  void* real = FindDefinition("hooktest_report");
  for (auto& [address, slot] : patched) {
    if (slot.value == bound[address].value || slot.protection != "rw-p") continue;
    // What the resolver of a racing thread does; every hooked slot of this library is written.
    auto report = Lookup<int (*)(int)>(user, "user_report");
    uint64_t ours = slot.value;
    reports = 0;
    *reinterpret_cast<uint64_t*>(address) = reinterpret_cast<uint64_t>(real);
    report(1);
    if (reports == 1) {
      *reinterpret_cast<uint64_t*>(address) = ours;  // the slot of another function
      continue;
    }
    EXPECT_TRUE(ScanForNewModules());
    EXPECT_EQ(*reinterpret_cast<uint64_t*>(address), ours);
    report(1);
    EXPECT_EQ(reports, 1);
    return;
  }
  FAIL() << "no slot of hooktest_report found";
}

}  // namespace
}  // namespace tidemark::agent
