// The page of workers against a double of the server.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { becomes, isReadable, isUsable, looks, on, shot, start, stop, url } from './browser.js';
import { serve } from './jobs-double.js';

before(start);
after(stop);

const worker = (name, more) => ({
  name, kind: 'worker', state: 'READY', labels: { device: 'cpu', preemptible: 'false' }, preemptible: false, reserve: 'none', devices: ['cpu'],
  slots: 2, used: 0, jobs: [], version: '0.1.0', started_ms: 1_790_000_000_000, seen_ms: 1_790_000_000_000, unseen_seconds: 2.5, ...more,
});

const WORKERS = [
  worker('front', { kind: 'server', slots: 0 }),
  worker('gpu-1', { labels: { device: 'gpu', gpu: 'a100', preemptible: 'false' }, devices: ['cpu', 'vulkan:0'], used: 1.25, jobs: ['mnist-7', 'mnist-8'] }),
  worker('old', { state: 'DRAINING' }),
  worker('spot', { state: 'LOST', reserve: 'preemptible-only', unseen_seconds: 412 }),
];

const visit = (look, options = {}, server = { jobs: [] }) => on('', async (page) => {
  await serve(page, Object.assign(server, { others: { workers: { workers: WORKERS } } }));
  await page.goto(`${url}/#/workers`);
  await page.getByRole('table', { name: 'Hosts that run jobs' }).waitFor();
  await look(page);
}, options);

for (const [look, options] of Object.entries(looks)) {
  test(`workers show what they offer and run, ${look}`, () => visit(async (page) => {
    assert.equal(await page.locator('#count').textContent(), '2 of 4 ready');
    const rows = await page.locator('tbody tr').evaluateAll((all) => all.map((row) => [...row.querySelectorAll('td[data-label]')].map((cell) => cell.textContent)));
    assert.deepEqual(rows[1], ['READY', 'device=gpugpu=a100preemptible=false', '1.25 of 2', 'mnist-7, mnist-8', 'now']);
    assert.deepEqual(rows[3], ['LOST', 'device=cpupreemptible=falsepreemptible-only', '0 of 2', 'none', '412 s ago']);
    assert.equal(await page.getByRole('link', { name: 'mnist-8' }).getAttribute('href'), '#/jobs/mnist-8');
    assert.equal(await page.getByRole('button', { name: /spot/ }).count(), 0, 'a lost host can only come back');
    await page.keyboard.press('j');
    assert.match(await page.locator('tr.selected').textContent(), /^front/);
    await isUsable(page);
    await isReadable(page);
    await shot(page, `workers-${look}`);
  }, options));
}

test('a worker is drained after a question, and a draining one takes jobs again', () => {
  const server = { jobs: [] };
  return visit(async (page) => {
    const sent = (path) => server.asked.filter((request) => request.method === 'POST' && request.path.endsWith(path)).length;
    await page.getByRole('button', { name: 'Drain gpu-1' }).click();
    await page.getByRole('button', { name: 'Cancel' }).click();
    assert.equal(sent('/workers/gpu-1/drain'), 0);
    await page.getByRole('button', { name: 'Drain gpu-1' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Drain' }).click();
    await becomes(() => sent('/workers/gpu-1/drain'), 1);
    await page.getByRole('button', { name: 'Resume old' }).click();
    await becomes(() => sent('/workers/old/resume'), 1);
  }, {}, server);
});
