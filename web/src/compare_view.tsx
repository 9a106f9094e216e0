// Side by side: ranks, two moments of this node, or two recordings.
import { useState } from 'preact/hooks';
import { query } from './api';
import { diffSnapshots, folded } from './diff';
import { useFetched } from './fetched';
import { byRank, blocksText, gpuByClass, hostByClass, liveBytes, MOMENTS, processName, siteText, type At } from './model';
import { Choice, Empty, ProcessChoice } from './parts';
import type { Recording } from './recording';
import { changed, link, type Route } from './router';
import type { DiffResponse, Process, Snapshot } from './types';
import { formatBytes, formatCount, formatDelta, num } from './units';
import { classColor, classTitle, GPU_CLASSES, HOST_CLASSES } from './words';

const WAYS: Record<string, string> = {
  ranks: 'ranks side by side',
  moments: 'before and after',
  recordings: 'two recordings',
};

export function CompareView({ snapshot, route }: { snapshot: Snapshot; route: Route }) {
  const way = route.params.get('way') ?? 'ranks';
  return (
    <>
      <Choice
        label="what to compare"
        now={way}
        choices={Object.entries(WAYS).map(([value, text]) => ({
          value,
          text,
          href: changed(route, { way: value }),
        }))}
      />
      {way === 'moments' ? (
        <Moments snapshot={snapshot} route={route} />
      ) : way === 'recordings' ? (
        <Recordings />
      ) : (
        <Ranks snapshot={snapshot} />
      )}
    </>
  );
}

// A rank that is this far from the middle one is marked.
const FAR_SHARE = 0.05;
const FAR_BYTES = 16 * 2 ** 20;

function Ranks({ snapshot }: { snapshot: Snapshot }) {
  const processes = byRank(snapshot).filter((p) => p.observed);
  if (processes.length === 0) {
    return (
      <Empty title="No ranks to compare">
        <p>They show up here once a job runs under Tidemark on this node.</p>
      </Empty>
    );
  }
  const rows: { name: string; title: string; values: (number | null)[]; steps?: boolean }[] = [
    {
      name: '',
      title: 'step',
      steps: true,
      values: processes.map((p) => num(p.current_step)),
    },
    ...table(processes, GPU_CLASSES, gpuByClass),
    { name: 'pinned', title: 'pinned', values: processes.map((p) => liveBytes(p, 'pinned')) },
    ...table(processes, HOST_CLASSES, hostByClass),
  ].filter((row) => row.values.some((value) => value));
  return (
    <section class="card">
      <h2>Ranks side by side</h2>
      <div class="scroll" tabIndex={0}>
        <table class="side" data-testid="compare-ranks">
          <thead>
            <tr>
              <th scope="col">memory</th>
              {processes.map((process) => (
                <th key={process.pid} scope="col" class="number">
                  <a href={link('rank', { pid: process.pid })}>{processName(process)}</a>
                </th>
              ))}
              <th scope="col" class="number">spread</th>
            </tr>
          </thead>
          <tbody>
            {rows.map((row) => {
              const known = row.values.filter((value) => value !== null);
              const middle = median(known);
              const spread = Math.max(...known) - Math.min(...known);
              const format = row.steps ? formatCount : formatBytes;
              return (
                <tr key={row.title} data-class={row.name}>
                  <th scope="row">
                    {row.name && <i class="swatch" style={{ background: classColor(row.name) }} />}
                    {row.title}
                  </th>
                  {row.values.map((value, i) => {
                    const far =
                      !row.steps && value !== null && known.length > 1 &&
                      Math.abs(value - middle) > Math.max(FAR_BYTES, middle * FAR_SHARE);
                    return (
                      <td key={i} class={far ? 'number far' : 'number'} title={far ? `${formatDelta(value - middle)} from the middle rank` : undefined}>
                        {value === null ? '-' : format(value)}
                      </td>
                    );
                  })}
                  <td class="number">{format(spread)}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
      <p class="hint">
        Marked: more than 5 % and 16 MiB from the middle rank. The same bytes on every rank need not
        be replicas.
      </p>
    </section>
  );
}

function table(processes: Process[], classes: string[], of: (p: Process) => Map<string, number>) {
  return classes.map((name) => ({
    name,
    title: classTitle(name),
    values: processes.map((process) => of(process).get(name) ?? null),
  }));
}

function median(values: number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor((sorted.length - 1) / 2)] ?? 0;
}

const PAST: Record<string, { text: string; minutes: number }> = {
  '5m': { text: '5 min ago', minutes: 5 },
  '1h': { text: '1 h ago', minutes: 60 },
  '24h': { text: '24 h ago', minutes: 1440 },
};

function Moments({ snapshot, route }: { snapshot: Snapshot; route: Route }) {
  const before = route.params.get('before') ?? 'load';
  const after = route.params.get('after') ?? 'now';
  const pid = route.params.get('pid') ?? '';
  const ten_seconds = Math.floor(num(snapshot.unix_ns) / 1e10);
  const side = (name: string, moment: string): Record<string, string | number | (string | number)[]> => {
    const past = PAST[moment];
    return {
      ...(past
        ? {
            [`${name}.moment.name`]: 'time',
            [`${name}.moment.unix_ns`]: `${ten_seconds * 10 - past.minutes * 60}000000000`,
          }
        : { [`${name}.moment.name`]: moment }),
      [`${name}.pids`]: pid ? [pid] : [],
    };
  };
  const fetched = useFetched<DiffResponse>(
    `diff?${query({ ...side('before', before), ...side('after', after), max_sites: 200 })}`,
    ten_seconds,
  );
  const choices = (which: string) =>
    [...Object.entries(MOMENTS), ...Object.entries(PAST).map(([key, p]) => [key, p.text] as const)].map(
      ([value, text]) => ({ value, text, href: changed(route, { [which]: value }) }),
    );
  return (
    <>
      <div class="bar">
        <Choice label="before" now={before} choices={choices('before')} />
        <span aria-hidden="true">→</span>
        <Choice label="after" now={after} choices={choices('after')} />
        <ProcessChoice
          processes={byRank(snapshot)}
          now={pid}
          all={changed(route, { pid: '' })}
          href={(one) => changed(route, { pid: one })}
        />
      </div>
      {fetched.data ? (
        <>
          <Difference
            diff={comparable(fetched.data, before, after)}
            before={words(before)}
            after={words(after)}
          />
          {(before in KNOWN || after in KNOWN) && (
            <p class="hint">
              Of loading, peaks and steps a process keeps tensors and pinned memory; moments in time
              and now are known with every class.
            </p>
          )}
        </>
      ) : fetched.error ? (
        <Empty title="These two cannot be compared">
          <p>{fetched.error.message}</p>
        </Empty>
      ) : (
        <p class="loading">Comparing ...</p>
      )}
    </>
  );
}

// What is known of a moment of a process's own. Of those in time, and now, it is every class; only
// what is known of both can be compared.
const KNOWN: Record<string, string[]> = {
  load: ['fw_live', 'pinned', 'fw_host', 'anon'],
  peak: ['fw_live', 'pinned', 'fw_host'],
  last_step: ['fw_live', 'pinned', 'fw_host'],
};

function comparable(diff: DiffResponse, before: string, after: string): DiffResponse {
  const known = (name: string) => [before, after].every((moment) => KNOWN[moment]?.includes(name) ?? true);
  return {
    ...diff,
    classes: diff.classes.filter((one) => known(one.memory_class)),
    ranks: diff.ranks.filter((one) => known(one.memory_class)),
  };
}

function words(moment: string): string {
  return PAST[moment]?.text ?? MOMENTS[moment as At] ?? moment;
}

function Recordings() {
  const [files, setFiles] = useState<(Recording | null)[]>([null, null]);
  const [failed, setFailed] = useState('');
  const [at, setAt] = useState<At>('now');
  const open = async (index: number, file: File | undefined) => {
    if (!file) return;
    setFailed('');
    try {
      const { openRecording } = await import('./recording');
      const recording = await openRecording(file);
      setFiles((all) => all.map((one, i) => (i === index ? recording : one)));
    } catch (error) {
      setFailed(error instanceof Error ? error.message : String(error));
    }
  };
  const [before, after] = files;
  return (
    <>
      <section class="card">
        <h2>Two recordings</h2>
        <p class="hint">
          Made by <code>tidemark run -o run.tdm</code>. They are read in this browser and go nowhere.
        </p>
        <div class="files">
          {['before', 'after'].map((name, i) => (
            <label key={name}>
              {name}
              <input
                type="file"
                accept=".tdm"
                data-testid={`recording-${name}`}
                onChange={(event) => void open(i, event.currentTarget.files?.[0])}
              />
            </label>
          ))}
          <label>
            sites
            <select value={at} onChange={(event) => setAt(event.currentTarget.value as At)}>
              <option value="now">at the end</option>
              <option value="load">at load</option>
              <option value="peak">at the peak</option>
              <option value="last_step">at the last step</option>
            </select>
          </label>
        </div>
        {failed && <p class="warning" role="alert">{failed}</p>}
      </section>
      {before && after && (
        <Difference
          diff={diffSnapshots(before.snapshot, after.snapshot, at)}
          before={before.name}
          after={after.name}
        />
      )}
    </>
  );
}

function Difference({ diff: raw, before, after }: { diff: DiffResponse; before: string; after: string }) {
  const diff = folded(raw);
  const most = Math.max(1, ...diff.classes.map((one) => Math.abs(num(one.after_bytes) - num(one.before_bytes))));
  return (
    <>
      {diff.notes.map((note) => (
        <p key={note} class="warning">{note}</p>
      ))}
      <section class="card">
        <h2>By class</h2>
        <div class="scroll" tabIndex={0}>
          <table data-testid="diff-classes">
            <Head first="memory" before={before} after={after} />
            <tbody>
              {diff.classes.map((one) => {
                const delta = num(one.after_bytes) - num(one.before_bytes);
                return (
                  <tr key={`${one.memory_class} ${one.device}`} data-class={one.memory_class}>
                    <th scope="row">
                      <i class="swatch" style={{ background: classColor(one.memory_class) }} />
                      {classTitle(one.memory_class)}
                    </th>
                    <td class="number">{formatBytes(num(one.before_bytes))}</td>
                    <td class="number">{formatBytes(num(one.after_bytes))}</td>
                    <Delta bytes={delta} />
                    <td class="track wide">
                      <i class={delta > 0 ? 'up' : 'down'} style={{ width: `${(100 * Math.abs(delta)) / most}%` }} />
                    </td>
                  </tr>
                );
              })}
            </tbody>
          </table>
        </div>
      </section>
      <section class="card">
        <h2>By site</h2>
        {diff.sites.length === 0 ? (
          <p class="empty">No site changed.</p>
        ) : (
          <div class="scroll" tabIndex={0}>
            <table data-testid="diff-sites">
              <Head first="allocated at" before={before} after={after} />
              <tbody>
                {diff.sites.slice(0, 100).map((one, i) => (
                  <tr key={i}>
                    <th scope="row">
                      <code>{one.site ? siteText(one.site) : '(gone)'}</code>
                      <small>{one.site ? `${classTitle(one.site.memory_class)}, now ${blocksText(one.site, num(one.after?.count))}` : ''}</small>
                    </th>
                    <td class="number">{formatBytes(num(one.before?.bytes))}</td>
                    <td class="number">{formatBytes(num(one.after?.bytes))}</td>
                    <Delta bytes={num(one.after?.bytes) - num(one.before?.bytes)} />
                    <td />
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
        {diff.sites_omitted > 0 && (
          <p class="hint">{formatCount(diff.sites_omitted)} sites with smaller changes were left out.</p>
        )}
      </section>
      <RankChanges diff={diff} />
    </>
  );
}

/** What changed on each rank, a column a class. */
function RankChanges({ diff }: { diff: DiffResponse }) {
  const changes = new Map<string, Map<string, number>>();
  const jobs = new Set(diff.ranks.map((one) => one.process?.training_job));
  for (const one of diff.ranks) {
    const rank = one.process?.rank ?? -1;
    const name = rank >= 0 ? `rank ${rank}` : `pid ${one.process?.pid}`;
    const who = jobs.size > 1 ? `${name} of ${one.process?.training_job || 'no job'}` : name;
    const of = changes.get(who) ?? new Map<string, number>();
    const delta = num(one.after_bytes) - num(one.before_bytes);
    of.set(one.memory_class, (of.get(one.memory_class) ?? 0) + delta);
    changes.set(who, of);
  }
  const classes = [...GPU_CLASSES, ...HOST_CLASSES].filter((name) =>
    [...changes.values()].some((of) => (of.get(name) ?? 0) !== 0),
  );
  if (classes.length === 0) return null;
  return (
    <section class="card">
      <h2>By rank</h2>
      <div class="scroll" tabIndex={0}>
        <table class="side" data-testid="diff-ranks">
          <thead>
            <tr>
              <th scope="col">rank</th>
              {classes.map((name) => (
                <th key={name} scope="col" class="number">{classTitle(name)}</th>
              ))}
            </tr>
          </thead>
          <tbody>
            {[...changes].map(([who, of]) => (
              <tr key={who}>
                <th scope="row">{who}</th>
                {classes.map((name) => (
                  <Delta key={name} bytes={of.get(name) ?? 0} />
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function Head({ first, before, after }: { first: string; before: string; after: string }) {
  return (
    <thead>
      <tr>
        <th scope="col">{first}</th>
        <th scope="col" class="number">{before}</th>
        <th scope="col" class="number">{after}</th>
        <th scope="col" class="number">change</th>
        <td />
      </tr>
    </thead>
  );
}

function Delta({ bytes }: { bytes: number }) {
  return <td class={`number ${bytes > 0 ? 'more' : bytes < 0 ? 'less' : ''}`}>{formatDelta(bytes)}</td>;
}
