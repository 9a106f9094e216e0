// Where procfs, sysfs and cgroupfs are found. Injected everywhere, so that a test can put a made-up
// tree in place of the kernel's.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <utility>

namespace tidemark {

class ProcRoot {
 public:
  explicit ProcRoot(std::filesystem::path root = "/") : root_(std::move(root)) {}

  std::filesystem::path Proc() const { return root_ / "proc"; }
  std::filesystem::path Proc(pid_t pid) const { return root_ / "proc" / std::to_string(pid); }
  std::filesystem::path Sys() const { return root_ / "sys"; }

 private:
  std::filesystem::path root_;
};

}  // namespace tidemark
