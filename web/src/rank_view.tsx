// One process: the waterfall that adds up, its steps with phases and alerts, its host memory.
import type uPlot from 'uplot';
import { useState } from 'preact/hooks';
import { useFetched } from './fetched';
import { alertsOf, byRank, isDead, processName, siteText, weightOf, worstOf } from './model';
import { AlertCard, AlertLine, Badge, Choice, Empty, Fact, ProcessChoice } from './parts';
import { axes, fromZero, Plot } from './plot';
import { changed, link, type Route } from './router';
import type { Process, Snapshot, Step, Waterfall } from './types';
import { formatBytes, formatClock, formatCount, num } from './units';
import { causeTitle, classColor, classMeaning, classTitle } from './words';

interface Props {
  snapshot: Snapshot;
  theme: string;
  route: Route;
}

export function RankView({ snapshot, theme, route }: Props) {
  const all = byRank(snapshot);
  const wanted = Number(route.params.get('pid') ?? all[0]?.pid);
  const path = Number.isInteger(wanted) ? `snapshot?pid=${wanted}&max_sites=500` : null;
  const fetched = useFetched<Snapshot>(path, snapshot.sequence);
  const process = fetched.data?.processes[0];
  return (
    <>
      <ProcessChoice processes={all} now={String(wanted)} href={(pid) => changed(route, { pid })} />
      {process ? (
        <Rank process={process} all={all} theme={theme} route={route} />
      ) : fetched.data || fetched.error || all.length === 0 ? (
        <Empty title={all.length === 0 ? 'No process is observed yet' : `Process ${wanted} is not known here`}>
          <p>
            {fetched.error?.message ?? 'It ended a while ago, or it runs on another node.'}{' '}
            <a href={link('node')}>Back to the node</a>
          </p>
        </Empty>
      ) : (
        <p class="loading">Loading this process ...</p>
      )}
    </>
  );
}

function Rank({ process, all, theme, route }: { process: Process; all: Process[]; theme: string; route: Route }) {
  const { identity } = process;
  const alerts = alertsOf([process]);
  const siteName = (id: string) => {
    const site = process.sites.find((one) => one.id === id);
    return site && siteText(site);
  };
  return (
    <>
      <section class="card head">
        <h1>
          {processName(process)} <Badge verdict={worstOf(process)} />
        </h1>
        <dl class="facts">
          {identity.training_job && <Fact name="job" value={identity.training_job} />}
          {identity.world_size > 0 && <Fact name="world size" value={identity.world_size} />}
          <Fact name="process" value={`${process.pid}${identity.command ? ` (${identity.command})` : ''}`} />
          {identity.workload_pod && <Fact name="pod" value={`${identity.workload_namespace}/${identity.workload_pod}`} />}
          <Fact name="step" value={formatCount(num(process.current_step))} />
          <Fact name="state" value={isDead(process) ? process.exit_reason || process.liveness : 'alive'} />
          <Fact name="sites" value={<a href={link('sites', { pid: process.pid })}>which code holds it</a>} />
        </dl>
        {!process.observed && (
          <p class="warning">Its allocations are not observed: {process.not_observed_reason}</p>
        )}
      </section>
      {alerts[0] && <AlertCard alert={alerts[0]} processes={all} siteName={siteName(alerts[0].verdict.site_id)} />}
      {alerts.length > 1 && (
        <section class="alertlines" aria-label="more verdicts">
          {alerts.slice(1).map((alert) => (
            <AlertLine key={alert.verdict.cause + alert.verdict.memory_class} alert={alert} processes={all} />
          ))}
        </section>
      )}
      {process.waterfalls.map((waterfall) => (
        <WaterfallCard key={waterfall.device} waterfall={waterfall} />
      ))}
      <StepsCard process={process} theme={theme} route={route} />
      <HostCard process={process} />
      <EventsCard process={process} />
    </>
  );
}

/** Each line begins where the one above ended; the last ends at the device's figure. */
function WaterfallCard({ waterfall }: { waterfall: Waterfall }) {
  const figure = num(waterfall.figure_bytes);
  const lines = waterfall.lines.map((line) => ({ ...line, value: num(line.bytes) }));
  const sum = lines.reduce((total, line) => total + line.value, 0);
  const whole = Math.max(figure, sum, 1);
  let at = 0;
  return (
    <section class="card" data-testid="waterfall" data-device={waterfall.device}>
      <h2>
        GPU {waterfall.device}: where it went
        <span class="figure">{waterfall.figure_known ? formatBytes(figure) : 'figure not known'}</span>
      </h2>
      <table class="waterfall">
        <tbody>
          {lines
            .filter((line) => line.value !== 0 || line.note)
            .map((line) => {
              const from = Math.min(at, at + line.value);
              at += line.value;
              return (
                <tr key={line.memory_class} data-class={line.memory_class}>
                  <th scope="row" title={classMeaning(line.memory_class)}>
                    {classTitle(line.memory_class)}
                    {line.note && <small>{line.note}</small>}
                  </th>
                  <td class="track">
                    <i
                      style={{
                        marginLeft: `${(100 * Math.max(0, from)) / whole}%`,
                        width: `${Math.max(0.15, (100 * Math.abs(line.value)) / whole)}%`,
                        background: classColor(line.memory_class),
                      }}
                    />
                  </td>
                  <td class="number">{formatBytes(line.value)}</td>
                </tr>
              );
            })}
        </tbody>
        <tfoot>
          <tr>
            <th scope="row">
              {waterfall.device_wide ? 'whole device' : 'device figure'}
              <small>
                {waterfall.figure_known ? `from ${waterfall.figure_source}` : 'no source told it'}
                {waterfall.device_wide ? ', all processes on it' : ''}
              </small>
            </th>
            <td class="track">
              <i style={{ width: `${(100 * figure) / whole}%`, background: 'var(--ink-3)' }} />
            </td>
            <td class="number">{formatBytes(figure)}</td>
          </tr>
        </tfoot>
      </table>
      {waterfall.figure_known && sum === figure && <p class="hint">The lines add up to the figure, to the byte.</p>}
      {waterfall.figure_known && sum !== figure && (
        <p class="warning">The lines add up to {formatBytes(sum)}, not to the figure.</p>
      )}
    </section>
  );
}

const SIDES: Record<string, string> = {
  framework: 'tensors',
  driver_device: 'driver',
  pinned: 'pinned',
  host_framework: 'CPU tensors',
};

function StepsCard(props: { process: Process; theme: string; route: Route }) {
  if (props.process.steps.length === 0) {
    return (
      <section class="card">
        <h2>Steps</h2>
        <p class="empty">
          No step is complete yet. Steps are seen when the optimizer or the backward pass runs.
        </p>
      </section>
    );
  }
  return <Steps {...props} />;
}

function Steps({ process, theme, route }: { process: Process; theme: string; route: Route }) {
  const { steps } = process;
  const sides = [...new Set(steps.flatMap((step) => step.groups.map((g) => `${g.side}:${g.device}`)))];
  const asked = route.params.get('side') ?? '';
  const side = sides.includes(asked) ? asked : (sides.find((one) => one.startsWith('framework')) ?? sides[0]!);
  const of = (step: Step) => step.groups.find((g) => `${g.side}:${g.device}` === side);
  const column = (bytes: 'floor_bytes' | 'peak_bytes' | 'end_bytes') =>
    steps.map((step) => {
      const group = of(step);
      return group ? num(group[bytes]) : null;
    });
  const x = steps.map((step) => num(step.step));
  const several = new Set(sides.map((one) => one.split(':')[0])).size < sides.length;
  const last = of(steps.at(-1)!);
  const marks = process.verdicts.filter(
    (v) =>
      (weightOf(v) === 'leak' || weightOf(v) === 'suspect') &&
      sideOf(v.memory_class) === side.split(':')[0] &&
      num(v.first_flagged_step) >= x[0]!,
  );
  const [cursor, setCursor] = useState<number | null>(null);
  const index = cursor === null || cursor >= steps.length ? steps.length - 1 : cursor;
  const pointed = of(steps[index]!);
  return (
    <section class="card" data-testid="steps">
      <h2>
        Steps {formatCount(x[0]!)} to {formatCount(x.at(-1)!)}
      </h2>
      <Choice
        label="memory"
        now={side}
        choices={sides.map((one) => {
          const [name = '', device = ''] = one.split(':');
          const title = SIDES[name] ?? name;
          return {
            value: one,
            text: several && Number(device) >= 0 ? `${title}, GPU ${device}` : title,
            href: changed(route, { side: one, pid: process.pid }),
          };
        })}
      />
      <Plot
        version={`${theme} ${side} ${phaseKey(steps)} ${marks.map((v) => v.cause + v.onset_step).join()}`}
        label={`Floor and peak of each step. Last step: floor ${formatBytes(num(last?.floor_bytes))}, peak ${formatBytes(num(last?.peak_bytes))}.`}
        height={260}
        data={[x, column('peak_bytes'), column('floor_bytes'), column('end_bytes')] as uPlot.AlignedData}
        options={(color) => ({
          axes: axes(color, false),
          scales: { x: { time: false }, y: { range: fromZero } },
          legend: { show: false },
          cursor: { drag: { x: true, y: false } },
          bands: [{ series: [1, 2], fill: color('band') }],
          series: [
            {},
            line(color('accent-2')),
            line(color('accent')),
            { ...line(color('ink-3')), dash: [4, 4] },
          ],
          hooks: {
            drawClear: [(u) => drawPhases(u, steps, color)],
            draw: [(u) => drawAlerts(u, marks, color)],
            setCursor: [(u) => setCursor(u.cursor.idx ?? null)],
          },
        })}
      />
      <ul class="legend">
        <li>
          step <b>{formatCount(x[index]!)}</b>
        </li>
        {LINES.map(({ title, color, field }) => (
          <li key={title}>
            <i style={{ background: `var(--${color})` }} />
            {title} <b>{pointed ? formatBytes(num(pointed[field])) : '-'}</b>
          </li>
        ))}
      </ul>
      {marks.length > 0 && (
        <p class="hint">
          Marked: where {marks.map((v) => causeTitle(v.cause)).join(', ')} began, and where it was first flagged.
        </p>
      )}
    </section>
  );
}

const LINES = [
  { title: 'peak', color: 'accent-2', field: 'peak_bytes' },
  { title: 'floor', color: 'accent', field: 'floor_bytes' },
  { title: 'end', color: 'ink-3', field: 'end_bytes' },
] as const;

function line(stroke: string): uPlot.Series {
  return { stroke, width: 2, points: { show: false } };
}

/** The steps' group in which a class of memory shows. */
function sideOf(memoryClass: string): string {
  if (memoryClass === 'fw_live' || memoryClass === 'fw_cache') return 'framework';
  if (memoryClass === 'pinned' || memoryClass === 'registered') return 'pinned';
  if (memoryClass === 'fw_host') return 'host_framework';
  return 'driver_device';
}

function phasesOf(steps: Step[]): { name: string; from: number; to: number }[] {
  const phases: { name: string; from: number; to: number }[] = [];
  for (const step of steps) {
    const last = phases.at(-1);
    if (last && last.name === step.phase) last.to = num(step.step);
    else phases.push({ name: step.phase, from: num(step.step), to: num(step.step) });
  }
  return phases;
}

function phaseKey(steps: Step[]): string {
  return phasesOf(steps).map((phase) => phase.name + phase.from).join();
}

function drawPhases(u: uPlot, steps: Step[], color: (name: string) => string): void {
  const { ctx, bbox } = u;
  ctx.save();
  phasesOf(steps).forEach((phase, i) => {
    const from = Math.max(u.valToPos(phase.from - 0.5, 'x', true), bbox.left);
    const to = Math.min(u.valToPos(phase.to + 0.5, 'x', true), bbox.left + bbox.width);
    if (to <= from) return;
    if (i % 2 === 1) {
      ctx.fillStyle = color('stripe');
      ctx.fillRect(from, bbox.top, to - from, bbox.height);
    }
    const text = phase.name || 'no phase';
    ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
    ctx.fillStyle = color('ink-2');
    ctx.textAlign = 'left';
    if (ctx.measureText(text).width < to - from - 8) {
      ctx.fillText(text, from + 4 * devicePixelRatio, bbox.top + 12 * devicePixelRatio);
    }
  });
  ctx.restore();
}

function drawAlerts(u: uPlot, marks: Process['verdicts'], color: (name: string) => string): void {
  const { ctx, bbox } = u;
  ctx.save();
  ctx.lineWidth = 1.5 * devicePixelRatio;
  ctx.strokeStyle = color('leak');
  ctx.fillStyle = color('leak');
  ctx.font = `600 ${11 * devicePixelRatio}px system-ui, sans-serif`;
  let row = 0;
  for (const verdict of marks) {
    for (const [step, text, dash] of [
      [num(verdict.onset_step), `begins at step ${verdict.onset_step}`, [4, 4]],
      [num(verdict.first_flagged_step), `flagged at step ${verdict.first_flagged_step}`, []],
    ] as const) {
      const x = u.valToPos(step, 'x', true);
      if (step === 0 || x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.setLineDash(dash.map((length) => length * devicePixelRatio));
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      // Marks are often close together: each text has a row of its own.
      const right = x + ctx.measureText(text).width + 8 * devicePixelRatio > bbox.left + bbox.width;
      ctx.textAlign = right ? 'right' : 'left';
      ctx.fillText(text, x + (right ? -4 : 4) * devicePixelRatio, bbox.top + (28 + 14 * row) * devicePixelRatio);
      row += 1;
    }
  }
  ctx.restore();
}

function HostCard({ process }: { process: Process }) {
  const host = process.host;
  if (!host?.known) return null;
  const rows: [string, string, number][] = [
    ['anon', 'anonymous', num(host.anon_bytes)],
    ['shmem', 'shared', num(host.shmem_bytes)],
    ['file', 'file pages', num(host.file_bytes)],
  ];
  const whole = Math.max(num(host.rss_bytes), 1);
  return (
    <section class="card" data-testid="host">
      <h2>
        Host memory <span class="figure">{formatBytes(num(host.rss_bytes))} resident</span>
      </h2>
      <table class="waterfall">
        <tbody>
          {rows.map(([name, title, bytes]) => (
            <tr key={name} data-class={name}>
              <th scope="row">{title}</th>
              <td class="track">
                <i style={{ width: `${(100 * bytes) / whole}%`, background: classColor(name) }} />
              </td>
              <td class="number">{formatBytes(bytes)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <p class="hint">
        Peak {formatBytes(num(host.peak_rss_bytes))}
        {num(host.swap_bytes) > 0 && `, ${formatBytes(num(host.swap_bytes))} swapped out`}
        {num(host.cgroup_limit_bytes) > 0 &&
          `; its cgroup holds ${formatBytes(num(host.cgroup_current_bytes))} of ${formatBytes(num(host.cgroup_limit_bytes))}`}
        .
      </p>
    </section>
  );
}

function EventsCard({ process }: { process: Process }) {
  const off = process.features.filter((feature) => feature.state !== 'on' && feature.reason);
  if (process.events.length === 0 && off.length === 0) return null;
  return (
    <details class="card">
      <summary>
        {process.events.length} {process.events.length === 1 ? 'event' : 'events'}, {off.length}{' '}
        {off.length === 1 ? 'feature' : 'features'} off
      </summary>
      <table>
        <tbody>
          {[...process.events].reverse().map((event, i) => (
            <tr key={i}>
              <td>{formatClock(num(event.unix_ns))}</td>
              <th scope="row">{event.type.replaceAll('_', ' ')}</th>
              <td>
                {[event.text, event.entry_point, num(event.bytes) > 0 ? formatBytes(num(event.bytes)) : '']
                  .filter(Boolean)
                  .join(', ')}
              </td>
            </tr>
          ))}
          {off.map((feature) => (
            <tr key={feature.name}>
              <td>{feature.state}</td>
              <th scope="row">{feature.name}</th>
              <td>{feature.reason}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </details>
  );
}
