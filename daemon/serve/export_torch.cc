// PyTorch's memory snapshot, for its memory_viz: segments that their blocks tile, and the traces
// that made them.
//
// Addresses are made up: a site knows how many blocks of which bytes it holds, not where. What is
// not the framework's (contexts, communicators, raw CUDA) stands beside it as segments of one
// block, so that the picture adds up to the device's figure. The format knows devices only: host
// memory is left out.
#include <algorithm>
#include <map>
#include <vector>

#include "daemon/serve/export_stacks.h"
#include "daemon/serve/pickle_writer.h"

namespace tidemark::exports {
namespace {

constexpr int64_t kMostBlocksOfSite = 4096;  // beyond, blocks are merged: bytes stay exact
constexpr int64_t kFirstAddress = 0x7000'0000'0000;
constexpr int64_t kAlignment = 2 << 20;

struct Block {
  int64_t bytes = 0;
  bool active = true;
  uint32_t frames = 0;  // slot in the pickle; 0 = not written yet
  const v1::Site* site = nullptr;
  std::string name;  // where there is no site
};

struct Segment {
  int32_t device = 0;
  std::string type;
  std::vector<Block> blocks;
};

std::vector<Block> BlocksOf(const Stack& stack) {
  std::vector<Block> blocks;
  const int64_t count = std::clamp<int64_t>(stack.count, 1, kMostBlocksOfSite);
  const int64_t each = stack.bytes / count;
  for (int64_t i = 0; i < count; ++i) {
    // The first one takes what does not divide.
    Block block;
    block.bytes = i == 0 ? stack.bytes - each * (count - 1) : each;
    block.site = stack.site;
    if (block.bytes > 0) blocks.push_back(std::move(block));
  }
  return blocks;
}

Block NamedBlock(int64_t bytes, bool active, std::string name) {
  Block block;
  block.bytes = bytes;
  block.active = active;
  block.name = std::move(name);
  return block;
}

// What the waterfall holds beside the allocator's live bytes.
void AddRest(const v1::Process& process, std::map<int32_t, Segment>* framework,
             std::vector<Segment>* segments) {
  for (const v1::Waterfall& waterfall : process.waterfalls()) {
    for (const v1::WaterfallLine& line : waterfall.lines()) {
      if (line.bytes() <= 0) continue;
      if (line.memory_class() == "fw_live") {
        int64_t of_sites = 0;
        for (const Block& block : (*framework)[waterfall.device()].blocks) of_sites += block.bytes;
        if (line.bytes() > of_sites) {
          (*framework)[waterfall.device()].blocks.push_back(
              NamedBlock(line.bytes() - of_sites, true, "live, of no known site"));
        }
        continue;
      }
      if (line.memory_class() == "fw_cache") {
        (*framework)[waterfall.device()].blocks.push_back(NamedBlock(line.bytes(), false, "cache"));
        continue;
      }
      std::string name = line.memory_class() + ", outside the framework";
      if (!line.note().empty()) name += ": " + line.note();
      Segment segment{waterfall.device(), "large", {}};
      segment.blocks.push_back(NamedBlock(line.bytes(), true, std::move(name)));
      segments->push_back(std::move(segment));
    }
  }
}

class SnapshotWriter {
 public:
  std::string Write(std::vector<Segment> segments, int64_t time_us) {
    pickle_.BeginDict();
    pickle_.Text("segments");
    pickle_.BeginList();
    int64_t address = kFirstAddress;
    for (Segment& segment : segments) {
      addresses_.push_back(address);
      address += WriteSegment(&segment, address);
      address = (address + kAlignment - 1) / kAlignment * kAlignment;
    }
    pickle_.EndList();
    pickle_.Text("device_traces");
    pickle_.BeginList();
    int32_t devices = 1;
    for (const Segment& segment : segments) devices = std::max(devices, segment.device + 1);
    for (int32_t device = 0; device < devices; ++device) WriteTrace(segments, device, time_us);
    pickle_.EndList();
    pickle_.Text("allocator_settings");
    pickle_.BeginDict();
    pickle_.EndDict();
    pickle_.Text("external_annotations");
    pickle_.BeginList();
    pickle_.EndList();
    pickle_.EndDict();
    return pickle_.Take();
  }

 private:
  // Every block of a site shares its frames: written once, recalled after that.
  void Frames(Block* block) {
    pickle_.Text("frames");
    uint32_t& slot = block->site != nullptr ? sites_[block->site] : names_[block->name];
    if (slot != 0) return pickle_.Recall(slot);
    slot = ++slots_;
    pickle_.BeginList();
    if (block->site == nullptr) {
      Frame("(tidemark)", 0, block->name);
    } else {
      for (const v1::Frame& frame : block->site->frames()) {
        Frame(frame.file(), frame.line(), frame.function());
      }
    }
    pickle_.EndList();
    pickle_.Remember(slot);
  }

  void Frame(const std::string& file, int64_t line, const std::string& function) {
    pickle_.BeginDict();
    pickle_.Pair("filename", file);
    pickle_.Pair("line", line);
    pickle_.Pair("name", function);
    pickle_.EndDict();
  }

  int64_t WriteSegment(Segment* segment, int64_t address) {
    int64_t total = 0;
    int64_t active = 0;
    for (const Block& block : segment->blocks) {
      total += block.bytes;
      active += block.active ? block.bytes : 0;
    }
    pickle_.BeginDict();
    pickle_.Pair("device", segment->device);
    pickle_.Pair("address", address);
    pickle_.Pair("total_size", total);
    pickle_.Pair("allocated_size", active);
    pickle_.Pair("active_size", active);
    pickle_.Pair("requested_size", active);
    pickle_.Pair("stream", 0);
    pickle_.Pair("segment_type", segment->type);
    pickle_.Text("is_expandable");
    pickle_.Bool(false);
    pickle_.Text("frames");
    pickle_.BeginList();
    pickle_.EndList();
    pickle_.Text("blocks");
    pickle_.BeginList();
    int64_t at = address;
    for (Block& block : segment->blocks) {
      pickle_.BeginDict();
      pickle_.Pair("address", at);
      pickle_.Pair("size", block.bytes);
      pickle_.Pair("requested_size", block.bytes);
      pickle_.Pair("state", block.active ? "active_allocated" : "inactive");
      Frames(&block);
      if (block.active) {  // where releases before 2.1 look for the frames
        pickle_.Text("history");
        pickle_.BeginList();
        pickle_.BeginDict();
        pickle_.Pair("addr", at);
        pickle_.Pair("real_size", block.bytes);
        Frames(&block);
        pickle_.EndDict();
        pickle_.EndList();
      }
      pickle_.EndDict();
      at += block.bytes;
    }
    pickle_.EndList();
    pickle_.EndDict();
    return total;
  }

  void Entry(const char* action, int64_t address, int64_t bytes, int64_t time_us, Block* block) {
    pickle_.BeginDict();
    pickle_.Pair("action", action);
    pickle_.Pair("addr", address);
    pickle_.Pair("size", bytes);
    pickle_.Pair("stream", 0);
    pickle_.Pair("time_us", time_us);
    if (block != nullptr) {
      Frames(block);
    } else {
      pickle_.Text("frames");
      pickle_.BeginList();
      pickle_.EndList();
    }
    pickle_.EndDict();
  }

  // One allocation for each live block: enough for the viewer's timeline to show what is held.
  void WriteTrace(std::vector<Segment>& segments, int32_t device, int64_t time_us) {
    pickle_.BeginList();
    for (size_t i = 0; i < segments.size(); ++i) {
      if (segments[i].device != device) continue;
      int64_t at = addresses_[i];
      int64_t total = 0;
      for (const Block& block : segments[i].blocks) total += block.bytes;
      Entry("segment_alloc", at, total, time_us, nullptr);
      for (Block& block : segments[i].blocks) {
        if (block.active) Entry("alloc", at, block.bytes, time_us, &block);
        at += block.bytes;
      }
    }
    pickle_.EndList();
  }

  PickleWriter pickle_;
  std::vector<int64_t> addresses_;
  std::map<const v1::Site*, uint32_t> sites_;
  std::map<std::string, uint32_t> names_;
  uint32_t slots_ = 0;
};

}  // namespace

std::string WriteTorch(const Plan& plan, const Input& input, const std::vector<Stack>& stacks) {
  std::vector<Segment> segments;
  for (const v1::Process& process : input.snapshot->processes()) {
    std::map<int32_t, Segment> framework;
    for (const Stack& stack : stacks) {
      // Driver allocations hold the framework's blocks: either is in the picture, not both.
      if (stack.process != &process || stack.site->memory_class() != "fw_live" ||
          stack.bytes <= 0 || stack.site->device() < 0) {
        continue;
      }
      for (Block& block : BlocksOf(stack)) {
        framework[stack.site->device()].blocks.push_back(std::move(block));
      }
    }
    std::vector<Segment> rest;
    if (plan.what == What::kLive) AddRest(process, &framework, &rest);
    for (auto& [device, segment] : framework) {
      if (segment.blocks.empty()) continue;
      segment.device = device;
      segment.type = "large";
      segments.push_back(std::move(segment));
    }
    std::ranges::move(rest, std::back_inserter(segments));
  }
  return SnapshotWriter().Write(std::move(segments),
                                static_cast<int64_t>(input.snapshot->unix_ns() / 1000));
}

}  // namespace tidemark::exports
