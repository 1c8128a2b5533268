// The form of a new notebook and the page of its job, on a server that allows one. READER is a key that reads jobs, WRITER
// one that submits them.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { becomes, isReadable, isUsable, looks, on, shot, start, stop, url } from './browser.js';

before(start);
after(stop);

const SANDBOX = 'It is not the sandbox of a plugin';
const refused = { expected: ['401', '403', '422'] };

/** Opens a place with a key in the tab. */
const as = (key, place, look, options = {}) => on('', async (page) => {
  await page.evaluate((value) => sessionStorage.setItem('saggar-api-key', value), key);
  await page.goto(`${url}/?again#/${place}`);
  await look(page);
}, { ...refused, ...options });

const command = (page) => page.locator('#command').textContent();

for (const [look, options] of Object.entries(looks)) {
  test(`the form of a notebook says what a notebook can do, ${look}`, () => as(process.env.WRITER, 'new-job', async (page) => {
    await page.getByRole('link', { name: 'start a notebook' }).click();
    await page.getByText(SANDBOX).waitFor();
    assert.equal(await command(page), 'saggar run --mode notebook --project notebook');
    await page.locator('[name=idle_timeout]').fill('90m');
    await page.locator('[name=memory_bytes]').fill('2GiB');
    await page.locator('[name=secrets]').fill('saggar-api-key');
    assert.equal(await command(page), 'saggar run --mode notebook --project notebook --idle-timeout 90m --memory 2GiB --secret saggar-api-key');
    await page.locator('[name=idle_timeout]').fill('90');
    await page.locator('[name=idle_timeout]').blur();
    await page.getByText('idle_timeout: expected a time above 0 with a unit').waitFor();
    await isUsable(page);
    await isReadable(page);
    await shot(page, `new-notebook-${look}`);
  }, options));
}

test('a notebook is started and opened without a mouse, in a tab that gets no key', () => as(process.env.WRITER, 'new-notebook', async (page) => {
  await page.locator('[name=project]').fill('lab');
  await page.locator('[name=message]').fill('a first look');
  await page.getByRole('button', { name: 'Start the notebook' }).focus();
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'lab-1', exact: true }).waitFor();
  await page.getByText('the notebook is ready').waitFor();
  const open = page.getByRole('button', { name: 'Open notebook' });
  assert.equal(await page.locator('[data-notebook]').count(), 0);
  const opened = page.context().waitForEvent('page');
  await open.focus();
  await page.keyboard.press('Enter');
  const lab = await opened;
  await lab.locator('.jp-LabShell').waitFor();
  assert.match(lab.url(), /\/notebooks\/lab-1\/lab/);
  assert.deepEqual(await lab.evaluate(() => [window.opener, sessionStorage.getItem('saggar-api-key')]), [null, null]);
  await lab.close();
  const link = page.getByRole('link', { name: 'Open notebook' });
  assert.match(await link.getAttribute('href'), /^\/notebooks\/lab-1\/lab\?token=[0-9a-f]{64}$/);
  await page.getByText(SANDBOX).waitFor();
}));

for (const [look, options] of Object.entries(looks)) {
  test(`the page of a notebook has a button for its address, ${look}`, () => as(process.env.WRITER, 'jobs/lab-1', async (page) => {
    await page.getByRole('button', { name: 'Open notebook' }).waitFor();
    await page.getByText(SANDBOX).waitFor();
    await isUsable(page);
    await isReadable(page);
    await shot(page, `notebook-job-${look}`);
  }, options));
}

test('a key that only reads jobs gets no address', () => as(process.env.READER, 'jobs/lab-1', async (page) => {
  await page.getByRole('button', { name: 'Open notebook' }).click();
  await page.getByRole('alert').getByText('jobs:write').waitFor();
  assert.equal(await page.locator('[data-notebook]').count(), 0);
  const answer = await fetch(`${url}/api/v1/jobs`, { headers: { authorization: `Bearer ${process.env.READER}` } });
  assert.ok(!(await answer.text()).includes('token='));
}));

test('the page of a notebook that has ended has no button', () => as(process.env.WRITER, 'jobs/lab-1', async (page) => {
  await page.getByRole('button', { name: 'Open notebook' }).waitFor();
  const stopped = await fetch(`${url}/api/v1/jobs/lab-1/stop`, { method: 'POST', headers: { authorization: `Bearer ${process.env.WRITER}` } });
  assert.ok(stopped.ok, String(stopped.status));
  await page.getByText('It has ended. Its documents and files are outputs.').waitFor();
  await becomes(() => page.getByText('Open notebook', { exact: true }).count(), 0);
}));
