// From a process's own numbering of devices to the node's.
#pragma once

#include <string>
#include <vector>

#include "daemon/identity/launcher.h"

namespace tidemark {

class DeviceMap {
 public:
  // `uuids` are the node's devices in NVML's order, empty when NVML is not there. `held_on` are the
  // node's devices on which NVML sees the process; where both sides know exactly one, that decides
  // (a container sees its only device as 0, whichever it is).
  DeviceMap(const Variables& variables, const std::vector<std::string>& uuids,
            const std::vector<int>& held_on);
  DeviceMap() = default;

  // Node index of the process's device `ordinal`; -1 stays -1 (host). An ordinal that nothing
  // translates is taken as it is.
  int ToNode(int ordinal) const;

  bool operator==(const DeviceMap&) const = default;

 private:
  std::vector<int> node_of_;
};

}  // namespace tidemark
