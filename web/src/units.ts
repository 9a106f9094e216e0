// Numbers as people read them: the same rules as the command line's (client/units.h), so that a
// figure looks the same in both.

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

/** A 64-bit integer of protobuf's JSON; bytes stay below 2^53. */
export function num(text: string | number | undefined | null): number {
  return Number(text ?? 0);
}

/** Three significant digits and no empty decimals: "0 B", "256 MiB", "1.50 GiB", "-12.5 MiB". */
export function formatBytes(bytes: number): string {
  const sign = bytes < 0 ? '-' : '';
  let value = Math.abs(bytes);
  let unit = 0;
  while (unit + 1 < UNITS.length && value >= 1024) {
    value /= 1024;
    unit += 1;
  }
  const digits = Number.isInteger(value) || value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return `${sign}${value.toFixed(digits)} ${UNITS[unit]}`;
}

/** With a sign: "+8 MiB", "-1.50 GiB", "0 B". */
export function formatDelta(bytes: number): string {
  return (bytes > 0 ? '+' : '') + formatBytes(bytes);
}

export function formatCount(count: number): string {
  return Math.round(count).toLocaleString('en-US');
}

/** "42 s", "02:40" (minutes:seconds), "3:02:40", "2 d 03:02". */
export function formatDuration(seconds: number): string {
  const s = Math.round(seconds);
  const two = (value: number) => String(value).padStart(2, '0');
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${two(Math.floor(s / 60))}:${two(s % 60)}`;
  const h = Math.floor(s / 3600);
  if (h < 24) return `${h}:${two(Math.floor((s % 3600) / 60))}:${two(s % 60)}`;
  return `${Math.floor(h / 24)} d ${two(h % 24)}:${two(Math.floor((s % 3600) / 60))}`;
}

export function formatShare(share: number): string {
  const percent = share * 100;
  return percent > 0 && percent < 1 ? '<1 %' : `${Math.round(percent)} %`;
}

/** "0-3,6". */
export function formatRanges(numbers: number[]): string {
  const sorted = [...new Set(numbers)].sort((a, b) => a - b);
  const parts: string[] = [];
  for (let i = 0; i < sorted.length; ) {
    let j = i;
    while (j + 1 < sorted.length && sorted[j + 1] === sorted[j]! + 1) j += 1;
    parts.push(i === j ? `${sorted[i]}` : `${sorted[i]}-${sorted[j]}`);
    i = j + 1;
  }
  return parts.join(',');
}

export function formatClock(unixNs: number): string {
  return new Date(unixNs / 1e6).toLocaleTimeString('en-GB');
}

export function formatDateTime(unixNs: number): string {
  const date = new Date(unixNs / 1e6);
  const two = (value: number) => String(value).padStart(2, '0');
  return (
    `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ` +
    date.toLocaleTimeString('en-GB')
  );
}
