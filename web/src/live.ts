// The daemon's snapshots as they come, one a second, by server-sent events. Read with fetch rather
// than EventSource, which cannot send a token. Asks instead when the daemon has no stream to spare,
// and connects again, ever more slowly, when it is gone.
import { ApiError, ask, askJson } from './api';
import type { Snapshot } from './types';

export type Connection =
  | { state: 'connecting' }
  | { state: 'live' }
  | { state: 'lost'; why: string }
  | { state: 'refused'; why: string };

interface Listener {
  snapshot(snapshot: Snapshot): void;
  connection(connection: Connection): void;
}

// Sites and steps are large: the views that show them ask for them.
const WHAT = 'omit_sites=true&max_steps=1';
const SILENCE_MS = 15_000;
const POLL_MS = 2_000;
const SLOWEST_RETRY_MS = 5_000;

export class Live {
  private stopped = new AbortController();

  constructor(private readonly listener: Listener) {
    void this.run();
  }

  stop(): void {
    this.stopped.abort();
  }

  private async run(): Promise<void> {
    let retry = 250;
    while (!this.stopped.signal.aborted) {
      try {
        await this.readStream(() => (retry = 250));
        this.listener.connection({ state: 'lost', why: 'the daemon ended the connection' });
      } catch (error) {
        if (this.stopped.signal.aborted) return;
        if (error instanceof ApiError && (error.status === 401 || error.status === 421)) {
          this.listener.connection({ state: 'refused', why: error.message });
          return;
        }
        if (error instanceof ApiError && error.status === 503 && (await this.poll())) continue;
        this.listener.connection({ state: 'lost', why: 'the daemon does not answer' });
      }
      await this.wait(retry);
      retry = Math.min(retry * 2, SLOWEST_RETRY_MS);
    }
  }

  private async readStream(alive: () => void): Promise<void> {
    const attempt = new AbortController();
    const give_up = () => attempt.abort();
    this.stopped.signal.addEventListener('abort', give_up);
    let silence = window.setTimeout(give_up, SILENCE_MS);
    try {
      const response = await ask(`stream?${WHAT}`, attempt.signal);
      const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
      let text = '';
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        window.clearTimeout(silence);
        silence = window.setTimeout(give_up, SILENCE_MS);
        alive();
        text += value;
        for (let end = text.indexOf('\n\n'); end >= 0; end = text.indexOf('\n\n')) {
          this.take(text.slice(0, end));
          text = text.slice(end + 2);
        }
      }
    } finally {
      window.clearTimeout(silence);
      this.stopped.signal.removeEventListener('abort', give_up);
    }
  }

  private take(event: string): void {
    const data = event
      .split('\n')
      .filter((line) => line.startsWith('data: '))
      .map((line) => line.slice(6))
      .join('\n');
    if (data === '') return;
    this.listener.connection({ state: 'live' });
    this.listener.snapshot(JSON.parse(data) as Snapshot);
  }

  /** One snapshot without a stream; false when there is none to be had. */
  private async poll(): Promise<boolean> {
    try {
      this.listener.snapshot(await askJson<Snapshot>(`snapshot?${WHAT}`));
      this.listener.connection({ state: 'live' });
      await this.wait(POLL_MS);
      return true;
    } catch {
      return false;
    }
  }

  private wait(ms: number): Promise<void> {
    return new Promise((resolve) => window.setTimeout(resolve, ms));
  }
}
