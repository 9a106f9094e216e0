#include "daemon/source/agent/symbol_reader.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <link.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include "base/unique_fd.h"
#include "daemon/source/agent/symbolizer.h"

namespace tidemark {

// Found by its own name and line.
constexpr uint32_t kLineOfFunction = __LINE__ + 1;
__attribute__((noinline)) int SymbolReaderTestFunction(int x) { return x * 7 + 1; }

namespace {

uint64_t OwnAddress() {
  Dl_info info = {};
  auto* address = reinterpret_cast<void*>(&SymbolReaderTestFunction);
  if (::dladdr(address, &info) == 0) return 0;
  return reinterpret_cast<uint64_t>(address) - reinterpret_cast<uint64_t>(info.dli_fbase);
}

// Lower-case hex, of this program.
std::string OwnBuildId() {
  std::string id;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          if (info->dlpi_phdr[i].p_type != PT_NOTE) continue;
          const auto* at =
              reinterpret_cast<const uint8_t*>(info->dlpi_addr) + info->dlpi_phdr[i].p_vaddr;
          const auto* end = at + info->dlpi_phdr[i].p_memsz;
          while (at + sizeof(ElfW(Nhdr)) <= end) {
            ElfW(Nhdr) note;
            std::memcpy(&note, at, sizeof(note));
            const auto* bytes = at + sizeof(note) + ((note.n_namesz + 3) & ~3u);
            for (uint32_t b = 0; note.n_type == NT_GNU_BUILD_ID && b < note.n_descsz; ++b) {
              char hex[3];
              std::snprintf(hex, sizeof(hex), "%02x", bytes[b]);
              *static_cast<std::string*>(out) += hex;
            }
            at = bytes + ((note.n_descsz + 3) & ~3u);
          }
        }
        return 1;  // the program itself comes first
      },
      &id);
  return id;
}

TEST(SymbolReaderTest, NamesAFunctionAndItsLine) {
  const UniqueFd self(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  const auto symbols = ReadSymbols(self.get(), "", {OwnAddress() + 1, 1});
  ASSERT_TRUE(symbols.ok()) << symbols.error().ToString();
  ASSERT_EQ(symbols->size(), 2u);
  EXPECT_EQ((*symbols)[0].function, "tidemark::SymbolReaderTestFunction(int)");
  EXPECT_NE((*symbols)[0].file.find("symbol_reader_test.cc"), std::string::npos);
  EXPECT_EQ((*symbols)[0].line, kLineOfFunction);
  EXPECT_EQ((*symbols)[1].function, "");
}

TEST(SymbolReaderTest, AReplacedFileGivesNoNames) {
  const UniqueFd self(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  const auto symbols = ReadSymbols(self.get(), "00112233", {OwnAddress()});
  ASSERT_FALSE(symbols.ok());
}

TEST(SymbolReaderTest, WhatIsNoElfFileIsRefused) {
  const UniqueFd text(::open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC));
  EXPECT_FALSE(ReadSymbols(text.get(), "", {1}).ok());
}

TEST(SymbolizerTest, AnswersLaterAndOnce) {
  Symbolizer symbolizer{ProcRoot()};
  symbolizer.Start();
  char path[4096] = {};
  ASSERT_GT(::readlink("/proc/self/exe", path, sizeof(path) - 1), 0);
  const uint64_t before = symbolizer.answered();
  std::shared_ptr<const Symbol> symbol = symbolizer.Find(::getpid(), path, "", OwnAddress());
  EXPECT_EQ(symbol, nullptr);
  for (int i = 0; i < 1000 && symbolizer.answered() == before; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  symbol = symbolizer.Find(::getpid(), path, "", OwnAddress());
  ASSERT_NE(symbol, nullptr);
  EXPECT_EQ(symbol->function, "tidemark::SymbolReaderTestFunction(int)");
}

TEST(SymbolizerTest, AProcessThatIsGoneIsNamedFromTheFileOfTheSameBuildId) {
  const pid_t gone = ::fork();
  if (gone == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(gone, nullptr, 0), gone);
  char path[4096] = {};
  ASSERT_GT(::readlink("/proc/self/exe", path, sizeof(path) - 1), 0);
  ASSERT_FALSE(OwnBuildId().empty());
  Symbolizer symbolizer{ProcRoot()};
  symbolizer.Start();
  std::shared_ptr<const Symbol> known;
  std::shared_ptr<const Symbol> replaced;
  for (int i = 0; i < 1000 && (known == nullptr || replaced == nullptr); ++i) {
    known = symbolizer.Find(gone, path, OwnBuildId(), OwnAddress());
    replaced = symbolizer.Find(gone, path, "00112233", OwnAddress());
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ASSERT_NE(known, nullptr);
  EXPECT_EQ(known->function, "tidemark::SymbolReaderTestFunction(int)");
  ASSERT_NE(replaced, nullptr);
  EXPECT_EQ(replaced->function, "");
}

TEST(SymbolizerTest, AModuleThatIsNotThereHasNoNames) {
  Symbolizer symbolizer{ProcRoot()};
  symbolizer.Start();
  const std::string fifo_like = "/dev/zero";  // never opened: only regular files are
  std::shared_ptr<const Symbol> symbol;
  for (int i = 0; i < 1000 && symbol == nullptr; ++i) {
    symbol = symbolizer.Find(::getpid(), fifo_like, "", 5);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ASSERT_NE(symbol, nullptr);
  EXPECT_EQ(symbol->function, "");
}

}  // namespace
}  // namespace tidemark
