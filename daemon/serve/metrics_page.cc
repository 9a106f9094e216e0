// Prints docs/metrics.md.
#include <cstdio>

#include "daemon/serve/metric_catalog.h"

int main() {
  const std::string page = tidemark::serve::MetricsPage();
  return std::fwrite(page.data(), 1, page.size(), stdout) == page.size() ? 0 : 1;
}
