// For the tests of the simulation: a state directory of the test's own, and small helpers. Include
// it in one file of a test program.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/sim/cuda_api.h"
#include "tests/sim/device_state.h"

namespace tidemark::sim {

// Set before the simulation reads it: at the first context.
class PrivateState : public testing::Environment {
 public:
  void SetUp() override {
    testing::FLAGS_gtest_death_test_style = "threadsafe";
    // The processes that death tests start come through here too: they share their parent's.
    if (getenv("SIM_TEST_STATE") != nullptr) return;
    char dir[] = "/tmp/tidemark-sim-test-XXXXXX";
    path_ = mkdtemp(dir);
    setenv("TIDEMARK_SIM_STATE", path_.c_str(), 1);
    setenv("SIM_TEST_STATE", "1", 1);
  }
  void TearDown() override {
    if (!path_.empty()) std::filesystem::remove_all(path_);
  }

 private:
  std::string path_;
};

inline const auto* const kPrivateState = testing::AddGlobalTestEnvironment(new PrivateState);

// Bytes of all processes on `device`, as the state file has them.
inline uint64_t Used(int device) {
  static StateFile* const state = MapState(/*create=*/true);
  return UsedBytes(*state, device, /*check_owners=*/true);
}

// A fresh primary context on device 0 for each test, reset after it.
class WithContext : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(cuInit(0), CUDA_SUCCESS);
    before_ = Used(0);
    ASSERT_EQ(cuDevicePrimaryCtxRetain(&context_, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxSetCurrent(context_), CUDA_SUCCESS);
    with_context_ = Used(0);
  }
  void TearDown() override {
    cuDevicePrimaryCtxReset_v2(0);
    cuDevicePrimaryCtxRelease_v2(0);
    cuCtxSetCurrent(nullptr);
  }

  // What the device holds beyond the context.
  uint64_t Grown() const { return Used(0) - with_context_; }

  CUcontext context_ = nullptr;
  uint64_t before_ = 0;
  uint64_t with_context_ = 0;
};

}  // namespace tidemark::sim
