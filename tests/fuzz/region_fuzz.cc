// Everything that a region may hold, read as the tick does: opened, refreshed while it changes
// under the reader, named, and put into a snapshot. Built with -fsanitize=fuzzer it searches;
// linked to replay_main.cc it replays the corpus as a plain test.
//
// Input: a region's bytes, then (behind the size that its own header announces) bytes that are
// written over it between two readings.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "daemon/ledger/process_ledger.h"

namespace {

class MemoryRegion : public tidemark::RegionFile {
 public:
  explicit MemoryRegion(std::vector<uint8_t>* bytes) : bytes_(bytes) {}
  size_t ReadAt(uint64_t offset, void* into, size_t count) const override {
    if (offset >= bytes_->size()) return 0;
    const size_t there = std::min<size_t>(count, bytes_->size() - offset);
    std::memcpy(into, bytes_->data() + offset, there);
    return there;
  }

 private:
  std::vector<uint8_t>* bytes_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tidemark;
  std::vector<uint8_t> bytes(data, data + size);
  std::vector<uint8_t> later;
  wire::Hello hello = {};
  if (size >= sizeof(wire::Header)) {
    wire::Header header;
    std::memcpy(&header, data, sizeof(header));
    hello.abi = header.abi;
    hello.agent_id = header.agent_id;
    hello.region_bytes = header.region_bytes;
    if (header.region_bytes < size) {
      later.assign(data + header.region_bytes, data + size);
      bytes.resize(header.region_bytes);
    }
  }
  wire::ReplyCode refusal = wire::ReplyCode::kAccepted;
  std::string why;
  const auto reader =
      RegionReader::Open(std::make_unique<MemoryRegion>(&bytes), hello, &refusal, &why);
  if (reader == nullptr) return 0;
  ProcessLedger ledger(1, nullptr);
  for (int tick = 0; tick < 3; ++tick) {
    RegionChanges changes;
    if (!reader->Refresh(&changes)) break;
    ledger.Update(reader->copy(), changes, DeviceMap(), tick == 0);
    ProcessSnapshot process;
    ledger.Fill(reader->copy(), &process);
    for (size_t row = 0; row < ledger.size(); ++row) (void)ledger.At(row);
    (void)ledger.SitesAreComplete(reader->copy());
    (void)reader->copy().Environment("RANK");
    (void)reader->RefreshTotals();
    std::copy_n(later.begin(), std::min(later.size(), bytes.size()), bytes.begin());
  }
  (void)reader->LiveBlocks({0, 1, 2}, 100);
  (void)reader->CopyUsedParts([](uint64_t, const char*, size_t) { return true; });
  return 0;
}
