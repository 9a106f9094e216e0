// Records raw CUPTI activity buffers (MEMORY2 and MEMORY_POOL) of a scripted workload on a real
// GPU, with the totals that the script itself knows. The two files are fixtures for the decoder's
// tests:
//
//   record_cupti BUFFERS TOTALS
//     BUFFERS  uint32 cuptiGetVersion(), then per buffer: uint64 valid bytes, the bytes
//     TOTALS   one line a kind: "kind allocations allocated_bytes frees freed_bytes"; kinds are
//              CUPTI's: 2 pinned, 3 device, 4 array, 5 managed; stream-ordered ones are "pool"
//
// Build where a toolkit is: g++ -I$CUDA_HOME/include record_cupti.cc -lcuda -lcudart -lcupti
#include <cuda_runtime.h>
#include <cupti.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

namespace {

FILE* buffers;

struct Total {
  unsigned long long allocations = 0, allocated_bytes = 0, frees = 0, freed_bytes = 0;
};
std::map<std::string, Total> totals;

void Allocated(const char* kind, size_t bytes) {
  ++totals[kind].allocations;
  totals[kind].allocated_bytes += bytes;
}
void Freed(const char* kind, size_t bytes) {
  ++totals[kind].frees;
  totals[kind].freed_bytes += bytes;
}

void Check(int code, const char* what) {
  if (code == 0) return;
  fprintf(stderr, "record_cupti: %s: error %d\n", what, code);
  exit(1);
}

void CUPTIAPI Requested(uint8_t** buffer, size_t* size, size_t* max_records) {
  *size = 64 << 10;
  *buffer = static_cast<uint8_t*>(aligned_alloc(8, *size));
  *max_records = 0;
}

void CUPTIAPI Completed(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  const uint64_t bytes = valid;
  if (valid > 0) {
    fwrite(&bytes, sizeof bytes, 1, buffers);
    fwrite(buffer, 1, valid, buffers);
  }
  free(buffer);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: record_cupti BUFFERS TOTALS\n");
    return 2;
  }
  buffers = fopen(argv[1], "wb");
  uint32_t version = 0;
  Check(cuptiGetVersion(&version), "cuptiGetVersion");
  fwrite(&version, sizeof version, 1, buffers);

  Check(cudaFree(nullptr), "context");
  Check(cuptiActivityRegisterCallbacks(Requested, Completed), "cuptiActivityRegisterCallbacks");
  Check(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMORY2), "MEMORY2");
  Check(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMORY_POOL), "MEMORY_POOL");

  for (int round = 1; round <= 40; ++round) {
    const size_t bytes = static_cast<size_t>(round) * 12345;
    void* p = nullptr;
    Check(cudaMalloc(&p, bytes), "cudaMalloc");
    Allocated("3", bytes);
    if (round % 4 != 0) {  // every fourth stays
      Check(cudaFree(p), "cudaFree");
      Freed("3", bytes);
    }
    Check(cudaMallocHost(&p, bytes), "cudaMallocHost");
    Allocated("2", bytes);
    Check(cudaFreeHost(p), "cudaFreeHost");
    Freed("2", bytes);
    Check(cudaMallocManaged(&p, bytes), "cudaMallocManaged");
    Allocated("5", bytes);
    Check(cudaFree(p), "cudaFree managed");
    Freed("5", bytes);
    Check(cudaMallocAsync(&p, bytes, nullptr), "cudaMallocAsync");
    Allocated("pool", bytes);
    if (round % 5 != 0) {
      Check(cudaFreeAsync(p, nullptr), "cudaFreeAsync");
      Freed("pool", bytes);
    }
  }
  void* registered = aligned_alloc(4096, 1 << 20);
  memset(registered, 1, 1 << 20);
  Check(cudaHostRegister(registered, 1 << 20, 0), "cudaHostRegister");
  Allocated("2", 1 << 20);
  Check(cudaHostUnregister(registered), "cudaHostUnregister");
  Freed("2", 1 << 20);
  Check(cudaDeviceSynchronize(), "synchronize");
  Check(cuptiActivityFlushAll(1), "flush");
  fclose(buffers);

  FILE* out = fopen(argv[2], "w");
  for (const auto& [kind, t] : totals) {
    fprintf(out, "%s %llu %llu %llu %llu\n", kind.c_str(), t.allocations, t.allocated_bytes,
            t.frees, t.freed_bytes);
  }
  fclose(out);
  return 0;
}
