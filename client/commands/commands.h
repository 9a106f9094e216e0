// Every sub-command, one file each; `main` adds them all.
#pragma once

#include "client/command_line.h"

namespace tidemark::client {

void AddRun(CommandLine& line);
void AddPs(CommandLine& line);
void AddWhere(CommandLine& line);
void AddSites(CommandLine& line);
void AddSteps(CommandLine& line);
void AddLeaks(CommandLine& line);
void AddJob(CommandLine& line);
void AddPostmortem(CommandLine& line);
void AddSkew(CommandLine& line);
void AddDiff(CommandLine& line);
void AddHistory(CommandLine& line);
void AddRecord(CommandLine& line);
void AddExport(CommandLine& line);
void AddTop(CommandLine& line);
void AddReport(CommandLine& line);
void AddEnv(CommandLine& line);
void AddDoctor(CommandLine& line);
void AddDetach(CommandLine& line);
void AddReleaseGpu(CommandLine& line);
void AddAnalyze(CommandLine& line);
void AddEstimate(CommandLine& line);
void AddVersion(CommandLine& line);
void AddCompletion(CommandLine& line);

}  // namespace tidemark::client
