// JupyterLab of a notebook job, over the server's own port: a cell runs, and what it writes becomes an output of the job.
//
// NOTEBOOK_URL is its address with the token, NOTEBOOK_JOB the name of its job.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { becomes, on, shot, start, stop, url } from './browser.js';

before(start);
after(stop);

/** What JupyterLab says about the time that its parts need, and about its own code. */
const EXPECTED = ['to activate', 'deprecated', 'Starting WebSocket', 'ResizeObserver'];
const job = process.env.NOTEBOOK_JOB;

const open = (look, options = {}) => on('', async (page) => {
  await page.goto(process.env.NOTEBOOK_URL);
  await page.locator('.jp-LabShell').waitFor();
  await look(page);
}, { expected: EXPECTED, ...options });

const cells = (page) => page.locator('.jp-Notebook .jp-CodeCell');

/** Opens the document and waits for its kernel: JupyterLab asks for a kernel if a cell is run before. */
async function openStart(page) {
  await page.getByRole('listitem').getByText('start.ipynb').dblclick();
  await cells(page).first().waitFor();
  await page.getByText('Python 3 (ipykernel) | Idle').waitFor();
}

/** Replaces the text of a cell and runs it. */
async function run(page, cell, code) {
  await cell.locator('.cm-content').click();
  await page.keyboard.press('Control+a');
  await page.keyboard.insertText(code);
  await page.keyboard.press('Control+Enter');
}

const outputs = (cell) => cell.locator('.jp-OutputArea-output').allTextContents();

test('a cell runs, its output is shown, and its files become outputs of the job', () => open(async (page) => {
  await openStart(page);
  const cell = cells(page).first();
  await run(page, cell, "print(6 * 7)\nprint(open('/output/answer.txt', 'w').write('forty-two'))");
  await becomes(() => outputs(cell), ['42\n9\n']);
  // Neither a dialog nor a question covers the page.
  assert.equal(await page.locator('.jp-Dialog').count(), 0);
  assert.equal(await page.locator('.Toastify__toast').count(), 0);
  const second = cells(page).nth(1);
  await run(page, second, 'import saggar\n[job.name for job in saggar.Client().jobs.list()]');
  await becomes(() => outputs(second), [`['${job}']`]);
  await shot(page, 'notebook-light');
  await page.keyboard.press('Control+s');
  await becomes(async () => {
    const answer = await fetch(`${url}/api/v1/jobs/${job}/output`);
    const { files } = await answer.json();
    return files.map(({ path }) => path).filter((path) => path !== 'start.ipynb');
  }, ['answer.txt']);
  await becomes(async () => (await fetch(`${url}/api/v1/jobs/${job}/output/answer.txt`)).text(), 'forty-two');
  await becomes(async () => {
    const saved = await (await fetch(`${url}/api/v1/jobs/${job}/output/start.ipynb`)).text();
    return saved.includes('print(6 * 7)');
  }, true);
}));

test('another browser has the saved document and the same kernel, in a narrow window', () => open(async (page) => {
  await cells(page).first().waitFor();
  await page.locator('.jp-Notebook').getByText('print(6 * 7)').waitFor();
  // The list of files leaves the document no place.
  await page.getByRole('tab', { name: /File Browser/ }).click();
  await page.locator('.jp-Notebook').getByText("['").waitFor();
  await shot(page, 'notebook-narrow');
  const kernels = await (await page.request.get(`${url}/notebooks/${job}/api/kernels`)).json();
  assert.equal(kernels.length, 1);
  // Without the token, nothing is reached.
  assert.equal((await fetch(`${url}/notebooks/${job}/lab`)).status, 403);
}, { viewport: { width: 390, height: 800 } }));
