// The C face of the simulated PyTorch, in libtorch_python.so: what simtrain and simtrain.py call.
// Pointers stand for tensors; device -1 is the CPU.
#pragma once

#include <stddef.h>
#include <stdint.h>

extern "C" {

// 0, or -1 with simtorch_last_error().
int simtorch_set_device(int device);
const char* simtorch_last_error();

// Null on failure (out of memory), with simtorch_last_error().
void* simtorch_empty(size_t bytes, int device);
void simtorch_delete(void* tensor, int device);
void* simtorch_pin_memory(size_t bytes);
void simtorch_unpin_memory(void* tensor);

void simtorch_empty_cache();
size_t simtorch_memory_allocated(int device);
size_t simtorch_memory_reserved(int device);
size_t simtorch_max_memory_allocated(int device);
size_t simtorch_max_memory_reserved(int device);
size_t simtorch_cpu_allocated();
size_t simtorch_block_size(void* tensor);

// One backward pass through Engine::execute: node i makes a gradient of grad_bytes[i] on `device`,
// frees activations[i] (which may be null) and then its gradient. `nested` runs the pass from
// inside a node of another one, as re-entrant checkpointing does. A pass that is told to `fail`
// throws from its last node; the exception is caught here. Returns 0, or -1 with
// simtorch_last_error().
int simtorch_backward(void** activations, const size_t* grad_bytes, int count, int device,
                      int nested, int fail);
// The same with a function of the caller's own as the only node.
int simtorch_backward_with(void (*apply)(void*), void* argument);

// Runs `body` inside a USER_SCOPE record function, as torch.optim does around a step.
void simtorch_user_scope(const char* name, void (*body)(void*), void* argument);

// Calls through the runtime that bypass the allocators. Negative on failure, else 0.
void* simtorch_cuda_malloc(size_t bytes);
int simtorch_cuda_free(void* address);
void* simtorch_cuda_malloc_async(size_t bytes);
int simtorch_cuda_free_async(void* address);
int simtorch_cuda_synchronize();
int simtorch_cuda_host_register(void* address, size_t bytes);
int simtorch_cuda_host_unregister(void* address);
int simtorch_cuda_set_stack_limit(size_t bytes);
int simtorch_cuda_load_modules(int count);
int simtorch_cuda_launch();
// Memory by cuMemCreate + cuMemMap; null on failure.
void* simtorch_vmm_alloc(size_t bytes, int device);
int simtorch_vmm_free(void* address);

void simtorch_profiler_start();
// Records seen: API calls and memory; -1 each when CUPTI could not be had.
void simtorch_profiler_stop(int64_t* api_records, int64_t* memory_records);
}
