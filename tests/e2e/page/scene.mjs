// What the page's tests stand on: a daemon of their own, a simulated job that leaks on rank 1, and
// a real Chromium. TIDEMARK_BUILD is the build folder, TIDEMARK_SOURCE the checkout. A test prints
// a line per behaviour and ends with 0, 1 (one failed) or 77 (skipped: it says why).
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import { createRequire } from 'node:module';
import os from 'node:os';
import path from 'node:path';

export const BUILD = process.env.TIDEMARK_BUILD;
export const SOURCE = process.env.TIDEMARK_SOURCE;
// A daemon that runs as root sees the jobs of others too, those of another test as well.
export const JOB = `page-${process.pid}`;
const CHROMIUM = '/usr/bin/chromium';
const PATIENCE = 60_000;
const AT_MOST = 270_000; // a test that hangs still ends what it started

export const require = createRequire(path.join(SOURCE, 'web/package.json'));

function skip(why) {
  console.log(`skipped: ${why}`);
  process.exit(77);
}

export async function until(what, found) {
  const giveUp = Date.now() + PATIENCE;
  for (;;) {
    const value = await found().catch(() => null);
    if (value) return value;
    if (Date.now() > giveUp) throw new Error(`did not come about: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

// As units.ts and the command line write bytes.
export function bytes(value) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  let scaled = Number(value);
  while (Math.abs(scaled) >= 1024 && unit < 4) {
    scaled /= 1024;
    unit += 1;
  }
  const digits = Number.isInteger(scaled) || Math.abs(scaled) >= 100 ? 0 : Math.abs(scaled) >= 10 ? 1 : 2;
  return `${scaled.toFixed(digits)} ${units[unit]}`;
}

export const sum = (values) => values.reduce((total, value) => total + Number(value), 0);
export const ours = (snapshot) =>
  snapshot.processes.filter((p) => p.identity.training_job === JOB && p.identity.rank >= 0 && p.observed);
export const leakOf = (process) =>
  process.verdicts.find((v) => v.is_leak && v.state === 'confirmed' && v.memory_class === 'fw_live');

let failures = 0;
export async function behaviour(name, check) {
  const begin = Date.now();
  try {
    await check();
    console.log(`ok      ${name} (${Date.now() - begin} ms)`);
  } catch (error) {
    failures += 1;
    console.log(`FAILED  ${name}\n${error.stack}`);
  }
}

class Scene {
  constructor() {
    this.folder = fs.mkdtempSync(path.join(os.tmpdir(), 'tidemark-page-'));
    this.environment = {
      ...process.env,
      LD_LIBRARY_PATH: path.join(BUILD, 'sim'),
      TIDEMARK_SIM: path.join(BUILD, 'sim'),
      TIDEMARK_SIM_STATE: path.join(this.folder, 'sim'),
      TIDEMARK_AGENT_SOCKET: path.join(this.folder, 'agent.sock'),
      TIDEMARK_JOB: JOB,
    };
    this.port = 0;
    this.complaints = []; // of the browser
  }

  /** On the port it had before, on a free one at first; done once everything is served. */
  async startDaemon() {
    const log = fs.openSync(path.join(this.folder, 'log'), 'a');
    this.daemon = spawn(
      path.join(BUILD, 'bin/tidemarkd'),
      ['--private', '--exit-when-idle', '0', '--agent-socket', path.join(this.folder, 'agent.sock'),
        '--api-socket', path.join(this.folder, 'api.sock'), '--http', `127.0.0.1:${this.port}`,
        '--ready-fd', '3'],
      { env: this.environment, stdio: ['ignore', log, log, 'pipe'] },
    );
    fs.closeSync(log);
    const said = await new Promise((resolve, reject) => {
      this.daemon.stdio[3].once('data', resolve);
      this.daemon.once('exit', () => reject(new Error(fs.readFileSync(path.join(this.folder, 'log'), 'utf8'))));
    });
    this.port = Number(/:(\d+)\//.exec(said)[1]);
    this.base = `http://127.0.0.1:${this.port}`;
  }

  /** Gone once it resolves: its sockets are free for the next. */
  async killDaemon() {
    const gone = new Promise((resolve) => this.daemon.once('exit', resolve));
    this.daemon.kill('SIGKILL');
    await gone;
  }

  startJob(...options) {
    this.job = spawn(
      'python3',
      [path.join(SOURCE, 'tests/sim/simtrain.py'), '--steps', '1000000', '--step-ms', '50',
        '--ranks', '2', '--scenario', 'one-rank', '--leak-rank', '1', ...options],
      {
        env: { ...this.environment, CUDA_INJECTION64_PATH: path.join(BUILD, 'lib/libtidemark_cupti.so') },
        stdio: 'ignore',
        detached: true, // a process group: it ends as one
      },
    );
  }

  async ask(query) {
    const response = await fetch(`${this.base}/api/v1/${query}`);
    if (!response.ok) throw new Error(`${query}: ${response.status}`);
    return response.json();
  }

  leakingRank() {
    return until('a confirmed leak', async () =>
      ours(await this.ask('snapshot?omit_sites=true')).find(leakOf));
  }

  /** Stops the job, so that page and JSON can be compared; the state that no longer changes. */
  async freeze() {
    process.kill(-this.job.pid, 'SIGSTOP');
    return until('a state that no longer changes', async () => {
      const before = await this.ask('snapshot');
      const after = await until('the next tick', async () => {
        const next = await this.ask('snapshot');
        return next.sequence !== before.sequence && next;
      });
      const key = (s) => JSON.stringify(ours(s).map((p) => [p.totals, p.waterfalls, p.current_step, p.verdicts.length]));
      return ours(after).length === 2 && key(before) === key(after) && after;
    });
  }

  thaw() {
    process.kill(-this.job.pid, 'SIGCONT');
  }

  async openBrowser(playwright) {
    this.browser = await playwright.chromium.launch({
      executablePath: CHROMIUM,
      args: ['--headless', '--no-sandbox', '--disable-gpu', '--disable-background-networking',
        '--disable-component-update', '--disable-sync'],
    });
    this.page = await this.newPage({ viewport: { width: 1280, height: 850 } });
  }

  async newPage(options) {
    const context = await this.browser.newContext(options);
    context.setDefaultTimeout(PATIENCE);
    const page = await context.newPage();
    page.on('console', (message) => {
      // What the network says is no defect of the page: a daemon that is gone, an answer of 4xx.
      if (message.type() === 'error' && !/ERR_|status of/.test(message.text())) this.complaints.push(message.text());
    });
    page.on('pageerror', (error) => this.complaints.push(error.message));
    page.on('request', (request) => {
      const { protocol, host } = new URL(request.url());
      if (protocol !== 'blob:' && host !== `127.0.0.1:${this.port}`) this.complaints.push(`asked ${request.url()}`);
    });
    return page;
  }

  go(hash, page = this.page) {
    return page.goto(`${this.base}/#/${hash}`);
  }

  shows(locator, wanted) {
    return until(`"${wanted}" in the page`, async () =>
      (await locator.innerText({ timeout: 1000 })).includes(wanted));
  }

  async end() {
    await this.browser?.close();
    for (const stop of [() => process.kill(-this.job.pid, 'SIGKILL'), () => this.daemon.kill('SIGKILL')]) {
      try {
        stop();
      } catch {
        // It has ended already, or never began.
      }
    }
    fs.rmSync(this.folder, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
  }
}

/** Runs `test` with a scene whose daemon and browser are there; ends the program. */
export async function play(test) {
  let playwright;
  try {
    playwright = require('playwright-core');
  } catch {
    skip("no playwright-core: npm's packages could not be fetched");
  }
  if (!fs.existsSync(CHROMIUM)) skip('no chromium; install the package');
  const scene = new Scene();
  const hung = setTimeout(async () => {
    console.log('FAILED  it hangs');
    await scene.end();
    process.exit(1);
  }, AT_MOST);
  // It would end the program before the daemon and the job are ended.
  process.on('unhandledRejection', (error) => {
    failures += 1;
    console.log(`FAILED  ${error?.stack}`);
  });
  let page = true;
  try {
    await scene.startDaemon();
    page = !(await (await fetch(scene.base)).text()).includes('without its page');
    if (page) {
      await scene.openBrowser(playwright);
      await test(scene);
      await behaviour('the page asked nobody else and never complained', async () => {
        if (scene.complaints.length > 0) throw new Error(scene.complaints.join('\n'));
      });
    }
  } catch (error) {
    failures += 1;
    console.log(`FAILED  ${error.stack}`);
  } finally {
    clearTimeout(hung);
    await scene.end();
  }
  if (!page) skip('built without the page');
  console.log(failures === 0 ? 'all passed' : `${failures} failed`);
  process.exit(failures === 0 ? 0 : 1);
}
