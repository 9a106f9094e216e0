// Double entry inside the process: CUPTI's callbacks and its activity records count the same bytes
// (all kinds but VMM, which records do not cover). Callbacks count at once, records when CUPTI
// flushes them, so the two are equal only where a flush lies between: what callbacks had counted
// must have come with the second flush completed after that (the first may have begun before), and
// nothing may come that callbacks have not seen.
//
// Owned and used by the tick thread.
#pragma once

#include <cstdint>
#include <vector>

#include "daemon/source/agent/region_reader.h"

namespace tidemark {

class RecordsCheck {
 public:
  void Update(const RegionCopy& region);
  // Bytes of the kinds and devices that disagree, one entry each.
  std::vector<uint64_t> Differences() const;

 private:
  struct Account {
    uint8_t kind;
    int16_t device;
    uint64_t due_bytes;  // what callbacks had counted when due_flushes flushes were completed
    uint32_t due_flushes;
    uint64_t difference_bytes = 0;
  };

  Account& Find(const wire::TotalsRow& callbacks, uint32_t flushes);

  std::vector<Account> accounts_;
};

}  // namespace tidemark
