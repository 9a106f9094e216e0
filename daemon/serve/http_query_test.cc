// Queries become requests, and what cannot be meant is refused.
#include "daemon/serve/http_query.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tidemark/v1/tidemark.pb.h"

namespace tidemark::serve {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(HttpQuery, FillsRepeatedNestedAndEncodedFields) {
  v1::QueryRangeRequest range;
  ASSERT_TRUE(ReadQuery("pids=1&pids=2&devices=-1&start_unix_ns=18446744073709551615"
                        "&include_marks=true&training_job=a%20b%26c+d",
                        &range)
                  .ok());
  EXPECT_THAT(range.pids(), ElementsAre(1, 2));
  EXPECT_THAT(range.devices(), ElementsAre(-1));
  EXPECT_EQ(range.start_unix_ns(), UINT64_MAX);
  EXPECT_TRUE(range.include_marks());
  EXPECT_EQ(range.training_job(), "a b&c d");

  v1::DiffRequest diff;
  ASSERT_TRUE(ReadQuery("before.moment.name=load&before.ranks=0&after.ranks=1", &diff).ok());
  EXPECT_EQ(diff.before().moment().name(), "load");
  EXPECT_THAT(diff.after().ranks(), ElementsAre(1));
}

TEST(HttpQuery, RefusesWhatCannotBeMeant) {
  for (const char* bad :
       {"nothing=1", "pids", "pids=", "pids=x", "pids=1.5", "pids=99999999999", "pids=1%00",
        "start_unix_ns=-1", "include_marks=1", "align=time&align=step", "align=%zz", "align=%f",
        "align=%ff", "pids.x=1", "=1", "training_job.x=1", "before.moment.name=load"}) {
    v1::QueryRangeRequest range;
    const Result<void> read = ReadQuery(bad, &range);
    ASSERT_FALSE(read.ok()) << bad;
    EXPECT_THAT(read.error().ToString(), HasSubstr("read the query")) << bad;
  }
  v1::DiffRequest diff;
  for (const char* bad : {"before=1", "before.=1", "before.moment=1", "before.moment.when=1"}) {
    EXPECT_FALSE(ReadQuery(bad, &diff).ok()) << bad;
  }
}

TEST(HttpQuery, AnEmptyQueryAsksForNothingSpecial) {
  v1::QueryRangeRequest range;
  EXPECT_TRUE(ReadQuery("", &range).ok());
  EXPECT_EQ(range.ByteSizeLong(), 0u);
}

}  // namespace
}  // namespace tidemark::serve
