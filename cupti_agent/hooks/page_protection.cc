#include "cupti_agent/hooks/page_protection.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

namespace tidemark::agent {
namespace {

constexpr uint64_t kPage = 4096;

// "7f12a000-7f12b000 r--p ..." -> range and protection; false when the line is not of that form.
bool ParseLine(const char* line, uint64_t* begin, uint64_t* end, int* protection) {
  auto number = [&line](uint64_t* value) {
    *value = 0;
    const char* start = line;
    for (;; ++line) {
      char c = *line;
      if (c >= '0' && c <= '9') {
        *value = *value * 16 + static_cast<uint64_t>(c - '0');
      } else if (c >= 'a' && c <= 'f') {
        *value = *value * 16 + static_cast<uint64_t>(c - 'a' + 10);
      } else {
        return line != start;
      }
    }
  };
  if (!number(begin) || *line++ != '-' || !number(end) || *line++ != ' ') return false;
  *protection = (line[0] == 'r' ? PROT_READ : 0) | (line[1] == 'w' ? PROT_WRITE : 0) |
                (line[2] == 'x' ? PROT_EXEC : 0);
  return true;
}

}  // namespace

void ReadProtections(WordToWrite* words, size_t count) {
  for (size_t i = 0; i < count; ++i) words[i].protection = -1;
  int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  char buffer[4096];
  size_t held = 0;
  bool in_tail = false;  // inside a line longer than the buffer, of which the head was used
  for (;;) {
    ssize_t got = read(fd, buffer + held, sizeof(buffer) - 1 - held);
    if (got <= 0) break;
    held += static_cast<size_t>(got);
    buffer[held] = '\0';
    char* line = buffer;
    for (;;) {
      char* newline = static_cast<char*>(memchr(line, '\n', held - (line - buffer)));
      bool whole_buffer = newline == nullptr && line == buffer && held == sizeof(buffer) - 1;
      if (newline == nullptr && !whole_buffer) break;
      uint64_t begin, end;
      int protection;
      if (!in_tail && ParseLine(line, &begin, &end, &protection)) {
        for (size_t i = 0; i < count; ++i) {
          uint64_t address = reinterpret_cast<uint64_t>(words[i].address);
          if (address >= begin && address < end) words[i].protection = protection;
        }
      }
      in_tail = whole_buffer;
      if (whole_buffer) {
        line = buffer + held;
        break;
      }
      line = newline + 1;
    }
    held -= static_cast<size_t>(line - buffer);
    memmove(buffer, line, held);
  }
  close(fd);
}

bool WriteWord(const WordToWrite& word) {
  if (word.protection < 0) return false;
  void* page = reinterpret_cast<void*>(reinterpret_cast<uint64_t>(word.address) & ~(kPage - 1));
  bool writable = (word.protection & PROT_WRITE) != 0;
  if (!writable && mprotect(page, kPage, word.protection | PROT_READ | PROT_WRITE) != 0) {
    return false;
  }
  __atomic_store_n(word.address, word.value, __ATOMIC_RELEASE);
  if (!writable) mprotect(page, kPage, word.protection);
  return true;
}

}  // namespace tidemark::agent
