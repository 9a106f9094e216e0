#include "client/json.h"

#include <gtest/gtest.h>

#include <limits>

#include "client/testing/fixture.h"

namespace tidemark::client {
namespace {

TEST(Json, BytesAreExactNumbersAndSiteIdsAreText) {
  v1::Site site;
  site.set_id(0xfedcba9876543210);
  site.set_allocated_bytes(std::numeric_limits<uint64_t>::max());
  site.mutable_live()->set_bytes(-1);
  const Json json = ToJson(site);
  EXPECT_EQ(json["id"], "fedcba9876543210");
  EXPECT_EQ(json["allocated_bytes"].get<uint64_t>(), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(json["live"]["bytes"].get<int64_t>(), -1);
}

TEST(Json, FieldsThatAreZeroAreThere) {
  const Json json = ToJson(v1::Verdict());
  EXPECT_EQ(json["grown_bytes"], 0);
  EXPECT_EQ(json["is_leak"], false);
  EXPECT_EQ(json["site_id"], "0000000000000000");
  EXPECT_TRUE(json["evidence"].is_array());
}

TEST(Json, TagsBecomeAnObject) {
  v1::Recording recording;
  (*recording.mutable_tags())["zero_init"] = "on";
  EXPECT_EQ(ToJson(recording)["tags"]["zero_init"], "on");
}

TEST(Json, NumbersThatJsonCannotSayAreNull) {
  v1::Verdict verdict;
  verdict.set_eta_steps(std::numeric_limits<double>::infinity());
  EXPECT_TRUE(ToJson(verdict)["eta_steps"].is_null());
}

TEST(Json, BytesThatAreNotUtf8DoNotStopTheOutput) {
  const std::string text = JsonText({{"file", "bad\xff.py"}});
  EXPECT_EQ(text, "{\n  \"file\": \"bad\xef\xbf\xbd.py\"\n}\n");
}

}  // namespace
}  // namespace tidemark::client
