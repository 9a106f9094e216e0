// What is needed of one ELF file: where its functions lie, its build id, and how file offsets and
// addresses correspond. Read by pread, never mapped: a file that shrinks meanwhile must not be able
// to kill the daemon. The file is untrusted.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tidemark {

class ElfImage {
 public:
  // Reads headers and build id from `fd`, which is only needed during the call. `name` is for
  // messages. Fails when it is no 64-bit x86-64 ELF file.
  static Result<ElfImage> Read(int fd, const std::string& name);

  // File offsets of the defined functions among `names` in the dynamic symbol table (and in the
  // full one, where there is one). A name that is not there is simply absent.
  static Result<std::map<std::string, uint64_t, std::less<>>> FindFunctions(
      int fd, const std::string& name, const std::vector<std::string_view>& names);

  // Addresses (ELF virtual) of the data objects among `names`, likewise.
  static Result<std::map<std::string, uint64_t, std::less<>>> FindObjects(
      int fd, const std::string& name, const std::vector<std::string_view>& names);

  const std::string& build_id() const { return build_id_; }

  // ELF virtual address of a byte of the file, if a segment loads it.
  std::optional<uint64_t> AddressOfFileOffset(uint64_t file_offset) const;

 private:
  struct Segment {
    uint64_t file_offset;
    uint64_t file_bytes;
    uint64_t address;
  };
  std::vector<Segment> segments_;
  std::string build_id_;
};

}  // namespace tidemark
