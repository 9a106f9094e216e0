// Which module an address lies in, answered without the loader's locks: a tap may run while another
// thread holds them. Filled by RefreshModuleTable from the loader's list.
//
// Modules are never forgotten, so an index stays valid; where one was unloaded and another loaded
// over it, the newer one wins.
#pragma once

#include <cstdint>

namespace tidemark::agent {

inline constexpr uint32_t kNoModule = UINT32_MAX;

struct StackModule {
  uint64_t base;  // load bias
  uint64_t begin;
  uint64_t end;
  uint64_t eh_frame_header;  // address of .eh_frame_hdr, 0 = none
  bool is_cupti;
  bool is_communicator;  // NCCL: what it allocates is its own business
  uint8_t build_id_bytes;
  uint8_t build_id[24];
  char path[256];  // cut at the front where it does not fit: the file's name matters most
};

// Adds modules that appeared since the last call; false when the loader's list is as it was. Others
// may be looking meanwhile; a second caller at a time does nothing.
bool RefreshModuleTable();

uint32_t ModuleContaining(uint64_t address);

// `index` comes from ModuleContaining.
const StackModule& ModuleAt(uint32_t index);

// The module that this code is linked into: its frames are the agent's own.
uint32_t OwnModule();

}  // namespace tidemark::agent
