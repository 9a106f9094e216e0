#include <gtest/gtest.h>

#include "daemon/ledger/blame.h"
#include "daemon/ledger/process_ledger.h"
#include "daemon/ledger/site_names.h"

namespace tidemark {
namespace {

FrameView Python(const char* file, const char* function = "f") {
  return {wire::FrameKind::kPython, function, file, 1};
}
FrameView Native(const char* function, const char* source = "") {
  return {wire::FrameKind::kNative, function, source, 0};
}

size_t Blame(const std::vector<FrameView>& frames, std::vector<std::string> modules = {}) {
  modules.resize(frames.size());
  return BlamedFrame(frames, modules);
}

TEST(BlameTest, TheInnermostFrameOfTheJobsOwnPythonIsBlamed) {
  EXPECT_EQ(Blame({Python("/opt/venv/lib/python3.12/site-packages/torch/nn/functional.py"),
                   Python("/usr/lib/python3/dist-packages/numpy/core.py"),
                   Python("/root/.pyenv/versions/3.11.7/lib/python3.11/threading.py"),
                   Python("<frozen importlib._bootstrap>"), Python("/job/python/model.py"),
                   Python("/job/train.py")}),
            4u);
}

TEST(BlameTest, ALibrarysFrameIsBlamedBeforeTheDriversAndTheUnknown) {
  EXPECT_EQ(Blame({Native("?+0xffffdfff"), Native("cuMemCreate"), Native("cudaMalloc"),
                   Native("ncclCuMemAlloc(void**)")},
                  {"?", "/usr/lib/libcuda.so.1", "/venv/libtorch_cuda.so", "/venv/libnccl.so.2"}),
            3u);
}

TEST(BlameTest, ALibraryThatAllocatesOnItsOwnAccountIsNamed) {
  const std::vector<FrameView> frames = {Native("cuMemCreate"), Native("ncclCuMemAlloc"),
                                         Native("c10d::init"), Python("/job/train.py")};
  EXPECT_EQ(
      OwnAccount(frames, {"/usr/lib/libcuda.so.1", "/venv/libnccl.so.2", "/venv/libtorch.so", ""}),
      "communicator (libnccl.so.2)");
  EXPECT_EQ(OwnAccount(frames,
                       {"/usr/lib/libcuda.so.1", "/venv/libc10_cuda.so", "/venv/libnccl.so.2", ""}),
            "");
  EXPECT_EQ(OwnAccount({Python("/job/train.py")}, {""}), "");
}

TEST(BlameTest, PythonComesBeforeNativeCodeAboveIt) {
  EXPECT_EQ(Blame({Native("extension_alloc"), Python("/job/train.py")}, {"/job/ext.so", ""}), 1u);
}

TEST(BlameTest, WithoutPythonTheInnermostNativeFrameOutsideLibrariesIsBlamed) {
  EXPECT_EQ(Blame({Native("cuMemAlloc_v2"), Native("cudaMalloc"),
                   Native("c10::cuda::CUDACachingAllocator::raw_alloc(unsigned long)"),
                   Native("simtorch_empty", "/src/torch_python.cc"),
                   Native("Train(int)", "train.cc"), Native("main")},
                  {"/usr/lib/libcuda.so.1", "/x/libcudart.so.13", "/x/libc10_cuda.so",
                   "/x/sim/libtorch_python.so", "/job/bin/train", "/job/bin/train"}),
            4u);
}

TEST(BlameTest, WhereAllIsLibraryTheInnermostPythonFrameIsBlamed) {
  EXPECT_EQ(Blame({Native("cuMemAlloc_v2"), Python("/x/lib/python3.10/site-packages/a.py"),
                   Python("/x/lib/python3.10/site-packages/b.py")},
                  {"/usr/lib/libcuda.so.1", "", ""}),
            1u);
  EXPECT_EQ(Blame({}), 0u);
}

TEST(SiteIdTest, IsTheSameForTheSameNamesWhereverTheyAreLoaded) {
  const std::vector<FrameView> one = {Native("alloc()", "/a/libx.so"), Python("/job/train.py")};
  const std::vector<FrameView> two = {Native("alloc()", "/b/libx.so"), Python("/job/train.py")};
  EXPECT_EQ(SiteIdOf(one), SiteIdOf(two));
  std::vector<FrameView> other_line = one;
  other_line[1].line = 2;
  EXPECT_NE(SiteIdOf(one), SiteIdOf(other_line));
  std::vector<FrameView> other_order = {one[1], one[0]};
  EXPECT_NE(SiteIdOf(one), SiteIdOf(other_order));
  EXPECT_NE(SiteIdOf({}), 0u);
}

TEST(ClassOfTest, EveryKindHasOneClassAndRecordsAreNoSecondClass) {
  for (uint8_t kind = 0; kind <= static_cast<uint8_t>(wire::Kind::kRegistered); ++kind) {
    EXPECT_TRUE(ClassOf(static_cast<uint8_t>(wire::Layer::kDriver), kind)) << int{kind};
    EXPECT_FALSE(ClassOf(static_cast<uint8_t>(wire::Layer::kRecords), kind)) << int{kind};
  }
  EXPECT_FALSE(ClassOf(0, 200));
  EXPECT_FALSE(ClassOf(200, 0));
}

// Indices that point anywhere: a hostile region must only ever yield less.
TEST(SiteNamesTest, FramesOutsideThePoolsAreLeftOut) {
  RegionCopy region;
  region.frames.resize(2);
  region.frames[0] = {static_cast<uint8_t>(wire::FrameKind::kPython), {}, 5, UINT32_MAX, 7};
  region.frames[1] = {200, {}, 5, UINT32_MAX, UINT32_MAX};
  wire::SiteRow row = {};
  row.first_frame = 1;
  row.frame_count = UINT16_MAX;
  bool pending = false;
  const auto info = NameSite(region, row, 1, nullptr, &pending);
  EXPECT_EQ(info->frames.size(), 1u);
  EXPECT_TRUE(info->truncated);
  EXPECT_TRUE(pending);
  row.first_frame = UINT32_MAX;
  EXPECT_TRUE(NameSite(region, row, 1, nullptr, &pending)->frames.empty());
}

}  // namespace
}  // namespace tidemark
