// One byte that every tap reads first. It is 1 in the process that started the agent and while it
// observes; it reads 0 in a forked child (the kernel wipes its page there), after a detach, and
// before the start. The child shares the parent's region, so it must never get past this byte.
#pragma once

#include <cstdint>

namespace tidemark::agent {

extern const volatile uint8_t kNeverAlive;
extern const volatile uint8_t* g_alive;

inline bool IsAlive() { return *g_alive != 0; }

// Sets the byte to 1 on a page of its own. False, and nothing changed, where the kernel cannot wipe
// a page on fork (before 4.14).
bool BecomeAlive();

// For good: nothing brings the byte back.
void CeaseAlive();

}  // namespace tidemark::agent
