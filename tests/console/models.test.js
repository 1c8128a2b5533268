// The page of models against a server with `digits`, whose models directory is MODELS_DIR.

import assert from 'node:assert/strict';
import { cpSync, mkdirSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';

import { api, becomes, isUsable, looks, on, shot, start, stop } from './browser.js';

before(start);
after(stop);

/** Copies version 1 as a careful user would: the manifest last. */
function copyVersion(to) {
  const model = path.join(process.env.MODELS_DIR, 'digits');
  mkdirSync(path.join(model, String(to)));
  for (const file of ['plugin.wasm', 'weights.safetensors', 'manifest.json']) {
    cpSync(path.join(model, '1', file), path.join(model, String(to), file));
  }
}

const model = async () => (await api('GET', '/api/v1/models/digits')).json;
const row = (page, version) => page.locator('.versions tbody tr', { has: page.locator('.number', { hasText: new RegExp(`^${version}$`) }) });
const agree = (page) => page.locator('dialog button[value=yes]').click();
const done = (page, text) => page.locator('.toast', { hasText: text }).waitFor();

test('a version that comes is shown without a reload', () => on('models', async (page) => {
  await row(page, 1).getByText('READY').waitFor();
  assert.equal(await row(page, 1).locator('.tag').textContent(), 'default');
  copyVersion(2);
  await row(page, 2).locator('.tag', { hasText: 'default' }).waitFor();
  assert.match(await page.locator('.model-parts').textContent(), /Version 1 → version 2/);
}));

test('an older version is loaded and promoted, and rolled back', () => on('models/digits', async (page) => {
  await row(page, 1).waitFor();
  if (await row(page, 1).getByRole('button', { name: 'Load version 1' }).count()) {
    await row(page, 1).getByRole('button', { name: 'Load version 1' }).click();
    await done(page, 'Loaded version 1 of digits.');
  }
  await row(page, 1).getByText('READY').waitFor();
  await row(page, 1).getByRole('button', { name: 'Promote version 1' }).click();
  await shot(page, 'promote');
  await page.getByRole('button', { name: 'Cancel' }).click();
  assert.equal((await model()).serving, 2);
  await row(page, 1).getByRole('button', { name: 'Promote version 1' }).click();
  await agree(page);
  await row(page, 1).locator('.tag').waitFor();
  assert.equal((await model()).serving, 1);
  assert.equal((await model()).aliases.stable, 1);
  await page.getByText('Reason: promoted').waitFor();
  await page.getByRole('button', { name: 'Roll back', exact: true }).click();
  await agree(page);
  await row(page, 2).locator('.tag').waitFor();
  await page.getByText('Reason: rolled back').waitFor();
  assert.equal((await model()).follows_newest, false);
  await page.getByRole('button', { name: 'Follow the newest' }).click();
  await becomes(async () => (await model()).follows_newest, true);
}));

test('aliases come and go, and traffic is split by them', () => on('models/digits', async (page) => {
  await row(page, 1).getByRole('button', { name: 'Give version 1 an alias' }).click();
  await page.getByLabel('Alias', { exact: true }).fill('canary');
  await agree(page);
  await row(page, 1).locator('.alias', { hasText: 'canary' }).waitFor();
  assert.equal((await model()).aliases.canary, 1);

  const share = page.getByLabel('Share of canary (1) in percent');
  await share.fill('25');
  // Of two shares the other one follows.
  await becomes(() => page.locator('.share-row input[type=number]').evaluateAll((inputs) => inputs.map(({ value }) => Number(value)).sort()), [25, 75]);
  await page.getByRole('button', { name: 'Apply' }).click();
  await done(page, 'The traffic of digits is split.');
  assert.equal((await model()).traffic.canary, 25);
  await page.locator('.model-head .split-text', { hasText: /canary\s25\s%/ }).waitFor();
  for (const [look, options] of Object.entries(looks)) {
    await on('models/digits', async (other) => {
      await row(other, 1).waitFor();
      await isUsable(other);
      await shot(other, `models-${look}`);
    }, options);
  }
  await page.getByRole('button', { name: 'End the split' }).click();
  await becomes(async () => (await model()).traffic, {});
  await row(page, 1).getByRole('button', { name: 'Remove the alias canary' }).click();
  await agree(page);
  await becomes(async () => 'canary' in (await model()).aliases, false);
}));

test('a model is unloaded, loaded and warmed', () => on('models/digits', async (page) => {
  await page.getByRole('button', { name: 'Unload', exact: true }).click();
  await agree(page);
  await page.locator('.model-head .state.unloaded').waitFor();
  assert.equal((await model()).state, 'UNLOADED');
  await page.getByRole('button', { name: 'Load', exact: true }).click();
  await page.locator('.model-head .state.ready').waitFor();
  await page.getByRole('button', { name: 'Warm' }).click();
  await done(page, 'digits is warm.');
}));

test('what the server refuses is said in its words, and stays until it is put away', () => on('models/digits', async (page) => {
  await page.route('**/rollback', (route) => route.fulfill({
    status: 409, json: { error: 'there is no version before', code: 'conflict', hint: 'promote one', request_id: 'r7' },
  }));
  await page.getByRole('button', { name: 'Roll back', exact: true }).click();
  await agree(page);
  const toast = page.getByRole('alert');
  await toast.waitFor();
  assert.match(await toast.textContent(), /there is no version before.*promote one.*r7/s);
  await page.getByRole('button', { name: 'Put this note away' }).click();
  assert.equal(await toast.count(), 0);
}, { expected: ['status of 409'] }));

test('of many versions those that matter are shown, and the rest when asked for', () => on('models', async (page) => {
  const version = (number) => ({ version: number, state: number === 3 ? 'FAILED' : 'UNLOADED', reason: '', aliases: number === 5 ? ['old'] : [] });
  const versions = Array.from({ length: 40 }, (_, at) => version(at + 1));
  await page.route('**/api/v1/models', (route) => route.fulfill({ json: { models: [{ name: 'm', serving: 1, versions }] } }));
  await page.reload();
  const numbers = () => page.locator('.versions .number').allTextContents();
  await becomes(numbers, ['40', '39', '38', '37', '36', '35', '34', '33', '5', '3', '1']);
  await page.getByRole('button', { name: 'Show 29 older versions' }).click();
  await becomes(async () => (await numbers()).length, 40);
  await page.getByRole('button', { name: 'Show fewer versions' }).click();
  await becomes(async () => (await numbers()).length, 11);
}));

test('the keys work, and what is typed survives a look at the server', () => on('models', async (page) => {
  await row(page, 1).waitFor();
  await page.keyboard.press('/');
  const looked = page.waitForResponse('**/api/v1/models');
  await page.keyboard.type('dig/?');
  await looked;
  assert.equal(await page.locator('#filter').inputValue(), 'dig/?');
  await page.getByText('No model’s name or state has “dig/?”.').waitFor();
  await page.locator('#filter').fill('READY');
  await page.keyboard.press('Escape');
  await page.keyboard.press('j');
  const toggle = page.getByRole('button', { name: 'digits', exact: true });
  assert.equal(await toggle.evaluate((element) => element === document.activeElement), true);
  const open = await toggle.getAttribute('aria-expanded');
  await page.keyboard.press('Enter');
  assert.notEqual(await toggle.getAttribute('aria-expanded'), open);
  await page.keyboard.press('?');
  await page.getByRole('dialog').getByText('next, previous entry').waitFor();
  await page.keyboard.press('Escape');
  await page.keyboard.press('p');
  await page.getByRole('heading', { name: 'Playground' }).waitFor();
}));

for (const [look, options] of Object.entries(looks)) {
  test(`a version's card says what it was made from, with links, ${look}`, () => on('models', async (page) => {
    const card = ['# digits@1', '', 'Published by job `digits-3` at step 60.', '', 'The job was trial 2 of sweep `digits-sweep-1`, its best completed trial.', '', '## Searched parameters', '',
      '| Parameter | Value |', '|---|---|', '| lr | 0.05 |', '', '## Made with', '', `- Plugin: \`sha256:${'ab'.repeat(32)}\`, 7 bytes`, '- Seed: 5'].join('\n');
    const origin = { trial: { sweep: 'digits-sweep-1', number: 2, parameters: { lr: 0.05 }, is_best: true }, step: { run: 'nightly-1', step: 'train' } };
    await page.route('**/api/v1/models/digits/versions/1', (route) => route.fulfill({ json: { model: 'digits', version: { version: 1, source_job: 'digits-3' }, origin, card, is_card_generated: true } }));
    await page.getByRole('button', { name: 'Card of version 1', exact: true }).press('Enter');
    const dialog = page.getByRole('dialog', { name: 'Card of digits@1' });
    await dialog.getByText('Made from the records of its training.').waitFor();
    assert.deepEqual(await dialog.locator('h4').allTextContents(), ['Searched parameters', 'Made with']);
    assert.deepEqual(await dialog.locator('tbody td').allTextContents(), ['lr', '0.05']);
    const links = await dialog.locator('p.note a').evaluateAll((all) => all.map((one) => one.getAttribute('href')));
    assert.deepEqual(links, ['#/jobs/digits-3', '#/pipelines/nightly-1', '#/sweeps/digits-sweep-1']);
    await isUsable(page);
    await shot(page, `card-${look}`);
    await page.keyboard.press('Escape');
    await becomes(() => dialog.count(), 0);
  }, options));
}

test("a real version's card is shown", () => on('models', async (page) => {
  const { json: detail } = await api('GET', '/api/v1/models/digits/versions/1');
  await page.getByRole('button', { name: 'Card of version 1', exact: true }).click();
  const dialog = page.getByRole('dialog', { name: 'Card of digits@1' });
  await dialog.waitFor();
  const text = await dialog.textContent();
  assert.ok(detail.card ? text.includes(detail.card.split('\n')[0].replace(/^#\s*/, '')) : text.includes('It has no card'), text);
}));

test('a model’s requests, latency and batches are drawn over time, and saved as a picture', () => on('models/digits', async (page) => {
  const legend = (id) => page.locator(`[data-timeline="digits ${id}"] .legend li`).allTextContents();
  await page.locator('[data-timeline="digits requests"]').waitFor();
  const image = Array.from({ length: 8 }, () => new Array(8).fill(0));
  // Requests go on until a second with some is shown; each second is sampled once.
  await becomes(async () => {
    await Promise.all(Array.from({ length: 8 }, () => api('POST', '/models/digits/predict', { image })));
    return (await legend('batches')).some((text) => /^mean [\d.]+$/.test(text));
  }, true);
  await becomes(async () => (await legend('latency')).map((text) => text.split(' ')[0]), ['p50', 'p99']);
  const label = await page.locator('[data-timeline="digits requests"] svg').getAttribute('aria-label');
  const most = Number(/requests \S+ now, at most ([\d.]+)\/s/.exec(label)[1]);
  assert.ok(most > 0, label);
  const { json: history } = await api('GET', '/api/v1/history?model=digits&series=model_requests_per_second');
  assert.ok(Math.max(...history.series[0].values.filter((value) => value !== null)) > 0);
  await shot(page, 'model-past');
  const download = page.waitForEvent('download');
  await page.getByRole('button', { name: 'Save as PNG digits' }).press('Enter');
  const saved = await download;
  assert.equal(saved.suggestedFilename(), 'digits.png');
  const bytes = readFileSync(await saved.path());
  assert.equal(bytes.subarray(1, 4).toString(), 'PNG');
  assert.ok(bytes.readUInt32BE(16) >= 1000 && bytes.readUInt32BE(20) >= 380, `${bytes.readUInt32BE(16)} × ${bytes.readUInt32BE(20)}`);
  await saved.saveAs(path.join(process.env.CONSOLE_SHOTS ?? tmpdir(), 'model-past-saved.png'));
}));

test('a version leads to its data, its job and its graph', () => on('models/digits', async (page) => {
  await row(page, 1).waitFor();
  await row(page, 1).getByRole('button', { name: 'Card of version 1' }).click();
  const lineage = page.locator('dialog .lineage');
  await lineage.waitFor();
  const { json } = await api('GET', '/api/v1/models/digits/versions/1');
  const hrefs = await lineage.locator('a').evaluateAll((all) => all.map((one) => one.getAttribute('href')));
  assert.deepEqual(hrefs, ['#/datasets/digits', `#/jobs/${json.version.source_job}`]);
  await page.getByRole('button', { name: 'Close' }).click();
  await row(page, 1).getByRole('link', { name: 'Graph of version 1' }).click();
  await page.locator('.step').first().waitFor();
  const { json: graph } = await api('GET', '/api/v1/models/digits/versions/1/graph');
  assert.equal(await page.locator('.step').count(), graph.kernels.length);
  assert.ok(graph.kernels.some(({ nodes }) => nodes.some(({ op }) => op === 'conv2d')), 'the kernels of a convolutional network');
  assert.ok(graph.kernels.every(({ after }, at) => after.every((before) => before < at)), 'each comes after those that it reads');
}));
