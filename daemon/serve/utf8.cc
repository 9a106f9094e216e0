#include "daemon/serve/utf8.h"

namespace tidemark::serve {

std::string Utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  size_t i = 0;
  while (i < text.size()) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const size_t length = lead < 0x80                   ? 1
                          : lead >= 0xC2 && lead < 0xE0 ? 2
                          : lead >= 0xE0 && lead < 0xF0 ? 3
                          : lead >= 0xF0 && lead < 0xF5 ? 4
                                                        : 0;
    bool good = length != 0 && i + length <= text.size();
    for (size_t k = 1; good && k < length; ++k) {
      const auto byte = static_cast<unsigned char>(text[i + k]);
      good = (byte & 0xC0) == 0x80;
      // Overlong forms, surrogates and values past U+10FFFF show in the second byte.
      if (k == 1) {
        good = good && !(lead == 0xE0 && byte < 0xA0) && !(lead == 0xED && byte > 0x9F) &&
               !(lead == 0xF0 && byte < 0x90) && !(lead == 0xF4 && byte > 0x8F);
      }
    }
    if (good) {
      out.append(text.substr(i, length));
      i += length;
    } else {
      out.append("\xEF\xBF\xBD");
      ++i;
    }
  }
  return out;
}

}  // namespace tidemark::serve
