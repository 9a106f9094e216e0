// Runs a fuzz target over files: for each of them as it is, and with every byte of its first
// kilobytes flipped in turn, so that a plain test run covers the near neighbourhood of the corpus.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int main(int argc, char** argv) {
  constexpr size_t kFlipped = 4096;
  size_t inputs = 0;
  for (int i = 1; i < argc; ++i) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(argv[i])) {
      if (!entry.is_regular_file()) continue;
      std::ifstream file(entry.path(), std::ios::binary);
      std::vector<char> text((std::istreambuf_iterator<char>(file)),
                             std::istreambuf_iterator<char>());
      std::vector<uint8_t> bytes(text.begin(), text.end());
      LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
      ++inputs;
      for (size_t at = 0; at < bytes.size() && at < kFlipped; ++at) {
        const uint8_t kept = bytes[at];
        for (const uint8_t flip : {uint8_t{0xff}, uint8_t{0x01}, uint8_t{0x80}}) {
          bytes[at] = static_cast<uint8_t>(kept ^ flip);
          LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
        }
        bytes[at] = kept;
      }
    }
  }
  std::printf("%zu inputs and their neighbours\n", inputs);
  return inputs > 0 ? 0 : 1;
}
