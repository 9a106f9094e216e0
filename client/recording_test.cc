#include "client/recording.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "client/testing/fixture.h"

namespace tidemark::client {
namespace {

class RecordingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = std::filesystem::temp_directory_path() /
                 ("tidemark-recording-" + std::to_string(::getpid()));
    std::filesystem::create_directories(directory_);
    path_ = (directory_ / "run.tdm").string();
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string Bytes() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void Put(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
  }
  std::string WhyNot() const {
    const auto recording = ReadRecording(path_);
    return recording ? "read" : recording.error().why;
  }

  std::filesystem::path directory_;
  std::string path_;
};

TEST_F(RecordingTest, WhatWasWrittenIsReadBack) {
  const v1::Recording written = testing::RecordingOf(testing::LeakingSnapshot(), 3);
  ASSERT_TRUE(WriteRecording(written, path_).ok());
  const auto read = ReadRecording(path_);
  ASSERT_TRUE(read.ok()) << read.error().ToString();
  EXPECT_EQ(read->SerializeAsString(), written.SerializeAsString());
}

TEST_F(RecordingTest, NoDraftIsLeftBehind) {
  ASSERT_TRUE(WriteRecording({}, path_).ok());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_),
                          std::filesystem::directory_iterator()),
            1);
}

TEST_F(RecordingTest, AnUnwritablePlaceIsAnError) {
  const auto result = WriteRecording({}, (directory_ / "no/such/run.tdm").string());
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().why, "No such file or directory");
}

TEST_F(RecordingTest, AMissingFileSaysSo) { EXPECT_EQ(WhyNot(), "No such file or directory"); }

TEST_F(RecordingTest, ADirectoryIsNoRecording) {
  const auto result = ReadRecording(directory_.string());
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().why, "it is not a file");
}

TEST_F(RecordingTest, AnotherKindOfFileSaysSo) {
  Put("\x7f"
      "ELF...");
  EXPECT_EQ(WhyNot(), "it is not a Tidemark recording");
  Put("");
  EXPECT_EQ(WhyNot(), "it is not a Tidemark recording");
}

TEST_F(RecordingTest, EveryPossibleCutIsRefused) {
  ASSERT_TRUE(WriteRecording(testing::RecordingOf(testing::EmptySnapshot()), path_).ok());
  const std::string whole = Bytes();
  for (size_t length = 0; length < whole.size(); ++length) {
    Put(whole.substr(0, length));
    EXPECT_FALSE(ReadRecording(path_).ok()) << "cut to " << length << " bytes";
  }
}

TEST_F(RecordingTest, EveryChangedByteIsRefused) {
  ASSERT_TRUE(WriteRecording(testing::RecordingOf(testing::EmptySnapshot()), path_).ok());
  const std::string whole = Bytes();
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ 0x41);
    Put(changed);
    EXPECT_FALSE(ReadRecording(path_).ok()) << "byte " << at << " changed";
  }
}

TEST_F(RecordingTest, BytesAfterTheEndAreRefused) {
  ASSERT_TRUE(WriteRecording({}, path_).ok());
  Put(Bytes() + "x");
  EXPECT_EQ(WhyNot(), "it holds 9 of 8 bytes");
}

TEST_F(RecordingTest, ANewerVersionIsNamed) {
  ASSERT_TRUE(WriteRecording({}, path_).ok());
  std::string bytes = Bytes();
  bytes[19] = 9;  // the version follows the magic line
  Put(bytes);
  const auto result = ReadRecording(path_);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().why, "it has format version 9, this tidemark reads up to 2");
  EXPECT_EQ(result.error().hint, "use the tidemark that wrote it, or a newer one");
}

}  // namespace
}  // namespace tidemark::client
