#!/usr/bin/env node
// The page in a real Chromium, on a live daemon with the simulated job: each view shows what the
// daemon's JSON says. Usage: page_test.mjs [SCREENSHOT_FOLDER]; TIDEMARK_BUILD is the build folder,
// TIDEMARK_SOURCE the checkout. Every behaviour is one line of output.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import { createRequire } from 'node:module';
import os from 'node:os';
import path from 'node:path';

const BUILD = process.env.TIDEMARK_BUILD;
const SOURCE = process.env.TIDEMARK_SOURCE;
const SCREENSHOTS = process.argv[2];
const CHROMIUM = '/usr/bin/chromium';
const PATIENCE = 60_000;

function skip(why) {
  console.log(`skipped: ${why}`);
  process.exit(77);
}
const require = createRequire(path.join(SOURCE, 'web/package.json'));
let playwright;
try {
  playwright = require('playwright-core');
} catch {
  skip("no playwright-core: npm's packages could not be fetched");
}
if (!fs.existsSync(CHROMIUM)) skip('no chromium; install the package');

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'tidemark-page-'));
const simulation = {
  ...process.env,
  LD_LIBRARY_PATH: path.join(BUILD, 'sim'),
  TIDEMARK_SIM: path.join(BUILD, 'sim'),
  TIDEMARK_SIM_STATE: path.join(folder, 'sim'),
  TIDEMARK_AGENT_SOCKET: path.join(folder, 'agent.sock'),
};

// On `port` 0 a free one; resolves to the port once everything is served.
function startDaemon(port) {
  const log = fs.openSync(path.join(folder, 'log'), 'a');
  const daemon = spawn(
    path.join(BUILD, 'bin/tidemarkd'),
    ['--private', '--exit-when-idle', '0', '--agent-socket', path.join(folder, 'agent.sock'),
      '--api-socket', path.join(folder, 'api.sock'), '--http', `127.0.0.1:${port}`, '--ready-fd', '3'],
    { env: simulation, stdio: ['ignore', log, log, 'pipe'] },
  );
  return new Promise((resolve, reject) => {
    daemon.stdio[3].once('data', (data) => resolve({ daemon, port: Number(/:(\d+)\//.exec(data)[1]) }));
    daemon.once('exit', () => reject(new Error(fs.readFileSync(path.join(folder, 'log'), 'utf8'))));
  });
}

function startJob(...options) {
  return spawn(
    'python3',
    [path.join(SOURCE, 'tests/sim/simtrain.py'), '--steps', '1000000', '--step-ms', '50', ...options],
    { env: { ...simulation, CUDA_INJECTION64_PATH: path.join(BUILD, 'lib/libtidemark_cupti.so') }, stdio: 'ignore', detached: true },
  );
}

async function until(what, found) {
  const give_up = Date.now() + PATIENCE;
  for (;;) {
    const value = await found().catch(() => null);
    if (value) return value;
    if (Date.now() > give_up) throw new Error(`did not come about: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

// As units.ts and the command line write bytes.
function bytes(value) {
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

const sum = (values) => values.reduce((total, value) => total + Number(value), 0);
let failures = 0;
async function behaviour(name, check) {
  const begin = Date.now();
  try {
    await check();
    console.log(`ok      ${name} (${Date.now() - begin} ms)`);
  } catch (error) {
    failures += 1;
    console.log(`FAILED  ${name}\n${error.stack}`);
  }
}

let { daemon, port } = await startDaemon(0);
const job = startJob('--ranks', '2', '--scenario', 'one-rank', '--leak-rank', '1');
const base = `http://127.0.0.1:${port}`;
const ask = async (query) => (await fetch(`${base}/api/v1/${query}`)).json();
const browser = await playwright.chromium.launch({
  executablePath: CHROMIUM,
  args: ['--headless', '--no-sandbox', '--disable-gpu', '--disable-background-networking',
    '--disable-component-update', '--disable-sync'],
});

try {
  if ((await (await fetch(base)).text()).includes('without its page')) skip('built without the page');
  const ours = (snapshot) => snapshot.processes.filter((p) => p.identity.rank >= 0 && p.observed);
  const leaks = (process) => process.verdicts.find((v) => v.is_leak && v.state === 'confirmed' && v.memory_class === 'fw_live');
  const leaking = await until('a confirmed leak', async () =>
    ours(await ask('snapshot?omit_sites=true')).find(leaks));
  // The job stands still from here on, so that page and JSON can be compared.
  process.kill(-job.pid, 'SIGSTOP');
  const still = await until('a state that no longer changes', async () => {
    const a = await ask('snapshot');
    const b = await until('the next tick', async () => {
      const next = await ask('snapshot');
      return next.sequence !== a.sequence && next;
    });
    const key = (s) => JSON.stringify(ours(s).map((p) => [p.totals, p.waterfalls, p.current_step]));
    return key(a) === key(b) && b;
  });
  const rank = ours(still).find((p) => p.pid === leaking.pid);

  const context = await browser.newContext({ viewport: { width: 1280, height: 850 } });
  context.setDefaultTimeout(PATIENCE);
  const page = await context.newPage();
  const complaints = [];
  page.on('console', (message) => {
    // A daemon that is restarted is news to the network only.
    if (message.type() === 'error' && !/ERR_CONNECTION|ERR_INCOMPLETE|ERR_EMPTY|503/.test(message.text())) complaints.push(message.text());
  });
  page.on('pageerror', (error) => complaints.push(error.message));
  page.on('request', (request) => {
    if (!request.url().startsWith(base) && !request.url().startsWith('blob:')) complaints.push(`asked ${request.url()}`);
  });
  const go = (hash) => page.goto(`${base}/#/${hash}`);
  const text = (selector) => page.locator(selector).first().innerText();
  const textOf = (locator) => locator.innerText();
  const shows = (locator, wanted) =>
    until(`${wanted} in the page`, async () => (await textOf(locator)).includes(wanted));

  await behaviour('the node view shows each rank with the bytes of the JSON, and marks the leak', async () => {
    await go('node');
    for (const process of ours(still)) {
      const row = page.locator(`[data-testid=ranks] tr[data-pid="${process.pid}"]`);
      await shows(row, `rank ${process.identity.rank}`);
      const live = process.totals.find((t) => t.memory_class === 'fw_live' && t.witness === 'torch');
      await shows(row, bytes(live.live_bytes));
      await shows(row, bytes(sum(process.waterfalls.map((w) => w.figure_bytes))));
      assert.equal((await row.innerText()).includes('leak'), process.pid === leaking.pid || Boolean(leaks(process)));
    }
    const line = page.locator('.alertline.leak[data-cause="tensors_kept"]').first();
    await shows(line, `rank ${rank.identity.rank} of 2`);
    for (const device of still.devices.slice(0, 2)) {
      await shows(page.getByTestId('devices'), `${bytes(device.used_bytes)} of ${bytes(device.total_bytes)}`);
    }
  });

  await behaviour('the rank view has a waterfall that adds up, steps and the leak', async () => {
    await go(`rank?pid=${rank.pid}`);
    for (const waterfall of rank.waterfalls) {
      const card = page.locator(`[data-testid=waterfall][data-device="${waterfall.device}"]`);
      await shows(card, 'add up to the figure, to the byte');
      for (const line of waterfall.lines.filter((l) => l.bytes !== '0')) {
        await shows(card.locator(`[data-class="${line.memory_class}"]`), bytes(line.bytes));
      }
      await shows(card.locator('tfoot'), bytes(waterfall.figure_bytes));
    }
    const last = rank.steps.at(-1);
    const group = last.groups.find((g) => g.side === 'framework');
    const steps = page.getByTestId('steps');
    await shows(steps, bytes(group.floor_bytes));
    await shows(steps, bytes(group.peak_bytes));
    await shows(steps, 'Marked: where tensors kept began');
    const blamed = rank.sites.find((s) => s.id === leaks(rank).site_id);
    if (blamed) await shows(page.locator('.alert.leak'), blamed.frames[blamed.blamed_frame].function);
  });

  await behaviour('the site view lists sites as count x size, and a frame filters', async () => {
    await go(`sites?pid=${rank.pid}`);
    const sites = rank.sites.filter((s) => s.memory_class === 'fw_live' && s.live.bytes !== '0');
    await shows(page.getByTestId('sites-total'), bytes(sum(sites.map((s) => s.live.bytes))));
    for (const site of sites) {
      const row = page.locator(`[data-testid=sites] tr[data-site="${site.id}"]`);
      await shows(row, bytes(site.live.bytes));
      if (site.min_block_bytes === site.max_block_bytes && !site.estimated) {
        await shows(row, `${Number(site.live.count).toLocaleString('en-US')} x ${bytes(site.max_block_bytes)}`);
      }
    }
    const blamed = sites.find((s) => s.id === leaks(rank)?.site_id) ?? sites[0];
    const name = blamed.frames[blamed.blamed_frame].function;
    await page.locator('.flame button', { hasText: name }).first().click();
    await page.locator('.chip').waitFor();
    assert.match(page.url(), /frame=/);
    const through = sites.filter((s) => s.frames.some((f) => f.function === name));
    await until('only sites through the frame', async () =>
      (await page.locator('[data-testid=sites] tbody > tr').count()) === through.length);
    await go(`sites?pid=${rank.pid}&at=load`);
    const loaded = rank.sites.filter((s) => s.memory_class === 'fw_live');
    await shows(page.getByTestId('sites-total'), bytes(sum(loaded.map((s) => s.at_load.bytes))));
    await page.keyboard.press('/');
    await page.locator('input[type=search]:focus').waitFor();
    await page.keyboard.type('no such function');
    await shows(page.locator('main'), 'No site fits');
  });

  await behaviour('the compare view puts ranks side by side, and load beside now', async () => {
    await go('compare');
    const row = page.locator('[data-testid=compare-ranks] tr[data-class="fw_live"]');
    for (const process of ours(still)) {
      const line = process.waterfalls[0].lines.find((l) => l.memory_class === 'fw_live');
      await shows(row, bytes(line.bytes));
    }
    await go(`compare?way=moments&pid=${rank.pid}`);
    const diff = await ask(`diff?before.moment.name=load&after.moment.name=now&before.pids=${rank.pid}&after.pids=${rank.pid}`);
    const live = diff.classes.find((c) => c.memory_class === 'fw_live');
    const tensors = page.locator('[data-testid=diff-classes] tr[data-class="fw_live"]');
    await shows(tensors, bytes(live.before_bytes));
    await shows(tensors, bytes(live.after_bytes));
    await shows(page.getByTestId('diff-sites'), '.py:');
  });

  await behaviour('two recordings are read in the browser, old format and new', async () => {
    const old = fs.readdirSync(path.join(SOURCE, 'tests/fixtures'), { recursive: true }).find((f) => f.endsWith('.tdm'));
    assert.ok(old, 'no recording among the fixtures');
    await go('compare?way=recordings');
    const file = path.join(SOURCE, 'tests/fixtures', old);
    await page.getByTestId('recording-before').setInputFiles(file);
    await page.getByTestId('recording-after').setInputFiles(file);
    await shows(page.locator('main'), 'No site changed');
    await page.getByTestId('recording-after').setInputFiles({ name: 'x.tdm', mimeType: '', buffer: Buffer.from('no') });
    await shows(page.getByRole('alert'), 'is not a recording');
  });

  await behaviour('the alerts view tells the leak, its site and what was said before', async () => {
    await go('alerts');
    const card = page.locator('.alert.leak[data-cause="tensors_kept"]').first();
    await shows(card, bytes(leaks(rank).slope_bytes_per_step));
    await shows(page.getByTestId('history'), 'confirmed: tensors kept');
  });

  await behaviour('numbers, t and ? work from the keyboard', async () => {
    await go('node');
    await page.keyboard.press('4');
    await until('the compare view', async () => page.url().includes('#/compare'));
    const before = await page.evaluate(() => document.documentElement.dataset.theme);
    await page.keyboard.press('t');
    assert.notEqual(await page.evaluate(() => document.documentElement.dataset.theme), before);
    await page.keyboard.press('t');
    await page.keyboard.press('?');
    await page.getByRole('dialog').waitFor();
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
  });

  const axe = fs.readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');
  const views = {
    node: 'node',
    rank: `rank?pid=${rank.pid}`,
    sites: `sites?pid=${rank.pid}`,
    compare: 'compare',
    'before-after': `compare?way=moments`,
    alerts: 'alerts',
  };
  const ready = { node: '.uplot canvas', rank: '.uplot canvas', sites: '.flame button', compare: 'table', 'before-after': '[data-testid=diff-classes]', alerts: '[data-testid=history]' };
  for (const theme of ['light', 'dark']) {
    await behaviour(`labels, roles and contrast hold in ${theme}, and nothing is wider than a phone`, async () => {
      await page.evaluate((name) => localStorage.setItem('tidemark-theme', name), theme);
      await page.goto('about:blank');
      for (const [name, hash] of Object.entries(views)) {
        for (const width of [1280, 390]) {
          await page.setViewportSize({ width, height: 850 });
          await go(hash);
          await page.locator(ready[name]).first().waitFor();
          assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), theme);
          if (SCREENSHOTS) {
            await page.waitForTimeout(1500);
            const file = `${name}-${theme}${width === 390 ? '-phone' : ''}.png`;
            await page.screenshot({ path: path.join(SCREENSHOTS, file), fullPage: true });
          }
          const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
          assert.ok(over <= 0, `${name} is ${over} px wider than ${width}`);
        }
        await page.evaluate(axe);
        const { violations } = await page.evaluate(() => axe.run({ runOnly: ['wcag2a', 'wcag2aa'] }));
        assert.deepEqual(violations.map((v) => `${name}: ${v.id}: ${v.nodes[0].html}: ${v.nodes[0].failureSummary}`), []);
      }
      await page.setViewportSize({ width: 1280, height: 850 });
    });
  }

  await behaviour('a flame graph of 10,000 sites stays responsive', async () => {
    const many = structuredClone(still);
    many.processes = [structuredClone(rank)];
    const frame = (i, depth) => ({ kind: 'python', function: `layer_${depth}_${i % 4 ** depth}`, file: `/job/part_${depth}.py`, line: i % 97 });
    many.processes[0].sites = Array.from({ length: 10_000 }, (_, i) => ({
      ...rank.sites[0], id: String(i + 1), memory_class: 'fw_live', blamed_frame: 0,
      frames: [6, 5, 4, 3, 2, 1, 0].map((depth) => frame(i, depth)),
      live: { bytes: String((1 + (i % 13)) << 20), count: '1' },
    }));
    await page.route('**/api/v1/snapshot?*', (route) => route.fulfill({ json: many }));
    await page.goto('about:blank');
    await go('sites');
    await shows(page.locator('main'), '10,000 sites');
    assert.ok((await page.locator('.flame button').count()) < 5_000);
    // How long the page is deaf after a click that lays everything out anew: on an idle machine
    // some 60 ms; the bound is that of a person, with room for a loaded machine.
    const deaf = await page.evaluate(async () => {
      const begin = performance.now();
      document.querySelectorAll('.flame button')[3].click();
      await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
      return performance.now() - begin;
    });
    console.log(`        ${Math.round(deaf)} ms from click to frame`);
    assert.ok(deaf < 5_000, `${deaf} ms`);
    await page.locator('.chip').waitFor();
    await page.unroute('**/api/v1/snapshot?*');
  });

  await behaviour('a daemon that is restarted is connected to again', async () => {
    await go('node');
    await page.locator('.status.live').waitFor();
    daemon.kill('SIGKILL');
    await page.locator('.status.lost').waitFor();
    await shows(page.locator('main'), 'The daemon is gone');
    ({ daemon } = await startDaemon(port));
    await page.locator('.status.live').waitFor();
    process.kill(-job.pid, 'SIGCONT');
    await until('the ranks again', async () => (await page.locator('[data-testid=ranks] tbody tr').count()) >= 2);
  });

  await behaviour('a killed rank is a post-mortem with what it held', async () => {
    process.kill(rank.pid, 'SIGKILL');
    await go('alerts');
    const row = page.locator(`[data-testid=post-mortems] tr[data-pid="${rank.pid}"]`);
    await shows(row, 'killed by SIGKILL');
    await shows(row, 'GiB');
    if (SCREENSHOTS) await page.screenshot({ path: path.join(SCREENSHOTS, 'post-mortem-dark.png'), fullPage: true });
  });

  await behaviour('the page asked nobody else and never complained', async () => {
    assert.deepEqual(complaints, []);
  });
} finally {
  await browser.close();
  for (const end of [() => process.kill(-job.pid, 'SIGKILL'), () => daemon.kill('SIGTERM')]) {
    try {
      end();
    } catch {
      // It has ended already.
    }
  }
  fs.rmSync(folder, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
}
console.log(failures === 0 ? 'all passed' : `${failures} failed`);
process.exit(failures === 0 ? 0 : 1);
