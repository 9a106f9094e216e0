// One plain HTTP question, for finding nodes by Prometheus. The answer is untrusted.
#pragma once

#include <chrono>
#include <string>

#include "base/result.h"

namespace tidemark::client {

// The body of GET `url` + `path`. Only http://, at most 64 MiB, whole within `timeout`.
Result<std::string> HttpGet(const std::string& url, const std::string& path,
                            std::chrono::milliseconds timeout);

}  // namespace tidemark::client
