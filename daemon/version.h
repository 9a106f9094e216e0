#pragma once

namespace tidemark {

inline constexpr char kVersion[] = TIDEMARK_VERSION;  // of the build, from CMake

}  // namespace tidemark
