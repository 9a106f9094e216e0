#include "daemon/ledger/site_names.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "daemon/ledger/blame.h"

namespace tidemark {
namespace {

std::string_view BaseName(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

std::string Hex(const uint8_t* bytes, size_t count) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    text += kDigits[bytes[i] >> 4];
    text += kDigits[bytes[i] & 15];
  }
  return text;
}

void NameNative(const RegionCopy& region, const wire::Frame& frame, pid_t pid, bool innermost,
                Symbolizer* symbolizer, FrameView* view, std::string* module_path, bool* pending) {
  const wire::ModuleRow* module =
      frame.a < region.modules.size() ? &region.modules[frame.a] : nullptr;
  if (module != nullptr) view->file = region.String(module->path);
  *module_path = view->file;
  char place[32];
  std::snprintf(place, sizeof(place), "+0x%x", frame.b);
  const std::string_view name = BaseName(view->file);
  view->function = (name.empty() ? std::string("?") : std::string(name)) + place;
  if (module == nullptr || view->file.empty()) {
    *pending = true;
    return;
  }
  if (symbolizer == nullptr) return;
  const std::string build_id =
      Hex(module->build_id, std::min<size_t>(module->build_id_bytes, sizeof(module->build_id)));
  // All but the innermost are return addresses, which may lie behind the end of the caller.
  const uint64_t address = frame.b - (innermost || frame.b == 0 ? 0 : 1);
  const std::shared_ptr<const Symbol> symbol = symbolizer->Find(pid, view->file, build_id, address);
  if (symbol == nullptr) {
    *pending = true;
    return;
  }
  if (symbol->function.empty()) return;
  view->function = symbol->function;
  if (symbol->line > 0) {
    view->file = symbol->file;
    view->line = symbol->line;
  }
}

}  // namespace

uint64_t SiteIdOf(const std::vector<FrameView>& frames) {
  uint64_t hash = 0xcbf29ce484222325;
  auto mix = [&hash](std::string_view text) {
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    hash = (hash ^ 0xff) * 0x100000001b3;
  };
  for (const FrameView& frame : frames) {
    mix(frame.function);
    // Native: the function is enough, and the module's path differs between containers.
    if (frame.kind == wire::FrameKind::kPython) mix(frame.file);
    mix(std::to_string(frame.line));
  }
  return hash == 0 ? 1 : hash;  // 0 stands for "no site"
}

std::shared_ptr<const SiteInfo> NameSite(const RegionCopy& region, const wire::SiteRow& site,
                                         pid_t pid, Symbolizer* symbolizer, bool* pending) {
  auto info = std::make_shared<SiteInfo>();
  info->truncated = (site.flags & wire::kSiteTruncated) != 0;
  const uint32_t count = std::min<uint32_t>(site.frame_count, wire::kMaxFrames);
  info->frames.reserve(count);
  std::vector<std::string> modules;
  for (uint32_t i = 0; i < count; ++i) {
    const uint64_t index = uint64_t{site.first_frame} + i;
    if (index >= region.frames.size()) {
      info->truncated = true;
      *pending = true;
      break;
    }
    const wire::Frame& frame = region.frames[index];
    FrameView view;
    std::string module;
    if (frame.kind == static_cast<uint8_t>(wire::FrameKind::kPython)) {
      view.kind = wire::FrameKind::kPython;
      view.file = region.String(frame.a);
      view.function = region.String(frame.b);
      view.line = frame.line;
      if (view.file.empty() && view.function.empty()) *pending = true;
    } else {
      view.kind = wire::FrameKind::kNative;
      NameNative(region, frame, pid, i == 0, symbolizer, &view, &module, pending);
    }
    info->frames.push_back(std::move(view));
    modules.push_back(std::move(module));
  }
  info->id = SiteIdOf(info->frames);
  info->blamed_frame = BlamedFrame(info->frames, modules);
  info->own_account = OwnAccount(info->frames, modules);
  return info;
}

}  // namespace tidemark
