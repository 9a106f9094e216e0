// The runtime calls that the simulated PyTorch makes. libcudart.so.13 resolves the driver the way
// the real one does: dlopen, then cuGetProcAddress for every function.
#pragma once

#include <cstddef>

#include "cupti_agent/abi/cuda_abi.h"

extern "C" {
// 0 is success; 2 is out of memory, as in the driver.
int cudaSetDevice(int device);
int cudaGetDevice(int* device);
int cudaDeviceSynchronize();
int cudaDeviceReset();
int cudaDeviceSetLimit(int limit, size_t value);
int cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes);
int cudaMalloc(void** address, size_t bytes);
int cudaFree(void* address);
int cudaMallocAsync(void** address, size_t bytes, void* stream);
int cudaFreeAsync(void* address, void* stream);
int cudaHostAlloc(void** address, size_t bytes, unsigned flags);
int cudaFreeHost(void* address);
int cudaHostRegister(void* address, size_t bytes, unsigned flags);
int cudaHostUnregister(void* address);
int cudaMallocManaged(void** address, size_t bytes, unsigned flags);
int cudaLaunchKernel(const void* function);
// The driver function of that name, or null: cudaGetDriverEntryPoint.
void* cudaSimDriverEntryPoint(const char* symbol);
}
