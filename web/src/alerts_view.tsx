// What is wrong now, what ended and what it held, and what was said before.
import { useFetched } from './fetched';
import { alertsOf, byRank, deviceFigure, isDead, liveBytes, processName, siteText, worstOf } from './model';
import { AlertCard, Badge, Empty } from './parts';
import { link } from './router';
import type { HistoryMark, QueryRangeResponse, Snapshot } from './types';
import { formatBytes, formatCount, formatDateTime, formatRanges, num } from './units';
import { causeTitle, classTitle } from './words';

export function AlertsView({ snapshot }: { snapshot: Snapshot }) {
  const minute = Math.floor(num(snapshot.unix_ns) / 1e9 / 10);
  const sites = useFetched<Snapshot>('snapshot?omit_steps=true&max_sites=50', minute);
  const past = useFetched<QueryRangeResponse>(
    `query_range?include_marks=true&max_points=1&page_size=1&start_unix_ns=1`,
    minute,
  );
  const all = byRank(snapshot);
  const alerts = alertsOf(all);
  const dead = all.filter(isDead);
  const marks = (past.data?.marks ?? []).filter((mark) => mark.kind !== 'phase' && mark.kind !== 'event');
  const nameOf = (id: string) => {
    for (const process of sites.data?.processes ?? []) {
      const site = process.sites.find((one) => one.id === id);
      if (site) return siteText(site);
    }
    return undefined;
  };
  return (
    <>
      <h1>Alerts</h1>
      {alerts.length === 0 ? (
        <Empty title="Nothing to report">
          <p>
            {all.length === 0
              ? 'No process is observed.'
              : 'Every series is steady, or has not been watched for long enough to judge.'}
          </p>
        </Empty>
      ) : (
        alerts.map((alert) => (
          <AlertCard
            key={`${alert.verdict.cause} ${alert.verdict.memory_class} ${alert.verdict.site_id} ${alert.weight}`}
            alert={alert}
            processes={all}
            siteName={nameOf(alert.verdict.site_id)}
          />
        ))
      )}
      <h1>Post-mortems</h1>
      {dead.length === 0 ? (
        <Empty title="No process ended">
          <p>What a process held when it ended is kept here, also after SIGKILL or the OOM killer.</p>
        </Empty>
      ) : (
        <section class="card">
          <div class="scroll" tabIndex={0}>
            <table data-testid="post-mortems">
              <thead>
                <tr>
                  <th scope="col">who</th>
                  <th scope="col">how it ended</th>
                  <th scope="col" class="number">last step</th>
                  <th scope="col" class="number">tensors</th>
                  <th scope="col" class="number">device figure</th>
                  <th scope="col" class="number">host peak</th>
                  <th scope="col">state</th>
                  <th scope="col">held by</th>
                </tr>
              </thead>
              <tbody>
                {dead.map((process) => (
                  <tr key={`${process.pid} ${process.start_time_ticks}`} data-pid={process.pid}>
                    <th scope="row">
                      <a href={link('rank', { pid: process.pid })}>{processName(process)}</a>
                      <small>{process.identity.training_job}</small>
                    </th>
                    <td>
                      {process.exit_reason || process.liveness}
                      <small>{formatDateTime(num(process.last_update_unix_ns))}</small>
                    </td>
                    <td class="number">{formatCount(num(process.current_step))}</td>
                    <td class="number">{bytes(liveBytes(process, 'fw_live'))}</td>
                    <td class="number">{bytes(deviceFigure(process))}</td>
                    <td class="number">{process.host?.known ? formatBytes(num(process.host.peak_rss_bytes)) : '-'}</td>
                    <td><Badge verdict={worstOf(process)} /></td>
                    <td><a href={link('sites', { pid: process.pid })}>sites</a></td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </section>
      )}
      <h1>Before</h1>
      {past.error && !past.data ? (
        <Empty title="No history">
          <p>{past.error.message}</p>
        </Empty>
      ) : marks.length === 0 ? (
        <Empty title="Nothing happened yet" />
      ) : (
        <section class="card">
          <div class="scroll" tabIndex={0}>
            <table class="events" data-testid="history">
              <tbody>
                {foldMarks([...marks].reverse()).slice(0, 200).map(({ mark, ranks }, i) => (
                  <tr key={i}>
                    <td>{formatDateTime(num(mark.start_unix_ns))}</td>
                    <th scope="row">
                      {ranks.length > 0
                        ? `${ranks.length > 1 ? 'ranks' : 'rank'} ${formatRanges(ranks)}`
                        : mark.process?.pid ? `pid ${mark.process.pid}` : 'node'}
                      <small>{mark.process?.training_job}</small>
                    </th>
                    <td>
                      {markText(mark)}
                      {ranks.length < 2 && num(mark.step) > 0 && `, step ${formatCount(num(mark.step))}`}
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </section>
      )}
    </>
  );
}

function bytes(value: number | null): string {
  return value === null ? '-' : formatBytes(value);
}

const TOGETHER_NS = 10e9;

/** What happened to several ranks of a job within seconds is one row. Newest first. */
function foldMarks(marks: HistoryMark[]): { mark: HistoryMark; ranks: number[] }[] {
  const rows: { mark: HistoryMark; ranks: number[] }[] = [];
  for (const mark of marks) {
    const rank = mark.process?.rank ?? -1;
    const same = rows.findLast(
      (row) =>
        rank >= 0 && row.ranks.length > 0 && !row.ranks.includes(rank) &&
        num(row.mark.start_unix_ns) - num(mark.start_unix_ns) < TOGETHER_NS &&
        row.mark.process?.training_job === mark.process?.training_job &&
        markText(row.mark) === markText(mark),
    );
    if (same) same.ranks.push(rank);
    else rows.push({ mark, ranks: rank >= 0 ? [rank] : [] });
  }
  return rows;
}

function markText(mark: HistoryMark): string {
  const { verdict } = mark;
  if (verdict) {
    return `${verdict.state.replaceAll('_', ' ')}: ${causeTitle(verdict.cause)}, ${classTitle(verdict.memory_class)}`;
  }
  return [mark.kind.replaceAll('_', ' '), mark.text].filter(Boolean).join(': ');
}
