// What the kernel says about single pages, and writing one word into a page that may be read-only
// (RELRO) while leaving its protection as it was.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tidemark::agent {

struct WordToWrite {
  uint64_t* address;  // aligned
  uint64_t value;
  int protection;  // PROT_ bits of its page, filled by ReadProtections; -1 = unknown
};

// Looks all words up in one pass over /proc/self/maps, with no allocation and no stdio. Where the
// file cannot be read every protection is -1.
void ReadProtections(WordToWrite* words, size_t count);

// Stores `value` in one atomic write. False, with nothing changed, when the page's protection is
// unknown or cannot be lifted.
bool WriteWord(const WordToWrite& word);

}  // namespace tidemark::agent
