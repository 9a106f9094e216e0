#include "daemon/source/bpf/process_maps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

namespace tidemark {
namespace {

TEST(ProcessMapsTest, ALineWithAFileIsReadInFull) {
  Mapping mapping;
  ASSERT_TRUE(ParseMapping(
      "7f0a1000-7f0a3000 r-xp 00002000 fd:01 1234567                    /usr/lib/lib cuda.so.1",
      &mapping));
  EXPECT_EQ(mapping.start, 0x7f0a1000u);
  EXPECT_EQ(mapping.end, 0x7f0a3000u);
  EXPECT_EQ(mapping.file_offset, 0x2000u);
  EXPECT_TRUE(mapping.executable);
  EXPECT_EQ(mapping.file.device, makedev(0xfd, 1));
  EXPECT_EQ(mapping.file.inode, 1234567u);
  EXPECT_EQ(mapping.path, "/usr/lib/lib cuda.so.1");
}

TEST(ProcessMapsTest, ALineWithoutAFileHasNoPath) {
  Mapping mapping;
  ASSERT_TRUE(ParseMapping("7f0a1000-7f0a3000 rw-p 00000000 00:00 0 ", &mapping));
  EXPECT_FALSE(mapping.executable);
  EXPECT_EQ(mapping.file.inode, 0u);
  EXPECT_EQ(mapping.path, "");
}

TEST(ProcessMapsTest, LinesThatAreNotMappingsAreRefused) {
  Mapping mapping;
  for (const char* line :
       {"", "x", "7f0a1000", "7f0a1000-", "7f0a1000-7f0a3000", "7f0a1000-7f0a3000 r-xp",
        "7f0a3000-7f0a1000 r-xp 0 fd:01 1 /a", "7f0a1000-7f0a3000 r-xp zz fd:01 1 /a",
        "7f0a1000-7f0a3000 r-xp 0 fd:01 /a", "99999999999999999999-7f0a3000 r-xp 0 fd:01 1 /a"}) {
    EXPECT_FALSE(ParseMapping(line, &mapping)) << line;
  }
}

TEST(ProcessMapsTest, ADeletedFileIsOpenedThroughItsMapping) {
  char name[] = "/tmp/process_maps_test.XXXXXX";
  UniqueFd fd(mkstemp(name));
  ASSERT_TRUE(fd.valid());
  ASSERT_EQ(write(fd.get(), "content", 7), 7);
  void* mapped = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  ASSERT_NE(mapped, MAP_FAILED);
  unlink(name);

  const ProcRoot root;
  Result<std::vector<Mapping>> mappings = ReadMappings(root, getpid());
  ASSERT_TRUE(mappings.ok());
  bool found = false;
  for (const Mapping& mapping : *mappings) {
    if (mapping.start != reinterpret_cast<uint64_t>(mapped)) continue;
    found = true;
    EXPECT_THAT(mapping.path, testing::EndsWith(" (deleted)"));
    Result<UniqueFd> opened = OpenMapped(root, getpid(), mapping);
    ASSERT_TRUE(opened.ok()) << opened.error().ToString();
    char content[8] = "";
    EXPECT_EQ(pread(opened->get(), content, 7, 0), 7);
    EXPECT_STREQ(content, "content");
  }
  EXPECT_TRUE(found);
  munmap(mapped, 4096);
}

// A made-up procfs without map_files, as for a daemon without CAP_CHECKPOINT_RESTORE.
TEST(ProcessMapsTest, WithoutMapFilesTheNameIsUsedOnlyWhenItIsStillTheSameFile) {
  char directory[] = "/tmp/process_maps_root.XXXXXX";
  ASSERT_TRUE(mkdtemp(directory));
  const std::filesystem::path base = directory;
  std::filesystem::create_directories(base / "proc/42/root/lib");
  std::ofstream(base / "proc/42/root/lib/libcuda.so.1") << "elf";
  struct stat status;
  ASSERT_EQ(stat((base / "proc/42/root/lib/libcuda.so.1").c_str(), &status), 0);

  Mapping mapping;
  mapping.start = 0x1000;
  mapping.end = 0x2000;
  mapping.path = "/lib/libcuda.so.1";
  mapping.file.inode = status.st_ino;
  EXPECT_TRUE(OpenMapped(ProcRoot(base), 42, mapping).ok());
  mapping.file.inode = status.st_ino + 1;
  Result<UniqueFd> replaced = OpenMapped(ProcRoot(base), 42, mapping);
  ASSERT_FALSE(replaced.ok());
  EXPECT_THAT(replaced.error().why, testing::HasSubstr("replaced"));
  std::filesystem::remove_all(base);
}

TEST(ProcessMapsTest, StartTimeIsFoundBehindACommandWithSpacesAndParentheses) {
  char directory[] = "/tmp/process_maps_stat.XXXXXX";
  ASSERT_TRUE(mkdtemp(directory));
  const std::filesystem::path base = directory;
  std::filesystem::create_directories(base / "proc/42");
  std::ofstream(base / "proc/42/stat")
      << "42 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 987654 20 21\n";
  Result<uint64_t> ticks = ReadStartTimeTicks(ProcRoot(base), 42);
  ASSERT_TRUE(ticks.ok());
  EXPECT_EQ(*ticks, 987654u);
  std::ofstream(base / "proc/42/stat") << "nonsense";
  EXPECT_FALSE(ReadStartTimeTicks(ProcRoot(base), 42).ok());
  EXPECT_FALSE(ReadStartTimeTicks(ProcRoot(base), 43).ok());
  std::filesystem::remove_all(base);
}

}  // namespace
}  // namespace tidemark
