// Where a region's bytes come from: the sealed memfd of an agent, or bytes that a test made up.
//
// The other side is hostile: what is read may change between two reads, and a read may come up
// short. Never mapped: reading a hole of a memfd through a mapping would allocate its pages on the
// job's account, and a mapping of a file that shrinks faults.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/unique_fd.h"

namespace tidemark {

class RegionFile {
 public:
  virtual ~RegionFile() = default;
  // Reads up to `bytes` bytes at `offset`, in ascending order; returns how many there were.
  virtual size_t ReadAt(uint64_t offset, void* into, size_t bytes) const = 0;
};

class FdRegionFile : public RegionFile {
 public:
  explicit FdRegionFile(UniqueFd fd) : fd_(std::move(fd)) {}

  size_t ReadAt(uint64_t offset, void* into, size_t bytes) const override {
    size_t done = 0;
    while (done < bytes) {
      const ssize_t n = ::pread(fd_.get(), static_cast<char*>(into) + done, bytes - done,
                                static_cast<off_t>(offset + done));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) break;
      done += static_cast<size_t>(n);
    }
    return done;
  }

  int fd() const { return fd_.get(); }

 private:
  UniqueFd fd_;
};

}  // namespace tidemark
