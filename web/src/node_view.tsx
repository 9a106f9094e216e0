// The node: its devices, the ranks as rows, GPU and host by class over time, and what is not seen.
import {
  alertsOf,
  byRank,
  deviceFigure,
  gpuByClass,
  hostByClass,
  isDead,
  liveBytes,
  processName,
  worstOf,
} from './model';
import { AlertLine, Badge, Choice, ClassBar, Code, Empty, Sparkline } from './parts';
import { changed, link, type Route } from './router';
import { StackedPlot } from './stacked_plot';
import type { Timeline } from './timeline';
import type { Process, Snapshot } from './types';
import { formatBytes, formatCount, formatShare, num } from './units';
import { GPU_CLASSES, HOST_CLASSES } from './words';

interface Props {
  snapshot: Snapshot;
  timeline: Timeline;
  theme: string;
  route: Route;
}

export function NodeView({ snapshot, timeline, theme, route }: Props) {
  const all = byRank(snapshot);
  const jobs = [...new Set(all.map((p) => p.identity.training_job).filter(Boolean))];
  const job = route.params.get('job') ?? '';
  const processes = job ? all.filter((p) => p.identity.training_job === job) : all;
  const watched = processes.filter((p) => p.observed);
  const unseen = processes.filter((p) => !p.observed);
  const alive = new Set(watched.filter((p) => !isDead(p)).map((p) => p.pid));
  const gpu = timeline.layers('gpu', GPU_CLASSES, alive);
  const host = timeline.layers('host', HOST_CLASSES, alive);
  const alerts = alertsOf(watched).filter((a) => a.weight === 'leak' || a.weight === 'suspect');
  return (
    <>
      {jobs.length > 1 && (
        <Choice
          label="training job"
          now={job}
          choices={['', ...jobs].map((name) => ({
            value: name,
            text: name || 'every job',
            href: changed(route, { job: name }),
          }))}
        />
      )}
      {alerts.length > 0 && (
        <section class="alertlines" aria-label="alerts">
          {alerts.map((alert) => (
            <AlertLine
              key={`${alert.verdict.cause} ${alert.verdict.memory_class} ${alert.verdict.site_id} ${alert.weight}`}
              alert={alert}
              processes={all}
            />
          ))}
        </section>
      )}
      <Devices snapshot={snapshot} />
      {watched.length > 0 && (
        <div class="two">
          <StackedPlot title="GPU memory" {...gpu} theme={theme} empty="No process holds GPU memory." />
          <StackedPlot title="Host memory" {...host} theme={theme} empty="No host memory is known." />
        </div>
      )}
      {watched.length > 0 ? (
        <Ranks processes={watched} timeline={timeline} />
      ) : (
        <Empty title="No process is observed yet">
          <p>
            A process shows up here when it starts using a GPU, or when a launcher gave it a rank.
            Start one with <code>tidemark run -o run.tdm -- python train.py</code>.
          </p>
        </Empty>
      )}
      {unseen.length > 0 && <Unseen processes={unseen} />}
      <Sources snapshot={snapshot} />
    </>
  );
}

function Devices({ snapshot }: { snapshot: Snapshot }) {
  const memory = snapshot.memory;
  return (
    <div class="tiles" data-testid="devices">
      {snapshot.devices.map((device) => (
        <Tile
          key={device.uuid}
          name={`GPU ${device.index}`}
          detail={`${device.name}${device.mig ? ', MIG' : ''}`}
          used={num(device.used_bytes)}
          total={num(device.total_bytes)}
        />
      ))}
      {memory && num(memory.total_bytes) > 0 && (
        <Tile
          name="Host"
          detail={`${formatBytes(num(memory.available_bytes))} available`}
          used={num(memory.total_bytes) - num(memory.available_bytes)}
          total={num(memory.total_bytes)}
        />
      )}
    </div>
  );
}

function Tile({ name, detail, used, total }: { name: string; detail: string; used: number; total: number }) {
  const share = total > 0 ? used / total : 0;
  return (
    <section class="tile">
      <h2>
        {name} <span>{formatShare(share)}</span>
      </h2>
      <meter min={0} max={total} value={used} high={total * 0.9} aria-label={`${name}: used`} />
      <p>
        <b>{formatBytes(used)}</b> of {formatBytes(total)}
      </p>
      <p class="detail">{detail}</p>
    </section>
  );
}

function Ranks({ processes, timeline }: { processes: Process[]; timeline: Timeline }) {
  const whole = Math.max(...processes.map((p) => sum(gpuByClass(p))), 1);
  const wholeHost = Math.max(...processes.map((p) => sum(hostByClass(p))), 1);
  return (
    <section class="card">
      <h2>Ranks and processes</h2>
      <div class="scroll" tabIndex={0}>
        <table data-testid="ranks">
          <thead>
            <tr>
              <th scope="col">who</th>
              <th scope="col">state</th>
              <th scope="col" class="number">step</th>
              <th scope="col" class="number">tensors</th>
              <th scope="col" class="number">device figure</th>
              <th scope="col" class="bar">GPU by class</th>
              <th scope="col">15 min</th>
              <th scope="col" class="number">pinned</th>
              <th scope="col" class="number">host</th>
              <th scope="col" class="bar">host by class</th>
            </tr>
          </thead>
          <tbody>
            {processes.map((process) => {
              const live = liveBytes(process, 'fw_live');
              const figure = deviceFigure(process);
              const pinned = liveBytes(process, 'pinned');
              return (
                <tr key={`${process.pid} ${process.start_time_ticks}`} data-pid={process.pid} class={isDead(process) ? 'dead' : ''}>
                  <th scope="row">
                    <a href={link('rank', { pid: process.pid })}>{processName(process)}</a>
                    <small>
                      {process.identity.training_job || process.identity.command}
                      {isDead(process) ? `, ${process.exit_reason || process.liveness}` : ''}
                    </small>
                  </th>
                  <td><Badge verdict={worstOf(process)} /></td>
                  <td class="number">{num(process.current_step) > 0 ? formatCount(num(process.current_step)) : '-'}</td>
                  <td class="number">{bytes(live)}</td>
                  <td class="number">{bytes(figure)}</td>
                  <td><ClassBar classes={ordered(gpuByClass(process), GPU_CLASSES)} whole={whole} /></td>
                  <td><Sparkline values={timeline.gpuOf(process.pid)} /></td>
                  <td class="number">{bytes(pinned)}</td>
                  <td class="number">{process.host?.known ? formatBytes(num(process.host.rss_bytes)) : '-'}</td>
                  <td><ClassBar classes={ordered(hostByClass(process), HOST_CLASSES)} whole={wholeHost} /></td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function bytes(value: number | null): string {
  return value === null ? '-' : formatBytes(value);
}

function sum(classes: Map<string, number>): number {
  return [...classes.values()].reduce((total, value) => total + Math.max(0, value), 0);
}

function ordered(classes: Map<string, number>, order: string[]): [string, number][] {
  return order.flatMap((name): [string, number][] => (classes.has(name) ? [[name, classes.get(name)!]] : []));
}

function Unseen({ processes }: { processes: Process[] }) {
  return (
    <section class="card">
      <h2>Not observed</h2>
      <p class="hint">These use a GPU or belong to a job, but their allocations are not seen.</p>
      <div class="scroll" tabIndex={0}>
        <table data-testid="unseen">
          <thead>
            <tr>
              <th scope="col">who</th>
              <th scope="col">why</th>
              <th scope="col" class="number">device figure</th>
              <th scope="col" class="number">host</th>
            </tr>
          </thead>
          <tbody>
            {processes.map((process) => (
              <tr key={`${process.pid} ${process.start_time_ticks}`}>
                <th scope="row">
                  <a href={link('rank', { pid: process.pid })}>{processName(process)}</a>
                </th>
                <td><Code text={process.not_observed_reason || 'no reason is known'} /></td>
                <td class="number">{bytes(deviceFigure(process))}</td>
                <td class="number">{process.host?.known ? formatBytes(num(process.host.rss_bytes)) : '-'}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function Sources({ snapshot }: { snapshot: Snapshot }) {
  const off = snapshot.sources.filter((source) => source.state !== 'on');
  const lost = snapshot.losses.filter((loss) => num(loss.count) > 0);
  return (
    <details class="card" open={lost.length > 0}>
      <summary>
        What watches: {snapshot.sources.length - off.length} of {snapshot.sources.length} sources on
        {lost.length > 0 ? `, ${lost.length} kinds of loss` : ', nothing lost'}
      </summary>
      <table>
        <tbody>
          {snapshot.sources.map((source) => (
            <tr key={source.name}>
              <th scope="row">{source.name}</th>
              <td class={source.state === 'on' ? 'on' : 'off'}>{source.state}</td>
              <td>{source.reason}</td>
            </tr>
          ))}
          {lost.map((loss) => (
            <tr key={loss.cause}>
              <th scope="row">{loss.cause.replaceAll('_', ' ')}</th>
              <td class="off">lost {formatCount(num(loss.count))}</td>
              <td>{num(loss.bytes) > 0 ? formatBytes(num(loss.bytes)) : ''}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <p class="hint">
        tidemarkd {snapshot.daemon_version}: {formatBytes(num(snapshot.daemon_rss_bytes))}, a tick
        takes {(num(snapshot.tick_ns) / 1e6).toFixed(1)} ms.
      </p>
    </details>
  );
}
