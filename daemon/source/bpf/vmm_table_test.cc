#include "daemon/source/bpf/vmm_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tidemark {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(VmmTableTest, MemoryIsFreeWhenReleasedAndUnmappedInEitherOrder) {
  VmmTable table;
  table.Create(7);
  table.Map(0x1000, 0x100, 7);
  EXPECT_THAT(table.Release(7).freed, IsEmpty());
  EXPECT_THAT(table.Unmap(0x1000, 0x100).freed, ElementsAre(7));

  table.Create(8);
  table.Map(0x1000, 0x100, 8);
  EXPECT_THAT(table.Unmap(0x1000, 0x100).freed, IsEmpty());
  EXPECT_THAT(table.Release(8).freed, ElementsAre(8));
}

TEST(VmmTableTest, ARetainedHandleKeepsTheMemory) {
  VmmTable table;
  table.Create(7);
  table.Map(0x1000, 0x100, 7);
  table.Retain(7, 0x1080);   // the driver gives the same handle
  table.Retain(9, 0x10ff);   // or another one
  table.Retain(10, 0x1100);  // nothing is mapped there
  EXPECT_THAT(table.Unmap(0x1000, 0x100).freed, IsEmpty());
  EXPECT_THAT(table.Release(7).freed, IsEmpty());
  EXPECT_THAT(table.Release(9).freed, IsEmpty());
  EXPECT_THAT(table.Release(10).freed, IsEmpty());
  EXPECT_THAT(table.Release(7).freed, ElementsAre(7));
}

TEST(VmmTableTest, UnmapTakesAllWholeMappingsOfTheRangeAndNothingWhenItCutsOne) {
  VmmTable table;
  for (uint64_t handle : {1, 2, 3}) {
    table.Create(handle);
    table.Map(0x1000 * handle, 0x1000, handle);
    table.Release(handle);
  }
  EXPECT_THAT(table.Unmap(0x1800, 0x2000).freed, IsEmpty());
  EXPECT_THAT(table.Unmap(0x1000, 0x1800).freed, IsEmpty());
  EXPECT_THAT(table.Unmap(0x1000, 0x3000).freed, ElementsAre(1, 2, 3));
}

TEST(VmmTableTest, ACallThatFailedLeavesNoTrace) {
  VmmTable table;
  table.Create(7);
  table.Map(0x1000, 0x100, 7);
  table.Undo(table.Release(7));
  table.Undo(table.Unmap(0x1000, 0x100));
  EXPECT_THAT(table.Release(7).freed, IsEmpty());
  EXPECT_THAT(table.Unmap(0x1000, 0x100).freed, ElementsAre(7));
}

TEST(VmmTableTest, UnknownHandlesAndReleasesTooManyChangeNothing) {
  VmmTable table;
  EXPECT_THAT(table.Release(5).freed, IsEmpty());
  table.Map(0x1000, 0x100, 5);
  EXPECT_THAT(table.Unmap(0x1000, 0x100).freed, IsEmpty());
  table.Create(7);
  EXPECT_THAT(table.Release(7).freed, ElementsAre(7));
  EXPECT_THAT(table.Release(7).freed, IsEmpty());
}

}  // namespace
}  // namespace tidemark
