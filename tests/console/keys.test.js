// The console against a server with `digits` that asks for keys. READER is a key that may only predict.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { isUsable, on, shot, start, stop } from './browser.js';

before(start);
after(stop);

const READER = process.env.READER;
const dialog = (page, words) => page.locator('dialog', { hasText: words });
const versions = (page) => page.locator('.versions tbody tr');

/** Gives the key that the dialog asks for. */
async function give(page, key) {
  await page.locator('#key').fill(key);
  await page.getByRole('button', { name: 'Use this key' }).click();
}

/** The browser tells of every request that is refused. */
const refused = { expected: ['401', '403'] };

test('a key is asked for until one opens, and does what it may', () => on('models/digits', async (page) => {
  await dialog(page, 'The server says:').waitFor();
  assert.equal(await versions(page).count(), 0);
  await isUsable(page);
  await shot(page, 'key');
  await give(page, 'sgr_nonsense');
  await dialog(page, 'not known').waitFor();
  await give(page, READER);
  await versions(page).getByText('READY').waitFor();
  assert.equal(await page.locator('#key-button').textContent(), 'Key set');
  await page.getByRole('button', { name: 'Unload' }).first().click();
  await page.locator('dialog button[value=yes]').click();
  await page.locator('.toast', { hasText: 'lacks the scope models:write' }).waitFor();
  await page.goto(page.url().replace(/#.*/, '#/playground/digits'));
  await page.locator('.pad').click();
  await page.locator('.bars').waitFor();
  const command = await page.locator('pre', { hasText: 'curl' }).textContent();
  assert.ok(command.includes('"authorization: Bearer $SAGGAR_API_KEY"') && !command.includes(READER), command);
}, refused));

test('the key is forgotten with the tab', () => on('models/digits', async (page) => {
  await dialog(page, 'The server says:').waitFor();
  await page.getByRole('button', { name: 'Cancel' }).click();
  assert.equal(await versions(page).count(), 0);
}, refused));

test('a key that may not submit jobs learns so from the form, and sees the charts that it may', () => on('models/digits', async (page) => {
  await dialog(page, 'The server says:').waitFor();
  await give(page, READER);
  await page.locator('[data-timeline="digits requests"] svg[aria-label*="requests"]').waitFor();
  await page.goto(page.url().replace(/#.*/, '#/new-job'));
  await page.locator('.job-form .reason', { hasText: 'the key reader lacks the scope jobs:read' }).waitFor();
  assert.equal(await page.getByRole('button', { name: 'Run the job' }).count(), 0);
}, refused));
