// The part of HistoryCalls that reads post-mortems.
#include <algorithm>

#include "daemon/serve/history_calls.h"
#include "daemon/store/post_mortems.h"
#include "tidemark/v1/tidemark.pb.h"

namespace tidemark::serve {
namespace {

constexpr char kNone[] = "this daemon keeps no post-mortems";

// Who grew beside the dead may be other users' business.
void Hide(const Viewer& viewer, v1::PostmortemSummary* summary) {
  if (!viewer.Sees(summary->biggest_grower_uid())) summary->clear_biggest_grower();
}

}  // namespace

QueryStatus HistoryCalls::ListPostmortems(const Viewer& viewer,
                                          v1::ListPostmortemsResponse* out) const {
  if (post_mortems_ == nullptr) return {QueryCode::kUnavailable, kNone};
  post_mortems_->List([&](uid_t uid) { return viewer.Sees(uid); }, out);
  for (v1::PostmortemSummary& summary : *out->mutable_postmortems()) Hide(viewer, &summary);
  return {};
}

QueryStatus HistoryCalls::GetPostmortem(const std::string& id, const Viewer& viewer,
                                        v1::Postmortem* out) const {
  if (post_mortems_ == nullptr) return {QueryCode::kUnavailable, kNone};
  const auto sees = [&](uid_t uid) { return viewer.Sees(uid); };
  const Result<void> read = post_mortems_->Get(id, sees, out);
  if (!read.ok()) return {QueryCode::kNotFound, read.error().ToString()};
  Hide(viewer, out->mutable_summary());
  auto* growers = out->mutable_growers();
  const auto others = std::remove_if(growers->begin(), growers->end(),
                                     [&](const auto& grower) { return !sees(grower.uid()); });
  growers->erase(others, growers->end());
  return {};
}

}  // namespace tidemark::serve
