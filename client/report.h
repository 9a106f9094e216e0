// The report that `tidemark run` prints when the job is done, as text, Markdown and JSON: what each
// rank held and when, the verdicts, the phases, and what could not be seen.
#pragma once

#include <string>

#include "client/json.h"
#include "client/terminal.h"
#include "tidemark/v1/tidemark.pb.h"

namespace tidemark::client {

std::string ReportText(const v1::Recording& recording, const Ink& ink);
std::string ReportMarkdown(const v1::Recording& recording);
Json ReportJson(const v1::Recording& recording);

}  // namespace tidemark::client
