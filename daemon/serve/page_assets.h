// The page's files, compiled in: what web/build_page.py made of web/. Immutable.
#pragma once

#include <span>
#include <string_view>

namespace tidemark::serve {

struct PageAsset {
  std::string_view path;  // "/" is the page itself
  std::string_view content_type;
  std::string_view gzip;  // the content, compressed
};

// Empty in a build without the page.
std::span<const PageAsset> PageAssets();

// Why this build has no page, for a person; empty where it has one.
std::string_view PageMissingReason();

}  // namespace tidemark::serve
