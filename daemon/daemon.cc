#include "daemon/daemon.h"

#include <pthread.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <systemd/sd-daemon.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <future>

#include "daemon/snapshot/revived_region.h"
#include "daemon/version.h"

namespace tidemark {
namespace {

using std::chrono::steady_clock;

// How long a snapshot waits for the devices' figures; they come within a millisecond or are late.
constexpr std::chrono::milliseconds kFigurePatience{250};
constexpr std::chrono::seconds kTick{1};
constexpr std::chrono::milliseconds kBetweenTicks{100};  // at the least

uint64_t ClockNs(clockid_t clock) {
  timespec now = {};
  ::clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000ull + static_cast<uint64_t>(now.tv_nsec);
}

AgentSourceOptions AgentOptionsOf(const Config& config) {
  AgentSourceOptions options;
  options.socket_path = config.agent_socket;
  options.max_agents_per_uid = config.max_agents_per_user;
  options.max_agents = std::max<size_t>(1024, config.max_agents_per_user);
  options.backward_per_step = config.backward_per_step;
  options.taps = config.taps;
  options.sampling_interval_bytes = config.sampling_interval_bytes;
  options.step_range = config.step_range;
  return options;
}

BuilderOptions BuilderOptionsOf(const Config& config) {
  return {config.training_job, config.keep_ended_processes, config.keep_ended_for};
}

serve::ServerOptions ServerOptionsOf(const Config& config) {
  serve::ServerOptions options;
  options.api_socket = config.api_socket;
  options.api_group = config.api_group;
  const serve::TlsPaths tls{config.tls_certificate, config.tls_key, config.tls_client_ca};
  if (config.api_listen.enabled) {
    options.api_tcp = {config.api_listen.address, config.api_listen.port, tls,
                       config.api_beyond_loopback};
  }
  if (config.http_tls) options.http_tls = tls;
  options.http = config.http.enabled;
  options.http_address = config.http.address;
  options.http_port = config.http.port;
  options.http_beyond_loopback = config.http_beyond_loopback;
  options.http_token_file = config.http_token_file;
  options.metrics_level =
      config.metrics_level == "full" ? serve::MetricsLevel::kFull : serve::MetricsLevel::kBasic;
  options.version = kVersion;
  return options;
}

// Agents cost three descriptors each.
void RaiseDescriptorLimit() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

Result<void> MakeSocketDirectory(const std::string& socket, mode_t mode) {
  const std::filesystem::path directory = std::filesystem::path(socket).parent_path();
  std::error_code error;
  if (directory.empty() || std::filesystem::is_directory(directory, error)) return {};
  if (std::filesystem::create_directories(directory, error)) {
    ::chmod(directory.c_str(), mode);
    return {};
  }
  return Error{"make " + directory.string(), error.message(),
               "run as root, or use `tidemark run`, which starts a daemon of your own"};
}

bool Add(int epoll, int fd) {
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.fd = fd;
  return ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

}  // namespace

Daemon::Daemon(Config config, DaemonOptions options, ProcRoot root)
    : config_(std::move(config)),
      options_(options),
      root_(std::move(root)),
      symbolizer_(root_),
      agents_(AgentOptionsOf(config_), root_),
      scanner_(root_,
               options_.private_mode && ::getuid() != 0 ? std::optional(::getuid()) : std::nullopt),
      regions_(config_.state_directory + "/regions", config_.keep_regions_bytes),
      builder_(BuilderOptionsOf(config_), root_, &symbolizer_) {}

Daemon::~Daemon() = default;

Result<void> Daemon::Run() {
  const Result<void> opened = Open();
  if (opened.ok()) {
    TellReady();
    Loop();
  }
  Close();
  return opened;
}

Result<void> Daemon::Open() {
  RaiseDescriptorLimit();
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGTERM);
  ::sigaddset(&set, SIGINT);
  epoll_.Reset(::epoll_create1(EPOLL_CLOEXEC));
  signals_.Reset(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  timer_.Reset(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  mail_event_.Reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  const itimerspec every = {{kTick.count(), 0}, {0, 1}};
  if (!epoll_.valid() || !signals_.valid() || !timer_.valid() || !mail_event_.valid() ||
      ::timerfd_settime(timer_.get(), 0, &every, nullptr) != 0) {
    return Error{"start the tick", std::strerror(errno), ""};
  }
  const mode_t mode = options_.private_mode ? 0700 : 0755;
  for (const std::string& socket : {config_.agent_socket, config_.api_socket}) {
    const Result<void> made = MakeSocketDirectory(socket, mode);
    if (!made.ok()) return made;
  }
  const Result<void> listening = agents_.Start();
  if (!listening.ok()) return listening;

  symbolizer_.Start();
  scanner_.Start();
  const Result<void> store = regions_.Start();
  store_works_ = store.ok();
  if (!store_works_)
    spdlog::warn("nothing is kept of processes that end: {}", store.error().ToString());
  if (config_.nvml) {
    nvml_ = std::make_unique<NvmlSource>(config_.nvml_library);
    const Result<void> started = nvml_->Start();
    if (!started.ok()) return started;
    Add(epoll_.get(), nvml_->event_fd());
  }
  BpfConfig bpf;
  bpf.enabled = config_.bpf;
  bpf.disabled_families = config_.bpf_disabled_families;
  bpf_ = std::make_unique<BpfSource>(bpf, root_);
  const Result<void> probing = bpf_->Start();
  if (!probing.ok()) spdlog::warn("no probes: {}", probing.error().ToString());

  for (const int fd : {signals_.get(), timer_.get(), mail_event_.get(), agents_.epoll_fd()}) {
    if (!Add(epoll_.get(), fd)) return Error{"start the tick", std::strerror(errno), ""};
  }
  if (config_.history_bytes > 0) {
    history_ =
        std::make_unique<History>(HistoryOptions{config_.state_directory, config_.history_bytes});
    history_reader_ = std::make_unique<HistoryReader>(
        history_->path(),
        HistoryReader::Writer{[this] { history_->SuspectDamage(); },
                              [this](auto deadline) { history_->Flush(deadline); }});
  }
  serve::ServerOptions serving = ServerOptionsOf(config_);
  serving.history = history_reader_.get();
  OpenPostMortems();
  serving.post_mortems = post_mortems_.get();
  server_ = std::make_unique<serve::Server>(hub_, *this, std::move(serving));
  const Result<void> served = server_->Start();
  if (!served.ok()) return served;
  busy_last_ = steady_clock::now();
  return OpenAlerts();
}

Result<void> Daemon::OpenAlerts() {
  if (config_.alertmanager.empty()) return {};
  const Result<serve::HttpUrl> url = serve::ParseHttpUrl(config_.alertmanager);
  if (!url.ok()) return url.error();
  alertmanager_ = std::make_unique<serve::AlertmanagerPush>(*url, config_.alert_resend);
  return alertmanager_->Start();
}

void Daemon::TellAlerts(TickInput* input) const {
  if (alertmanager_ == nullptr) return;
  const serve::AlertmanagerState state = alertmanager_->state();
  input->sources.push_back(
      {"alertmanager", state.reason.empty() ? "on" : "unavailable", state.reason});
  if (state.failed > 0) input->losses.push_back({"alert_messages_not_taken", state.failed, 0});
  if (alert_board_.left_out() > 0) {
    input->losses.push_back({"alerts_left_out", alert_board_.left_out(), 0});
  }
}

void Daemon::OpenPostMortems() {
  PostMortemOptions options;
  options.directory = std::filesystem::path(config_.state_directory) / "postmortem";
  const std::filesystem::path regions = config_.state_directory + "/regions";
  options.left_over = [regions] { return RevivedRegions(regions); };
  // History lives until after the post-mortems have stopped.
  options.written = [this](const ProcessKey& key, uint64_t unix_ns, const std::string& id) {
    if (history_ != nullptr) history_->NotePostMortem(key, unix_ns, id);
  };
  post_mortems_ = std::make_unique<PostMortems>(std::move(options));
}

void Daemon::TellReady() {
  spdlog::info("tidemarkd {} ready: agents on {}, API on {}, metrics on {}", kVersion,
               config_.agent_socket, config_.api_socket,
               config_.http.enabled ? server_->MetricsUrl() : "no address");
  ::sd_notify(0, "READY=1\nSTATUS=watching");
  if (options_.ready_fd < 0) return;
  const std::string line = server_->MetricsUrl() + "\n";
  (void)!::write(options_.ready_fd, line.data(), line.size());
  ::close(options_.ready_fd);
}

void Daemon::Loop() {
  std::array<epoll_event, 16> events;
  while (!stopping_) {
    int wait_ms = -1;
    if (awaiting_figures_) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          tick_began_ + kFigurePatience - steady_clock::now());
      wait_ms = std::max(0, static_cast<int>(left.count()));
    }
    const int count = ::epoll_wait(epoll_.get(), events.data(), events.size(), wait_ms);
    if (count < 0 && errno != EINTR) {
      spdlog::critical("epoll_wait: {}", std::strerror(errno));
      return;
    }
    if (count == 0 && awaiting_figures_) Publish();
    for (int i = 0; i < count; ++i) {
      const int fd = events[static_cast<size_t>(i)].data.fd;
      if (fd == signals_.get()) {
        spdlog::info("asked to stop");
        stopping_ = true;
      } else if (fd == timer_.get()) {
        uint64_t expirations = 0;
        (void)!::read(timer_.get(), &expirations, sizeof(expirations));
        Tick();
      } else if (fd == agents_.epoll_fd()) {
        agents_.Pump();
        // Who died is looked at while everything about it can still be had.
        if (agents_.TakeDeaths() && steady_clock::now() - tick_began_ > kBetweenTicks) Tick();
      } else if (fd == mail_event_.get()) {
        RunMail();
      } else if (nvml_ != nullptr && fd == nvml_->event_fd()) {
        nvml_->DrainEvent();
        if (!awaiting_figures_) continue;  // too late for its snapshot: the next one asks again
        const auto begin = steady_clock::now();
        const std::shared_ptr<const NvmlSample> sample = nvml_->Latest();
        TickInput input = Input();
        input.nvml = sample.get();
        builder_.AbsorbFigures(input);
        tick_cost_ += steady_clock::now() - begin;
        Publish();
      }
    }
  }
}

TickInput Daemon::Input() const {
  TickInput input;
  input.unix_ns = ClockNs(CLOCK_REALTIME);
  input.monotonic_ns = ClockNs(CLOCK_MONOTONIC);
  input.agents = const_cast<AgentSource*>(&agents_);
  return input;
}

void Daemon::Tick() {
  if (awaiting_figures_) Publish();  // NVML did not come back before the next tick
  tick_began_ = steady_clock::now();
  agents_.Refresh();
  if (bpf_ != nullptr) {
    for (const BpfLifecycleEvent& event : bpf_->TakeEvents()) {
      if (event.kind == BpfLifecycleEvent::Kind::kOomVictim) {
        builder_.NoteEnd(event.pid, Liveness::kKilled, "killed by the OOM killer");
      }
    }
  }
  const std::shared_ptr<const NvmlSample> sample = nvml_ ? nvml_->Latest() : nullptr;
  const std::shared_ptr<const procfs::ScanResult> scan = scanner_.Latest();
  TickInput input = Input();
  input.nvml = sample.get();
  input.scan = scan.get();
  builder_.Absorb(input);
  tick_cost_ = steady_clock::now() - tick_began_;
  if (nvml_ != nullptr) {
    awaiting_figures_ = true;
    nvml_->Request();
  } else {
    builder_.AbsorbFigures(input);
    Publish();
  }
}

void Daemon::Publish() {
  awaiting_figures_ = false;
  const auto begin = steady_clock::now();
  const std::shared_ptr<const NvmlSample> sample = nvml_ ? nvml_->Latest() : nullptr;
  const std::shared_ptr<const procfs::ScanResult> scan = scanner_.Latest();
  TickInput input = Input();
  input.nvml = sample.get();
  input.scan = scan.get();
  if (nvml_ == nullptr) input.sources.push_back({"nvml", "off", "switched off in the config"});
  input.sources.push_back({"agent_socket", "on", ""});
  input.sources.push_back({"procfs", "on", ""});
  if (!store_works_) {
    input.sources.push_back(
        {"store", "unavailable", config_.state_directory + " cannot be written"});
  }
  if (regions_.lost() > 0) input.losses.push_back({"regions_not_kept", regions_.lost(), 0});
  TellHistory(&input);
  TellAlerts(&input);
  TellPostMortems(&input);
  BpfSnapshot probes;
  if (bpf_ != nullptr) {
    WatchByBpf();
    probes = bpf_->Collect();
    for (auto& [pid, seeds] : builder_.TakeSeeds(&agents_, probes)) {
      bpf_->Seed(pid, std::move(seeds));
    }
    input.bpf = &probes;
  }
  std::shared_ptr<NodeSnapshot> snapshot = builder_.Build(input);
  KeepEnded();
  tick_cost_ += steady_clock::now() - begin;
  snapshot->tick_ns = static_cast<uint64_t>(tick_cost_.count());
  const SnapshotHub::Pointer published = std::move(snapshot);
  hub_.Publish(published);
  if (history_ != nullptr) history_->Offer(published);
  if (post_mortems_ != nullptr) post_mortems_->Offer(published);
  if (alertmanager_ != nullptr) alertmanager_->Offer(alert_board_.Update(*published));
  ::sd_notify(0, "WATCHDOG=1");
  if (options_.exit_when_idle.count() > 0 && Idle()) {
    spdlog::info("idle for {} s: good-bye", options_.exit_when_idle.count());
    stopping_ = true;
  }
}

void Daemon::TellHistory(TickInput* input) const {
  if (history_ == nullptr) {
    input->sources.push_back({"history", "off", "state.history is 0"});
    return;
  }
  const HistoryState state = history_->state();
  input->sources.push_back({"history", state.reason.empty() ? "on" : "unavailable", state.reason});
  const auto lost = [input](const char* cause, uint64_t count) {
    if (count > 0) input->losses.push_back({cause, count, 0});
  };
  lost("history_snapshots", state.lost_snapshots);
  lost("history_rows", state.lost_rows);
  lost("history_writes_failed", state.failed_writes);
  lost("history_files_set_aside", state.set_aside);
}

void Daemon::TellPostMortems(TickInput* input) const {
  if (post_mortems_ == nullptr) return;
  const PostMortemState state = post_mortems_->state();
  input->sources.push_back(
      {"postmortem", state.reason.empty() ? "on" : "unavailable", state.reason});
  if (state.lost > 0) input->losses.push_back({"postmortems_not_written", state.lost, 0});
}

// Beside an agent that holds CUPTI the kernel counts calls as a second witness; where none does,
// it keeps the ledger.
void Daemon::WatchByBpf() {
  std::map<pid_t, BpfWatch> wanted;
  for (const auto& [pid, ledger] : builder_.CudaProcesses()) {
    wanted[pid].cuda = ledger ? BpfMode::kLedger : BpfMode::kWitness;
  }
  for (const auto& [pid, watch] : watched_) {
    if (!wanted.contains(pid)) bpf_->SetProcess(pid, {});
  }
  for (const auto& [pid, watch] : wanted) {
    const auto before = watched_.find(pid);
    if (before == watched_.end() || !(before->second == watch)) bpf_->SetProcess(pid, watch);
  }
  watched_ = std::move(wanted);
}

void Daemon::KeepEnded() {
  for (const pid_t pid : builder_.TakeEnded()) {
    const auto process = agents_.processes().find(pid);
    if (process == agents_.processes().end()) continue;
    const std::string name = std::to_string(pid) + "-" +
                             std::to_string(process->second.start_time_ticks) + "-" +
                             std::to_string(process->second.uid);
    regions_.Keep(name, agents_.TakeRegion(pid));
    agents_.Forget(pid);
  }
}

// Nobody to watch: no agent, and no process of a `tidemark run` that may still get one.
bool Daemon::Idle() {
  const std::shared_ptr<const procfs::ScanResult> scan = scanner_.Latest();
  bool busy = !agents_.processes().empty() || scan == nullptr;
  if (scan != nullptr) {
    for (const procfs::FoundProcess& process : scan->processes) {
      busy = busy || process.variables.contains("TIDEMARK_RUN");
    }
  }
  if (busy) busy_last_ = steady_clock::now();
  return steady_clock::now() - busy_last_ > options_.exit_when_idle;
}

void Daemon::RunMail() {
  uint64_t count = 0;
  (void)!::read(mail_event_.get(), &count, sizeof(count));
  std::deque<std::function<void()>> mail;
  {
    std::lock_guard lock(mail_mutex_);
    mail.swap(mail_);
  }
  for (const auto& task : mail) task();
}

bool Daemon::OnTickThread(std::function<void()> task) {
  // Shared, because the caller may give up before the task runs.
  auto done = std::make_shared<std::promise<void>>();
  std::future<void> finished = done->get_future();
  {
    std::lock_guard lock(mail_mutex_);
    if (closed_) return false;
    mail_.push_back([task = std::move(task), done] {
      task();
      done->set_value();
    });
  }
  const uint64_t one = 1;
  (void)!::write(mail_event_.get(), &one, sizeof(one));
  return finished.wait_for(std::chrono::milliseconds(900)) == std::future_status::ready;
}

Result<void> Daemon::Detach(pid_t pid) {
  auto answer = std::make_shared<Result<void>>(
      Error{"detach pid " + std::to_string(pid), "the daemon is busy", "try again"});
  const bool ran = OnTickThread(
      [this, pid, answer] { *answer = agents_.Command(pid, wire::CommandOp::kDetach, 0); });
  return ran ? *answer
             : Error{"detach pid " + std::to_string(pid), "the daemon is busy", "try again"};
}

Result<std::vector<serve::HeldBlock>> Daemon::Holders(pid_t pid, uint64_t site_id) {
  const Error busy{"list the live blocks of pid " + std::to_string(pid), "the daemon is busy",
                   "try again"};
  auto answer = std::make_shared<Result<std::vector<wire::LiveRow>>>(busy);
  const bool ran = OnTickThread(
      [this, pid, site_id, answer] { *answer = builder_.Holders(&agents_, pid, site_id); });
  if (!ran) return busy;
  if (!answer->ok()) return answer->error();
  std::vector<serve::HeldBlock> blocks;
  for (const wire::LiveRow& row : **answer) blocks.push_back({row.address, row.bytes, row.step});
  return blocks;
}

Result<void> Daemon::ReleaseGpu(bool resume) {
  if (nvml_ == nullptr) {
    return Error{"release the GPU", "nvml.enabled is false", "nothing of the GPU is held open"};
  }
  if (!resume) return nvml_->Release();
  nvml_->Resume();
  return {};
}

void Daemon::Close() {
  ::sd_notify(0, "STOPPING=1");
  {
    std::lock_guard lock(mail_mutex_);
    closed_ = true;
  }
  hub_.Close();
  if (server_ != nullptr) server_->Stop();
  if (alertmanager_ != nullptr) alertmanager_->Stop();
  RunMail();
  if (bpf_ != nullptr) bpf_->Stop();
  if (nvml_ != nullptr) nvml_->Stop();
  scanner_.Stop();
  symbolizer_.Stop();
  regions_.Stop();
  if (post_mortems_ != nullptr) post_mortems_->Stop();
  if (history_ != nullptr) history_->Stop();
}

}  // namespace tidemark
