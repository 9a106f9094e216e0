#include "client/recording.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "base/unique_fd.h"

namespace tidemark::client {
namespace {

constexpr std::string_view kMagic = "TIDEMARK-RECORDING\n";
constexpr size_t kHeaderBytes = kMagic.size() + 4 + 8 + 4;
constexpr uint64_t kMaxMessageBytes = 1ull << 31;  // protobuf's own limit

void PutLittleEndian(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
}

uint64_t GetLittleEndian(std::string_view in, int bytes) {
  uint64_t value = 0;
  for (int i = 0; i < bytes; ++i) value |= uint64_t{static_cast<unsigned char>(in[i])} << (8 * i);
  return value;
}

uint32_t Checksum(std::string_view bytes) {
  return static_cast<uint32_t>(
      crc32_z(0, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()));
}

std::string Pack(const std::string& message) {
  uLongf bytes = compressBound(message.size());
  std::string packed(bytes, '\0');
  compress2(reinterpret_cast<Bytef*>(packed.data()), &bytes,
            reinterpret_cast<const Bytef*>(message.data()), message.size(), 6);
  packed.resize(bytes);
  return packed;
}

// Grows as it unpacks, so that the memory it takes is of bytes that are really there.
Result<std::string> Unpack(std::string_view packed, const std::string& tried) {
  z_stream stream = {};
  if (inflateInit(&stream) != Z_OK) return Error{tried, "out of memory", ""};
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  std::string message;
  std::string part(256 << 10, '\0');
  int state = Z_OK;
  while (state == Z_OK && message.size() <= kMostRecordingBytes) {
    stream.next_out = reinterpret_cast<Bytef*>(part.data());
    stream.avail_out = static_cast<uInt>(part.size());
    state = inflate(&stream, Z_NO_FLUSH);
    message.append(part, 0, part.size() - stream.avail_out);
  }
  const bool all_read = stream.avail_in == 0;
  inflateEnd(&stream);
  if (message.size() > kMostRecordingBytes) {
    return Error{tried, "it unpacks to more than a recording can be", ""};
  }
  if (state != Z_STREAM_END || !all_read) {
    return Error{tried, "its content cannot be unpacked", ""};
  }
  return message;
}

Result<std::string> ReadWhole(const std::string& path) {
  const std::string tried = "read " + path;
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return Error{tried, std::strerror(errno), ""};
  struct stat status;
  if (::fstat(fd.get(), &status) != 0) return Error{tried, std::strerror(errno), ""};
  if (!S_ISREG(status.st_mode)) return Error{tried, "it is not a file", ""};
  if (static_cast<uint64_t>(status.st_size) > kMaxMessageBytes + kHeaderBytes) {
    return Error{tried, "it is larger than a recording can be", ""};
  }
  std::string bytes(static_cast<size_t>(status.st_size), '\0');
  size_t have = 0;
  while (have < bytes.size()) {
    const ssize_t got = ::read(fd.get(), bytes.data() + have, bytes.size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Error{tried, std::strerror(errno), ""};
    if (got == 0) break;
    have += static_cast<size_t>(got);
  }
  bytes.resize(have);
  return bytes;
}

}  // namespace

Result<void> WriteRecording(const v1::Recording& recording, const std::string& path) {
  const std::string tried = "write " + path;
  const std::string message = recording.SerializeAsString();
  if (message.size() > kMostRecordingBytes) {
    return Error{tried, "it would be larger than a recording can be",
                 "record fewer processes, or less time"};
  }
  const std::string packed = Pack(message);
  std::string bytes(kMagic);
  PutLittleEndian(bytes, kRecordingVersion, 4);
  PutLittleEndian(bytes, packed.size(), 8);
  PutLittleEndian(bytes, Checksum(packed), 4);
  bytes += packed;

  // Process id in the name: two ranks told to write the same file must not share the draft.
  const std::string draft = path + ".draft-" + std::to_string(::getpid());
  UniqueFd fd(::open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd.valid()) {
    return Error{tried, std::strerror(errno), "pass -o a path in a directory you can write"};
  }
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t put = ::write(fd.get(), bytes.data() + done, bytes.size() - done);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) {
      const Error error{tried, std::strerror(errno), ""};
      ::unlink(draft.c_str());
      return error;
    }
    done += static_cast<size_t>(put);
  }
  fd.Reset();
  if (std::rename(draft.c_str(), path.c_str()) != 0) {
    const Error error{tried, std::strerror(errno), ""};
    ::unlink(draft.c_str());
    return error;
  }
  return {};
}

Result<v1::Recording> ReadRecording(const std::string& path) {
  Result<std::string> file = ReadWhole(path);
  if (!file) return file.error();
  const std::string tried = "read " + path;
  std::string_view bytes = *file;

  if (bytes.substr(0, kMagic.size()) != kMagic.substr(0, bytes.size()) || bytes.empty()) {
    return Error{tried, "it is not a Tidemark recording", "make one with: tidemark run -o " + path};
  }
  if (bytes.size() < kHeaderBytes) return Error{tried, "it is cut short in its header", ""};
  bytes.remove_prefix(kMagic.size());
  const auto version = static_cast<uint32_t>(GetLittleEndian(bytes, 4));
  const uint64_t length = GetLittleEndian(bytes.substr(4), 8);
  const auto checksum = static_cast<uint32_t>(GetLittleEndian(bytes.substr(12), 4));
  bytes.remove_prefix(16);
  if (version == 0 || version > kRecordingVersion) {
    return Error{tried,
                 "it has format version " + std::to_string(version) +
                     ", this tidemark reads up to " + std::to_string(kRecordingVersion),
                 "use the tidemark that wrote it, or a newer one"};
  }
  if (bytes.size() != length) {
    return Error{
        tried,
        "it holds " + std::to_string(bytes.size()) + " of " + std::to_string(length) + " bytes",
        "copy it again"};
  }
  if (Checksum(bytes) != checksum) {
    return Error{tried, "its checksum does not match its content", "copy it again"};
  }
  std::string unpacked;
  if (version >= 2) {
    Result<std::string> message = Unpack(bytes, tried);
    if (!message) return message.error();
    unpacked = std::move(*message);
    bytes = unpacked;
  }
  v1::Recording recording;
  if (!recording.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return Error{tried, "its content cannot be decoded", ""};
  }
  return recording;
}

}  // namespace tidemark::client
