#!/usr/bin/env node
// The page outlives its daemon, and tells how a rank ended.
import assert from 'node:assert/strict';
import { behaviour, bytes, JOB, ours, play, until } from './scene.mjs';

await play(async (scene) => {
  const { page, shows } = scene;
  scene.startJob();
  const [first] = await until('both ranks', async () => {
    const there = ours(await scene.ask('snapshot?omit_sites=true'));
    return there.length === 2 && there;
  });

  await behaviour('figures move by themselves', async () => {
    await scene.go('node');
    const step = page.locator(`[data-testid=ranks] tr[data-pid="${first.pid}"] .number`).first();
    await step.waitFor();
    const before = await step.innerText();
    await until('another step', async () => (await step.innerText()) !== before);
  });

  await behaviour('a daemon that is restarted is connected to again', async () => {
    await page.locator('.status.live').waitFor();
    await scene.killDaemon();
    await page.locator('.status.lost').waitFor();
    await shows(page.locator('main'), 'The daemon is gone');
    await scene.startDaemon();
    await page.locator('.status.live').waitFor();
    await until('the ranks again', async () => (await page.locator('[data-testid=ranks] small', { hasText: JOB }).count()) === 2);
    assert.equal(await page.locator('.warning', { hasText: 'The daemon is gone' }).count(), 0);
  });

  await behaviour('a page that is opened while no daemon is there waits for it', async () => {
    await page.goto('about:blank');
    const other = await scene.newPage({ viewport: { width: 390, height: 850 } });
    await other.route('**/api/v1/**', (route) => route.abort());
    await scene.go('node', other);
    await shows(other.locator('main'), 'The daemon does not answer');
    await other.unroute('**/api/v1/**');
    await other.locator('.status.live').waitFor();
    await other.context().close();
  });

  await behaviour('a killed rank is a post-mortem with what it held', async () => {
    const victim = await until('both ranks', async () => {
      const there = ours(await scene.ask('snapshot?omit_sites=true'));
      return there.length === 2 && there.find((p) => p.identity.rank === 1);
    });
    process.kill(victim.pid, 'SIGKILL');
    await scene.go('alerts');
    const row = page.locator(`[data-testid=post-mortems] tr[data-pid="${victim.pid}"]`);
    await shows(row, 'killed by SIGKILL');
    const dead = (await scene.ask(`snapshot?pid=${victim.pid}`)).processes[0];
    const live = dead.totals.find((t) => t.memory_class === 'fw_live' && t.witness === 'torch');
    await shows(row, bytes(live.live_bytes));
    await row.getByRole('link', { name: 'sites' }).click();
    await shows(page.getByTestId('sites-total'), bytes(live.live_bytes));
  });
});
