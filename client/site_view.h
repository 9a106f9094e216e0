// Allocation sites as text, and the same site on many ranks as one row.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tidemark/v1/tidemark.pb.h"

namespace tidemark::client {

// "model.py:41 forward"; native: "gather (libdeepspeed.so)". Directories are left out.
std::string FrameText(const v1::Frame& frame);

// The blamed frame, or "(no stack)". Its full path is in the JSON and in `sites --frames`.
std::string SiteText(const v1::Site& site);

// "model.py:41 forward, through functional.py:12 linear": with the library frame below.
std::string SiteTextWithCallee(const v1::Site& site);

// Whether any frame's function or file:line contains `text`.
bool AnyFrameContains(const v1::Site& site, const std::string& text);

// When a site's bytes are looked at.
enum class At { kNow, kLoad, kPeak, kLastStep };
std::optional<At> AtFromText(const std::string& text);  // load, peak, last-step, exit, now
v1::BytesAndCount BytesAt(const v1::Site& site, At at);

// The same site in the same class with the same bytes and count on each of `processes`.
struct SiteRow {
  const v1::Site* site = nullptr;  // as its first process has it
  v1::BytesAndCount each;          // on every one of them
  std::vector<const v1::Process*> processes;
};

// All sites with bytes at that moment, most bytes a rank first; ties in a stable order.
std::vector<SiteRow> FoldSites(const std::vector<const v1::Process*>& processes, At at);

// Two allocation classes can hold the same bytes: the framework's blocks lie inside what the driver
// handed out. Whether a row of this class is the framework's own.
bool IsFrameworkClass(const std::string& memory_class);

// "36 x 256 MiB"; the mean where blocks differ: "120 blocks, 1 MiB to 64 MiB".
std::string BlocksText(const v1::Site& site, const v1::BytesAndCount& held);

// When what is live was born: "load", "steps 10-300"; empty where the site holds nothing.
std::string AgeText(const v1::Site& site);

// Whether what the site holds was born all along rather than once: the sign of growth, by the age
// cohorts. `steps` are those that the process completed.
bool GrowsByAge(const v1::Site& site, uint64_t steps);

// The one with this id (and class, where given); null when there is none.
const v1::Site* FindSite(const v1::Process& process, uint64_t id,
                         const std::string& memory_class = "");

}  // namespace tidemark::client
