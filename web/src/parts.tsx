// Small pieces that several views share.
import type { ComponentChildren } from 'preact';
import { processName, slopeText, weightOf, WEIGHT_WORDS, type Alert } from './model';
import { link } from './router';
import type { Process, Verdict } from './types';
import { formatBytes, formatDuration, formatRanges, formatShare, num } from './units';
import { causeTitle, classColor, classTitle } from './words';

export function Badge({ verdict }: { verdict: Verdict | null }) {
  if (!verdict) return <span class="badge silent">no verdict</span>;
  const weight = weightOf(verdict);
  const words = weight === 'silent' ? causeOrState(verdict) : WEIGHT_WORDS[weight];
  return <span class={`badge ${weight}`}>{words}</span>;
}

function causeOrState(verdict: Verdict): string {
  return verdict.state.replaceAll('_', ' ');
}

/** One bar of classes side by side; `whole` is what its full width stands for. */
export function ClassBar({ classes, whole }: { classes: [string, number][]; whole: number }) {
  const shown = classes.filter(([, bytes]) => bytes > 0);
  if (shown.length === 0) return <span class="classbar" />;
  const text = shown.map(([name, bytes]) => `${classTitle(name)} ${formatBytes(bytes)}`).join(', ');
  return (
    <span class="classbar" role="img" aria-label={text} title={text}>
      {shown.map(([name, bytes]) => (
        <i
          key={name}
          style={{ width: `${(100 * bytes) / Math.max(whole, 1)}%`, background: classColor(name) }}
        />
      ))}
    </span>
  );
}

export function Sparkline({ values }: { values: (number | null)[] }) {
  const known = values.filter((value) => value !== null);
  if (known.length < 2) return <span class="spark" />;
  const low = Math.min(...known);
  const span = Math.max(Math.max(...known) - low, 1);
  const points = values.flatMap((value, i) =>
    value === null
      ? []
      : [`${((100 * i) / (values.length - 1)).toFixed(1)},${(22 - (20 * (value - low)) / span).toFixed(1)}`],
  );
  return (
    <svg class="spark" viewBox="0 0 100 24" preserveAspectRatio="none" aria-hidden="true">
      <polyline points={points.join(' ')} />
    </svg>
  );
}

export function ranksOf(alert: Alert, all: Process[]): string {
  const members = [...new Map(alert.members.map((m) => [m.process.pid, m.process])).values()];
  const ranked = members.filter((process) => process.identity.rank >= 0);
  if (ranked.length < members.length) return members.map(processName).join(', ');
  const job = members[0]!.identity.training_job;
  const ranks = all.filter((p) => p.identity.training_job === job && p.identity.rank >= 0).length;
  if (members.length > 1 && members.length === ranks) return `all ${ranks} ranks`;
  const numbers = formatRanges(members.map((process) => process.identity.rank));
  return `${members.length === 1 ? 'rank' : 'ranks'} ${numbers}${ranks > members.length ? ` of ${ranks}` : ''}`;
}

/** What is wrong, on whom, how fast, from which line, until when, and what to do. */
export function AlertCard({ alert, processes, siteName }: {
  alert: Alert;
  processes: Process[];
  siteName?: string | undefined;
}) {
  const { verdict, weight } = alert;
  const first = alert.members[0]!.process;
  const slope = slopeText(verdict);
  return (
    <article class={`card alert ${weight}`} data-cause={verdict.cause}>
      <h3>
        <Badge verdict={verdict} /> {causeTitle(verdict.cause)}{' '}
        <span class="who">
          on{' '}
          {alert.members.length === 1 ? (
            <a href={link('rank', { pid: first.pid })}>{ranksOf(alert, processes)}</a>
          ) : (
            ranksOf(alert, processes)
          )}
          , {classTitle(verdict.memory_class)}
          {verdict.device >= 0 && alert.members.length === 1 ? ` of GPU ${verdict.device}` : ''}
        </span>
      </h3>
      {verdict.summary && <p>{verdict.summary}</p>}
      <dl class="facts">
        {slope && <Fact name="slope" value={slope} />}
        {num(verdict.grown_bytes) !== 0 && (
          <Fact name="grown" value={`${formatBytes(num(verdict.grown_bytes))} since step ${verdict.onset_step}`} />
        )}
        {num(verdict.releasable_bytes) > 0 && (
          <Fact name="could be had back" value={formatBytes(num(verdict.releasable_bytes))} />
        )}
        {verdict.eta_seconds > 0 && (
          <Fact
            name="out of memory in about"
            value={
              (verdict.eta_steps > 0 ? `${Math.round(verdict.eta_steps)} steps, ` : '') +
              formatDuration(verdict.eta_seconds)
            }
          />
        )}
        {siteName && (
          <Fact
            name={verdict.site_share > 0 ? `site (${formatShare(verdict.site_share)} of the slope)` : 'site'}
            value={
              <a href={link('sites', { pid: first.pid, site: verdict.site_id })}>
                <code>{siteName}</code>
              </a>
            }
          />
        )}
      </dl>
      {verdict.evidence.length > 0 && (
        <details>
          <summary>evidence</summary>
          <ul>
            {verdict.evidence.map((line) => (
              <li key={line}>{line}</li>
            ))}
          </ul>
        </details>
      )}
      {verdict.advice && (
        <p class="advice">
          <Code text={verdict.advice} />
        </p>
      )}
      {alert.members.length > 1 && (
        <p class="links">
          {alert.members.slice(0, 16).map(({ process }) => (
            <a key={process.pid} href={link('rank', { pid: process.pid })}>
              {processName(process)}
            </a>
          ))}
        </p>
      )}
    </article>
  );
}

/** The same in a line, for where there is more to see. */
export function AlertLine({ alert, processes }: { alert: Alert; processes: Process[] }) {
  const { verdict, weight } = alert;
  return (
    <a class={`alertline ${weight}`} href={link('alerts')} data-cause={verdict.cause}>
      <Badge verdict={verdict} />
      <b>{causeTitle(verdict.cause)}</b>
      <span>
        {classTitle(verdict.memory_class)} on {ranksOf(alert, processes)}
      </span>
      <span>{slopeText(verdict)}</span>
      {verdict.eta_seconds > 0 && <span>out of memory in about {formatDuration(verdict.eta_seconds)}</span>}
    </a>
  );
}

/** `text` with what stands between backticks as code. */
export function Code({ text }: { text: string }) {
  return <>{text.split('`').map((part, i) => (i % 2 === 1 ? <code key={i}>{part}</code> : part))}</>;
}

export function Fact({ name, value }: { name: string; value: ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{value}</dd>
    </div>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="card empty">
      <h2>{title}</h2>
      {children}
    </div>
  );
}

const FEW = 8;

/** One process, or all where `all` is the address of that; `href` is the address of one. */
export function ProcessChoice({ processes, now, all, href }: {
  processes: Process[];
  now: string;
  all?: string;
  href: (pid: number) => string;
}) {
  const jobs = [...new Set(processes.map((process) => process.identity.training_job))];
  if (processes.length <= FEW && jobs.length < 2) {
    return (
      <Choice
        label="process"
        now={now}
        choices={[
          ...(all === undefined ? [] : [{ value: '', text: 'all', href: all }]),
          ...processes.map((p) => ({ value: String(p.pid), text: processName(p), href: href(p.pid) })),
        ]}
      />
    );
  }
  return (
    <label class="one">
      process
      <select
        value={now}
        onChange={(event) => {
          const { value } = event.currentTarget;
          location.hash = value === '' ? (all ?? '') : href(Number(value));
        }}
      >
        {all !== undefined && <option value="">all</option>}
        {jobs.map((job) => (
          <optgroup key={job} label={job || 'no job'}>
            {processes
              .filter((process) => process.identity.training_job === job)
              .map((process) => (
                <option key={process.pid} value={process.pid}>{processName(process)}</option>
              ))}
          </optgroup>
        ))}
      </select>
    </label>
  );
}

/** A choice of few, as links: each is an address of its own. */
export function Choice({ label, now, choices }: {
  label: string;
  now: string;
  choices: { value: string; text: string; href: string }[];
}) {
  return (
    <nav class="choice" aria-label={label}>
      {choices.map(({ value, text, href }) => (
        <a key={value} href={href} aria-current={value === now ? 'true' : undefined}>
          {text}
        </a>
      ))}
    </nav>
  );
}
