// The memfd and its mapping: made sparse at its full size, sealed so that nobody, the daemon
// included, can shrink it, grow it, or map it writable again. Only this mapping writes.
//
// Lifetime: of the process. Contents survive the process's death for as long as a daemon holds the
// descriptor.
#pragma once

#include <cstdint>

#include "cupti_agent/ledger/region_layout.h"
#include "wire/region.h"

namespace tidemark::agent {

class Region {
 public:
  // nullptr on success, else what failed (static text). `bytes` is clamped to what the wire allows.
  const char* Create(uint64_t bytes);

  int fd() const { return fd_; }
  uint64_t bytes() const { return bytes_; }
  wire::Header* header() const { return header_; }

  template <typename Row>
  Row* Rows(wire::Section section) const {
    return reinterpret_cast<Row*>(reinterpret_cast<char*>(header_) + Entry(section).offset);
  }
  wire::SectionEntry& Entry(wire::Section section) const {
    return header_->sections[static_cast<uint32_t>(section) - 1];
  }
  uint32_t Capacity(wire::Section section) const {
    return static_cast<uint32_t>(Entry(section).capacity);
  }

  // Pages that exist, in bytes: what the region really costs.
  uint64_t TouchedBytes() const;

 private:
  int fd_ = -1;
  uint64_t bytes_ = 0;
  wire::Header* header_ = nullptr;
};

}  // namespace tidemark::agent
