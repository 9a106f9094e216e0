// The region of a real agent beside PyTorch 2.11 on an H200 (tests/fixtures/h200): the fixture of
// region ABI 1, which every later reader has to take.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "daemon/source/agent/region_reader.h"

namespace tidemark {
namespace {

UniqueFd Unpacked(const std::string& path) {
  UniqueFd fd(::memfd_create("recorded", MFD_CLOEXEC));
  FILE* zcat = ::popen(("zcat '" + path + "'").c_str(), "r");
  std::vector<char> chunk(1 << 20);
  size_t n;
  while ((n = ::fread(chunk.data(), 1, chunk.size(), zcat)) > 0) {
    if (::write(fd.get(), chunk.data(), n) != static_cast<ssize_t>(n)) ADD_FAILURE() << "write";
  }
  EXPECT_EQ(::pclose(zcat), 0) << path;
  return fd;
}

TEST(RecordedRegionTest, AbiOneIsReadWithTheTotalsThatTorchHad) {
  auto file =
      std::make_unique<FdRegionFile>(Unpacked(TIDEMARK_FIXTURES "/h200/region_abi1.bin.gz"));
  wire::Header header = {};
  ASSERT_EQ(file->ReadAt(0, &header, sizeof header), sizeof header);
  wire::Hello hello = {};
  hello.magic = wire::kHandshakeMagic;
  hello.abi = 1;
  hello.region_bytes = header.region_bytes;
  hello.agent_id = header.agent_id;
  hello.pid = header.pid;
  wire::ReplyCode refusal = wire::ReplyCode::kAccepted;
  std::string why;
  const auto reader = RegionReader::Open(std::move(file), hello, &refusal, &why);
  ASSERT_NE(reader, nullptr) << why;

  // The string pool comes in bounded pieces.
  RegionChanges changes;
  for (int i = 0; i < 20; ++i) {
    changes = {};
    ASSERT_TRUE(reader->Refresh(&changes));
    EXPECT_EQ(changes.torn_rows, 0u);
  }

  const RegionCopy& copy = reader->copy();
  EXPECT_EQ(copy.header.abi, 1u);
  EXPECT_EQ(copy.header.cupti_version, 130001u);
  EXPECT_EQ(copy.header.python_version, 0x030cu);
  const auto framework = std::find_if(copy.totals.begin(), copy.totals.end(), [](const auto& row) {
    return row.layer == static_cast<uint8_t>(wire::Layer::kFramework);
  });
  ASSERT_NE(framework, copy.totals.end());
  ASSERT_EQ(copy.allocators.size(), 1u);
  EXPECT_EQ(framework->live_bytes, 2'034'787'840);
  EXPECT_EQ(copy.allocators[0].allocated_bytes, 2'034'787'840u);
  EXPECT_EQ(copy.allocators[0].reserved_bytes, 10'376'708'096u);

  size_t in_the_model = 0;
  for (const wire::SiteRow& site : copy.sites) {
    for (uint32_t f = 0; f < site.frame_count; ++f) {
      const wire::Frame& frame = copy.frames.at(site.first_frame + f);
      if (frame.kind != static_cast<uint8_t>(wire::FrameKind::kPython)) continue;
      if (copy.String(frame.a).ends_with("gpt.py")) {
        ++in_the_model;
        break;
      }
    }
  }
  EXPECT_GT(in_the_model, 10u);
}

}  // namespace
}  // namespace tidemark
