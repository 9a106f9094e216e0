#include "daemon/source/bpf/elf_image.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <random>

#include "base/unique_fd.h"

namespace tidemark {
namespace {

constexpr char kLibrary[] = TIDEMARK_FAKE_LIBCUDA;

TEST(ElfImageTest, FindsExportedFunctionsAndSaysNothingOfOthers) {
  UniqueFd fd(open(kLibrary, O_RDONLY | O_CLOEXEC));
  auto found = ElfImage::FindFunctions(fd.get(), kLibrary, {"cuMemHostAlloc", "cuMemNoSuch"});
  ASSERT_TRUE(found.ok()) << found.error().ToString();
  ASSERT_EQ(found->size(), 1u);
  Result<ElfImage> image = ElfImage::Read(fd.get(), kLibrary);
  ASSERT_TRUE(image.ok());
  EXPECT_EQ(image->build_id().size(), 40u);
  // What stands there is code: it begins with `push %rbp` or, with CET, `endbr64`.
  uint8_t first = 0;
  ASSERT_EQ(pread(fd.get(), &first, 1, static_cast<off_t>(found->at("cuMemHostAlloc"))), 1);
  EXPECT_TRUE(first == 0x55 || first == 0xf3) << int{first};
  EXPECT_TRUE(image->AddressOfFileOffset(found->at("cuMemHostAlloc")));
  EXPECT_FALSE(image->AddressOfFileOffset(uint64_t{1} << 40));
}

TEST(ElfImageTest, WhatIsNoElfFileIsRefused) {
  UniqueFd fd(open("/etc/passwd", O_RDONLY | O_CLOEXEC));
  EXPECT_FALSE(ElfImage::Read(fd.get(), "passwd").ok());
  UniqueFd directory(open("/tmp", O_RDONLY | O_CLOEXEC));
  EXPECT_FALSE(ElfImage::Read(directory.get(), "a directory").ok());
}

// The file is the observed process's to shape: whatever stands in it, we answer or refuse.
TEST(ElfImageTest, CutAndDamagedFilesNeverCrashTheReader) {
  std::ifstream file(kLibrary, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(file)), {});
  std::mt19937 random(7);
  char name[] = "/tmp/elf_image_test.XXXXXX";
  UniqueFd fd(mkstemp(name));
  unlink(name);
  for (int round = 0; round < 300; ++round) {
    std::string bytes = whole.substr(0, round % 3 ? whole.size() : random() % whole.size());
    // Mostly the headers and the section table, where damage matters.
    for (int i = 0; i < 20 && !bytes.empty(); ++i) {
      const size_t span = i % 2 ? bytes.size() : std::min<size_t>(bytes.size(), 1024);
      bytes[(i % 4 == 3 ? bytes.size() - 1 - random() % std::min<size_t>(bytes.size(), 4096)
                        : random() % span)] = static_cast<char>(random());
    }
    ASSERT_EQ(ftruncate(fd.get(), 0), 0);
    ASSERT_EQ(pwrite(fd.get(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    auto found = ElfImage::FindFunctions(fd.get(), "damaged", {"cuMemHostAlloc"});
    if (found.ok()) {
      EXPECT_LE(found->size(), 1u);
    }
  }
}

}  // namespace
}  // namespace tidemark
