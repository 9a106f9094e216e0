#include "daemon/source/bpf/stack_table.h"

#include <algorithm>
#include <iterator>

namespace tidemark {
namespace {

// Files whose layout is kept; beyond that the cache starts again. A process maps a few hundred.
constexpr size_t kMaxImages = 8192;

}  // namespace

const ElfImage* ModuleCache::Find(pid_t pid, const Mapping& mapping) {
  if (images_.size() >= kMaxImages) images_.clear();
  auto [entry, is_new] = images_.try_emplace(mapping.file);
  if (is_new) {
    Result<UniqueFd> fd = OpenMapped(root_, pid, mapping);
    if (fd) {
      Result<ElfImage> image = ElfImage::Read(fd->get(), mapping.path);
      if (image) entry->second = std::make_unique<ElfImage>(std::move(image).value());
    }
  }
  return entry->second.get();
}

StackTable::StackTable(ProcRoot root, pid_t pid, ModuleCache* modules)
    : root_(std::move(root)), pid_(pid), modules_(modules) {}

const Mapping* StackTable::MappingOf(uint64_t address) {
  auto after = std::upper_bound(
      executable_.begin(), executable_.end(), address,
      [](uint64_t wanted, const Mapping& mapping) { return wanted < mapping.start; });
  if (after == executable_.begin()) return nullptr;
  const Mapping& mapping = *std::prev(after);
  return address < mapping.end ? &mapping : nullptr;
}

BpfFrame StackTable::Resolve(uint64_t return_address, bool* in_interpreter) {
  BpfFrame frame;
  *in_interpreter = false;
  frame.offset = return_address;
  const Mapping* mapping = MappingOf(return_address);
  if (!mapping && !refreshed_) {
    refreshed_ = true;
    Result<std::vector<Mapping>> mappings = ReadMappings(root_, pid_);
    if (mappings) {
      executable_ = std::move(mappings).value();
      std::erase_if(executable_, [](const Mapping& m) { return !m.executable; });
    }
    mapping = MappingOf(return_address);
  }
  if (!mapping || mapping->file.inode == 0) return frame;
  *in_interpreter = python_ && mapping->file == python_->file();
  frame.module = mapping->path;
  const uint64_t file_offset = return_address - mapping->start + mapping->file_offset;
  frame.offset = file_offset;
  if (const ElfImage* image = modules_->Find(pid_, *mapping)) {
    frame.build_id = image->build_id();
    frame.offset = image->AddressOfFileOffset(file_offset).value_or(file_offset);
  }
  return frame;
}

void StackTable::Add(const tm_stack& reported) {
  auto stack = std::make_shared<BpfStack>();
  stack->id = reported.id;
  stack->partial = reported.flags != 0;
  refreshed_ = false;

  std::vector<BpfFrame> python;
  const uint32_t python_count = std::min<uint32_t>(reported.python_frames, TM_PYTHON_FRAMES);
  for (uint32_t i = 0; python_ && i < python_count; ++i) {
    std::optional<BpfFrame> frame = python_->Resolve(reported.python[i]);
    if (frame) {
      python.push_back(*std::move(frame));
    } else {
      stack->partial = true;
    }
  }

  const uint32_t native_count = std::min<uint32_t>(reported.native_frames, TM_STACK_FRAMES);
  for (uint32_t i = 0; i < native_count; ++i) {
    // Where the kernel recognised a function's first instruction it added the caller itself.
    if (i == 1 && reported.ip[1] == reported.ip[0]) continue;
    if (reported.ip[i] == 0) break;
    bool in_interpreter;
    BpfFrame frame = Resolve(reported.ip[i], &in_interpreter);
    if (in_interpreter && !python.empty()) break;
    stack->frames.push_back(std::move(frame));
  }
  stack->frames.insert(stack->frames.end(), std::make_move_iterator(python.begin()),
                       std::make_move_iterator(python.end()));
  stacks_[reported.id] = std::move(stack);
}

std::shared_ptr<const BpfStack> StackTable::Find(uint64_t id) const {
  auto found = stacks_.find(id);
  return found == stacks_.end() ? unknown_ : found->second;
}

void StackTable::Clear() {
  stacks_.clear();
  executable_.clear();
}

}  // namespace tidemark
