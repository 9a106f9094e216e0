#!/usr/bin/env node
// What anybody can use: both themes, a phone, the keyboard, links, and words where there is nothing
// or something failed.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import { behaviour, play, require, until } from './scene.mjs';

const PHONE = 390;

await play(async (scene) => {
  const { page, shows } = scene;
  const go = (hash) => scene.go(hash);
  const main = page.locator('main');
  scene.startJob();
  const rank = await scene.leakingRank();
  await scene.freeze();

  const axe = fs.readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');
  const views = [
    ['node', '.uplot canvas'],
    [`rank?pid=${rank.pid}`, '.uplot canvas'],
    [`sites?pid=${rank.pid}`, '.flame button'],
    ['compare', '[data-testid=compare-ranks]'],
    ['compare?way=moments', '[data-testid=diff-classes]'],
    ['compare?way=recordings', '[data-testid=recording-after]'],
    ['alerts', '[data-testid=history]'],
  ];
  for (const theme of ['light', 'dark']) {
    await behaviour(`labels, roles and contrast hold in ${theme}`, async () => {
      await go('node');
      await page.evaluate((name) => localStorage.setItem('tidemark-theme', name), theme);
      await page.reload();
      for (const [hash, ready] of views) {
        await go(hash);
        await page.locator(ready).first().waitFor();
        assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), theme);
        await page.evaluate(axe);
        const { violations } = await page.evaluate(() => axe.run({ runOnly: ['wcag2a', 'wcag2aa'] }));
        assert.deepEqual(violations.map((v) => `${hash}: ${v.id}: ${v.nodes[0].html}: ${v.nodes[0].failureSummary}`), []);
      }
    });
  }

  await behaviour('nothing is wider than a phone', async () => {
    await page.setViewportSize({ width: PHONE, height: 850 });
    for (const [hash, ready] of views) {
      await go(hash);
      await page.locator(ready).first().waitFor();
      const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(over <= 0, `${hash} is ${over} px wider than ${PHONE}`);
    }
    await page.setViewportSize({ width: 1280, height: 850 });
  });

  await behaviour('numbers, t, / and ? work from the keyboard, and arrows walk the flame graph', async () => {
    await go('node');
    await page.locator('[data-testid=ranks]').waitFor();
    for (const [key, view] of [['2', 'rank'], ['4', 'compare'], ['5', 'alerts'], ['3', 'sites']]) {
      await page.keyboard.press(key);
      await until(`the view ${view}`, async () => page.url().includes(`#/${view}`));
    }
    const theme = () => page.evaluate(() => document.documentElement.dataset.theme);
    const first = await theme();
    await page.keyboard.press('t');
    assert.notEqual(await theme(), first);
    await page.keyboard.press('?');
    await page.getByRole('dialog').waitFor();
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    await page.locator('.flame button').first().focus();
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('ArrowDown');
    const walked = await page.evaluate(() => document.activeElement.textContent);
    await page.keyboard.press('Enter');
    await shows(page.locator('.chip'), walked);
    await page.keyboard.press('/');
    await page.locator('input[type=search]:focus').waitFor();
    await page.keyboard.type('no such function');
    await shows(main, 'No site fits');
  });

  await behaviour('a link says all of where one was', async () => {
    const other = await scene.newPage({ viewport: { width: 1280, height: 850 } });
    await scene.go(`sites?pid=${rank.pid}&at=load&find=simtrain_model`, other);
    await other.locator('[data-testid=sites]').waitFor();
    assert.equal(await other.locator('input[type=search]').inputValue(), 'simtrain_model');
    await shows(other.getByRole('navigation', { name: 'moment' }).locator('[aria-current]'), 'at load');
    // Links where there are few processes, a list where other jobs run here too.
    await shows(other.locator('nav[aria-label=process] [aria-current], label.one option:checked'), 'rank 1');
    await other.getByRole('link', { name: 'at the peak' }).click();
    await until('the peak in the address', async () => other.url().includes('at=peak'));
    await other.goBack();
    await shows(other.getByRole('navigation', { name: 'moment' }).locator('[aria-current]'), 'at load');
    await other.context().close();
  });

  await behaviour('where nothing is, it says what would be there', async () => {
    const other = await scene.newPage({ viewport: { width: PHONE, height: 850 } });
    const nothing = { ...(await scene.ask('snapshot?omit_sites=true')), processes: [], devices: [] };
    await other.route('**/api/v1/stream?*', (route) => route.fulfill({ status: 503, json: { error: 'busy' } }));
    await other.route('**/api/v1/snapshot?*', (route) => route.fulfill({ json: nothing }));
    for (const [hash, words] of [
      ['node', 'No process is observed yet'],
      ['rank', 'No process is observed yet'],
      ['rank?pid=1', 'No process is observed yet'],
      ['sites', 'No site holds memory now'],
      ['compare', 'No ranks to compare'],
      ['alerts', 'No process ended'],
      ['nonsense', 'There is no such view'],
    ]) {
      await scene.go(hash, other);
      await shows(other.locator('main'), words);
    }
    await other.context().close();
  });

  await behaviour('what fails is said in words, and a daemon that wants a token asks for it', async () => {
    const other = await scene.newPage({ viewport: { width: PHONE, height: 850 } });
    await scene.go('rank?pid=999999', other);
    await shows(other.locator('main'), 'Process 999999 is not known here');
    await other.route('**/api/v1/diff?*', (route) => route.fulfill({ status: 404, json: { error: 'that is before its history begins' } }));
    await scene.go('compare?way=moments&before=24h', other);
    await shows(other.locator('main'), 'These two cannot be compared');
    await shows(other.locator('main'), 'that is before its history begins');
    await other.context().close();

    const stranger = await scene.newPage({ viewport: { width: PHONE, height: 850 } });
    const tokens = [];
    await stranger.route('**/api/v1/**', (route) => {
      const token = route.request().headers().authorization;
      if (!token) return route.fulfill({ status: 401, json: { error: 'send the token' } });
      tokens.push(token);
      return route.continue();
    });
    await scene.go('node', stranger);
    await shows(stranger.locator('main'), 'send the token');
    await stranger.getByLabel('Token').fill('0123456789abcdef');
    await stranger.getByRole('button', { name: 'Connect' }).click();
    await stranger.locator('.status.live').waitFor();
    assert.equal(tokens[0], 'Bearer 0123456789abcdef');
    await stranger.context().close();
  });
});
