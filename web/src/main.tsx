// The page: what it shows, where one is, and whether the daemon is there.
import { render } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { AlertsView } from './alerts_view';
import { saveToken } from './api';
import { CompareView } from './compare_view';
import { Live, type Connection } from './live';
import { alertsOf } from './model';
import { NodeView } from './node_view';
import { Empty } from './parts';
import { RankView } from './rank_view';
import { currentRoute, link, useRoute } from './router';
import { SitesView } from './sites_view';
import { Timeline } from './timeline';
import type { Snapshot } from './types';
import { formatClock, num } from './units';
import './style.css';

const VIEWS: [view: string, title: string][] = [
  ['node', 'Node'],
  ['rank', 'Rank'],
  ['sites', 'Sites'],
  ['compare', 'Compare'],
  ['alerts', 'Alerts'],
];

function App() {
  const route = useRoute();
  const [theme, turn] = useTheme();
  const [help, setHelp] = useState(false);
  const [attempt, setAttempt] = useState(0);
  const { snapshot, connection, timeline } = useLive(attempt);
  useKeys({ turn, help: () => setHelp((open) => !open), close: () => setHelp(false) });
  const title = VIEWS.find(([view]) => view === route.view)?.[1];
  useEffect(() => {
    document.title = `${title ?? 'Tidemark'}${snapshot ? ` · ${snapshot.node}` : ''} · Tidemark`;
  }, [title, snapshot?.node]);
  const leaks = snapshot ? alertsOf(snapshot.processes).filter((a) => a.weight === 'leak').length : 0;
  const props = { theme, route, timeline };
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); document.getElementById('main')?.focus(); }}>
        Skip to the content
      </a>
      <header>
        <a class="brand" href={link('node')}>
          <svg viewBox="0 0 32 32" aria-hidden="true">
            <path d="M4 20c3 0 3-3 6-3s3 3 6 3 3-3 6-3 3 3 6 3M9 11h14" />
          </svg>
          Tidemark
        </a>
        <nav aria-label="views" class="views">
          {VIEWS.map(([view, text]) => (
            <a key={view} href={link(view)} aria-current={view === route.view ? 'page' : undefined}>
              {text}
              {view === 'alerts' && leaks > 0 && <b class="count" aria-label={`${leaks} leaks`}>{leaks}</b>}
            </a>
          ))}
        </nav>
        <Status connection={connection} snapshot={snapshot} />
        <button type="button" class="plain" onClick={turn} aria-label="Dark or light" title="Dark or light (t)">
          {theme === 'dark' ? '☀' : '☾'}
        </button>
        <button type="button" class="plain" onClick={() => setHelp(true)} aria-label="Keyboard help" title="Keyboard help (?)">
          ?
        </button>
      </header>
      <main id="main" tabIndex={-1}>
        {connection.state === 'lost' && snapshot && (
          <p class="warning" role="status">
            The daemon is gone ({connection.why}). These figures are from {formatClock(num(snapshot.unix_ns))};
            the page connects again by itself.
          </p>
        )}
        {connection.state === 'refused' ? (
          <TokenForm why={connection.why} again={() => setAttempt(attempt + 1)} />
        ) : !snapshot ? (
          connection.state === 'lost' ? (
            <Empty title="The daemon does not answer">
              <p>
                This page connects by itself once it does. On the node, <code>systemctl status tidemarkd</code>{' '}
                or <code>tidemark doctor</code> says more.
              </p>
            </Empty>
          ) : (
            <p class="loading">Waiting for the first snapshot ...</p>
          )
        ) : route.view === 'node' ? (
          <NodeView snapshot={snapshot} {...props} />
        ) : route.view === 'rank' ? (
          <RankView snapshot={snapshot} {...props} />
        ) : route.view === 'sites' ? (
          <SitesView snapshot={snapshot} route={route} />
        ) : route.view === 'compare' ? (
          <CompareView snapshot={snapshot} route={route} />
        ) : route.view === 'alerts' ? (
          <AlertsView snapshot={snapshot} />
        ) : (
          <Empty title="There is no such view">
            <p><a href={link('node')}>Back to the node</a></p>
          </Empty>
        )}
      </main>
      {help && <Help close={() => setHelp(false)} />}
    </>
  );
}

function useLive(attempt: number) {
  const [snapshot, setSnapshot] = useState<Snapshot | null>(null);
  const [connection, setConnection] = useState<Connection>({ state: 'connecting' });
  const timeline = useRef(new Timeline());
  useEffect(() => {
    let asked = false;
    const live = new Live({
      snapshot: (next) => {
        timeline.current.add(next);
        setSnapshot(next);
        if (asked) return;
        asked = true;
        // Without a history the charts begin now: nothing to say.
        timeline.current.loadHistory().catch(() => undefined);
      },
      connection: (next) => setConnection((now) => (now.state === next.state ? now : next)),
    });
    return () => live.stop();
  }, [attempt]);
  return { snapshot, connection, timeline: timeline.current };
}

function useTheme(): [string, () => void] {
  const system = () => (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light');
  const [theme, setTheme] = useState(localStorage.getItem('tidemark-theme') ?? system());
  // Before anything is drawn in the wrong colours.
  document.documentElement.dataset['theme'] = theme;
  return [
    theme,
    () => {
      const next = theme === 'dark' ? 'light' : 'dark';
      localStorage.setItem('tidemark-theme', next);
      setTheme(next);
    },
  ];
}

function useKeys(actions: { turn: () => void; help: () => void; close: () => void }): void {
  const latest = useRef(actions);
  latest.current = actions;
  useEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      if (event.key === 'Escape') return latest.current.close();
      const typing = (event.target as HTMLElement).matches('input, select, textarea');
      if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
      const view = VIEWS[Number(event.key) - 1];
      if (view) location.hash = link(view[0]);
      else if (event.key === 't') latest.current.turn();
      else if (event.key === '?') latest.current.help();
      else if (event.key === '/') {
        event.preventDefault();
        if (currentRoute().view !== 'sites') location.hash = link('sites');
        requestAnimationFrame(() => document.querySelector<HTMLInputElement>('input[type=search]')?.focus());
      }
    };
    addEventListener('keydown', pressed);
    return () => removeEventListener('keydown', pressed);
  }, []);
}

function Status({ connection, snapshot }: { connection: Connection; snapshot: Snapshot | null }) {
  const words = {
    connecting: 'connecting',
    live: 'live',
    lost: 'reconnecting',
    refused: 'no access',
  }[connection.state];
  return (
    <p class={`status ${connection.state}`} data-testid="status">
      <span class="node">{snapshot?.node}</span>
      <span class="dot" aria-hidden="true" />
      <span>{words}</span>
      {snapshot && <time>{formatClock(num(snapshot.unix_ns))}</time>}
    </p>
  );
}

function TokenForm({ why, again }: { why: string; again: () => void }) {
  return (
    <section class="card">
      <h1>This daemon wants to know who you are</h1>
      <p>{why}</p>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          saveToken(new FormData(event.currentTarget).get('token') as string);
          again();
        }}
      >
        <label>
          Token
          <input name="token" type="password" autoComplete="off" required minLength={16} />
        </label>
        <button type="submit">Connect</button>
      </form>
      <p class="hint">
        It is the content of the daemon's <code>http.token_file</code>, and is kept until this tab is closed.
      </p>
    </section>
  );
}

function Help({ close }: { close: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current!.showModal(), []);
  const keys: [string, string][] = [
    ...VIEWS.map(([, title], i): [string, string] => [String(i + 1), title]),
    ['/', 'find a site'],
    ['arrows', 'walk over the flame graph; Enter keeps what runs through a frame'],
    ['t', 'dark or light'],
    ['?', 'this help'],
    ['Esc', 'close'],
  ];
  return (
    <dialog ref={dialog} onClose={close} aria-labelledby="help-title">
      <h2 id="help-title">Keyboard</h2>
      <dl class="keys">
        {keys.map(([key, text]) => (
          <div key={key}>
            <dt><kbd>{key}</kbd></dt>
            <dd>{text}</dd>
          </div>
        ))}
      </dl>
      <button type="button" onClick={close}>Close</button>
    </dialog>
  );
}

render(<App />, document.getElementById('app')!);
