// What the ledger's tests share: a ledger in a region of chosen size, its rows, and stacks made of
// text.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "cupti_agent/ledger/ledger.h"

namespace tidemark::agent::testing {

// Frames as text: "train.py:12 forward" is a Python frame, anything else a native one.
struct TextStack {
  std::vector<std::string> frames;

  StackView View(uint8_t flags = wire::kSitePython) const {
    StackView view;
    view.hash = 1469598103934665603ull;
    for (const std::string& frame : frames) {
      for (char c : frame + "\n") view.hash = (view.hash ^ c) * 1099511628211ull;
    }
    view.count = static_cast<uint16_t>(frames.size());
    view.flags = flags;
    view.frames = this;
    view.resolve = [](const StackView& stack, uint16_t index, StackFrame* frame) {
      const std::string& text = static_cast<const TextStack*>(stack.frames)->frames[index];
      const size_t colon = text.find(':');
      if (colon == std::string::npos) {
        frame->kind = wire::FrameKind::kNative;
        frame->module_path = text;
        frame->module_base = 0x1000;
        frame->offset = 7;
        return true;
      }
      const size_t space = text.find(' ');
      frame->kind = wire::FrameKind::kPython;
      frame->file = std::string_view(text).substr(0, colon);
      frame->line = static_cast<uint32_t>(std::stoi(text.substr(colon + 1, space - colon - 1)));
      frame->function = std::string_view(text).substr(space + 1);
      return true;
    };
    return view;
  }
};

class LedgerTest : public ::testing::Test {
 protected:
  void Open(uint64_t region_bytes = 4 << 20, uint64_t interval = 1) {
    ledger_ = std::make_unique<Ledger>();
    ASSERT_EQ(ledger_->Open(
                  {.region_bytes = region_bytes, .sampling_interval_bytes = interval, .seed = 42}),
              nullptr);
  }
  Ledger& ledger() { return *ledger_; }
  const wire::Header& header() { return *ledger_->region().header(); }

  template <typename Row>
  const Row* Rows(wire::Section section) {
    return ledger_->region().Rows<Row>(section);
  }
  uint64_t Used(wire::Section section) { return ledger_->region().Entry(section).used; }
  uint64_t Losses(wire::Loss loss) { return header().losses[static_cast<uint32_t>(loss)]; }

  const wire::TotalsRow* Totals(wire::Layer layer, wire::Kind kind, int16_t device) {
    for (uint64_t i = 0; i < Used(wire::Section::kTotals); ++i) {
      const auto& row = Rows<wire::TotalsRow>(wire::Section::kTotals)[i];
      if (row.layer == static_cast<uint8_t>(layer) && row.kind == static_cast<uint8_t>(kind) &&
          row.device == device) {
        return &row;
      }
    }
    return nullptr;
  }
  const wire::PeakGroupRow* Group(wire::PeakSide side, int16_t device) {
    for (uint64_t i = 0; i < Used(wire::Section::kPeakGroups); ++i) {
      const auto& row = Rows<wire::PeakGroupRow>(wire::Section::kPeakGroups)[i];
      if (row.side == static_cast<uint8_t>(side) && row.device == device) return &row;
    }
    return nullptr;
  }
  std::string String(uint32_t offset) {
    const char* pool = Rows<char>(wire::Section::kStrings);
    uint16_t length;
    memcpy(&length, pool + offset, sizeof(length));
    return {pool + offset + sizeof(length), length};
  }
  std::string FrameText(const wire::Frame& frame) {
    if (frame.kind == static_cast<uint8_t>(wire::FrameKind::kPython)) {
      return String(frame.a) + ":" + std::to_string(frame.line) + " " + String(frame.b);
    }
    return String(Rows<wire::ModuleRow>(wire::Section::kModules)[frame.a].path);
  }
  // The site whose innermost frame reads `text`; null when there is none.
  const wire::SiteRow* Site(const std::string& text) {
    for (uint64_t i = kMaxTotalsRows; i < Used(wire::Section::kSites); ++i) {
      const auto& row = Rows<wire::SiteRow>(wire::Section::kSites)[i];
      if (FrameText(Rows<wire::Frame>(wire::Section::kFrames)[row.first_frame]) == text) {
        return &row;
      }
    }
    return nullptr;
  }

  // Books a framework block on device 0; the allocator's totals are those given.
  void Allocate(uint64_t address, uint64_t bytes, const TextStack& stack) {
    const StackView view = stack.View();
    ledger().FrameworkAllocated({.address = address, .bytes = bytes, .device = 0}, bytes, &view);
  }
  void Free(uint64_t address, uint64_t bytes) {
    ledger().FrameworkFreed({.address = address, .bytes = bytes, .device = 0});
  }

 private:
  std::unique_ptr<Ledger> ledger_;
};

// What the site held at a moment, by the rule of wire/region.h.
inline int64_t HeldAt(const wire::SiteRow& site, wire::Moment moment, uint32_t epoch) {
  const auto m = static_cast<uint32_t>(moment);
  return site.moment_epoch[m] == epoch ? site.moment_bytes[m] : site.live_bytes;
}

}  // namespace tidemark::agent::testing
