#include "daemon/source/bpf/tracepoint.h"

#include <fcntl.h>
#include <linux/mount.h>
#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <thread>

namespace tidemark {

Result<Tracefs> Tracefs::Open(const ProcRoot& root) {
  Tracefs tracefs;
  for (const char* where : {"tracing", "debug/tracing"}) {
    tracefs.directory_.Reset(
        open((root.Sys() / "kernel" / where).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (tracefs.directory_.valid() &&
        faccessat(tracefs.directory_.get(), "events", F_OK, AT_EACCESS) == 0) {
      return tracefs;
    }
  }
  UniqueFd context(static_cast<int>(syscall(SYS_fsopen, "tracefs", FSOPEN_CLOEXEC)));
  if (context.valid() &&
      syscall(SYS_fsconfig, context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) == 0) {
    tracefs.directory_.Reset(
        static_cast<int>(syscall(SYS_fsmount, context.get(), FSMOUNT_CLOEXEC, 0)));
    if (tracefs.directory_.valid()) return tracefs;
  }
  return Error{"open tracefs", strerror(errno),
               "mount it: mount -t tracefs tracefs /sys/kernel/tracing; or grant CAP_SYS_ADMIN; a "
               "daemon that is not root needs CAP_DAC_READ_SEARCH to read it"};
}

void DetachTogether(std::vector<LinkPtr>* links) {
  std::vector<std::thread> threads;
  for (LinkPtr& link : *links) {
    try {
      threads.emplace_back([&link] { link.reset(); });
    } catch (const std::system_error&) {
      link.reset();  // no more threads to be had: one after the other
    }
  }
  for (std::thread& thread : threads) thread.join();
  links->clear();
}

Result<LinkPtr> Tracefs::Attach(const bpf_program* program, const std::string& name) const {
  const std::string path = "events/" + name + "/id";
  UniqueFd file(openat(directory_.get(), path.c_str(), O_RDONLY | O_CLOEXEC));
  char text[32] = "";
  if (!file.valid() || read(file.get(), text, sizeof(text) - 1) <= 0) {
    return Error{"find the tracepoint " + name, strerror(errno),
                 errno == EACCES ? "grant CAP_DAC_READ_SEARCH" : ""};
  }
  perf_event_attr attr = {};
  attr.size = sizeof(attr);
  attr.type = PERF_TYPE_TRACEPOINT;
  attr.config = strtoull(text, nullptr, 10);
  attr.sample_period = 1;
  UniqueFd event(
      static_cast<int>(syscall(SYS_perf_event_open, &attr, -1, 0, -1, PERF_FLAG_FD_CLOEXEC)));
  if (!event.valid()) {
    return Error{"open the tracepoint " + name, strerror(errno), "grant CAP_PERFMON"};
  }
  LinkPtr link(bpf_program__attach_perf_event(program, event.get()));
  if (!link) return Error{"attach to the tracepoint " + name, strerror(errno), ""};
  event.Release();  // the link's now
  return link;
}

}  // namespace tidemark
