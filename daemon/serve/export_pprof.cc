// A pprof profile: one sample a site, with what is asked for first and as the default, and the
// other kinds beside it, so that a viewer can switch.
#include <zlib.h>

#include <array>
#include <map>
#include <tuple>
#include <vector>

#include "daemon/serve/export_stacks.h"
#include "export/pprof.pb.h"

namespace tidemark::exports {
namespace {

class ProfileWriter {
 public:
  ProfileWriter() { Text(""); }  // the format wants the empty text first

  int64_t Text(const std::string& text) {
    const auto [at, is_new] = texts_.try_emplace(text, profile_.string_table_size());
    if (is_new) profile_.add_string_table(text);
    return at->second;
  }

  uint64_t Location(const v1::Frame& frame) {
    const auto key = std::tuple(frame.function(), frame.file(), frame.line());
    const auto [at, is_new] = locations_.try_emplace(key, locations_.size() + 1);
    if (!is_new) return at->second;
    pprof::Location* location = profile_.add_location();
    location->set_id(at->second);
    location->set_mapping_id(Mapping(frame));
    pprof::Line* line = location->add_line();
    line->set_function_id(Function(frame));
    line->set_line(frame.line());
    return at->second;
  }

  pprof::Profile* operator->() { return &profile_; }

  std::string Gzip() const {
    const std::string plain = profile_.SerializeAsString();
    z_stream stream = {};
    deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
    std::string out(deflateBound(&stream, plain.size()), '\0');
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(plain.data()));
    stream.avail_in = static_cast<uInt>(plain.size());
    stream.next_out = reinterpret_cast<Bytef*>(out.data());
    stream.avail_out = static_cast<uInt>(out.size());
    deflate(&stream, Z_FINISH);
    out.resize(stream.total_out);
    deflateEnd(&stream);
    return out;
  }

 private:
  // One per library, and one for all Python: frames are symbolised already, so that a viewer must
  // not go looking for the binaries.
  uint64_t Mapping(const v1::Frame& frame) {
    const std::string name = frame.kind() == "python" ? "python" : frame.file();
    const auto [at, is_new] = mappings_.try_emplace(name, mappings_.size() + 1);
    if (!is_new) return at->second;
    pprof::Mapping* mapping = profile_.add_mapping();
    mapping->set_id(at->second);
    mapping->set_filename(Text(name));
    mapping->set_has_functions(true);
    mapping->set_has_filenames(true);
    mapping->set_has_line_numbers(true);
    return at->second;
  }

  uint64_t Function(const v1::Frame& frame) {
    const auto key = std::pair(frame.function(), frame.file());
    const auto [at, is_new] = functions_.try_emplace(key, functions_.size() + 1);
    if (!is_new) return at->second;
    pprof::Function* function = profile_.add_function();
    function->set_id(at->second);
    function->set_name(Text(frame.function().empty() ? "?" : frame.function()));
    function->set_system_name(function->name());
    function->set_filename(Text(frame.file()));
    return at->second;
  }

  pprof::Profile profile_;
  std::map<std::string, int64_t> texts_;
  std::map<std::tuple<std::string, std::string, uint32_t>, uint64_t> locations_;
  std::map<std::pair<std::string, std::string>, uint64_t> functions_;
  std::map<std::string, uint64_t> mappings_;
};

std::string SampleTypeOf(What what) {
  switch (what) {
    case What::kLive:
    case What::kHistory:
      return "inuse";
    case What::kGrowth:
      return "growth";
    case What::kPeak:
      return "peak";
    case What::kAllocations:
      return "alloc";
  }
  return "inuse";
}

}  // namespace

std::string WritePprof(const Plan& plan, const Input& input, const std::vector<Stack>& stacks) {
  ProfileWriter profile;
  std::vector<What> kinds = {plan.what};
  for (const What what : {What::kLive, What::kPeak, What::kAllocations}) {
    if (what != plan.what) kinds.push_back(what);
  }
  for (const What what : kinds) {
    for (const auto& [suffix, unit] : {std::pair("_objects", "count"), {"_space", "bytes"}}) {
      pprof::ValueType* type = profile->add_sample_type();
      type->set_type(profile.Text(SampleTypeOf(what) + suffix));
      type->set_unit(profile.Text(unit));
    }
  }
  profile->set_default_sample_type(profile.Text(SampleTypeOf(plan.what) + "_space"));
  profile->set_time_nanos(static_cast<int64_t>(input.snapshot->unix_ns()));

  // Every site that any kind has bytes of; the same order, so that equal input gives equal files.
  std::map<SiteKey, std::pair<Stack, std::vector<int64_t>>> samples;
  for (size_t kind = 0; kind < kinds.size(); ++kind) {
    Plan other = plan;
    other.what = kinds[kind];
    for (const Stack& stack : kind == 0 ? stacks : Stacks(other, input)) {
      auto& [of, values] = samples[KeyOf(*stack.process, *stack.site)];
      of = stack;
      values.resize(kinds.size() * 2);
      values[kind * 2] = stack.count;
      values[kind * 2 + 1] = stack.bytes;
    }
  }
  for (const auto& [key, sample] : samples) {
    const auto& [stack, values] = sample;
    pprof::Sample* out = profile->add_sample();
    for (const v1::Frame& frame : stack.site->frames()) {
      out->add_location_id(profile.Location(frame));
    }
    if (stack.site->frames().empty()) {
      v1::Frame none;
      none.set_function("(no stack)");
      out->add_location_id(profile.Location(none));
    }
    for (const int64_t value : values) out->add_value(value);
    const auto label = [&](const char* name, const std::string& text) {
      if (text.empty()) return;
      pprof::Label* added = out->add_label();
      added->set_key(profile.Text(name));
      added->set_str(profile.Text(text));
    };
    label("process", ProcessName(*stack.process));
    label("training_job", stack.process->identity().training_job());
    label("class", stack.site->memory_class());
    if (stack.site->device() >= 0) label("device", std::to_string(stack.site->device()));
  }
  return profile.Gzip();
}

}  // namespace tidemark::exports
