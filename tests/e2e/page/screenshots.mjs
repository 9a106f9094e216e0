#!/usr/bin/env node
// Takes the screenshots of docs/: screenshots.mjs FOLDER. A job of four ranks, one of which leaks,
// runs for a minute first. Other jobs of the machine are left out of the pictures.
import path from 'node:path';
import { JOB, play } from './scene.mjs';

const RUN_MS = 60_000;
const [, , out] = process.argv;

await play(async (scene) => {
  scene.startJob('--ranks', '4', '--leak-rank', '2', '--step-ms', '250');
  const rank = await scene.leakingRank();
  await new Promise((resolve) => setTimeout(resolve, RUN_MS));
  const views = {
    node: ['node', '.uplot canvas'],
    rank: [`rank?pid=${rank.pid}`, '.uplot canvas'],
    sites: [`sites?pid=${rank.pid}`, '.flame button'],
    compare: ['compare', '[data-testid=compare-ranks]'],
    'before-after': [`compare?way=moments&pid=${rank.pid}`, '[data-testid=diff-sites]'],
    alerts: ['alerts', '[data-testid=history]'],
  };
  const mine = (process) => process?.training_job === JOB;
  for (const [suffix, colorScheme, width] of [['light', 'light', 1280], ['dark', 'dark', 1280], ['light-phone', 'light', 390]]) {
    const page = await scene.newPage({ viewport: { width, height: 850 }, colorScheme });
    // The stream cannot be filtered here; the page then asks instead.
    await page.route('**/api/v1/stream?*', (route) => route.fulfill({ status: 503, json: { error: 'busy' } }));
    await page.route(/api\/v1\/(snapshot|query_range)\?/, async (route) => {
      const answer = await (await route.fetch()).json();
      if (answer.processes) answer.processes = answer.processes.filter((p) => mine(p.identity));
      if (answer.series) answer.series = answer.series.filter((s) => mine(s.process));
      if (answer.marks) answer.marks = answer.marks.filter((m) => mine(m.process));
      await route.fulfill({ json: answer });
    });
    for (const [name, [hash, ready]] of Object.entries(views)) {
      await scene.go(hash, page);
      await page.locator(ready).first().waitFor();
      await page.waitForTimeout(3000);
      await page.screenshot({ path: path.join(out, `${name}-${suffix}.png`), fullPage: true });
    }
    await page.unrouteAll({ behavior: 'ignoreErrors' });
    await page.context().close();
  }
});
