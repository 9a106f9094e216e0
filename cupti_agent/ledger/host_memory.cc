#include "cupti_agent/ledger/host_memory.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstring>

namespace tidemark::agent {
namespace {

// The number behind `key`, in KiB; -1 when the key is absent.
int64_t KibOf(const char* text, const char* key) {
  const char* at = strstr(text, key);
  if (at == nullptr) return -1;
  at += strlen(key);
  while (*at == ' ' || *at == '\t') ++at;
  if (*at < '0' || *at > '9') return -1;
  int64_t value = 0;
  for (; *at >= '0' && *at <= '9'; ++at) value = value * 10 + (*at - '0');
  return value;
}

}  // namespace

HostMemory ParseStatus(const char* text) {
  const int64_t anon = KibOf(text, "\nRssAnon:");
  const int64_t shmem = KibOf(text, "\nRssShmem:");
  return {anon < 0 ? -1 : anon * 1024, shmem < 0 ? -1 : shmem * 1024};
}

void HostMemoryReader::Open() { fd_ = open("/proc/self/status", O_RDONLY | O_CLOEXEC); }

HostMemory HostMemoryReader::Read() const {
  char text[4096];
  const ssize_t bytes = fd_ < 0 ? -1 : pread(fd_, text, sizeof(text) - 1, 0);
  if (bytes <= 0) return {};
  text[bytes] = '\0';
  return ParseStatus(text);
}

}  // namespace tidemark::agent
