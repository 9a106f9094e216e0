#!/usr/bin/env node
// Each view shows the numbers of the daemon's JSON, and marks the leak.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { behaviour, BUILD, bytes, leakOf, ours, play, SOURCE, sum, until } from './scene.mjs';

await play(async (scene) => {
  const { page, shows } = scene;
  const go = (hash) => scene.go(hash);
  const tidemark = (...words) =>
    execFileSync(path.join(BUILD, 'bin/tidemark'), words, { stdio: ['ignore', 'pipe', 'ignore'], encoding: 'utf8' });
  const record = (name) => {
    const file = path.join(scene.folder, name);
    tidemark('record', '--socket', path.join(scene.folder, 'api.sock'), '-o', file);
    return file;
  };

  scene.startJob();
  await until('both ranks in training', async () => {
    const there = ours(await scene.ask('snapshot?omit_sites=true'));
    return there.length === 2 && there.every((p) => Number(p.current_step) > 5);
  });
  const before = record('before.tdm');
  const { pid } = await scene.leakingRank();
  const still = await scene.freeze();
  const rank = ours(still).find((p) => p.pid === pid);
  const leak = leakOf(rank);
  const blamed = rank.sites.find((s) => s.id === leak.site_id);
  assert.ok(blamed, 'the leak has a site');

  await behaviour('the node view shows each rank with its bytes, and marks the leak', async () => {
    await go('node');
    for (const process of ours(still)) {
      const row = page.locator(`[data-testid=ranks] tr[data-pid="${process.pid}"]`);
      await shows(row, `rank ${process.identity.rank}`);
      const live = process.totals.find((t) => t.memory_class === 'fw_live' && t.witness === 'torch');
      await shows(row, bytes(live.live_bytes));
      await shows(row, bytes(sum(process.waterfalls.map((w) => w.figure_bytes))));
      await shows(row, Number(process.current_step).toLocaleString('en-US'));
      const leaks = process.verdicts.some((v) => v.is_leak && v.state === 'confirmed');
      assert.equal(await row.locator('.badge.leak').count(), leaks ? 1 : 0);
    }
    const line = page.locator('.alertline.leak[data-cause="tensors_kept"]').first();
    await shows(line, 'rank 1 of 2');
    await shows(line, `${bytes(leak.slope_bytes_per_step)}/step`);
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
    const group = rank.steps.at(-1).groups.find((g) => g.side === 'framework');
    const steps = page.getByTestId('steps');
    await shows(steps, bytes(group.floor_bytes));
    await shows(steps, bytes(group.peak_bytes));
    await shows(steps, 'Marked: where tensors kept began');
    await shows(page.locator('.alert.leak'), blamed.frames[blamed.blamed_frame].function);
    await shows(page.getByTestId('host'), bytes(rank.host.rss_bytes));
  });

  const sites = rank.sites.filter((s) => s.memory_class === 'fw_live');
  const rows = page.locator('[data-testid=sites] tbody > tr');
  const heldAt = {
    now: (site) => site.live, load: (site) => site.at_load,
    peak: (site) => site.at_peak, last_step: (site) => site.at_last_step,
  };

  await behaviour('the site view has count x size, now, at load and at the peak, and marks the leak', async () => {
    for (const [at, held] of Object.entries(heldAt)) {
      await go(`sites?pid=${rank.pid}&at=${at}`);
      const holding = sites.filter((s) => Number(held(s).bytes) > 0);
      await shows(page.getByTestId('sites-total'), bytes(sum(holding.map((s) => held(s).bytes))));
      await until(`the rows ${at}`, async () => (await rows.count()) === holding.length);
      for (const site of holding) {
        const row = page.locator(`[data-testid=sites] tr[data-site="${site.id}"]`);
        await shows(row, bytes(held(site).bytes));
        if (site.min_block_bytes === site.max_block_bytes && !site.estimated) {
          await shows(row, `${Number(held(site).count).toLocaleString('en-US')} x ${bytes(site.max_block_bytes)}`);
        }
        assert.equal(await row.locator('.badge.leak').count(), site.id === blamed.id ? 1 : 0);
      }
    }
  });

  await behaviour('clicking a frame of the flame graph filters, clicking its chip takes that back', async () => {
    await go(`sites?pid=${rank.pid}`);
    const name = blamed.frames[blamed.blamed_frame].function;
    await page.locator('.flame button', { hasText: name }).first().click();
    await page.locator('.chip').waitFor();
    assert.match(page.url(), /frame=/);
    const through = sites.filter((s) => s.live.bytes !== '0' && s.frames.some((f) => f.function === name));
    await until('only sites through the frame', async () => (await rows.count()) === through.length);
    await shows(page.getByTestId('sites-total'), bytes(sum(through.map((s) => s.live.bytes))));
    await page.locator('.chip').click();
    await until('every site again', async () => (await rows.count()) > through.length);
  });

  await behaviour('the compare view puts ranks side by side', async () => {
    await go('compare');
    for (const name of ['fw_live', 'fw_cache', 'context']) {
      const row = page.locator(`[data-testid=compare-ranks] tr[data-class="${name}"]`);
      for (const process of ours(still)) {
        await shows(row, bytes(process.waterfalls[0].lines.find((l) => l.memory_class === name).bytes));
      }
    }
  });

  await behaviour('it compares load with now', async () => {
    await go(`compare?way=moments&pid=${rank.pid}`);
    const diff = await scene.ask(
      `diff?before.moment.name=load&after.moment.name=now&before.pids=${rank.pid}&after.pids=${rank.pid}`);
    const live = diff.classes.find((c) => c.memory_class === 'fw_live');
    const tensors = page.locator('[data-testid=diff-classes] tr[data-class="fw_live"]');
    await shows(tensors, bytes(live.before_bytes));
    await shows(tensors, bytes(live.after_bytes));
    await shows(page.getByTestId('diff-sites'), blamed.frames[blamed.blamed_frame].function);
  });

  await behaviour('it compares two recordings in the browser, and an old format still opens', async () => {
    const after = record('after.tdm');
    const liveIn = (file) =>
      sum(JSON.parse(tidemark('ps', '--json', '--from', file)).processes.flatMap((p) =>
        p.totals.filter((t) => t.memory_class === 'fw_live' && t.witness === 'torch').map((t) => t.live_bytes)));
    assert.ok(liveIn(after) > liveIn(before));
    await go('compare?way=recordings');
    await page.getByTestId('recording-before').setInputFiles(before);
    await page.getByTestId('recording-after').setInputFiles(after);
    const tensors = page.locator('[data-testid=diff-classes] tr[data-class="fw_live"]');
    await shows(tensors, bytes(liveIn(before)));
    await shows(tensors, bytes(liveIn(after)));
    await shows(page.getByTestId('diff-sites').locator('tr', { hasText: blamed.frames[blamed.blamed_frame].function }), '+');
    const old = path.join(SOURCE, 'tests/fixtures/recordings/format1.tdm');
    await page.getByTestId('recording-before').setInputFiles(old);
    await page.getByTestId('recording-after').setInputFiles(old);
    await shows(page.locator('main'), 'No site changed');
    fs.writeFileSync(path.join(scene.folder, 'x.tdm'), 'no');
    await page.getByTestId('recording-after').setInputFiles(path.join(scene.folder, 'x.tdm'));
    await shows(page.getByRole('alert'), 'is not a recording');
  });

  await behaviour('the alerts view tells the leak, its site and what was said before', async () => {
    await go('alerts');
    const card = page.locator('.alert.leak[data-cause="tensors_kept"]').first();
    await shows(card, bytes(leak.slope_bytes_per_step));
    await shows(card, bytes(leak.grown_bytes));
    await shows(card, blamed.frames[blamed.blamed_frame].function);
    await shows(page.getByTestId('history'), 'confirmed: tensors kept');
  });
});
