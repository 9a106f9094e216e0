// truth_alloc: calls every entry point of the simulated driver by a seeded script, from several
// threads, and prints what is then true, to the byte. The oracle of exactness tests.
//
//   truth_alloc [--threads 4] [--operations 1000000] [--rounds 10] [--seed 1] [--reset] [--hold]
//               [--round-ms 0]
//
// Between rounds the threads meet at a barrier, where one of them takes every kind to a height that
// it cannot reach elsewhere: so the peaks are known. --reset resets both devices' contexts at the
// end; --hold keeps the process, after printing, until its standard input ends; --round-ms waits at
// each barrier, to give a test time to act. Exit status: 0, or the abort of a disagreement with the
// simulation.
#include <sys/wait.h>
#include <unistd.h>

#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

#include "tests/sim/truth/script.h"

namespace tidemark::truth {
namespace {

constexpr int kExportedPerThread = 4;

struct Arguments {
  int threads = 4;
  int64_t operations = 1000000;
  int rounds = 10;
  uint64_t seed = 1;
  bool reset = false;
  bool hold = false;
  int round_ms = 0;
};

void Check(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  fprintf(stderr, "truth_alloc: %s failed with %d\n", call, result);
  _exit(3);
}

uint64_t ExportedBytes(int i) { return (static_cast<uint64_t>(i) % 5 + 1) * 1000003; }

// The other process of the IPC calls: allocates, hands out handles, waits for the end of its input.
int Export(int count) {
  Check(cuInit(0), "cuInit");
  CUcontext context = nullptr;
  Check(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
  Check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
  for (int i = 0; i < count; ++i) {
    CUdeviceptr address = 0;
    CUipcMemHandle handle = {};
    Check(cuMemAlloc_v2(&address, ExportedBytes(i)), "cuMemAlloc");
    Check(cuIpcGetMemHandle(&handle, address), "cuIpcGetMemHandle");
    if (write(STDOUT_FILENO, &handle, sizeof(handle)) != sizeof(handle)) return 1;
  }
  char byte;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
  return 0;
}

struct Exporter {
  pid_t pid = -1;
  int input = -1;
  std::vector<CUipcMemHandle> handles;
};

Exporter StartExporter(int count) {
  int to_child[2];
  int from_child[2];
  Exporter exporter;
  if (pipe(to_child) != 0 || pipe(from_child) != 0) return exporter;
  const std::string number = std::to_string(count);
  exporter.pid = fork();
  if (exporter.pid == 0) {
    dup2(to_child[0], STDIN_FILENO);
    dup2(from_child[1], STDOUT_FILENO);
    for (const int fd : {to_child[0], to_child[1], from_child[0], from_child[1]}) close(fd);
    unsetenv("CUDA_INJECTION64_PATH");  // its memory is not this script's
    execl("/proc/self/exe", "truth_alloc", "--export", number.c_str(), nullptr);
    _exit(1);
  }
  close(to_child[0]);
  close(from_child[1]);
  exporter.input = to_child[1];
  for (int i = 0; i < count; ++i) {
    CUipcMemHandle handle = {};
    if (read(from_child[0], &handle, sizeof(handle)) != sizeof(handle)) break;
    exporter.handles.push_back(handle);
  }
  close(from_child[0]);
  return exporter;
}

bool Parse(int argc, char** argv, Arguments* arguments) {
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--reset") {
      arguments->reset = true;
    } else if (name == "--hold") {
      arguments->hold = true;
    } else if (i + 1 == argc) {
      return false;
    } else if (name == "--threads") {
      arguments->threads = atoi(argv[++i]);
    } else if (name == "--operations") {
      arguments->operations = atoll(argv[++i]);
    } else if (name == "--rounds") {
      arguments->rounds = atoi(argv[++i]);
    } else if (name == "--seed") {
      arguments->seed = strtoull(argv[++i], nullptr, 10);
    } else if (name == "--round-ms") {
      arguments->round_ms = atoi(argv[++i]);
    } else {
      return false;
    }
  }
  return arguments->threads > 0 && arguments->operations > 0 && arguments->rounds > 0;
}

int Main(const Arguments& arguments) {
  Exporter exporter = StartExporter(arguments.threads * kExportedPerThread);
  Check(cuInit(0), "cuInit");
  CUcontext contexts[kDevices] = {};
  for (int device = 0; device < kDevices; ++device) {
    Check(cuDevicePrimaryCtxRetain(&contexts[device], device), "cuDevicePrimaryCtxRetain");
  }

  Exchange exchange;
  std::vector<std::unique_ptr<Script>> scripts;
  for (int t = 0; t < arguments.threads; ++t) {
    std::vector<Exported> exported;
    for (int i = t * kExportedPerThread; i < (t + 1) * kExportedPerThread; ++i) {
      if (i < static_cast<int>(exporter.handles.size())) {
        exported.push_back({exporter.handles[static_cast<size_t>(i)], ExportedBytes(i)});
      }
    }
    scripts.push_back(std::make_unique<Script>(arguments.seed + static_cast<uint64_t>(t), contexts,
                                               &exchange, std::move(exported)));
  }

  Book peaks;  // of all threads
  std::barrier meet(arguments.threads);
  const int64_t each = arguments.operations / arguments.threads / arguments.rounds;
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  for (int t = 0; t < arguments.threads; ++t) {
    threads.emplace_back([&, t] {
      Script& script = *scripts[static_cast<size_t>(t)];
      for (int round = 0; round < arguments.rounds; ++round) {
        script.Run(each);
        meet.arrive_and_wait();
        if (t == 0) {
          script.RaiseToPeak(arguments.threads);
          Book sum;
          for (const auto& other : scripts) sum.Add(other->book());
          for (int kind = 0; kind < kKinds; ++kind) {
            for (int device = kHost; device < kDevices; ++device) {
              const int64_t live = sum.group(static_cast<Kind>(kind), device).live();
              int64_t& peak = peaks.group(static_cast<Kind>(kind), device).peak;
              if (live > peak) peak = live;
            }
          }
          script.DropPeak();
          if (arguments.round_ms > 0) {
            std::this_thread::sleep_for(std::chrono::milliseconds(arguments.round_ms));
          }
        }
        meet.arrive_and_wait();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;

  if (arguments.reset) {
    for (int device = 0; device < kDevices; ++device) {
      Check(cuDevicePrimaryCtxReset_v2(device), "cuDevicePrimaryCtxReset");
      scripts[0]->mutable_book()->Called("cuDevicePrimaryCtxReset", false);
    }
    for (const auto& script : scripts) script->BookReset();
    Allocation waiting = {};
    while (exchange.Take(&waiting)) {
      if (waiting.in_context) {
        scripts[0]->mutable_book()->FreedImplicitly(waiting.kind, waiting.device, waiting.bytes);
      }
    }
  }
  Book total;
  for (const auto& script : scripts) total.Add(script->book());
  total.Add(peaks);
  nlohmann::json result = total.ToJson();
  result["pid"] = getpid();
  result["threads"] = arguments.threads;
  result["operations"] = each * arguments.threads * arguments.rounds;
  result["seed"] = arguments.seed;
  result["reset"] = arguments.reset;
  result["elapsed_s"] = elapsed.count();
  printf("%s\n", result.dump().c_str());
  fflush(stdout);

  char byte;
  while (arguments.hold && read(STDIN_FILENO, &byte, 1) > 0) {
  }
  if (exporter.pid > 0) {
    close(exporter.input);
    waitpid(exporter.pid, nullptr, 0);
  }
  return 0;
}

}  // namespace
}  // namespace tidemark::truth

int main(int argc, char** argv) {
  if (argc == 3 && strcmp(argv[1], "--export") == 0) return tidemark::truth::Export(atoi(argv[2]));
  tidemark::truth::Arguments arguments;
  if (!tidemark::truth::Parse(argc, argv, &arguments)) {
    fprintf(stderr,
            "usage: truth_alloc [--threads N] [--operations N] [--rounds N] [--seed N] [--reset] "
            "[--hold] [--round-ms N]\n");
    return 2;
  }
  return tidemark::truth::Main(arguments);
}
