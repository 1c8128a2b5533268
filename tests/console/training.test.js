// Jobs that really train: the pages against a server with `digits`, whose model was made by the job `lenet-1`.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, test } from 'node:test';

import { api, becomes, isUsable, on, shot, start, stop } from './browser.js';

before(start);
after(stop);

const row = (page, name) => page.locator(`tr[data-job="${name}"]`);
const agree = (page) => page.locator('dialog button[value=yes]').click();
const job = async (name) => (await api('GET', `/api/v1/jobs/${name}`)).json;

/** A training takes its time where others compute too. */
const PATIENCE = { timeout: 120_000 };

/** Another job as `lenet-1`, with other parameters. */
async function submit(parameters, more = {}) {
  const { spec } = await job('lenet-1');
  const { json } = await api('POST', '/api/v1/jobs', { ...spec, parameters, ...more });
  return json.name;
}

test('a job that is submitted appears, runs and ends without a reload', () => on('jobs', async (page) => {
  await row(page, 'lenet-1').getByText('SUCCEEDED').waitFor();
  const name = await submit({ epochs: 1 }, { message: 'once more' });
  await row(page, name).getByText('once more').waitFor();
  await row(page, name).getByText('SUCCEEDED').waitFor(PATIENCE);
  const { step, steps_target: target } = await job(name);
  assert.equal(await row(page, name).locator('[data-label=Step]').textContent(), `${step}/${target}`);
  await shot(page, 'training-jobs');
}));

test('a job is watched while it trains: numbers, log and events', () => {
  let name = '';
  return on('jobs', async (page) => {
    name = await submit({ epochs: 2 });
    await row(page, name).getByRole('link', { name }).click();
    await page.locator('.job-title .state', { hasText: 'SUCCEEDED' }).waitFor(PATIENCE);
    const { text } = { text: (await fetch(`${process.env.SAGGAR_URL}/api/v1/jobs/${name}/logs`).then((answer) => answer.text())).trimEnd().split('\n') };
    await becomes(() => page.locator('.log > div > span').allTextContents(), text);
    await becomes(async () => (await page.locator('[data-chart=loss] .legend li').allTextContents()).length, 3);
    await page.locator('[data-chart=loss] canvas').waitFor();
    await becomes(() => page.locator('.history b').first().textContent(), 'succeeded');
    await page.locator('.files a').first().waitFor();
    const [download] = await Promise.all([page.waitForEvent('download'), page.locator('.files a').first().click()]);
    const path = await page.locator('.files a').first().getAttribute('href');
    const there = Buffer.from(await (await fetch(process.env.SAGGAR_URL + path)).arrayBuffer());
    assert.deepEqual(readFileSync(await download.path()), there);
    await isUsable(page);
    await shot(page, 'training-job');
  });
});

test('a job is stopped from its page, and those that wait say why', () => on('jobs', async (page) => {
  const long = await submit({ epochs: 5000 }, { message: 'long' });
  const waits = await submit({ epochs: 1 });
  await row(page, waits).getByText(/^waiting for slot/).waitFor();
  await row(page, long).getByText('RUNNING').waitFor(PATIENCE);
  await row(page, waits).getByRole('checkbox').check();
  await page.getByRole('toolbar').getByRole('button', { name: 'Stop…' }).click();
  await agree(page);
  await row(page, waits).getByText('CANCELLED').waitFor();
  await row(page, long).getByRole('link', { name: long }).click();
  await page.getByRole('button', { name: 'Stop…' }).click();
  await agree(page);
  await page.locator('.job-title .state', { hasText: 'CANCELLED' }).waitFor(PATIENCE);
  assert.equal((await job(long)).reason, 'STOPPED');

  // It saved its state: that is fetched, and gone on from.
  const { step } = await job(long);
  await page.locator('.checkpoints th', { hasText: `Step ${step}` }).waitFor();
  const [download] = await Promise.all([page.waitForEvent('download'), page.locator('.checkpoints a').first().click()]);
  assert.equal(download.suggestedFilename(), `${long}-${step}.safetensors`);
  const head = readFileSync(await download.path());
  assert.ok(Object.keys(JSON.parse(head.subarray(8, 8 + Number(head.readBigUInt64LE()))) ).length > 1);
  await page.getByRole('button', { name: 'Restart with…' }).first().click();
  assert.ok(await page.getByLabel('From the last checkpoint').isChecked());
  await page.getByLabel('message').fill('gone on with');
  await agree(page);
  await page.getByText('gone on with').first().waitFor();
  const again = await page.locator('h1').textContent();
  assert.notEqual(again, long);
  await page.locator('.job-title .state', { hasText: 'RUNNING' }).waitFor(PATIENCE);
  await becomes(async () => (await job(again)).step > step, true);
  await page.getByRole('button', { name: 'Stop…' }).click();
  await agree(page);
  await page.locator('.job-title .state', { hasText: 'CANCELLED' }).waitFor(PATIENCE);
  await page.getByRole('button', { name: 'Delete…' }).click();
  await agree(page);
  await row(page, long).waitFor();
  await becomes(() => row(page, again).count(), 0);
}));

test('what the data and the devices are is shown', () => on('datasets', async (page) => {
  await page.getByRole('article', { name: 'Dataset digits' }).getByText('image uint8 [8, 8]').waitFor();
  await page.getByRole('link', { name: 'Devices' }).click();
  await page.getByRole('article', { name: 'Device cpu' }).waitFor();
}));
