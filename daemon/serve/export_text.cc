// Folded stacks and CSV: plain text, one line a site or a point.
#include <array>
#include <cstdio>
#include <map>

#include "daemon/serve/export_stacks.h"

namespace tidemark::exports {
namespace {

// A folded line is parted by semicolons and ends at its last space.
std::string Folded(std::string text) {
  for (char& c : text) {
    if (c == ';') c = ':';
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  return text;
}

std::string Quoted(const std::string& text) {
  // A spreadsheet takes these for a formula, and names of functions come from the job.
  const bool formula = !text.empty() && std::string_view("=+-@").find(text[0]) != std::string::npos;
  if (!formula && text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = formula ? "\"'" : "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + "\"";
}

std::string Hex(uint64_t id) {
  std::array<char, 17> digits;
  std::snprintf(digits.data(), digits.size(), "%016lx", id);
  return digits.data();
}

std::string Seconds(uint64_t unix_ns) {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%lu.%03lu", unix_ns / 1'000'000'000,
                unix_ns / 1'000'000 % 1000);
  return text.data();
}

std::string StackText(const v1::Site& site) {
  std::string text;
  for (int i = site.frames_size() - 1; i >= 0; --i) {
    text += (text.empty() ? "" : ";") + Folded(FrameName(site.frames(i)));
  }
  return text.empty() ? "(no stack)" : text;
}

}  // namespace

std::string WriteFolded(const std::vector<Stack>& stacks) {
  // Sites that differ only in what a line does not show are one stack.
  std::map<std::string, int64_t> lines;
  for (const Stack& stack : stacks) {
    lines[Folded(ProcessName(*stack.process)) + ";" + stack.site->memory_class() + ";" +
          StackText(*stack.site)] += stack.bytes;
  }
  std::string text;
  for (const auto& [line, bytes] : lines) {
    // No flame graph can show less than nothing: what shrank is in the other formats.
    if (bytes > 0) text += line + " " + std::to_string(bytes) + "\n";
  }
  return text;
}

std::string WriteSitesCsv(const Input& input, const std::vector<Stack>& stacks) {
  std::string text =
      "node,training_job,rank,pid,class,device,site,bytes,blocks,estimated,allocated_at,stack\n";
  for (const Stack& stack : stacks) {
    const v1::Identity& identity = stack.process->identity();
    const v1::Site& site = *stack.site;
    const bool blamed = site.blamed_frame() >= 0 && site.blamed_frame() < site.frames_size();
    text += Quoted(input.snapshot->node()) + "," + Quoted(identity.training_job()) + "," +
            (identity.rank() >= 0 ? std::to_string(identity.rank()) : "") + "," +
            std::to_string(stack.process->pid()) + "," + Quoted(site.memory_class()) + "," +
            (site.device() >= 0 ? std::to_string(site.device()) : "") + "," + Hex(site.id()) + "," +
            std::to_string(stack.bytes) + "," + std::to_string(stack.count) + "," +
            (site.estimated() ? "true" : "false") + "," +
            Quoted(blamed ? FrameName(site.frames(site.blamed_frame())) : "") + "," +
            Quoted(StackText(site)) + "\n";
  }
  return text;
}

std::string WriteHistoryCsv(const Input& input) {
  std::string text =
      "unix_seconds,training_job,rank,pid,class,device,site,step,min_bytes,mean_bytes,max_bytes\n";
  for (const auto* list : {&input.series, &input.steps}) {
    for (const v1::Series& line : *list) {
      const v1::ProcessRef& process = line.process();
      const std::string who = "," + Quoted(process.training_job()) + "," +
                              (process.rank() >= 0 ? std::to_string(process.rank()) : "") + "," +
                              std::to_string(process.pid()) + "," + Quoted(line.memory_class()) +
                              "," + (line.device() >= 0 ? std::to_string(line.device()) : "") +
                              "," + (line.site_id() != 0 ? Hex(line.site_id()) : "") + ",";
      for (int i = 0; i < line.unix_ns_size(); ++i) {
        text += Seconds(line.unix_ns(i)) + who +
                (i < line.steps_size() ? std::to_string(line.steps(i)) : "") + "," +
                std::to_string(line.min_bytes(i)) + "," + std::to_string(line.mean_bytes(i)) + "," +
                std::to_string(line.max_bytes(i)) + "\n";
      }
    }
  }
  return text;
}

}  // namespace tidemark::exports
