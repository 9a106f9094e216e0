// What the views need to know of a snapshot. Pure functions; the rules are those of the command
// line (client/rank_view.h, verdict_view.h, site_view.h), so that both say the same.
import type { BytesAndCount, Frame, Process, Site, Snapshot, Verdict } from './types';
import { formatBytes, formatCount, num } from './units';

export function byRank(snapshot: Snapshot): Process[] {
  const key = (p: Process) => (p.identity.rank < 0 ? 1e9 : p.identity.rank);
  return [...snapshot.processes].sort(
    (a, b) =>
      a.identity.training_job.localeCompare(b.identity.training_job) ||
      key(a) - key(b) ||
      a.identity.attempt - b.identity.attempt ||
      a.pid - b.pid,
  );
}

export function processName(process: Process): string {
  const { rank, helper_of, command } = process.identity;
  if (helper_of > 0) return `pid ${process.pid}, helper of ${helper_of}`;
  if (rank >= 0) return `rank ${rank}`;
  return `pid ${process.pid}${command ? ` (${command})` : ''}`;
}

export function isDead(process: Process): boolean {
  return process.liveness !== 'alive';
}

const WITNESSES = ['torch', 'cupti', 'bpf', 'nvml', 'proc'];

/** Bytes of a class over all devices, by its best witness; null where nobody counted. */
export function liveBytes(process: Process, memoryClass: string): number | null {
  for (const witness of WITNESSES) {
    const totals = process.totals.filter(
      (total) => total.memory_class === memoryClass && total.witness === witness,
    );
    if (totals.length > 0) return totals.reduce((sum, total) => sum + num(total.live_bytes), 0);
  }
  return null;
}

/** What the devices say the process uses; null where no device's figure is known. */
export function deviceFigure(process: Process): number | null {
  const known = process.waterfalls.filter((waterfall) => waterfall.figure_known);
  return known.length === 0 ? null : known.reduce((sum, w) => sum + num(w.figure_bytes), 0);
}

/** The lines of all the process's waterfalls, by class. */
export function gpuByClass(process: Process): Map<string, number> {
  const classes = new Map<string, number>();
  for (const waterfall of process.waterfalls) {
    for (const line of waterfall.lines) {
      classes.set(line.memory_class, (classes.get(line.memory_class) ?? 0) + num(line.bytes));
    }
  }
  return classes;
}

export function hostByClass(process: Process): Map<string, number> {
  const host = process.host;
  if (!host?.known) return new Map();
  return new Map([
    ['anon', num(host.anon_bytes)],
    ['shmem', num(host.shmem_bytes)],
    ['file', num(host.file_bytes)],
    ['swap', num(host.swap_bytes)],
  ]);
}

export type Weight = 'leak' | 'suspect' | 'notice' | 'retracted' | 'explained' | 'silent';
const WEIGHTS: Weight[] = ['leak', 'suspect', 'notice', 'retracted', 'explained', 'silent'];

export function weightOf(verdict: Verdict): Weight {
  if (verdict.state === 'retracted') return 'retracted';
  if (verdict.state === 'confirmed') return verdict.is_leak ? 'leak' : 'notice';
  if (verdict.state === 'suspect') return verdict.is_leak ? 'suspect' : 'notice';
  return verdict.state === 'steady' && verdict.cause !== '' && verdict.cause !== 'none'
    ? 'explained'
    : 'silent';
}

export const WEIGHT_WORDS: Record<Weight, string> = {
  leak: 'leak',
  suspect: 'suspected leak',
  notice: 'notice',
  retracted: 'retracted',
  explained: 'not a leak',
  silent: 'steady',
};

export interface Alert {
  weight: Weight;
  verdict: Verdict; // the steepest of them
  members: { process: Process; verdict: Verdict }[];
}

/** Verdicts worth reading; those with the same cause, class and site are one. Worst first. */
export function alertsOf(processes: Process[]): Alert[] {
  const alerts = new Map<string, Alert>();
  for (const process of processes) {
    for (const verdict of process.verdicts) {
      const weight = weightOf(verdict);
      if (weight === 'silent') continue;
      const { training_job } = process.identity;
      const key = [training_job, verdict.cause, verdict.memory_class, verdict.site_id, weight].join();
      const alert = alerts.get(key) ?? { weight, verdict, members: [] };
      alert.members.push({ process, verdict });
      if (steepness(verdict) > steepness(alert.verdict)) alert.verdict = verdict;
      alerts.set(key, alert);
    }
  }
  return [...alerts.values()].sort(
    (a, b) =>
      WEIGHTS.indexOf(a.weight) - WEIGHTS.indexOf(b.weight) ||
      steepness(b.verdict) - steepness(a.verdict),
  );
}

export function worstOf(process: Process): Verdict | null {
  const sorted = [...process.verdicts].sort(
    (a, b) => WEIGHTS.indexOf(weightOf(a)) - WEIGHTS.indexOf(weightOf(b)),
  );
  return sorted[0] ?? null;
}

/** The worst verdict that blames this site, of those that a reader should act on. */
export function blamingOf(site: Site, processes: Process[]): Verdict | null {
  const blaming = processes
    .flatMap((process) => process.verdicts)
    .filter((v) => v.site_id === site.id && v.memory_class === site.memory_class)
    .filter((v) => weightOf(v) === 'leak' || weightOf(v) === 'suspect');
  return blaming.find((v) => weightOf(v) === 'leak') ?? blaming[0] ?? null;
}

function steepness(verdict: Verdict): number {
  return Math.max(
    Math.abs(verdict.slope_bytes_per_step) * 1e6, // steps outrank hours
    Math.abs(verdict.slope_bytes_per_hour),
  );
}

export function slopeText(verdict: Verdict): string {
  const step = verdict.slope_bytes_per_step;
  if (step !== 0) {
    const { slope_low_bytes_per_step: low, slope_high_bytes_per_step: high } = verdict;
    return `${signed(step)}/step (${formatBytes(low)} to ${formatBytes(high)})`;
  }
  const hour = verdict.slope_bytes_per_hour;
  return hour === 0 ? '' : `${signed(hour)}/hour`;
}

function signed(bytes: number): string {
  return (bytes > 0 ? '+' : '') + formatBytes(bytes);
}

// Sites

export type At = 'now' | 'load' | 'peak' | 'last_step';
export const MOMENTS: Record<At, string> = {
  now: 'now',
  load: 'at load',
  peak: 'at the peak',
  last_step: 'at the last step',
};

export function heldAt(site: Site, at: At): BytesAndCount {
  const moment = { now: site.live, load: site.at_load, peak: site.at_peak, last_step: site.at_last_step };
  return moment[at] ?? { bytes: '0', count: '0' };
}

export function frameText(frame: Frame): string {
  const file = frame.file.slice(frame.file.lastIndexOf('/') + 1);
  if (frame.kind === 'python') return `${file}${frame.line > 0 ? `:${frame.line}` : ''} ${frame.function}`;
  const name = withoutParameters(frame.function);
  if (name === '') return file;
  return file === '' || name.startsWith(`${file}+`) ? name : `${name} (${file})`;
}

/** C++ names without their last, often long, list of parameters. */
function withoutParameters(name: string): string {
  const end = name.endsWith(' const') ? name.length - 6 : name.length;
  if (name[end - 1] !== ')') return name;
  let depth = 0;
  for (let i = end - 1; i > 0; i -= 1) {
    if (name[i] === ')') depth += 1;
    if (name[i] === '(') depth -= 1;
    if (depth === 0) return name.slice(0, i);
  }
  return name;
}

export function siteText(site: Site): string {
  const frame = site.frames[site.blamed_frame];
  return frame ? frameText(frame) : '(no stack)';
}

/** "36 x 256 MiB"; a range where blocks differ. */
export function blocksText(site: Site, count: number): string {
  if (count === 0) return 'none';
  const min = num(site.min_block_bytes);
  const max = num(site.max_block_bytes);
  const about = site.estimated ? 'about ' : '';
  if (min === max) return `${about}${formatCount(count)} x ${formatBytes(max)}`;
  return `${about}${formatCount(count)} blocks of ${formatBytes(min)} to ${formatBytes(max)}`;
}

/** When what is live was born: "load", "steps 10-300". */
export function ageText(site: Site): string {
  const first = num(site.first_step);
  const last = num(site.last_step);
  if (first === 0 && last === 0) return 'load';
  const alive = site.cohort_bytes.flatMap((bytes, cohort) => (num(bytes) > 0 ? [cohort] : []));
  if (alive.length === 0) return '';
  const width = 2 ** Math.min(site.cohort_shift, 48);
  const from = Math.max(alive[0]! * width, first);
  const to = Math.min((alive.at(-1)! + 1) * width - 1, last);
  return from >= to ? `step ${formatCount(from)}` : `steps ${formatCount(from)}-${formatCount(to)}`;
}

/** The framework's blocks lie inside what the driver handed out: the two never add up. */
export function isFrameworkClass(memoryClass: string): boolean {
  return memoryClass === 'fw_live' || memoryClass === 'fw_host';
}
