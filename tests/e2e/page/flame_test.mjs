#!/usr/bin/env node
// A flame graph of 10,000 sites answers a person's click, key and word at once.
import assert from 'node:assert/strict';
import { behaviour, play, until } from './scene.mjs';

const SITES = 10_000;
// A person waits for 100 ms without noticing; the bound leaves room for a loaded machine. What a
// quiet one takes is in docs/measurements/page.md.
const DEAF_MS = 3_000;

await play(async (scene) => {
  const { page, shows } = scene;
  scene.startJob();
  const { pid } = await until('a rank with sites', async () => {
    const { processes } = await scene.ask('snapshot?max_sites=3');
    return processes.find((p) => p.sites.length > 0);
  });
  const real = await scene.ask(`snapshot?pid=${pid}`);
  const [process] = real.processes;
  const frame = (i, depth) => ({
    kind: 'python', function: `layer_${depth}_${i % 4 ** depth}`, file: `/job/part_${depth}.py`, line: i % 97,
  });
  process.sites = Array.from({ length: SITES }, (_, i) => ({
    ...process.sites[0], id: String(i + 1), memory_class: 'fw_live', blamed_frame: 0,
    frames: [6, 5, 4, 3, 2, 1, 0].map((depth) => frame(i, depth)),
    live: { bytes: String((1 + (i % 13)) << 20), count: '1' },
  }));
  await page.route('**/api/v1/snapshot?*', (route) => route.fulfill({ json: real }));

  await behaviour('all are counted, and only what can be seen is drawn', async () => {
    await scene.go('sites');
    await shows(page.locator('main'), '10,000 sites');
    const drawn = await page.locator('.flame button').count();
    assert.ok(drawn > 100 && drawn < 5_000, `${drawn} frames`);
  });

  // From the event until the browser is free again after it drew the result.
  const deaf = (act) =>
    page.evaluate(async (text) => {
      const begin = performance.now();
      new Function(text)();
      await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
      return performance.now() - begin;
    }, act);
  const acts = {
    'click on a frame': "document.querySelectorAll('.flame button')[3].click()",
    'take the filter back': "document.querySelector('.chip').click()",
    'pointer over a frame': "document.querySelectorAll('.flame button')[40].dispatchEvent(new MouseEvent('mouseenter'))",
    'arrow key': "document.querySelector('.flame button').dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowDown', bubbles: true }))",
    'letter into the search':
      "const i = document.querySelector('input[type=search]'); i.value = 'layer_6_1'; i.dispatchEvent(new Event('input', { bubbles: true }))",
    'clear the search':
      "const i = document.querySelector('input[type=search]'); i.value = ''; i.dispatchEvent(new Event('input', { bubbles: true }))",
  };
  await behaviour(`each of ${Object.keys(acts).length} ways to touch it is answered at once`, async () => {
    for (const [name, act] of Object.entries(acts)) {
      const ms = await deaf(act);
      console.log(`        ${name}: ${Math.round(ms)} ms`);
      assert.ok(ms < DEAF_MS, `${name}: ${ms} ms`);
      if (name.startsWith('click')) await page.locator('.chip').waitFor();
      if (name.startsWith('take')) await page.locator('.chip').waitFor({ state: 'detached' });
    }
    await shows(page.locator('main'), '10,000 sites');
  });
});
