#include "daemon/config/config.h"

#include <gtest/gtest.h>

#include "wire/handshake.h"

namespace tidemark {
namespace {

std::string Complaint(const std::string& text) {
  Config config;
  const Result<void> read = ReadConfigText(text, "tidemarkd.yaml", &config);
  return read.ok() ? "" : read.error().ToString();
}

TEST(ConfigTest, AnEmptyFileLeavesTheDefaults) {
  Config config;
  ASSERT_TRUE(ReadConfigText("# nothing\n", "f", &config).ok());
  EXPECT_EQ(config.agent_socket, "/run/tidemark/agent.sock");
  EXPECT_EQ(config.http, HttpListen());
}

TEST(ConfigTest, EveryKeyIsTaken) {
  Config config;
  const Result<void> read = ReadConfigText(R"(
agent:
  socket: /tmp/a.sock
  max_per_user: 8
  taps: [cupti, steps]
  sampling_interval: 2MiB
api: {socket: /tmp/api.sock, group: wheel}
http: {listen: "[::1]:0", beyond_loopback: true, token_file: /t}
metrics: {level: full}
state: {directory: /tmp/s, regions: 1GiB}
ended: {keep: 3, keep_for: 15m}
job: llama
steps: {backward_per_step: 4, nvtx_range: step}
nvml: {enabled: false, library: /x.so}
bpf: {enabled: false, disabled_families: [host]}
alerts: {alertmanager: "http://alerts:9093", resend: 5s}
log: {level: debug}
)",
                                           "f", &config);
  ASSERT_TRUE(read.ok()) << read.error().ToString();
  EXPECT_EQ(config.agent_socket, "/tmp/a.sock");
  EXPECT_EQ(config.max_agents_per_user, 8u);
  EXPECT_EQ(config.taps, static_cast<uint32_t>(wire::kTapCupti | wire::kTapSteps));
  EXPECT_EQ(config.sampling_interval_bytes, 2u << 20);
  EXPECT_EQ(config.api_socket, "/tmp/api.sock");
  EXPECT_EQ(config.api_group, "wheel");
  EXPECT_EQ(config.http, (HttpListen{true, "::1", 0}));
  EXPECT_TRUE(config.http_beyond_loopback);
  EXPECT_EQ(config.http_token_file, "/t");
  EXPECT_EQ(config.metrics_level, "full");
  EXPECT_EQ(config.state_directory, "/tmp/s");
  EXPECT_EQ(config.keep_regions_bytes, 1u << 30);
  EXPECT_EQ(config.keep_ended_processes, 3u);
  EXPECT_EQ(config.keep_ended_for, std::chrono::minutes(15));
  EXPECT_EQ(config.training_job, "llama");
  EXPECT_EQ(config.alertmanager, "http://alerts:9093");
  EXPECT_EQ(config.alert_resend, std::chrono::seconds(5));
  EXPECT_EQ(config.backward_per_step, 4u);
  EXPECT_EQ(config.step_range, "step");
  EXPECT_FALSE(config.nvml);
  EXPECT_EQ(config.nvml_library, "/x.so");
  EXPECT_FALSE(config.bpf);
  EXPECT_EQ(config.bpf_disabled_families, std::vector<std::string>{"host"});
  EXPECT_EQ(config.log_level, "debug");
}

TEST(ConfigTest, AnUnknownKeyIsNamedWithFileAndLine) {
  EXPECT_EQ(
      Complaint("job: x\nagent:\n  sokcet: /tmp/a\n"),
      "read tidemarkd.yaml:3: agent.sokcet: no such key (docs/operations.md lists every key)");
}

TEST(ConfigTest, AWrongValueIsNamedWithFileAndLine) {
  EXPECT_EQ(Complaint("metrics:\n  level: loud\n"),
            "read tidemarkd.yaml:2: metrics.level: must be one of basic, full "
            "(docs/operations.md lists every key)");
  EXPECT_NE(Complaint("agent: {max_per_user: 0}").find("agent.max_per_user: must be a number"),
            std::string::npos);
  EXPECT_NE(Complaint("agent: {max_per_user: -1}").find("must be a number"), std::string::npos);
  EXPECT_NE(Complaint("agent: {taps: []}").find("must be a list"), std::string::npos);
  EXPECT_NE(Complaint("agent: 5").find("agent: must hold keys"), std::string::npos);
  EXPECT_NE(Complaint("http: {listen: 9470}").find("http.listen: must be ADDRESS:PORT"),
            std::string::npos);
  EXPECT_NE(Complaint("ended: {keep_for: soon}").find("ended.keep_for: must be a time"),
            std::string::npos);
}

TEST(ConfigTest, BrokenYamlIsNamedWithTheLine) {
  EXPECT_EQ(Complaint("job: x\nagent: [unclosed\n").rfind("read tidemarkd.yaml:", 0), 0u);
  EXPECT_NE(Complaint("- a\n- b\n").find("must be a map of keys"), std::string::npos);
}

TEST(ConfigTest, AMissingFileSaysHowToNameOne) {
  Config config;
  const Result<void> read = ReadConfigFile("/nonexistent/t.yaml", &config);
  ASSERT_FALSE(read.ok());
  EXPECT_NE(read.error().ToString().find("--config"), std::string::npos);
}

TEST(ConfigTest, AddressesAreParsed) {
  EXPECT_EQ(*ParseHttpListen("127.0.0.1:9470"), (HttpListen{true, "127.0.0.1", 9470}));
  EXPECT_FALSE(ParseHttpListen("off")->enabled);
  for (const char* bad :
       {"", ":1", "localhost", "1.2.3.4:", "1.2.3.4:65536", "1.2.3.4:-1", "a:b"}) {
    EXPECT_FALSE(ParseHttpListen(bad).ok()) << bad;
  }
}

TEST(ConfigTest, BytesAndTimesRefuseNonsense) {
  EXPECT_EQ(*ParseBytes("4096"), 4096u);
  EXPECT_EQ(*ParseBytes("8 MiB"), 8u << 20);
  for (const char* bad :
       {"", "MiB", "-1", "1.5GiB", "1XB", "99999999999999999999", "9999999999TiB"}) {
    EXPECT_FALSE(ParseBytes(bad).ok()) << bad;
  }
  EXPECT_EQ(*ParseDuration("2h"), std::chrono::hours(2));
  EXPECT_FALSE(ParseDuration("10").ok());
  EXPECT_FALSE(ParseDuration("99999d").ok());
}

TEST(ConfigTest, AlertsNeedAUrlThatCanBeSpokenToAndATime) {
  EXPECT_EQ(Complaint("alerts: {alertmanager: off}"), "");
  EXPECT_NE(Complaint("alerts: {alertmanager: 'https://alerts'}").find("begins with http://"),
            std::string::npos);
  EXPECT_NE(Complaint("alerts: {alertmanager: [a]}").find("must be a URL"), std::string::npos);
  EXPECT_NE(Complaint("alerts: {resend: 0s}").find("from 1s to 1h"), std::string::npos);
  EXPECT_NE(Complaint("alerts: {resend: 2h}").find("from 1s to 1h"), std::string::npos);
}

}  // namespace
}  // namespace tidemark
