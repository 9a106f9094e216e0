// What the daemon's JSON holds: the messages of proto/tidemark/v1/tidemark.proto that the page
// reads. 64-bit integers are strings in protobuf's JSON: bytes and times become numbers where they
// are used (`num`), identifiers stay strings.

export type Int64 = string;

export interface Snapshot {
  sequence: Int64;
  unix_ns: Int64;
  monotonic_ns: Int64;
  node: string;
  devices: Device[];
  memory: NodeMemory | null;
  sources: Feature[];
  processes: Process[];
  losses: Loss[];
  tick_ns: Int64;
  daemon_rss_bytes: Int64;
  daemon_version: string;
}

export interface Device {
  index: number;
  uuid: string;
  name: string;
  total_bytes: Int64;
  used_bytes: Int64;
  mig: boolean;
}

export interface NodeMemory {
  total_bytes: Int64;
  available_bytes: Int64;
  page_cache_bytes: Int64;
}

export interface Feature {
  name: string;
  state: string;
  reason: string;
}

export interface Loss {
  cause: string;
  count: Int64;
  bytes: Int64;
}

export interface Identity {
  training_job: string;
  launcher: string;
  rank: number;
  local_rank: number;
  world_size: number;
  attempt: number;
  command: string;
  workload_namespace: string;
  workload_pod: string;
  helper_of: number;
}

export interface Process {
  pid: number;
  start_time_ticks: Int64;
  identity: Identity;
  liveness: string;
  exit_reason: string;
  last_update_unix_ns: Int64;
  observed: boolean;
  not_observed_reason: string;
  features: Feature[];
  totals: ClassTotal[];
  peaks: Peak[];
  sites: Site[];
  steps: Step[];
  phases: Phase[];
  events: Event[];
  losses: Loss[];
  waterfalls: Waterfall[];
  host: HostMemory | null;
  verdicts: Verdict[];
  current_step: Int64;
  sites_omitted: number;
}

export interface ClassTotal {
  memory_class: string;
  device: number;
  witness: string;
  live_bytes: Int64;
  peak_bytes: Int64;
}

export interface Peak {
  side: string;
  device: number;
  live_bytes: Int64;
  peak_bytes: Int64;
  peak_step: Int64;
}

export interface BytesAndCount {
  bytes: Int64;
  count: Int64;
}

export interface Frame {
  kind: string;
  function: string;
  file: string;
  line: number;
}

export interface Site {
  id: Int64;
  frames: Frame[];
  blamed_frame: number;
  truncated: boolean;
  memory_class: string;
  device: number;
  witness: string;
  estimated: boolean;
  live: BytesAndCount | null;
  at_peak: BytesAndCount | null;
  at_load: BytesAndCount | null;
  at_last_step: BytesAndCount | null;
  min_block_bytes: Int64;
  max_block_bytes: Int64;
  first_step: Int64;
  last_step: Int64;
  cohort_shift: number;
  cohort_bytes: Int64[];
}

export interface StepGroup {
  side: string;
  device: number;
  floor_bytes: Int64;
  peak_bytes: Int64;
  end_bytes: Int64;
}

export interface Step {
  step: Int64;
  phase: string;
  groups: StepGroup[];
  anon_bytes: Int64;
}

export interface Phase {
  name: string;
  first_step: Int64;
  last_step: Int64;
  start_monotonic_ns: Int64;
  end_monotonic_ns: Int64;
}

export interface Event {
  type: string;
  entry_point: string;
  unix_ns: Int64;
  step: Int64;
  device: number;
  bytes: Int64;
  text: string;
}

export interface WaterfallLine {
  memory_class: string;
  bytes: Int64;
  note: string;
}

export interface Waterfall {
  device: number;
  figure_known: boolean;
  device_wide: boolean;
  figure_source: string;
  figure_bytes: Int64;
  lines: WaterfallLine[];
}

export interface HostMemory {
  known: boolean;
  rss_bytes: Int64;
  anon_bytes: Int64;
  file_bytes: Int64;
  shmem_bytes: Int64;
  swap_bytes: Int64;
  peak_rss_bytes: Int64;
  cgroup_current_bytes: Int64;
  cgroup_limit_bytes: Int64;
}

export interface Verdict {
  state: string;
  cause: string;
  is_leak: boolean;
  memory_class: string;
  device: number;
  site_id: Int64;
  slope_bytes_per_step: number;
  slope_low_bytes_per_step: number;
  slope_high_bytes_per_step: number;
  slope_bytes_per_hour: number;
  eta_steps: number;
  eta_seconds: number;
  grown_bytes: Int64;
  releasable_bytes: Int64;
  onset_step: Int64;
  first_flagged_step: Int64;
  site_share: number;
  evidence: string[];
  summary: string;
  advice: string;
  scope: string;
  ranks: number[];
}

export interface ProcessRef {
  pid: number;
  training_job: string;
  rank: number;
  command: string;
}

export interface Series {
  process: ProcessRef | null;
  memory_class: string;
  device: number;
  site_id: Int64;
  unix_ns: Int64[];
  steps: Int64[];
  min_bytes: Int64[];
  mean_bytes: Int64[];
  max_bytes: Int64[];
}

export interface HistoryMark {
  kind: string;
  process: ProcessRef | null;
  start_unix_ns: Int64;
  end_unix_ns: Int64;
  step: Int64;
  text: string;
  verdict: Verdict | null;
}

export interface QueryRangeResponse {
  series: Series[];
  next_page_token: string;
  marks: HistoryMark[];
  oldest_unix_ns: Int64;
}

export interface DiffClass {
  memory_class: string;
  device: number;
  before_bytes: Int64;
  after_bytes: Int64;
}

export interface DiffSite {
  site: Site | null;
  before: BytesAndCount | null;
  after: BytesAndCount | null;
}

export interface DiffRank {
  process: ProcessRef | null;
  memory_class: string;
  device: number;
  before_bytes: Int64;
  after_bytes: Int64;
}

export interface DiffResponse {
  classes: DiffClass[];
  sites: DiffSite[];
  ranks: DiffRank[];
  sites_omitted: number;
  notes: string[];
}
