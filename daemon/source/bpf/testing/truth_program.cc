// Makes memory calls by a script and knows what must be live afterwards.
//
//   truth_program SCENARIO
//
// Speaks over its standard streams: prints "ready", waits for a line, runs the scenario, prints one
// line a class ("pinned LIVE_BYTES LIVE_COUNT ALLOCATED_BYTES ALLOCATED_COUNT") and one a failed
// count, then "done", and waits for standard input to close.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "daemon/source/bpf/testing/fake_libcuda.h"

namespace {

struct Truth {
  uint64_t live_bytes = 0, live_count = 0, allocated_bytes = 0, allocated_count = 0;
  uint64_t failed_calls = 0;

  void Allocated(uint64_t bytes) {
    live_bytes += bytes;
    live_count += 1;
    allocated_bytes += bytes;
    allocated_count += 1;
  }
  void Freed(uint64_t bytes) {
    live_bytes -= bytes;
    live_count -= 1;
  }
  void Add(const Truth& other) {
    live_bytes += other.live_bytes;
    live_count += other.live_count;
    allocated_bytes += other.allocated_bytes;
    allocated_count += other.allocated_count;
    failed_calls += other.failed_calls;
  }
};

using Truths = std::map<std::string, Truth>;

struct Block {
  void* address;
  size_t bytes;
};

void* Pin(Truths* truths, size_t bytes, bool by_alloc_host = false, unsigned int flags = 0) {
  void* address = nullptr;
  const int result =
      by_alloc_host ? cuMemAllocHost_v2(&address, bytes) : cuMemHostAlloc(&address, bytes, flags);
  Truth& truth = (*truths)["pinned"];
  if (result != 0) {
    truth.failed_calls += 1;
    return nullptr;
  }
  truth.Allocated(bytes);
  return address;
}

void Unpin(Truths* truths, void* address, size_t bytes) {
  Truth& truth = (*truths)["pinned"];
  if (cuMemFreeHost(address) == 0) {
    truth.Freed(bytes);
  } else {
    truth.failed_calls += 1;
  }
}

// Every entry point in random order, failures included. The threads share the driver's addresses.
void RandomCalls(Truths* truths, uint32_t seed, int calls) {
  std::mt19937 random(seed);
  std::vector<Block> blocks;
  std::vector<Block> registered;
  uint64_t next_registered = 0x600000000000ull + (uint64_t{seed} << 40);
  for (int i = 0; i < calls; ++i) {
    const uint32_t what = random() % 100;
    const size_t bytes = 1 + random() % 10'000'000;
    if (what < 40 && blocks.size() < 64) {
      if (void* address = Pin(truths, bytes, what % 2)) blocks.push_back({address, bytes});
    } else if (what < 80 && !blocks.empty()) {
      const size_t at = random() % blocks.size();
      Unpin(truths, blocks[at].address, blocks[at].bytes);
      blocks[at] = blocks.back();
      blocks.pop_back();
    } else if (what < 83) {
      Pin(truths, what % 2 ? 0 : kFakeMaxBytes + 1);  // must fail
    } else if (what < 86) {
      Unpin(truths, reinterpret_cast<void*>(0x5000 + random() % 64), 0);  // must fail
    } else if (what < 93 && registered.size() < 64) {
      auto* address = reinterpret_cast<void*>(next_registered += 0x1000000);
      if (cuMemHostRegister_v2(address, bytes, 0) == 0) {
        (*truths)["registered"].Allocated(bytes);
        registered.push_back({address, bytes});
      }
    } else if (!registered.empty()) {
      const Block block = registered.back();
      registered.pop_back();
      cuMemHostUnregister(block.address);
      (*truths)["registered"].Freed(block.bytes);
      if (cuMemHostUnregister(block.address) != 0) (*truths)["registered"].failed_calls += 1;
    }
  }
}

Truths Threads(int count, int calls) {
  std::vector<Truths> each(count);
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&each, i, calls] { RandomCalls(&each[i], 100 + i, calls); });
  }
  for (std::thread& thread : threads) thread.join();
  Truths all;
  for (const Truths& truths : each) {
    for (const auto& [name, truth] : truths) all[name].Add(truth);
  }
  return all;
}

// The child's calls are the child's.
Truths Fork() {
  Truths truths;
  Pin(&truths, 1000);
  const pid_t child = fork();
  if (child == 0) {
    Truths ignored;
    for (int i = 0; i < 100; ++i) Pin(&ignored, 5000);
    _exit(0);
  }
  Pin(&truths, 200);
  waitpid(child, nullptr, 0);
  Pin(&truths, 30);
  return truths;
}

// Starting another program through vfork, as subprocess modules do.
Truths Spawn() {
  Truths truths;
  for (int i = 0; i < 20; ++i) {
    Pin(&truths, 1000);
    char name[] = "true";
    char* arguments[] = {name, nullptr};
    pid_t child = -1;
    posix_spawn(&child, "/bin/true", nullptr, nullptr, arguments, environ);
    waitpid(child, nullptr, 0);
  }
  return truths;
}

// Ten threads end inside the call; calls of others go on counting.
Truths DieInside() {
  Truths truths;
  for (int i = 0; i < 10; ++i) {
    std::thread([&truths] { Pin(&truths, 100); }).join();
    // Not joined: it never returns from the call, so pthread_join would wait for ever.
    std::thread([] {
      void* address;
      cuMemHostAlloc(&address, 7777, kFakeDieInside);
    }).detach();
  }
  usleep(100'000);
  Pin(&truths, 1);
  return truths;
}

__attribute__((noinline)) void LeaveByLongjmp() {
  if (setjmp(fake_libcuda_escape) == 0) {
    void* address;
    cuMemHostAlloc(&address, 7777, kFakeLongjmpInside);
  }
}

Truths Longjmp() {
  Truths truths;
  for (int i = 0; i < 10; ++i) {
    LeaveByLongjmp();
    Pin(&truths, 10);
  }
  return truths;
}

Truths Nested() {
  Truths truths;
  for (int i = 0; i < 10; ++i) Pin(&truths, 1000 + i, false, kFakeNestInside);
  return truths;
}

Truths Throwing() {
  Truths truths;
  uint64_t caught = 0;
  for (int i = 0; i < 100; ++i) {
    Pin(&truths, 10);
    try {
      fake_throws(i);
    } catch (const std::exception&) {
      ++caught;
    }
  }
  if (caught != 50) _exit(3);
  return truths;
}

// Three call sites, 36 blocks from the second.
__attribute__((noinline)) void SiteOne(Truths* truths) {
  Pin(truths, 1);
  asm volatile("");
}
__attribute__((noinline)) void SiteTwo(Truths* truths) {
  for (int i = 0; i < 36; ++i) Pin(truths, 256 << 20);
  asm volatile("");
}
Truths Sites() {
  Truths truths;
  SiteOne(&truths);
  SiteTwo(&truths);
  return truths;
}

Truths Steady() {
  Truths truths;
  Pin(&truths, 4096);
  return truths;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string scenario = argc > 1 ? argv[1] : "";
  const std::map<std::string, std::function<Truths()>> scenarios = {
      {"threads", [] { return Threads(4, 40'000); }},
      {"fork", Fork},
      {"spawn", Spawn},
      {"die_inside", DieInside},
      {"longjmp", Longjmp},
      {"nested", Nested},
      {"throwing", Throwing},
      {"sites", Sites},
      {"steady", Steady},
  };
  auto found = scenarios.find(scenario);
  if (found == scenarios.end()) return 2;
  // Some memory is there before the probes are: freed in the scenario "threads" after them.
  Truths before;
  void* old_block = Pin(&before, 12345);

  char line[256];
  printf("ready\n");
  fflush(stdout);
  bool again = false;
  while (fgets(line, sizeof(line), stdin)) {
    if (strcmp(line, "exec\n") == 0) {
      // Becomes a new program under the same pid.
      execl("/proc/self/exe", "truth_program", scenario.c_str(), nullptr);
      _exit(4);
    }
    const Truths truths = found->second();
    if (scenario == "threads" && !again) cuMemFreeHost(old_block);
    again = true;
    for (const auto& [name, truth] : truths) {
      printf("%s %lu %lu %lu %lu %lu\n", name.c_str(), truth.live_bytes, truth.live_count,
             truth.allocated_bytes, truth.allocated_count, truth.failed_calls);
    }
    printf("done\n");
    fflush(stdout);
  }
  return 0;
}
