#include "daemon/store/history_reader.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "daemon/store/history_points.h"
#include "daemon/store/history_rows.h"
#include "daemon/store/sqlite.h"
#include "tidemark/v1/tidemark.pb.h"

namespace tidemark {
namespace {

constexpr uint64_t kNsOfMs = 1'000'000;
constexpr uint64_t kMostMs = uint64_t{1} << 62;  // far beyond any clock, and fits SQLite's integers
constexpr int kMostSelected = 1024;              // entries of a list in a request
constexpr uint64_t kOldestSiteMs = 600'000;
constexpr size_t kMostSeriesOfProcess = 8192;

int64_t Signed(uint64_t number) { return static_cast<int64_t>(std::min(number, kMostMs)); }

// What a page token holds, so that a range that ends now stays the same from page to page.
struct PageToken {
  uint64_t request = 0;  // hash of what was asked
  uint64_t start_ms = 0;
  uint64_t end_ms = 0;
  uint64_t process = 0;  // row to go on with
  uint64_t skip = 0;     // of its series

  static constexpr size_t kFields = 5;
  std::array<uint64_t*, kFields> Fields() {
    return {&request, &start_ms, &end_ms, &process, &skip};
  }

  std::string Text() {
    std::string text;
    for (const uint64_t* field : Fields()) {
      std::array<char, 17> digits;
      const auto end = std::to_chars(digits.begin(), digits.end(), *field, 16).ptr;
      text += (text.empty() ? "" : ".") + std::string(digits.begin(), end);
    }
    return text;
  }

  static std::optional<PageToken> Parse(std::string_view text) {
    PageToken token;
    for (uint64_t* field : token.Fields()) {
      const std::string_view part = text.substr(0, text.find('.'));
      const auto [end, error] = std::from_chars(part.begin(), part.end(), *field, 16);
      if (error != std::errc() || end != part.end()) return std::nullopt;
      text.remove_prefix(std::min(text.size(), part.size() + 1));
    }
    return text.empty() ? std::optional(token) : std::nullopt;
  }
};

uint64_t HashOf(v1::QueryRangeRequest request) {
  request.clear_page_token();
  request.clear_page_size();
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char byte : request.SerializeAsString()) {
    hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001b3;
  }
  return hash;
}

template <typename List, typename Value>
bool Selects(const List& list, const Value& value) {
  return list.empty() || std::ranges::find(list, value) != list.end();
}

std::string Complaint(const v1::QueryRangeRequest& request) {
  for (const int size : {request.pids_size(), request.ranks_size(), request.memory_classes_size(),
                         request.devices_size(), request.site_ids_size()}) {
    if (size > kMostSelected) return "a list may hold 1024 entries";
  }
  if (!request.align().empty() && request.align() != "time" && request.align() != "step") {
    return "align is \"time\" or \"step\"";
  }
  if (request.end_unix_ns() != 0 && request.start_unix_ns() > request.end_unix_ns()) {
    return "the range ends before it starts";
  }
  if (request.last_step() != 0 && request.first_step() > request.last_step()) {
    return "the range of steps ends before it starts";
  }
  if (request.max_points() < 0 || request.max_points() > HistoryReader::kMostPoints) {
    return "max_points lies between 0 (the default, 600) and 10000";
  }
  if (request.page_size() < 0 || request.page_size() > HistoryReader::kMostSeries) {
    return "page_size lies between 0 (the default, 100) and 1000";
  }
  return "";
}

struct ProcessRow {
  int64_t row = 0;
  v1::ProcessRef reference;
};

class Query {
 public:
  Query(const Sqlite& db, const v1::QueryRangeRequest& request, const QueryContext& context,
        v1::QueryRangeResponse* out)
      : db_(db), request_(request), context_(context), out_(out) {}

  QueryStatus Run();
  bool damaged() const { return damaged_; }

 private:
  using SeriesMap = std::map<SeriesKey, HistoryPoints>;

  bool by_step() const { return request_.align() == "step"; }
  bool of_sites() const { return request_.all_sites() || request_.site_ids_size() > 0; }
  bool TooLate() const { return std::chrono::steady_clock::now() >= context_.deadline; }
  bool WantsSeries(const SeriesKey& key) const;
  bool WantsProcess(int64_t uid, const v1::ProcessRef& reference) const;
  std::vector<ProcessRow> Processes(uint64_t from);

  // Calls `each` with the blocks of one kind that overlap the range, by time.
  bool EachBlock(int64_t process, ChunkKind kind, const std::function<bool(const SeriesKey&)>& want,
                 const std::function<void(const SampleBlock&)>& each);
  bool ReadTime(int64_t process, const std::function<bool(const SeriesKey&)>& want, SeriesMap* out);
  bool ReadSteps(int64_t process, const std::function<bool(const SeriesKey&)>& want,
                 SeriesMap* out);
  bool Read(int64_t process, SeriesMap* out);
  // The keys of this page only, of a process with more sites than fit.
  bool ChooseSites(int64_t process, std::set<SeriesKey>* chosen);
  void AddSeries(const ProcessRow& process, const SeriesKey& key, const HistoryPoints& points);
  bool AddMarks();
  void AddOldest();

  const Sqlite& db_;
  const v1::QueryRangeRequest& request_;
  const QueryContext& context_;
  v1::QueryRangeResponse* const out_;
  PageToken page_;
  uint64_t max_points_ = HistoryReader::kDefaultPoints;
  size_t page_size_ = HistoryReader::kDefaultPage;
  bool more_series_ = false;  // of the process being read
  bool damaged_ = false;
};

bool Query::WantsSeries(const SeriesKey& key) const {
  if ((key.site_id != 0) != of_sites()) return false;
  return Selects(request_.memory_classes(), key.memory_class) &&
         Selects(request_.devices(), key.device) && Selects(request_.site_ids(), key.site_id);
}

bool Query::WantsProcess(int64_t uid, const v1::ProcessRef& reference) const {
  const bool visible = uid == kNobody || context_.visible(static_cast<uid_t>(uid));
  return visible && Selects(request_.pids(), reference.pid()) &&
         Selects(request_.ranks(), reference.rank()) &&
         (request_.training_job().empty() || request_.training_job() == reference.training_job());
}

std::vector<ProcessRow> Query::Processes(uint64_t from) {
  std::vector<ProcessRow> rows;
  Statement select(db_, "SELECT id, uid, reference FROM process WHERE id >= ? ORDER BY id");
  select.Bind(Signed(from));
  while (select.Next()) {
    ProcessRow row{select.Int(0), {}};
    const std::string_view bytes = select.Bytes(2);
    if (!row.reference.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
      damaged_ = true;
      continue;
    }
    if (WantsProcess(select.Int(1), row.reference)) rows.push_back(std::move(row));
  }
  damaged_ = damaged_ || !select.ok();
  return rows;
}

bool Query::EachBlock(int64_t process, ChunkKind kind,
                      const std::function<bool(const SeriesKey&)>& want,
                      const std::function<void(const SampleBlock&)>& each) {
  const bool steps = kind == ChunkKind::kSteps;
  Statement select(db_,
                   "SELECT data FROM chunk WHERE process = ? AND kind = ? AND start_ms <= ?"
                   " AND end_ms >= ? AND first_step <= ? AND last_step >= ? ORDER BY start_ms, id");
  select.Bind(process).Bind(static_cast<int64_t>(kind)).Bind(Signed(page_.end_ms));
  select.Bind(Signed(page_.start_ms));
  select.Bind(steps && request_.last_step() != 0 ? Signed(request_.last_step()) : INT64_MAX);
  select.Bind(steps ? Signed(request_.first_step()) : 0);
  while (select.Next()) {
    if (TooLate()) return false;
    const std::optional<SampleBlock> block = SampleBlock::Decode(select.Bytes(0), want);
    if (block) {
      each(*block);
    } else {
      damaged_ = true;
    }
  }
  damaged_ = damaged_ || (!select.ok() && !TooLate());
  return select.ok();
}

// Rows of a block to points; rows before `from_ms` are somebody else's.
template <typename Bucket>
void AddRows(const SampleBlock& block, uint64_t from_ms, uint64_t to_ms, double weight,
             Bucket bucket, std::map<SeriesKey, HistoryPoints>* out) {
  for (const SampleBlock::Column& column : block.columns()) {
    HistoryPoints* points = nullptr;
    for (size_t i = 0; i < column.values.size(); ++i) {
      const size_t row = column.first_row + i;
      const uint64_t at_ms = block.times()[row];
      if (at_ms < from_ms || at_ms > to_ms || column.values[i] == Sample::None()) continue;
      const std::optional<uint64_t> at = bucket(row);
      if (!at) continue;
      if (points == nullptr) points = &(*out)[column.key];
      points->Add(*at, at_ms, block.steps()[row], column.values[i], weight);
    }
  }
}

bool Query::ReadTime(int64_t process, const std::function<bool(const SeriesKey&)>& want,
                     SeriesMap* out) {
  // Seconds where they are still kept, ten of them before that. Sites come every ten only.
  uint64_t fine_from_ms = kMostMs;
  if (!of_sites()) {
    Statement first(db_,
                    "SELECT start_ms FROM chunk WHERE process = ? AND kind = 0 AND end_ms >= ?"
                    " ORDER BY start_ms LIMIT 1");
    if (first.Bind(process).Bind(Signed(page_.start_ms)).Next()) {
      fine_from_ms = static_cast<uint64_t>(first.Int(0));
    }
  }
  const uint64_t width_ms =
      std::max<uint64_t>(1, (page_.end_ms - page_.start_ms + max_points_ - 1) / max_points_);
  const auto read = [&](ChunkKind kind, uint64_t from_ms, uint64_t to_ms, double weight) {
    return EachBlock(process, kind, want, [&](const SampleBlock& block) {
      const auto bucket = [&](size_t row) -> std::optional<uint64_t> {
        // Narrower than a second means: every row is a point.
        const uint64_t at_ms = block.times()[row];
        return width_ms <= 1000 ? at_ms : (at_ms - page_.start_ms) / width_ms;
      };
      AddRows(block, from_ms, to_ms, weight, bucket, out);
    });
  };
  if (fine_from_ms > page_.start_ms &&
      !read(ChunkKind::kCoarse, page_.start_ms,
            std::min(page_.end_ms, fine_from_ms == 0 ? 0 : fine_from_ms - 1), 10)) {
    return false;
  }
  return fine_from_ms > page_.end_ms ||
         read(ChunkKind::kFine, std::max(page_.start_ms, fine_from_ms), page_.end_ms, 1);
}

bool Query::ReadSteps(int64_t process, const std::function<bool(const SeriesKey&)>& want,
                      SeriesMap* out) {
  uint64_t first = UINT64_MAX;
  uint64_t last = 0;
  const auto in_range = [&](uint64_t step) {
    return step >= request_.first_step() &&
           (request_.last_step() == 0 || step <= request_.last_step());
  };
  // How many steps there are decides how many make a point: looked at first, without their values.
  const auto none = [](const SeriesKey&) { return false; };
  const bool looked = EachBlock(process, ChunkKind::kSteps, none, [&](const SampleBlock& block) {
    for (const uint64_t step : block.steps()) {
      if (!in_range(step)) continue;
      first = std::min(first, step);
      last = std::max(last, step);
    }
  });
  if (!looked) return false;
  if (first > last) return true;
  const uint64_t width = (last - first) / max_points_ + 1;
  return EachBlock(process, ChunkKind::kSteps, want, [&](const SampleBlock& block) {
    const auto bucket = [&](size_t row) -> std::optional<uint64_t> {
      const uint64_t step = block.steps()[row];
      if (!in_range(step)) return std::nullopt;
      return (step - first) / width;
    };
    AddRows(block, page_.start_ms, page_.end_ms, 1, bucket, out);
  });
}

bool Query::Read(int64_t process, SeriesMap* out) {
  std::function<bool(const SeriesKey&)> want = [this](const SeriesKey& key) {
    return WantsSeries(key);
  };
  std::set<SeriesKey> chosen;
  if (of_sites()) {
    if (!ChooseSites(process, &chosen)) return false;
    want = [&chosen](const SeriesKey& key) { return chosen.contains(key); };
  }
  return by_step() ? ReadSteps(process, want, out) : ReadTime(process, want, out);
}

bool Query::ChooseSites(int64_t process, std::set<SeriesKey>* chosen) {
  std::set<SeriesKey> keys;
  const bool read = EachBlock(
      process, by_step() ? ChunkKind::kSteps : ChunkKind::kCoarse,
      [&](const SeriesKey& key) {
        if (WantsSeries(key) && keys.size() < kMostSeriesOfProcess) keys.insert(key);
        return false;  // only their names
      },
      [](const SampleBlock&) {});
  const size_t room = page_size_ - static_cast<size_t>(out_->series_size());
  size_t number = 0;
  for (const SeriesKey& key : keys) {
    if (number++ < page_.skip) continue;
    if (chosen->size() == room) {
      more_series_ = true;
      break;
    }
    chosen->insert(key);
  }
  return read;
}

void Query::AddSeries(const ProcessRow& process, const SeriesKey& key,
                      const HistoryPoints& points) {
  v1::Series* series = out_->add_series();
  *series->mutable_process() = process.reference;
  series->set_memory_class(key.memory_class);
  series->set_device(key.device);
  series->set_site_id(key.site_id);
  for (const HistoryPoint& point : points.points()) {
    series->add_unix_ns(point.last_ms * kNsOfMs);
    if (by_step()) series->add_steps(point.last_step);
    series->add_min_bytes(point.min);
    series->add_mean_bytes(point.mean());
    series->add_max_bytes(point.max);
  }
  if (key.site_id == 0) return;
  Statement select(db_, "SELECT message FROM site WHERE id = ?");
  v1::Site site;
  if (!select.Bind(static_cast<int64_t>(key.site_id)).Next()) return;
  const std::string_view bytes = select.Bytes(0);
  if (!site.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return;
  series->mutable_frames()->Swap(site.mutable_frames());
  series->set_blamed_frame(site.blamed_frame());
}

bool Query::AddMarks() {
  Statement select(db_,
                   "SELECT mark.message, process.reference, process.uid FROM mark JOIN process"
                   " ON process.id = mark.process WHERE mark.start_ms <= ?1 AND (mark.start_ms >="
                   " ?2 OR mark.end_ms >= ?2 OR (mark.kind = 'phase' AND mark.end_ms = 0))"
                   " ORDER BY mark.start_ms DESC, mark.id DESC");
  select.Bind(Signed(page_.end_ms)).Bind(Signed(page_.start_ms));
  std::vector<v1::HistoryMark> marks;
  while (select.Next()) {
    if (TooLate()) return false;
    v1::HistoryMark mark;
    const std::string_view message = select.Bytes(0);
    const std::string_view reference = select.Bytes(1);
    if (!mark.ParseFromArray(message.data(), static_cast<int>(message.size())) ||
        !mark.mutable_process()->ParseFromArray(reference.data(),
                                                static_cast<int>(reference.size()))) {
      damaged_ = true;
      continue;
    }
    if (!WantsProcess(select.Int(2), mark.process())) continue;
    if (marks.size() == HistoryReader::kMostMarks) {
      out_->set_marks_cut(true);
      break;
    }
    marks.push_back(std::move(mark));
  }
  for (auto mark = marks.rbegin(); mark != marks.rend(); ++mark) {
    *out_->add_marks() = std::move(*mark);
  }
  return select.ok();
}

void Query::AddOldest() {
  uint64_t oldest_ms = kMostMs;
  for (const int kind : {0, 1, 2}) {
    Statement first(db_, "SELECT start_ms FROM chunk WHERE kind = ? ORDER BY end_ms LIMIT 1");
    if (first.Bind(kind).Next()) {
      oldest_ms = std::min(oldest_ms, static_cast<uint64_t>(first.Int(0)));
    }
  }
  if (oldest_ms != kMostMs) out_->set_oldest_unix_ns(oldest_ms * kNsOfMs);
}

QueryStatus Query::Run() {
  const std::string complaint = Complaint(request_);
  if (!complaint.empty()) return {QueryCode::kInvalid, complaint};
  if (request_.max_points() > 0) max_points_ = static_cast<uint64_t>(request_.max_points());
  if (request_.page_size() > 0) page_size_ = static_cast<size_t>(request_.page_size());
  page_size_ = std::min<size_t>(
      page_size_, std::max<size_t>(1, HistoryReader::kMostPointsOfPage / max_points_));

  const uint64_t hash = HashOf(request_);
  const bool first_page = request_.page_token().empty();
  if (first_page) {
    const bool bounded = request_.start_unix_ns() != 0 || request_.end_unix_ns() != 0;
    const uint64_t end_ns =
        request_.end_unix_ns() == 0 ? context_.now_unix_ns : request_.end_unix_ns();
    const uint64_t keep_ns = static_cast<uint64_t>(kKeepFine.count()) * kNsOfMs;
    page_ = {hash, request_.start_unix_ns() / kNsOfMs, end_ns / kNsOfMs, 0, 0};
    if (request_.start_unix_ns() == 0) {
      page_.start_ms = (end_ns > keep_ns ? end_ns - keep_ns : 0) / kNsOfMs;
      // Steps are asked for by number: no time, no bound.
      if (by_step() && !bounded) page_.start_ms = 0;
    }
    if (page_.start_ms > page_.end_ms) {
      return {QueryCode::kInvalid, "the range starts in the future"};
    }
    AddOldest();
    if (request_.include_marks() && !AddMarks()) {
      return {TooLate() ? QueryCode::kDeadline : QueryCode::kUnavailable, db_.message()};
    }
  } else {
    const auto token = PageToken::Parse(request_.page_token());
    if (!token || token->request != hash || token->start_ms > token->end_ms) {
      return {QueryCode::kInvalid, "the page token is not of this request"};
    }
    page_ = *token;
  }

  for (const ProcessRow& process : Processes(page_.process)) {
    if (static_cast<uint64_t>(process.row) != page_.process) page_.skip = 0;
    SeriesMap series;
    if (!Read(process.row, &series)) {
      return TooLate() ? QueryStatus{QueryCode::kDeadline, "it took too long; ask for less"}
                       : QueryStatus{QueryCode::kUnavailable, db_.message()};
    }
    size_t number = of_sites() ? page_.skip : 0;
    for (const auto& [key, points] : series) {
      if (number++ < page_.skip) continue;
      if (static_cast<size_t>(out_->series_size()) == page_size_) {
        more_series_ = true;
        --number;
        break;
      }
      AddSeries(process, key, points);
    }
    if (!more_series_) continue;
    page_.process = static_cast<uint64_t>(process.row);
    page_.skip = number;
    out_->set_next_page_token(page_.Text());
    break;
  }
  return {};
}

// Read-only, with a stop at the deadline whatever SQLite is doing.
class Reading {
 public:
  Reading(const std::filesystem::path& path, const QueryContext& context)
      : db_(path.string(), SQLITE_OPEN_READONLY), deadline_(context.deadline) {
    if (!db_.ok()) return;
    sqlite3_busy_timeout(db_.get(), 1000);
    sqlite3_progress_handler(db_.get(), 10'000, &Reading::Stop, this);
    // One state of the file for the whole of the answer.
    ok_ = db_.Run("BEGIN") && db_.Number("SELECT count(*) FROM sqlite_schema", -1) > 0;
  }

  const Sqlite& db() const { return db_; }
  QueryStatus Status() const {
    if (ok_) return {};
    return {QueryCode::kUnavailable, "there is no history to read: " + db_.message()};
  }

 private:
  static int Stop(void* self) {
    return std::chrono::steady_clock::now() >= static_cast<Reading*>(self)->deadline_ ? 1 : 0;
  }

  Sqlite db_;
  const std::chrono::steady_clock::time_point deadline_;
  bool ok_ = false;
};

}  // namespace

QueryStatus HistoryReader::QueryRange(const v1::QueryRangeRequest& request,
                                      const QueryContext& context,
                                      v1::QueryRangeResponse* out) const {
  if (request.fresh() && request.page_token().empty()) writer_.flush(context.deadline);
  const Reading reading(path_, context);
  if (const QueryStatus status = reading.Status(); !status.ok()) {
    if (reading.db().damaged()) writer_.on_damage();
    return status;
  }
  Query query(reading.db(), request, context, out);
  const QueryStatus status = query.Run();
  if (query.damaged()) writer_.on_damage();
  return status;
}

QueryStatus HistoryReader::At(const ProcessKey& process, uint64_t unix_ns,
                              const QueryContext& context, SitesThen* out) const {
  const Reading reading(path_, context);
  if (const QueryStatus status = reading.Status(); !status.ok()) return status;
  const uint64_t at_ms = unix_ns / kNsOfMs;
  Statement select(reading.db(),
                   "SELECT chunk.data FROM chunk JOIN process ON process.id = chunk.process"
                   " WHERE boot_id = ? AND pid = ? AND start_time_ticks = ? AND kind = 1"
                   " AND start_ms <= ? ORDER BY start_ms DESC, chunk.id DESC LIMIT 1");
  select.Bind(process.boot_id)
      .Bind(process.pid)
      .Bind(static_cast<int64_t>(process.start_time_ticks))
      .Bind(Signed(at_ms));
  const QueryStatus nothing{QueryCode::kNotFound, "the history holds nothing of process " +
                                                      std::to_string(process.pid) +
                                                      " from the ten minutes before that moment"};
  if (!select.Next()) return nothing;
  const auto block = SampleBlock::Decode(select.Bytes(0), [](const SeriesKey&) { return true; });
  if (!block) {
    writer_.on_damage();
    return nothing;
  }
  // A row of ten seconds carries the time of its end, and its sites are of its beginning.
  const auto begin_of = [](uint64_t end_ms) { return end_ms / kCoarseMs * kCoarseMs; };
  const auto after = std::ranges::upper_bound(block->times(), at_ms, {}, begin_of);
  if (after == block->times().begin() || at_ms > *std::prev(after) + kOldestSiteMs) {
    return nothing;
  }
  const auto row = static_cast<size_t>(after - block->times().begin()) - 1;
  out->unix_ns = std::min(block->times()[row], at_ms) * kNsOfMs;
  for (const SampleBlock::Column& column : block->columns()) {
    if (row < column.first_row || row - column.first_row >= column.values.size()) continue;
    const Sample& sample = column.values[row - column.first_row];
    if (sample == Sample::None()) continue;
    (column.key.site_id == 0 ? out->classes : out->sites)[column.key] = sample.mean;
  }
  return {};
}

}  // namespace tidemark
