// The playground against a server with `digits`, whose input is a picture of 8 by 8, and `teller`, which repeats its prompt.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { after, before, test } from 'node:test';

import { api, becomes, isUsable, looks, on, shot, start, stop, url } from './browser.js';

before(start);
after(stop);

const SEVEN = new URL('../../examples/digits/held-out/7.png', import.meta.url).pathname;

/** Draws a seven and waits for the answer. */
async function drawSeven(page) {
  const box = await page.locator('.pad').boundingBox();
  const at = ([x, y]) => [box.x + box.width * x, box.y + box.height * y];
  const answered = page.waitForResponse('**/predict');
  await page.mouse.move(...at([0.28, 0.12]));
  await page.mouse.down();
  for (const place of [[0.75, 0.12], [0.55, 0.55], [0.42, 0.92]]) await page.mouse.move(...at(place), { steps: 6 });
  await page.mouse.up();
  await answered;
  await page.locator('.bars').waitFor();
}

/** The answer's JSON, as the page shows it. */
async function displayedAnswer(page) {
  return JSON.parse(await page.locator('details pre code').textContent());
}

async function copied(page) {
  await page.getByRole('button', { name: 'Copy', exact: true }).click();
  await page.getByRole('button', { name: 'Copied' }).waitFor();
  return page.evaluate(() => navigator.clipboard.readText());
}

function run(command) {
  return execFileSync('bash', ['-euo', 'pipefail', '-c', command], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
}

for (const [look, options] of Object.entries(looks)) {
  test(`a drawing is answered at once, ${look}`, () => on('playground/digits', async (page) => {
    await page.locator('.pad').waitFor();
    await drawSeven(page);
    assert.equal(await page.locator('.bars li').count(), 10);
    const answer = await displayedAnswer(page);
    assert.equal(await page.locator('[data-output=label] .class').textContent(), String(answer.label));
    assert.match(await page.locator('#answered-by').textContent(), /^digits@1 on cpu$/);
    const timings = await page.locator('.timings dt').allTextContents();
    assert.deepEqual(timings.slice(0, 4), ['read', 'decode', 'queue', 'compute']);
    await isUsable(page);
    await shot(page, `playground-${look}`);
  }, options));
}

test('a drawing is the same as PNG and as JSON, and as the commands that are copied', () => on('playground/digits', async (page) => {
  await page.locator('.pad').waitFor();
  await drawSeven(page);
  const asPng = await displayedAnswer(page);
  await becomes(async () => (await page.locator('.command code').textContent()).includes('image=@-'), true);
  const png = await copied(page);
  assert.deepEqual(JSON.parse(run(png)), asPng);

  await page.getByLabel('Sent as').selectOption('JSON');
  await becomes(async () => (await page.locator('.command code').textContent()).includes('"image": [['), true);
  const answered = page.waitForResponse('**/predict');
  await page.getByRole('button', { name: 'Send' }).click();
  const request = (await answered).request();
  const { image } = JSON.parse(request.postData());
  assert.deepEqual([image.length, image[0].length], [8, 8]);
  assert.ok(image.flat().every((value) => Number.isInteger(value) && value >= 0 && value <= 255));
  assert.ok(Math.max(...image.flat()) > 200 && Math.min(...image.flat()) === 0, JSON.stringify(image));
  await becomes(() => displayedAnswer(page), asPng);
  assert.deepEqual(JSON.parse(run(await copied(page))), asPng);
}));

test('a picture from a file is sent as it is', () => on('playground/digits', async (page) => {
  await page.locator('.pad').waitFor();
  await page.getByLabel('A picture for image').setInputFiles(SEVEN);
  await page.locator('.bars').waitFor();
  const response = await fetch(`${url}/models/digits/predict`, { method: 'POST', headers: { 'content-type': 'image/png' }, body: readFileSync(SEVEN) });
  assert.deepEqual(await displayedAnswer(page), await response.json());
  await page.getByRole('button', { name: 'Clear' }).click();
  await page.getByRole('button', { name: 'Send' }).click();
  await page.getByText('image: no picture was given', { exact: true }).waitFor();
}));

test('a file that is not a picture is reported', () => on('playground/digits', async (page) => {
  await page.locator('.pad').waitFor();
  await page.getByLabel('A picture for image').setInputFiles({ name: 'x.png', mimeType: 'image/png', buffer: Buffer.from('no') });
  await page.getByText('The browser cannot read this file as a picture.').waitFor();
}));

test('it can be drawn with the keyboard alone', () => on('playground/digits', async (page) => {
  await page.locator('.pad').focus();
  const answered = page.waitForRequest('**/predict');
  await page.keyboard.press('ArrowUp');
  await page.keyboard.press('Space');
  await page.locator('.bars').waitFor();
  assert.match(await (await answered).headerValue('content-type'), /^multipart\/form-data/);
  await page.keyboard.press('Delete');
  await page.locator('.pad-words', { hasText: 'Draw' }).waitFor();
}));

test('texts come in pieces, and quoting survives every shell character', () => on('playground/teller', async (page) => {
  const prompt = 'it\'s "$HOME" `id` \\n né😀\n!';
  await page.getByLabel('prompt').fill(prompt);
  await page.keyboard.press('Control+Enter');
  await page.getByText('Headers and JSON').waitFor();
  assert.deepEqual(await displayedAnswer(page), { said: prompt, lengths: [30, 30] });
  assert.equal(await page.locator('[data-output=said] pre').textContent(), prompt);
  assert.match(await page.locator('.timings').textContent(), /first piece of \d+/);
  await shot(page, 'teller');

  await becomes(async () => (await page.locator('.command code').textContent()).includes('it'), true);
  const streamed = run(await copied(page));
  assert.match(streamed, /^event: piece\n/);
  assert.deepEqual(JSON.parse(streamed.split('event: done\ndata: ')[1]), await displayedAnswer(page));

  await page.getByLabel('Show pieces as they come').uncheck();
  await page.getByLabel('times').fill('2');
  await becomes(async () => (await page.locator('.command code').textContent()).includes('"times": 2'), true);
  assert.equal(JSON.parse(run(await copied(page))).said, prompt + prompt);
}));

test('what is wrong is said in the words of the server, or before it is sent', () => on('playground/teller', async (page) => {
  await page.getByLabel('prompt').fill('x'.repeat(65));
  await page.getByRole('button', { name: 'Send' }).click();
  await page.getByText('prompt: the text of 65 bytes is too long; at most 64 bytes of UTF-8 are taken').waitFor();
  assert.match(await page.locator('.refusal').textContent(), /HTTP 400 · bad_input · request /);
  await shot(page, 'refusal');
  await page.getByLabel('times').fill('-1');
  await page.getByRole('button', { name: 'Send' }).click();
  await page.getByText('times: expected a whole number from 0 to 4294967295, got “-1”').first().waitFor();
}, { expected: ['status of 400'] }));

test('a model that is unloaded can be loaded from here', () => on('', async (page) => {
  assert.equal((await api('POST', '/api/v1/models/teller/unload', {})).status, 200);
  await page.goto(`${url}/#/playground/teller`);
  await page.getByText('No version of teller is loaded; the model is UNLOADED.').waitFor();
  await page.getByRole('button', { name: 'Load it' }).click();
  await page.getByLabel('prompt').fill('a');
  await page.getByRole('button', { name: 'Send' }).click();
  await page.getByText('Headers and JSON').waitFor();
}));

test('a version can be asked for', () => on('playground/digits', async (page) => {
  await page.locator('.pad').waitFor();
  await page.getByLabel('Version').selectOption('1');
  await page.locator('.pad').waitFor();
  const asked = page.waitForRequest('**/predict');
  await drawSeven(page);
  assert.ok((await asked).url().endsWith('/models/digits@1/predict'));
}));
