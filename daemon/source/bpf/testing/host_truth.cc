// Maps, unmaps, moves and pins memory by a script and knows what must be mapped. Speaks like
// truth_program.cc; counts are 0: only bytes are told.
//
//   host_truth SCENARIO
//
// Nothing but the script may map memory after the starting line: threads are made before, and
// memory calls are made directly, without malloc.
#include <fcntl.h>
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr size_t kPage = 4096;

struct Truth {
  uint64_t live = 0, allocated = 0;
};

struct Truths {
  Truth anon, shmem, file;
  uint64_t locked = 0, pinned = 0, lazy = 0;
};

struct Block {
  char* address;
  size_t bytes;
  Truth* truth;
};

struct Files {
  int memfd;
  int shm;
  int file;
};
Files files;

uint64_t Random(uint64_t* state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}

char* Map(Truth* truth, size_t bytes, int flags, int fd = -1, void* where = nullptr) {
  auto* address = reinterpret_cast<char*>(
      syscall(SYS_mmap, where, bytes, PROT_READ | PROT_WRITE, flags, fd, 0));
  if (address == MAP_FAILED) return nullptr;
  const size_t pages = (bytes + kPage - 1) / kPage * kPage;
  truth->live += pages;
  truth->allocated += pages;
  return address;
}

void Unmap(Truth* truth, char* address, size_t bytes) {
  if (syscall(SYS_munmap, address, bytes) == 0) truth->live -= (bytes + kPage - 1) / kPage * kPage;
}

// Up to 64 blocks in random order of calls; addresses go from thread to thread through the kernel.
void RandomCalls(Truths* truths, uint64_t seed, int calls) {
  Block blocks[64];
  size_t count = 0;
  uint64_t state = seed * 0x9e3779b97f4a7c15ull + 1;
  for (int i = 0; i < calls; ++i) {
    const uint64_t what = Random(&state) % 12;
    const size_t bytes = kPage * (1 + Random(&state) % 64);
    if (what < 4 && count < 64) {
      Block block{nullptr, bytes, &truths->anon};
      switch (Random(&state) % 5) {
        case 0:
        case 1:
          block.address = Map(block.truth, bytes - 100, MAP_PRIVATE | MAP_ANONYMOUS);
          break;
        case 2:
          block.truth = &truths->shmem;
          block.address = Map(block.truth, bytes, MAP_SHARED | MAP_ANONYMOUS);
          break;
        case 3:
          block.truth = &truths->shmem;
          block.address =
              Map(block.truth, bytes, MAP_SHARED, Random(&state) % 2 ? files.memfd : files.shm);
          break;
        case 4:
          block.truth = &truths->file;
          block.address = Map(block.truth, bytes, MAP_PRIVATE, files.file);
          break;
      }
      if (block.address) blocks[count++] = block;
    } else if (what < 7 && count > 0) {
      const size_t at = Random(&state) % count;
      Unmap(blocks[at].truth, blocks[at].address, blocks[at].bytes);
      blocks[at] = blocks[--count];
    } else if (what == 7 && count > 0 &&
               count < 63) {  // a hole in the middle, the head or the tail
      Block& block = blocks[Random(&state) % count];
      if (block.bytes < 4 * kPage) continue;
      const size_t hole = kPage * (1 + Random(&state) % (block.bytes / kPage - 3));
      const size_t offset = kPage * (1 + Random(&state) % ((block.bytes - hole) / kPage - 1));
      Unmap(block.truth, block.address + offset, hole);
      if (offset + hole < block.bytes) {
        blocks[count++] = {block.address + offset + hole, block.bytes - offset - hole, block.truth};
      }
      block.bytes = offset;
    } else if (what == 8 && count > 0) {  // grows or shrinks, wherever it goes
      Block& block = blocks[Random(&state) % count];
      if (block.truth != &truths->anon) continue;
      auto* moved = reinterpret_cast<char*>(
          syscall(SYS_mremap, block.address, block.bytes, bytes, MREMAP_MAYMOVE, nullptr));
      if (moved == MAP_FAILED) continue;
      if (bytes > block.bytes) block.truth->allocated += bytes - block.bytes;
      block.truth->live += bytes - block.bytes;
      block = {moved, bytes, block.truth};
    } else if (what == 9 && count > 0) {  // over a part of what is there
      Block& block = blocks[Random(&state) % count];
      block.truth->live -= block.bytes;
      Map(&truths->anon, block.bytes, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, block.address);
      block.truth = &truths->anon;
    } else if (what == 10 && count > 0) {  // must fail and change nothing
      const Block& block = blocks[Random(&state) % count];
      syscall(SYS_munmap, block.address + 1, block.bytes);
      syscall(SYS_mremap, block.address, block.bytes, 0, 0, nullptr);
      syscall(SYS_mmap, nullptr, 0, 0, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    } else if (what == 11 && count > 0) {  // changes nothing of what is mapped
      const Block& block = blocks[Random(&state) % count];
      syscall(SYS_madvise, block.address, block.bytes, MADV_DONTNEED);
    }
  }
}

void Brk(Truths* truths) {
  const auto start = static_cast<uintptr_t>(syscall(SYS_brk, 0));
  const uintptr_t base = (start + kPage - 1) / kPage * kPage;
  syscall(SYS_brk, base + 300 * kPage);
  syscall(SYS_brk, base + 100 * kPage);
  syscall(SYS_brk, base + 150 * kPage);
  syscall(SYS_brk, UINTPTR_MAX - 1);  // refused
  truths->anon = {150 * kPage, 350 * kPage};
}

void Pins(Truths* truths) {
  char* block = Map(&truths->anon, 64 * kPage, MAP_PRIVATE | MAP_ANONYMOUS);
  mlock(block, 32 * kPage);
  mlock(block + 16 * kPage, 32 * kPage);  // overlaps
  munlock(block + 8 * kPage, 4 * kPage);
  Unmap(&truths->anon, block, 2 * kPage);
  truths->locked = (48 - 4 - 2) * kPage;
  madvise(block + 50 * kPage, 8 * kPage, MADV_FREE);
  madvise(block + 40 * kPage, 8 * kPage, MADV_FREE);  // locked: refused
  madvise(block + 50 * kPage + 1, kPage, MADV_FREE);  // not aligned: refused
  truths->lazy = 8 * kPage;

  for (int i = 0; i < 3; ++i) {
    io_uring_params parameters;
    memset(&parameters, 0, sizeof(parameters));
    const int ring = static_cast<int>(syscall(SYS_io_uring_setup, 4, &parameters));
    if (ring < 0) {
      printf("io_uring is not to be had\n");
      return;
    }
    iovec vectors[2] = {{block + 4 * kPage, 10 * kPage}, {block + 20 * kPage, 5 * kPage}};
    if (syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, vectors, 2) != 0) continue;
    syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, vectors, 2);  // busy: refused
    if (i == 1) {
      syscall(SYS_io_uring_register, ring, IORING_UNREGISTER_BUFFERS, nullptr, 0);
    } else if (i == 2) {
      close(ring);
    } else {
      truths->pinned += 15 * kPage;
    }
  }
}

// A forked child's mappings are the child's.
void Fork(Truths* truths) {
  Map(&truths->anon, 10 * kPage, MAP_PRIVATE | MAP_ANONYMOUS);
  const auto child = static_cast<pid_t>(syscall(SYS_fork));
  if (child == 0) {
    Truth ignored;
    for (int i = 0; i < 100; ++i) Map(&ignored, 5 * kPage, MAP_PRIVATE | MAP_ANONYMOUS);
    _exit(0);
  }
  Map(&truths->anon, 7 * kPage, MAP_PRIVATE | MAP_ANONYMOUS);
}

// One place maps a lot and touches nothing, another touches memory that a third mapped.
__attribute__((noinline)) char* MapsOnly(Truths* truths) {
  char* block = Map(&truths->anon, 300u << 20, MAP_PRIVATE | MAP_ANONYMOUS);
  asm volatile("");
  return block;
}
__attribute__((noinline)) void Touches(char* block, size_t bytes) {
  for (size_t at = 0; at < bytes; at += kPage) block[at] = 1;
  asm volatile("");
}
void Touch(Truths* truths) {
  char* block = MapsOnly(truths);
  madvise(block, 300u << 20, MADV_NOHUGEPAGE);
  Touches(block, 200u << 20);
}

void Print(const Truths& truths) {
  auto line = [](const char* name, uint64_t live, uint64_t allocated) {
    if (live || allocated) printf("%s %lu 0 %lu 0 0\n", name, live, allocated);
  };
  line("anon", truths.anon.live, truths.anon.allocated);
  line("shmem", truths.shmem.live, truths.shmem.allocated);
  line("file", truths.file.live, truths.file.allocated);
  line("locked", truths.locked, 0);
  line("pinned_other", truths.pinned, 0);
  line("lazyfree", 0, truths.lazy);
  printf("done\n");
  fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string scenario = argc > 1 ? argv[1] : "";
  static char in[4096], out[4096];
  setvbuf(stdin, in, _IOFBF, sizeof(in));
  setvbuf(stdout, out, _IOFBF, sizeof(out));
  files.memfd = memfd_create("host_truth", MFD_CLOEXEC);
  const std::string shm = "/dev/shm/host_truth." + std::to_string(getpid());
  files.shm = open(shm.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  unlink(shm.c_str());
  files.file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  for (int fd : {files.memfd, files.shm}) {
    if (ftruncate(fd, 1 << 20) != 0) return 3;
  }

  static Truths truths[4];
  static std::atomic<bool> go, finish;
  static std::atomic<int> finished;
  std::vector<std::thread> threads;
  for (int i = 0; scenario == "threads" && i < 4; ++i) {
    threads.emplace_back([i] {
      while (!go) usleep(1000);
      RandomCalls(&truths[i], static_cast<uint64_t>(i) + 7, 20'000);
      ++finished;
      while (!finish) usleep(1000);
    });
  }

  char line[256];
  printf("ready\n");
  fflush(stdout);
  if (!fgets(line, sizeof(line), stdin)) _exit(0);
  go = true;
  if (scenario == "threads") {
    while (finished < 4) usleep(1000);
    for (int i = 1; i < 4; ++i) {
      for (auto [sum, one] : {std::pair(&truths[0].anon, &truths[i].anon),
                              std::pair(&truths[0].shmem, &truths[i].shmem),
                              std::pair(&truths[0].file, &truths[i].file)}) {
        sum->live += one->live;
        sum->allocated += one->allocated;
      }
    }
  } else if (scenario == "brk") {
    Brk(&truths[0]);
  } else if (scenario == "pins") {
    Pins(&truths[0]);
  } else if (scenario == "fork") {
    Fork(&truths[0]);
  } else if (scenario == "touch") {
    Touch(&truths[0]);
  }
  Print(truths[0]);
  if (!fgets(line, sizeof(line), stdin)) _exit(0);
  _exit(0);
}
