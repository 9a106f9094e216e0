// The last quarter of an hour of a node: from the daemon's history, and then from each snapshot.
import { askJson, query } from './api';
import { gpuByClass, hostByClass } from './model';
import type { QueryRangeResponse, Series, Snapshot } from './types';
import { num } from './units';
import { HOST_CLASSES } from './words';

export type Side = 'gpu' | 'host';
type Bytes = Map<string, number>; // "gpu:fw_live" -> bytes
interface Point {
  seconds: number; // since the epoch
  processes: Map<number, Bytes>; // by pid
}

const KEEP_SECONDS = 900;
const HISTORY_POINTS = 180;

export interface Layer {
  name: string; // of the class
  bytes: number[];
}

export class Timeline {
  private points: Point[] = [];

  add(snapshot: Snapshot): void {
    const processes = new Map<number, Bytes>();
    for (const process of snapshot.processes) {
      if (process.liveness !== 'alive') continue;
      const bytes: Bytes = new Map();
      for (const [name, value] of gpuByClass(process)) bytes.set(`gpu:${name}`, value);
      for (const [name, value] of hostByClass(process)) bytes.set(`host:${name}`, value);
      processes.set(process.pid, bytes);
    }
    const seconds = num(snapshot.unix_ns) / 1e9;
    // A node's clock may be set back; what was drawn for later then never was.
    this.points = this.points.filter(
      (point) => point.seconds < seconds && point.seconds > seconds - KEEP_SECONDS,
    );
    this.points.push({ seconds, processes });
  }

  /** Puts what the daemon remembers before what was seen; nothing where it keeps no history. */
  async loadHistory(): Promise<void> {
    const series: Series[] = [];
    let token = '';
    do {
      const page = await askJson<QueryRangeResponse>(
        `query_range?${query({ max_points: HISTORY_POINTS, page_size: 1000, page_token: token })}`,
      );
      series.push(...page.series);
      token = page.next_page_token;
    } while (token !== '');
    const seen = this.points[0]?.seconds ?? Infinity;
    this.points = [...pointsOf(series).filter((point) => point.seconds < seen - 0.5), ...this.points];
  }

  /** The classes of these processes on top of each other; those that never held anything left out. */
  layers(side: Side, classes: string[], pids: Set<number>): { seconds: number[]; layers: Layer[] } {
    const seconds = this.points.map((point) => point.seconds);
    const layers = classes
      .map((name) => ({
        name,
        bytes: this.points.map((point) => {
          let sum = 0;
          for (const [pid, bytes] of point.processes) {
            if (pids.has(pid)) sum += bytes.get(`${side}:${name}`) ?? 0;
          }
          return sum;
        }),
      }))
      .filter((layer) => layer.bytes.some((bytes) => bytes !== 0));
    return { seconds, layers };
  }

  /** All that one process held on its GPUs; null where it was not there. */
  gpuOf(pid: number): (number | null)[] {
    return this.points.map((point) => {
      const bytes = point.processes.get(pid);
      if (!bytes) return null;
      let sum = 0;
      for (const [name, value] of bytes) if (name.startsWith('gpu:')) sum += value;
      return sum;
    });
  }
}

/** The daemon merges all series at the same times; where one has none, it keeps its last value. */
function pointsOf(series: Series[]): Point[] {
  const wanted = series.filter((one) => {
    const ours = one.device >= 0 || HOST_CLASSES.includes(one.memory_class);
    return ours && one.site_id === '0' && (one.process?.pid ?? 0) > 0;
  });
  const secondsOf = (ns: string) => Math.round(num(ns) / 1e9);
  const times = [...new Set(wanted.flatMap((one) => one.unix_ns.map(secondsOf)))].sort((a, b) => a - b);
  const points = times.map((seconds): Point => ({ seconds, processes: new Map() }));
  for (const one of wanted) {
    const pid = one.process!.pid;
    const name = `${one.device >= 0 ? 'gpu' : 'host'}:${one.memory_class}`;
    let next = 0;
    for (const point of points) {
      while (next < one.unix_ns.length && secondsOf(one.unix_ns[next]!) <= point.seconds) next += 1;
      const ended = next === one.unix_ns.length && secondsOf(one.unix_ns.at(-1)!) < point.seconds;
      if (next === 0 || ended) continue;
      const bytes = point.processes.get(pid) ?? new Map<string, number>();
      // Several devices add up.
      bytes.set(name, (bytes.get(name) ?? 0) + num(one.mean_bytes[next - 1]));
      point.processes.set(pid, bytes);
    }
  }
  return points;
}
