// Two snapshots compared as the daemon's Diff compares two moments: for recordings, which it does
// not have.
import { gpuByClass, heldAt, hostByClass, type At } from './model';
import type { BytesAndCount, DiffClass, DiffRank, DiffResponse, DiffSite, Process, Snapshot } from './types';
import { num } from './units';

/** Classes and ranks as of the end of each; sites at `at`. */
export function diffSnapshots(before: Snapshot, after: Snapshot, at: At): DiffResponse {
  const classes = new Map<string, DiffClass>();
  const sites = new Map<string, DiffSite>();
  const ranks = new Map<string, DiffRank>();
  for (const side of ['before', 'after'] as const) {
    for (const process of (side === 'before' ? before : after).processes) {
      for (const [memory_class, device, bytes] of classesOf(process)) {
        const none = { memory_class, device, before_bytes: '0', after_bytes: '0' };
        add(classes, `${memory_class} ${device < 0}`, none, side, bytes);
        const { rank, training_job, command } = process.identity;
        const who = { pid: process.pid, rank, training_job, command };
        // Ranks are the same across runs; processes are not.
        const key = `${rank < 0 ? `pid ${process.pid}` : rank} ${memory_class} ${device < 0}`;
        add(ranks, key, { ...none, process: who }, side, bytes);
      }
      for (const site of process.sites) {
        const held = heldAt(site, at);
        const key = `${site.id} ${site.memory_class}`;
        const zero = { bytes: '0', count: '0' };
        const entry = sites.get(key) ?? { site, before: zero, after: zero };
        entry[side] = both(entry[side], held);
        if (side === 'after') entry.site = site;
        sites.set(key, entry);
      }
    }
  }
  return {
    classes: [...classes.values()],
    sites: [...sites.values()],
    ranks: [...ranks.values()],
    sites_omitted: 0,
    notes: [],
  };
}

/** A rank has one GPU as a rule: the same class on several of them, and the same site, are one row. */
export function folded(diff: DiffResponse): DiffResponse {
  const classes = new Map<string, DiffClass>();
  for (const one of diff.classes) {
    const device = Math.min(one.device, 0);
    const none = { ...one, device, before_bytes: '0', after_bytes: '0' };
    const key = `${one.memory_class} ${device}`;
    add(classes, key, none, 'before', num(one.before_bytes));
    add(classes, key, none, 'after', num(one.after_bytes));
  }
  const sites = new Map<string, DiffSite>();
  for (const one of diff.sites) {
    const key = `${one.site?.id} ${one.site?.memory_class}`;
    const known = sites.get(key);
    sites.set(key, known ? { ...one, before: both(known.before, one.before), after: both(known.after, one.after) } : one);
  }
  return {
    ...diff,
    classes: [...classes.values()]
      .filter((one) => one.before_bytes !== '0' || one.after_bytes !== '0')
      .sort((a, b) => b.device - a.device || num(b.after_bytes) - num(a.after_bytes)),
    sites: [...sites.values()].filter((one) => change(one) > 0).sort((a, b) => change(b) - change(a)),
  };
}

function both(a: BytesAndCount | null, b: BytesAndCount | null): BytesAndCount {
  return { bytes: String(num(a?.bytes) + num(b?.bytes)), count: String(num(a?.count) + num(b?.count)) };
}

function change(one: DiffSite): number {
  return Math.abs(num(one.after?.bytes) - num(one.before?.bytes));
}

function* classesOf(process: Process): Generator<[string, number, number]> {
  for (const [name, bytes] of gpuByClass(process)) yield [name, 0, bytes];
  for (const [name, bytes] of hostByClass(process)) yield [name, -1, bytes];
}

function add<T extends DiffClass>(
  into: Map<string, T>,
  key: string,
  none: T,
  side: 'before' | 'after',
  bytes: number,
): void {
  const entry = into.get(key) ?? none;
  const field = side === 'before' ? 'before_bytes' : 'after_bytes';
  entry[field] = String(num(entry[field]) + bytes);
  into.set(key, entry);
}
