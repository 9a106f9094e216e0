#include "cupti_agent/stack/stack.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "cupti_agent/stack/line_table.h"
#include "cupti_agent/stack/module_table.h"
#include "cupti_agent/stack/python_layout.h"
#include "cupti_agent/stack/python_text.h"
#include "cupti_agent/stack/safe_read.h"

namespace tidemark::agent {
namespace {

using testing::ElementsAre;
using testing::IsSupersetOf;

TEST(SafeRead, ABadAddressIsAFailureAndNoFault) {
  int value = 7, copy = 0;
  EXPECT_TRUE(SafeRead(reinterpret_cast<uint64_t>(&value), &copy));
  EXPECT_EQ(copy, 7);
  EXPECT_FALSE(SafeRead(0, &copy));
  EXPECT_FALSE(SafeRead(8, &copy));
  EXPECT_FALSE(SafeRead(0xffffffffffff0000, &copy));
  void* closed = mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  mprotect(static_cast<char*>(closed) + 4096, 4096, PROT_NONE);
  EXPECT_FALSE(SafeRead(reinterpret_cast<uint64_t>(closed) + 4094, &copy));
  munmap(closed, 8192);
}

uint32_t Line(LineTable form, const std::string& table, uint32_t first, uint64_t offset) {
  TableReader reader(reinterpret_cast<uint64_t>(table.data()), table.size());
  return LineOf(form, &reader, first, offset);
}

std::string Bytes(std::initializer_list<int> values) {
  std::string bytes;
  for (int value : values) bytes.push_back(static_cast<char>(value));
  return bytes;
}

TEST(LineTable, LnotabMovesTheLineAfterTheBytes) {
  std::string table = Bytes({6, 1, 8, 2, 4, -3, 255, 0, 45, 127, 0, 73});
  auto line = [&](uint64_t offset) { return Line(LineTable::kLnotab, table, 10, offset); };
  EXPECT_EQ(line(0), 10u);
  EXPECT_EQ(line(5), 10u);
  EXPECT_EQ(line(6), 11u);
  EXPECT_EQ(line(14), 13u);
  EXPECT_EQ(line(18), 10u);
  EXPECT_EQ(line(317), 10u);
  EXPECT_EQ(line(318), 210u);
  EXPECT_EQ(line(100000), 210u);
}

TEST(LineTable, LineTable310HoldsForTheBytesAndKnowsGaps) {
  std::string table = Bytes({6, 1, 4, -128, 8, 2, 2, -3});
  auto line = [&](uint64_t offset) { return Line(LineTable::kLineTable310, table, 10, offset); };
  EXPECT_EQ(line(0), 11u);
  EXPECT_EQ(line(4), 11u);
  EXPECT_EQ(line(6), 0u);
  EXPECT_EQ(line(10), 13u);
  EXPECT_EQ(line(18), 10u);
  EXPECT_EQ(line(20), 0u) << "after the end";
}

TEST(LineTable, LocationsOfEveryForm) {
  std::string table = Bytes({
      0x80 | 0 << 3 | 1, 0x12,             // two units, short, same line
      0x80 | 11 << 3 | 0, 1, 2,            // one unit, one line on
      0x80 | 13 << 3 | 2, 0x40 | 5, 0x02,  // three units, no columns, signed delta -(133 >> 1)
      0x80 | 15 << 3 | 7,                  // eight units without a line
      0x80 | 14 << 3 | 0, 8, 0, 1, 2,      // one unit, long, four lines on
  });
  auto line = [&](uint64_t offset) { return Line(LineTable::kLocations311, table, 100, offset); };
  EXPECT_EQ(line(0), 100u);
  EXPECT_EQ(line(2), 100u);
  EXPECT_EQ(line(4), 101u);
  EXPECT_EQ(line(6), 101u - 66u);
  EXPECT_EQ(line(12), 0u);
  EXPECT_EQ(line(28), 101u - 66u + 4u);
  EXPECT_EQ(line(30), 0u) << "after the end";
}

TEST(LineTable, BytesThatAreNoTableEndInNoLine) {
  for (int seed = 0; seed < 2000; ++seed) {
    std::string table;
    uint32_t state = static_cast<uint32_t>(seed) * 2654435761u + 1;
    for (int i = 0; i < seed % 40; ++i) {
      state = state * 1664525u + 1013904223u;
      table.push_back(static_cast<char>(state >> 24));
    }
    for (LineTable form :
         {LineTable::kLnotab, LineTable::kLineTable310, LineTable::kLocations311}) {
      Line(form, table, 1, state & 1023);
      // A table whose memory ends before its length says.
      TableReader reader(8, 1 << 20);
      EXPECT_EQ(LineOf(form, &reader, 0, 0), 0u);
    }
  }
}

TEST(PythonLayout, KnowsEveryVersionOfItsTableAndNoOther) {
  PythonLayout layout;
  const char* reason = nullptr;
  for (uint16_t version : {0x0308, 0x0309, 0x030A, 0x030B, 0x030C}) {
    EXPECT_TRUE(FindPythonLayout(version, 0, &layout, &reason)) << version;
    EXPECT_EQ(layout.version, version);
  }
  for (uint16_t version : {0, 0x0207, 0x0306, 0x0307, 0x030F, 0x0400}) {
    reason = nullptr;
    EXPECT_FALSE(FindPythonLayout(version, 0, &layout, &reason)) << version;
    EXPECT_STREQ(reason, "this version of Python is not known");
  }
}

TEST(PythonLayout, ReadsTheInterpretersOwnTableOf314) {
  // _Py_DebugOffsets of 3.14, field by field; the values are made up and all different.
  uint64_t table[64];
  for (uint64_t i = 0; i < 64; ++i) table[i] = 1000 + i;
  memcpy(table, "xdebugpy", 8);
  table[1] = 0x030E00F0;
  table[2] = 0;
  PythonLayout layout;
  const char* reason = nullptr;
  auto runtime = reinterpret_cast<uint64_t>(table);
  ASSERT_TRUE(FindPythonLayout(0x030E, runtime, &layout, &reason)) << reason;
  EXPECT_EQ(layout.runtime_interpreters, 1005);
  EXPECT_EQ(layout.interpreter_next, 1008);
  EXPECT_EQ(layout.interpreter_threads, 1009);
  EXPECT_EQ(layout.thread_next, 1024);
  EXPECT_EQ(layout.thread_frame, 1026);
  EXPECT_EQ(layout.thread_id, 1027);
  EXPECT_EQ(layout.frame_previous, 1032);
  EXPECT_EQ(layout.frame_code, 1033);
  EXPECT_EQ(layout.frame_position, 1034);
  EXPECT_EQ(layout.frame_owner, 1036);
  EXPECT_EQ(layout.code_filename, 1040);
  EXPECT_EQ(layout.code_first_line, 1044);
  EXPECT_EQ(layout.code_instructions, 1048);
  EXPECT_FALSE(layout.has_cframe);

  table[2] = 1;
  EXPECT_FALSE(FindPythonLayout(0x030E, runtime, &layout, &reason));
  EXPECT_STREQ(reason, "free-threaded interpreter");
  table[2] = 0;
  table[1] = 0x030D00F0;
  EXPECT_FALSE(FindPythonLayout(0x030E, runtime, &layout, &reason));
  EXPECT_STREQ(reason, "the interpreter's own offset table is not as expected");
  EXPECT_FALSE(FindPythonLayout(0x030E, 8, &layout, &reason));
  EXPECT_STREQ(reason, "_PyRuntime cannot be read");
}

TEST(PythonText, AnObjectThatIsNoStringIsRefused) {
  TextLayout layout = {0x1000, 48, 72, 2};
  char text[16];
  std::string_view view;
  EXPECT_FALSE(ReadText(layout, 0, text, sizeof(text), &view));
  EXPECT_FALSE(ReadText(layout, 9, text, sizeof(text), &view));
  EXPECT_FALSE(ReadText(layout, 0xffffffffffff0000, text, sizeof(text), &view));
  struct {
    uint64_t references = 1, type = 0x2000, length = 3, hash = 0;
    uint32_t state = (1 | 8 | 16) << 2;
    uint32_t unused = 0;
    uint64_t wide_text = 0;
    char data[8] = "abc";
  } object;
  auto address = reinterpret_cast<uint64_t>(&object);
  EXPECT_FALSE(ReadText(layout, address, text, sizeof(text), &view)) << "another type";
  object.type = 0x1000;
  EXPECT_TRUE(ReadText(layout, address, text, sizeof(text), &view));
  EXPECT_EQ(view, "abc");
  object.length = 1ull << 60;
  EXPECT_TRUE(ReadText(layout, address, text, 4, &view));
  EXPECT_EQ(view, std::string_view("abc\0", 4));
  object.state = 3 << 2 | 8 << 2;  // a width of three bytes
  EXPECT_FALSE(ReadText(layout, address, text, sizeof(text), &view));
  object.state = 1 << 2 | 16 << 2;  // not compact
  EXPECT_FALSE(ReadText(layout, address, text, sizeof(text), &view));
}

// The names of a native stack's frames, as the dynamic loader knows them.
std::vector<std::string> Names(Stack* stack) {
  std::vector<std::string> names;
  StackView view = stack->View();
  for (uint16_t i = 0; i < view.count; ++i) {
    StackFrame frame;
    EXPECT_TRUE(view.resolve(view, i, &frame));
    EXPECT_EQ(frame.kind, wire::FrameKind::kNative);
    Dl_info info;
    bool found = dladdr(reinterpret_cast<void*>(frame.module_base + frame.offset), &info) != 0;
    names.push_back(found && info.dli_sname != nullptr ? info.dli_sname : "?");
    EXPECT_FALSE(frame.module_path.empty());
  }
  return names;
}

using Capture = bool (*)(Stack*);
using Call = void (*)(Capture, Stack*, int);

// The test library stands for the job: frames of the program are the agent's own here.
class NativeStack : public testing::Test {
 protected:
  static void SetUpTestSuite() { InitStacks(); }

  Call Load() {
    void* handle = dlopen(STACKTEST_CALLER, RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(handle, nullptr) << dlerror();
    RefreshModules();
    return reinterpret_cast<Call>(dlsym(handle, "stacktest_outer"));
  }
};

TEST_F(NativeStack, BeginsAtTheJobsInnermostFrame) {
  Stack stack;
  Load()(CaptureNative, &stack, 0);
  std::vector<std::string> names = Names(&stack);
  ASSERT_GE(names.size(), 2u);
  EXPECT_EQ(names[0], "stacktest_inner");
  EXPECT_EQ(names[1], "stacktest_outer");
  EXPECT_EQ(stack.flags, wire::kSiteNative);
}

TEST_F(NativeStack, CarriesTheBuildIdAndThePathOfTheModule) {
  Stack stack;
  Load()(CaptureNative, &stack, 0);
  StackFrame frame;
  StackView view = stack.View();
  ASSERT_TRUE(view.resolve(view, 0, &frame));
  EXPECT_EQ(frame.module_path, STACKTEST_CALLER);
  std::vector<uint8_t> id(frame.build_id, frame.build_id + frame.build_id_bytes);
  EXPECT_THAT(id, ElementsAre(0xab, 0xcd, 0xef, 0x12, 0x34));
}

TEST_F(NativeStack, ADeepStackIsCutAndMarked) {
  Stack stack;
  Load()(CaptureNative, &stack, 300);
  EXPECT_EQ(stack.count, wire::kMaxFrames);
  EXPECT_EQ(stack.flags, wire::kSiteNative | wire::kSiteTruncated);
}

TEST_F(NativeStack, EqualCallsHaveEqualHashes) {
  Call call = Load();
  uint64_t hashes[3];
  for (int i = 0; i < 3; ++i) {
    Stack stack;
    call(CaptureNative, &stack, i == 2 ? 1 : 0);
    hashes[i] = stack.hash;
  }
  EXPECT_EQ(hashes[0], hashes[1]);
  EXPECT_NE(hashes[0], hashes[2]);
}

TEST_F(NativeStack, WithoutAnInterpreterThereAreNoPythonFramesAndAReason) {
  Stack stack;
  EXPECT_FALSE(CapturePython(&stack));
  EXPECT_EQ(stack.count, 0);
  StackStatus status = GetStackStatus();
  EXPECT_EQ(status.python, wire::FeatureState::kUnavailable);
  EXPECT_STREQ(status.python_reason, "no Python interpreter in this process");
  EXPECT_EQ(status.native, wire::FeatureState::kOn);
}

TEST_F(NativeStack, AModuleKeepsItsIndexWhileOthersComeAndGo) {
  Call call = Load();
  uint32_t index = ModuleContaining(reinterpret_cast<uint64_t>(call));
  ASSERT_NE(index, kNoModule);
  std::atomic<bool> stop{false};
  std::thread reader([&] {
    while (!stop) {
      uint32_t found = ModuleContaining(reinterpret_cast<uint64_t>(call));
      // A reader that two refreshes overtake may find nothing, but never another module.
      if (found != index && found != kNoModule) abort();
    }
  });
  for (int i = 0; i < 200; ++i) {
    void* other = dlopen(STACKTEST_OTHER, RTLD_NOW | RTLD_LOCAL);
    RefreshModules();
    dlclose(other);
    RefreshModules();
  }
  stop = true;
  reader.join();
  EXPECT_EQ(ModuleContaining(reinterpret_cast<uint64_t>(call)), index);
  EXPECT_EQ(ModuleContaining(0), kNoModule);
  EXPECT_EQ(ModuleContaining(UINT64_MAX), kNoModule);
}

}  // namespace
}  // namespace tidemark::agent
