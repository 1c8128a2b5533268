// Images, tables and histograms on the page of a job, against a double of the server.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, test } from 'node:test';

import { becomes, isReadable, isUsable, looks, on, shot, start, stop, url } from './browser.js';
import { job, serve } from './jobs-double.js';

before(start);
after(stop);

const IMAGE = readFileSync(process.env.LOGGED_IMAGE);
const STEPS = Array.from({ length: 24 }, (_, at) => (at + 1) * 10);

/** A histogram around a middle that moves, and widens with the steps. */
function histogram(step) {
  const edges = Array.from({ length: 31 }, (_, at) => -3 - step / 80 + (at * (6 + step / 40)) / 30);
  const counts = edges.slice(1).map((edge) => Math.round(900 * Math.exp(-((edge - step / 200) ** 2))));
  return { edges, counts };
}

function logged() {
  const at = (step) => ({ step, bytes: 100, logged_ms: 1_790_000_000_000 + step });
  const table = (step) => ({
    columns: [
      { name: 'class', type: 'text', values: ['cat', '<img src=x onerror=alert(1)>'] },
      { name: 'recall', type: 'number', values: [step / 1000, null] },
      { name: 'count', type: 'integer', values: [step, 7] },
    ],
  });
  return STEPS.flatMap((step) => [
    { ...at(step), kind: 'histogram', name: 'weights/conv1', content: histogram(step) },
    { ...at(step), kind: 'image', name: 'wrong/01', content: IMAGE },
    { ...at(step), kind: 'table', name: 'recall', content: table(step) },
  ]).concat(Array.from({ length: 12 }, (_, number) => ({ ...at(240), kind: 'image', name: `wrong/${String(number + 2).padStart(2, '0')}`, content: IMAGE })));
}

const running = (items = logged()) => ({
  jobs: [job(7, { state: 'RUNNING' })], logged: items, log: [], logEnds: false,
  details: { 'mnist-7': { attempts: [], phases: [], events: [] } },
});

const visit = (server, look, options = {}) => on('', async (page) => {
  await serve(page, server);
  await page.goto(`${url}/#/jobs/mnist-7`);
  await look(page);
}, options);

const tile = (page, name) => page.locator(`[data-logged="${name}"]`);

for (const [look, options] of Object.entries(looks)) {
  test(`images, tables and histograms are shown, ${look}`, () => visit(running(), async (page) => {
    await tile(page, 'image wrong/01').locator('img').waitFor();
    await tile(page, 'table recall').locator('td', { hasText: 'cat' }).waitFor();
    await becomes(() => page.locator('.logged-item').count(), 12);
    await page.getByLabel('Names to show').fill('1');
    // The filter leaves names with the letter, the histogram among them.
    const map = tile(page, 'histogram weights/conv1').locator('.heat-map');
    await map.waitFor();
    assert.ok(await map.locator('.cells rect').count() > 200);
    assert.equal(await map.locator('.mark').count(), 1);
    await isUsable(page);
    await isReadable(page);
    await page.getByLabel('Names to show').fill('');
    await page.getByRole('button', { name: 'Show 3 more' }).click();
    await becomes(() => page.locator('.logged-item').count(), 15);
    await map.waitFor();
    await shot(page, `logged-${look}`);
  }, options));
}

test('the keyboard moves through the steps, and texts of a table are no elements', () => visit(running(), async (page) => {
  const recall = tile(page, 'table recall');
  const slider = recall.getByRole('slider');
  await becomes(() => recall.locator('output').textContent(), 'step 240');
  assert.deepEqual(await recall.locator('tbody tr').last().locator('td').allTextContents(), ['<img src=x onerror=alert(1)>', '–', '7']);
  await slider.focus();
  await page.keyboard.press('Home');
  await becomes(() => recall.locator('output').textContent(), 'step 10');
  await becomes(() => recall.locator('tbody tr').first().locator('td').allTextContents(), ['cat', '0.01', '10']);
  await page.keyboard.press('ArrowRight');
  await becomes(() => slider.getAttribute('aria-valuetext'), 'step 20');
  assert.match(await recall.getByRole('link').getAttribute('href'), /\/api\/v1\/jobs\/mnist-7\/logged\/20\/table\/recall$/);
  // One step needs no slider.
  assert.equal(await tile(page, 'image wrong/02').getByRole('slider').count(), 0);
  await page.getByLabel('Names to show').fill('conv');
  const conv = tile(page, 'histogram weights/conv1');
  const marked = () => conv.locator('.mark').getAttribute('x');
  await conv.locator('.heat-map').waitFor();
  const last = Number(await marked());
  await conv.getByRole('slider').focus();
  await page.keyboard.press('Home');
  await becomes(async () => Number(await marked()) < last, true);
  await becomes(async () => (await conv.locator('.histogram-bars').getAttribute('aria-label')).startsWith('weights/conv1 at step 10: '), true);
}));

test('new steps appear, and the step that was chosen stays', () => {
  const server = running();
  const items = server.logged;
  server.logged = items.filter(({ step }) => step <= 100);
  return visit(server, async (page) => {
    const [recall, wrong] = [tile(page, 'table recall'), tile(page, 'image wrong/01')];
    await becomes(() => recall.locator('output').textContent(), 'step 100');
    await recall.getByRole('slider').focus();
    await page.keyboard.press('Home');
    await becomes(() => recall.locator('output').textContent(), 'step 10');
    server.logged = items;
    // The page looks for files of a running job from time to time.
    await becomes(() => recall.getByRole('slider').getAttribute('max'), '23');
    assert.equal(await recall.locator('output').textContent(), 'step 10');
    await becomes(() => wrong.locator('output').textContent(), 'step 240');
  });
});

test('a job that logged nothing has no panel', () => visit(running([]), async (page) => {
  await page.getByText('The job wrote no files.').waitFor();
  assert.equal(await page.locator('.logged-item').count(), 0);
  assert.ok(await page.locator('section.logged').isHidden());
}));

for (const [look, options] of Object.entries(looks)) {
  test(`what a real training logged is shown, ${look}`, () => on(`jobs/${process.env.LOGGED_JOB}`, async (page) => {
    const gradient = tile(page, 'image pictures/gradient');
    await gradient.locator('img').waitFor();
    assert.equal(await gradient.locator('img').evaluate((image) => image.naturalWidth), 16);
    await tile(page, 'histogram weights/all').locator('.histogram-bars').waitFor();
    assert.deepEqual(await tile(page, 'table classes').locator('tbody tr').first().locator('td').allTextContents(), ['cat', '0.508', '1', 'false']);
    await gradient.getByRole('slider').focus();
    await page.keyboard.press('ArrowLeft');
    await becomes(() => gradient.locator('output').textContent(), 'step 7');
    await becomes(() => gradient.locator('img').getAttribute('alt'), 'pictures/gradient at step 7');
    await isUsable(page);
    await shot(page, `logged-real-${look}`);
  }, options));
}
