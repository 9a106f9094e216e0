// Which code holds what: a flame graph and a table of count x size with age, at a moment.
import { useMemo, useRef, useState } from 'preact/hooks';
import { download, query } from './api';
import { useFetched } from './fetched';
import { FlameGraph } from './flame_graph';
import { ageText, blocksText, blamingOf, byRank, frameText, heldAt, MOMENTS, processName, siteText, type At } from './model';
import { Badge, Choice, Empty, ProcessChoice } from './parts';
import { changed, link, replaceRoute, type Route } from './router';
import type { Process, Site, Snapshot } from './types';
import { formatBytes, formatCount, num } from './units';
import { classTitle } from './words';

const ROWS = 100;
const MANY_SITES = 2000;

/** The same site of several processes as one, with its bytes and counts summed. */
interface Row {
  site: Site; // its moments are the sums
  processes: Process[];
}

export function SitesView({ snapshot, route }: { snapshot: Snapshot; route: Route }) {
  const all = byRank(snapshot);
  const pid = route.params.get('pid') ?? '';
  const at = (route.params.get('at') ?? 'now') as At;
  const many = useRef(false);
  const period = many.current ? 30 : 5; // seconds: a large table is not asked for at each tick
  const fetched = useFetched<Snapshot>(
    `snapshot?${query({ pid, omit_steps: true })}`,
    Math.floor(num(snapshot.unix_ns) / 1e9 / period),
  );
  const rows = useMemo(() => foldSites(fetched.data?.processes ?? []), [fetched.data]);
  many.current = rows.length > MANY_SITES;
  const classes = [...new Set(rows.map((row) => row.site.memory_class))].sort(
    (a, b) => Number(b === 'fw_live') - Number(a === 'fw_live') || a.localeCompare(b),
  );
  const asked = route.params.get('class') ?? '';
  const memoryClass = classes.includes(asked) ? asked : (classes[0] ?? '');
  const frame = route.params.get('frame') ?? '';
  const text = route.params.get('find') ?? '';
  const siteId = route.params.get('site') ?? '';
  const shown = useMemo(
    () =>
      rows
        .filter(({ site }) => (siteId ? site.id === siteId : site.memory_class === memoryClass))
        .filter(({ site }) => !frame || site.frames.some((one) => frameText(one) === frame))
        .filter(({ site }) => !text || matches(site, text))
        .filter(({ site }) => num(heldAt(site, at).bytes) > 0)
        .sort((a, b) => num(heldAt(b.site, at).bytes) - num(heldAt(a.site, at).bytes)),
    [rows, memoryClass, frame, text, siteId, at],
  );
  const sites = useMemo(() => shown.map((row) => row.site), [shown]);
  const filtered = frame !== '' || text !== '' || siteId !== '';
  const omitted = (fetched.data?.processes ?? []).reduce((sum, p) => sum + p.sites_omitted, 0);
  return (
    <>
      <div class="bar">
        <ProcessChoice
          processes={all}
          now={pid}
          all={changed(route, { pid: '' })}
          href={(one) => changed(route, { pid: one })}
        />
        <Choice
          label="moment"
          now={at}
          choices={Object.entries(MOMENTS).map(([value, words]) => ({
            value,
            text: words,
            href: changed(route, { at: value }),
          }))}
        />
        <Choice
          label="memory class"
          now={memoryClass}
          choices={classes.map((name) => ({
            value: name,
            text: classTitle(name),
            href: changed(route, { class: name, frame: '', site: '' }),
          }))}
        />
        <label class="find">
          <span class="sr">Find a function or file</span>
          <input
            type="search"
            placeholder="function or file:line  ( / )"
            value={text}
            onInput={(event) => replaceRoute(changed(route, { find: event.currentTarget.value }))}
          />
        </label>
      </div>
      {filtered && (
        <p class="chips">
          {frame && <Chip text={`through ${frame}`} href={changed(route, { frame: '' })} />}
          {siteId && <Chip text="one site" href={changed(route, { site: '' })} />}
          {text && <Chip text={`"${text}"`} href={changed(route, { find: '' })} />}
        </p>
      )}
      {fetched.error && <p class="warning">{fetched.error.message}</p>}
      {!fetched.data ? (
        !fetched.error && <p class="loading">Loading sites ...</p>
      ) : shown.length === 0 ? (
        <Empty title={filtered ? 'No site fits' : `No site holds memory ${MOMENTS[at]}`}>
          <p>
            {filtered ? (
              <a href={changed(route, { frame: '', site: '', find: '' })}>Show every site</a>
            ) : at === 'load' ? (
              'Loading ends with the first backward pass.'
            ) : (
              'Sites appear with the first allocation that is seen.'
            )}
          </p>
        </Empty>
      ) : (
        <>
          <section class="card">
            <h2>
              {siteId ? 'One site' : classTitle(memoryClass)} {MOMENTS[at]}
              <span class="figure" data-testid="sites-total">
                {formatBytes(sites.reduce((sum, site) => sum + num(heldAt(site, at).bytes), 0))}
              </span>
            </h2>
            <FlameGraph
              sites={sites}
              at={at}
              rootText={frame ? 'all of these' : 'all'}
              onFrame={(one) => (location.hash = changed(route, { frame: one }))}
            />
          </section>
          <SiteTable rows={shown} at={at} />
          {omitted > 0 && <p class="hint">{formatCount(omitted)} smaller sites were left out.</p>}
          <Downloads pid={pid} />
        </>
      )}
    </>
  );
}

function Chip({ text, href }: { text: string; href: string }) {
  return (
    <a class="chip" href={href} aria-label={`Remove the filter: ${text}`}>
      {text} <span aria-hidden="true">×</span>
    </a>
  );
}

function matches(site: Site, text: string): boolean {
  return site.frames.some((frame) => frame.function.includes(text) || `${frame.file}:${frame.line}`.includes(text));
}

function foldSites(processes: Process[]): Row[] {
  const rows = new Map<string, Row>();
  for (const process of processes) {
    for (const site of process.sites) {
      const key = `${site.id} ${site.memory_class} ${site.witness}`;
      const row = rows.get(key);
      if (!row) {
        rows.set(key, { site, processes: [process] });
        continue;
      }
      row.site = summed(row.site, site);
      if (!row.processes.includes(process)) row.processes.push(process);
    }
  }
  return [...rows.values()];
}

function summed(a: Site, b: Site): Site {
  const moment = (x: Site['live'], y: Site['live']) => ({
    bytes: String(num(x?.bytes) + num(y?.bytes)),
    count: String(num(x?.count) + num(y?.count)),
  });
  return {
    ...a,
    live: moment(a.live, b.live),
    at_load: moment(a.at_load, b.at_load),
    at_peak: moment(a.at_peak, b.at_peak),
    at_last_step: moment(a.at_last_step, b.at_last_step),
    min_block_bytes: String(Math.min(num(a.min_block_bytes), num(b.min_block_bytes))),
    max_block_bytes: String(Math.max(num(a.max_block_bytes), num(b.max_block_bytes))),
  };
}

function SiteTable({ rows, at }: { rows: Row[]; at: At }) {
  const [limit, setLimit] = useState(ROWS);
  return (
    <section class="card">
      <h2>
        {formatCount(rows.length)} {rows.length === 1 ? 'site' : 'sites'}
      </h2>
      <div class="scroll" tabIndex={0}>
        <table data-testid="sites">
          <thead>
            <tr>
              <th scope="col" class="number">held</th>
              <th scope="col">count x size</th>
              <th scope="col">age</th>
              <th scope="col">allocated at</th>
              <th scope="col">on</th>
            </tr>
          </thead>
          <tbody>
            {rows.slice(0, limit).map(({ site, processes }) => {
              const held = heldAt(site, at);
              const blaming = blamingOf(site, processes);
              return (
                <tr key={`${site.id} ${site.memory_class} ${site.witness}`} data-site={site.id}>
                  <td class="number">{formatBytes(num(held.bytes))}</td>
                  <td>{blocksText(site, num(held.count))}</td>
                  <td>{ageText(site)}</td>
                  <td>
                    <details>
                      <summary>
                        <code>{siteText(site)}</code> {blaming && <Badge verdict={blaming} />}
                      </summary>
                      <ol class="stack">
                        {site.frames.map((frame, i) => (
                          <li key={i} class={i === site.blamed_frame ? 'blamed' : ''}>
                            <code>{frameText(frame)}</code> <small>{frame.file}</small>
                          </li>
                        ))}
                        {site.truncated && <li>deeper frames were not kept</li>}
                      </ol>
                    </details>
                  </td>
                  <td>
                    {processes.length > 4
                      ? `${processes.length} processes`
                      : processes.map((process) => (
                          <a key={process.pid} class="spaced" href={link('rank', { pid: process.pid })}>
                            {processName(process)}
                          </a>
                        ))}
                  </td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
      {rows.length > limit && (
        <button type="button" onClick={() => setLimit(limit + 10 * ROWS)}>
          Show more of {formatCount(rows.length)}
        </button>
      )}
      <p class="hint">
        Allocated here; who holds it, <code>tidemark sites --holders</code> finds in the job.
      </p>
    </section>
  );
}

const FILES: { format: string; name: string; text: string }[] = [
  { format: 'pprof', name: 'tidemark.pb.gz', text: 'pprof' },
  { format: 'torch', name: 'tidemark.pickle', text: 'PyTorch memory snapshot' },
  { format: 'folded', name: 'tidemark.folded', text: 'folded stacks' },
  { format: 'csv', name: 'tidemark.csv', text: 'CSV' },
];

function Downloads({ pid }: { pid: string }) {
  const [failed, setFailed] = useState('');
  return (
    <section class="card">
      <h2>Take it along</h2>
      <p class="downloads">
        {FILES.map(({ format, name, text }) => (
          <button
            key={format}
            type="button"
            onClick={() => {
              setFailed('');
              download(`export?${query({ format, pids: pid })}`, name).catch((error: Error) =>
                setFailed(error.message),
              );
            }}
          >
            {text}
          </button>
        ))}
      </p>
      {failed && <p class="warning">{failed}</p>}
    </section>
  );
}
