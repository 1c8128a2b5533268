// JupyterLab of a notebook job, through the server: the page loads, and a cell runs in its kernel.
//
// NOTEBOOK_URL is the address that `saggar run --mode notebook` printed.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { on, shot, start, stop } from './browser.js';

before(start);
after(stop);

/** What JupyterLab itself tells the browser's console. */
const EXPECTED = ['404', 'Failed to load resource', 'deprecated', 'WebGL', 'WARN', 'warn', 'preload', 'SharedArrayBuffer', 'ResizeObserver',
  // It replaces its first connection to a kernel by another one.
  'closed before the connection is established'];

test('a cell of the first document runs and shows the models of the server', () => on('', async (page) => {
  const address = new URL(process.env.NOTEBOOK_URL);
  await page.goto(address.href.replace('/lab?', '/lab/tree/output/start.ipynb?'));
  await page.locator('.jp-Notebook').waitFor();
  // The kernel is reached by a WebSocket through the server.
  await page.locator('.jp-Notebook-ExecutionIndicator[data-status="idle"]').waitFor();
  const code = page.locator('.jp-CodeCell').first();
  await code.locator('.cm-content').click();
  await page.keyboard.press('Control+Enter');
  await code.locator('.jp-OutputArea-output').filter({ hasText: 'echo' }).waitFor();
  await shot(page, 'notebook');
  const cookies = await page.context().cookies();
  const own = cookies.filter(({ name }) => name === 'saggar-notebook');
  assert.equal(own.length, 1);
  assert.deepEqual([own[0].httpOnly, own[0].sameSite, own[0].path], [true, 'Strict', address.pathname.replace('lab', '')]);
}, { expected: EXPECTED }));
