// A server without models: the console tells what to run, asks for a key where one is wanted, and survives an outage.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { becomes, isReadable, isUsable, looks, on, shot, start, stop, url } from './browser.js';

before(start);
after(stop);

for (const [look, options] of Object.entries(looks)) {
  test(`it tells what to run, ${look}`, () => on('models', async (page) => {
    await page.locator('.empty pre').nth(1).waitFor();
    const commands = await page.locator('.empty pre').allTextContents();
    assert.deepEqual(commands, [
      `saggar --host ${url} data push examples/digits --name digits\n`
        + `saggar --host ${url} run lenet --data digits -f`,
      `saggar --host ${url} import model.onnx --name NAME`,
    ]);
    await isUsable(page);
    await isReadable(page);
    await shot(page, `empty-${look}`);
  }, options));
}

test('the playground says that there is nothing to ask', () => on('playground', async (page) => {
  await page.getByRole('heading', { name: 'No models yet' }).waitFor();
}));

test('a key is asked for once, and sent', () => on('models', async (page) => {
  await page.route('**/api/v1/models', (route, request) => {
    const known = request.headers().authorization === 'Bearer sgr_right';
    const refusal = { error: 'a key is needed', code: 'unauthenticated', hint: '', request_id: 'r1' };
    return known ? route.continue() : route.fulfill({ status: 401, json: refusal });
  });
  await page.reload();
  await page.getByRole('dialog').getByText('The server says: a key is needed.').waitFor();
  await page.keyboard.type('sgr_wrong');
  await page.keyboard.press('Enter');
  // Another key is another try; the same one is not asked for again.
  await page.getByRole('dialog').getByLabel('API key').waitFor();
  await page.getByRole('dialog').getByLabel('API key').fill('sgr_right');
  await shot(page, 'key');
  await page.getByRole('button', { name: 'Use this key' }).click();
  await page.getByText('No models yet').waitFor();
  assert.equal(await page.locator('#key-button').textContent(), 'Key set');
  assert.equal(await page.evaluate(() => sessionStorage.getItem('saggar-api-key')), 'sgr_right');
  assert.equal(await page.evaluate(() => localStorage.length), 0);
}, { expected: ['status of 401'] }));

test('an outage and its end are reported', () => on('models', async (page) => {
  await page.getByText('No models yet').waitFor();
  await page.route('**/api/v1/models', (route) => route.abort());
  await page.locator('#live.off').waitFor();
  assert.equal(await page.locator('#live').textContent(), 'No answer');
  // What was seen last stays.
  assert.ok(await page.getByText('No models yet').isVisible());
  await page.unroute('**/api/v1/models');
  await page.locator('#live.on').waitFor();
}, { expected: ['net::ERR_FAILED'] }));

test('nothing is asked while nobody looks', () => on('models', async (page) => {
  await page.clock.install();
  await page.reload();
  await page.getByText('No models yet').waitFor();
  let asked = 0;
  page.on('request', () => { asked += 1; });
  const hide = (hidden) => page.evaluate((value) => {
    Object.defineProperty(document, 'hidden', { value, configurable: true });
    document.dispatchEvent(new Event('visibilitychange'));
  }, hidden);
  await hide(true);
  assert.equal(await page.locator('#live').textContent(), 'Paused');
  const seen = asked;
  await page.clock.runFor(60_000);
  assert.equal(asked, seen);
  await hide(false);
  await becomes(() => asked > seen, true);
}));

test('names are text, whatever is in them', () => on('models', async (page) => {
  const name = '<img src=x onerror=alert(1)>';
  const version = { version: 1, state: 'FAILED', reason: '<b>no</b>', plugin: null, weights: null, created_ms: null, source_job: null };
  await page.route('**/api/v1/models', (route) => route.fulfill({ json: { models: [{ name, serving: null, versions: [version] }] } }));
  await page.reload();
  await page.getByRole('button', { name, exact: true }).waitFor();
  assert.equal(await page.locator('main img, main b:has-text("no")').count(), 0);
}));
