// Static probes as PyTorch has them in libc10_cuda.so since 2.2: `pytorch:malloc(ptr, device,
// requested size, stream)` and `pytorch:free(ptr)`, behind a semaphore. Written by hand, in the
// note format that SystemTap defined, so that no header package is needed.
#pragma once

#include <cstdint>

#define SIM_USDT_NOTE(name, args)                                         \
  "990: nop\n"                                                            \
  ".pushsection .note.stapsdt,\"\",\"note\"\n"                            \
  ".balign 4\n"                                                           \
  ".4byte 992f-991f, 994f-993f, 3\n"                                      \
  "991: .asciz \"stapsdt\"\n"                                             \
  "992: .balign 4\n"                                                      \
  "993: .8byte 990b\n"                                                    \
  ".8byte _.stapsdt.base\n"                                               \
  ".8byte pytorch_" name                                                  \
  "_semaphore\n"                                                          \
  ".asciz \"pytorch\"\n"                                                  \
  ".asciz \"" name                                                        \
  "\"\n"                                                                  \
  ".asciz \"" args                                                        \
  "\"\n"                                                                  \
  "994: .balign 4\n"                                                      \
  ".popsection\n"                                                         \
  ".ifndef _.stapsdt.base\n"                                              \
  ".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n" \
  ".weak _.stapsdt.base\n"                                                \
  ".hidden _.stapsdt.base\n"                                              \
  "_.stapsdt.base: .space 1\n"                                            \
  ".size _.stapsdt.base, 1\n"                                             \
  ".popsection\n"                                                         \
  ".endif\n"

extern "C" {
// Counted up by whoever attaches to the probe.
extern volatile uint16_t pytorch_malloc_semaphore __attribute__((visibility("hidden")));
extern volatile uint16_t pytorch_free_semaphore __attribute__((visibility("hidden")));
}

inline void ProbeMalloc(const void* ptr, int device, uint64_t bytes, const void* stream) {
  if (pytorch_malloc_semaphore == 0) return;
  asm volatile(SIM_USDT_NOTE("malloc", "8@%[ptr] -4@%[device] 8@%[bytes] 8@%[stream]")
               :
               : [ptr] "r"(ptr), [device] "r"(device), [bytes] "r"(bytes), [stream] "r"(stream));
}

inline void ProbeFree(const void* ptr) {
  if (pytorch_free_semaphore == 0) return;
  asm volatile(SIM_USDT_NOTE("free", "8@%[ptr]") : : [ptr] "r"(ptr));
}
