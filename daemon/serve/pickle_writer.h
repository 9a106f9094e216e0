// Writes Python's pickle format, protocol 2, as far as plain data needs it: dicts, lists, texts,
// whole numbers, true, false, none. What it writes runs nothing when it is read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tidemark::exports {

class PickleWriter {
 public:
  PickleWriter() { out_ = "\x80\x02"; }

  // Between Begin and End of a dict come pairs: Text, then a value.
  void BeginDict() { out_ += "}("; }
  void EndDict() { out_ += 'u'; }
  void BeginList() { out_ += "]("; }
  void EndList() { out_ += 'e'; }

  void Text(std::string_view text) {
    out_ += 'X';
    Little(text.size(), 4);
    out_ += text;
  }
  void Number(int64_t number) {
    if (number == static_cast<int32_t>(number)) {
      out_ += 'J';
      return Little(static_cast<uint64_t>(number), 4);
    }
    out_ += "\x8a\x08";  // LONG1 of eight bytes, two's complement
    Little(static_cast<uint64_t>(number), 8);
  }
  void Bool(bool value) { out_ += value ? '\x88' : '\x89'; }

  void Pair(std::string_view name, std::string_view value) {
    Text(name);
    Text(value);
  }
  void Pair(std::string_view name, int64_t value) {
    Text(name);
    Number(value);
  }

  // Remembers the value just written under `slot`, and writes it again without its bytes.
  void Remember(uint32_t slot) {
    out_ += 'r';
    Little(slot, 4);
  }
  void Recall(uint32_t slot) {
    out_ += 'j';
    Little(slot, 4);
  }

  std::string Take() {
    out_ += '.';
    return std::move(out_);
  }
  size_t size() const { return out_.size(); }

 private:
  void Little(uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) out_ += static_cast<char>(value >> (8 * i) & 0xff);
  }

  std::string out_;
};

}  // namespace tidemark::exports
