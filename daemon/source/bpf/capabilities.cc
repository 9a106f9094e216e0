#include "daemon/source/bpf/capabilities.h"

#include <cstdint>
#include <fstream>

namespace tidemark {
namespace {

uint64_t EffectiveSet(const ProcRoot& root) {
  std::ifstream status(root.Proc() / "self" / "status");
  std::string word;
  while (status >> word) {
    if (word == "CapEff:" && status >> word) return std::stoull(word, nullptr, 16);
  }
  return 0;
}

bool Has(uint64_t set, Capability capability) { return (set >> static_cast<int>(capability)) & 1; }

}  // namespace

std::string ToString(Capability capability) {
  switch (capability) {
    case Capability::kDacReadSearch:
      return "CAP_DAC_READ_SEARCH";
    case Capability::kSysPtrace:
      return "CAP_SYS_PTRACE";
    case Capability::kSysAdmin:
      return "CAP_SYS_ADMIN";
    case Capability::kPerfmon:
      return "CAP_PERFMON";
    case Capability::kBpf:
      return "CAP_BPF";
    case Capability::kCheckpointRestore:
      return "CAP_CHECKPOINT_RESTORE";
  }
  return "";
}

std::string MissingCapabilities(const ProcRoot& root, std::initializer_list<Capability> wanted) {
  const uint64_t set = EffectiveSet(root);
  std::string missing;
  for (Capability capability : wanted) {
    const bool covered = capability != Capability::kSysPtrace &&
                         capability != Capability::kDacReadSearch &&
                         Has(set, Capability::kSysAdmin);
    if (Has(set, capability) || covered) continue;
    if (!missing.empty()) missing += ", ";
    missing += ToString(capability);
  }
  return missing;
}

bool InInitialUserNamespace(const ProcRoot& root) {
  std::ifstream map(root.Proc() / "self" / "uid_map");
  uint64_t inside = 1, outside = 1, count = 0;
  map >> inside >> outside >> count;
  return inside == 0 && outside == 0 && count == 0xffffffff;
}

}  // namespace tidemark
