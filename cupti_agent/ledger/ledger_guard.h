// How the ledger's methods take its lock.
#pragma once

#include "cupti_agent/ledger/ledger.h"

namespace tidemark::agent {

// Holds the lock for a scope, or says (once, counted) why not.
class Ledger::Guard {
 public:
  explicit Guard(Ledger* ledger, uint64_t bytes = 0) : lock_(ledger->lock_) {
    outcome_ = lock_.Acquire();
    if (outcome_ == LedgerLock::Outcome::kHeld) return;
    const bool reentry = outcome_ == LedgerLock::Outcome::kReentry;
    ledger->CountLoss(reentry ? wire::Loss::kReentry : wire::Loss::kLockTimeout, 1, bytes);
  }
  ~Guard() {
    if (held()) lock_.Release();
  }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  bool held() const { return outcome_ == LedgerLock::Outcome::kHeld; }

 private:
  LedgerLock& lock_;
  LedgerLock::Outcome outcome_;
};

}  // namespace tidemark::agent
