#include "cupti_agent/ledger/alive.h"

#include <sys/mman.h>

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

namespace tidemark::agent {

const volatile uint8_t kNeverAlive = 0;
const volatile uint8_t* g_alive = &kNeverAlive;

namespace {
constexpr size_t kPageBytes = 4096;
volatile uint8_t* g_page = nullptr;
}  // namespace

bool BecomeAlive() {
  void* page =
      mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return false;
  if (madvise(page, kPageBytes, MADV_WIPEONFORK) != 0) {
    munmap(page, kPageBytes);
    return false;
  }
  g_page = static_cast<volatile uint8_t*>(page);
  *g_page = 1;
  g_alive = g_page;
  return true;
}

void CeaseAlive() {
  // The page stays: a thread may be about to read it.
  if (g_page != nullptr) *g_page = 0;
}

}  // namespace tidemark::agent
