#include "daemon/source/bpf/stack_table.h"

#include <algorithm>

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

BpfFrame StackTable::Resolve(uint64_t return_address) {
  BpfFrame frame;
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
  frame.module = mapping->path;
  const uint64_t file_offset = return_address - mapping->start + mapping->file_offset;
  frame.offset = file_offset;
  if (const ElfImage* image = modules_->Find(pid_, *mapping)) {
    frame.build_id = image->build_id();
    frame.offset = image->AddressOfFileOffset(file_offset).value_or(file_offset);
  }
  return frame;
}

void StackTable::Add(uint64_t id, std::span<const __u64> ip, bool truncated) {
  auto stack = std::make_shared<BpfStack>();
  stack->id = id;
  stack->partial = truncated;
  refreshed_ = false;
  for (uint64_t address : ip) {
    if (address == 0) break;
    stack->frames.push_back(Resolve(address));
  }
  stacks_[id] = std::move(stack);
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
