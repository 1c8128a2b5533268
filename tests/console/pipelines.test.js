// The page of pipelines against a double of the server: the drawing of steps, attempts, approvals and orders.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { becomes, isReadable, isUsable, looks, on, shot, start, stop, url } from './browser.js';

before(start);
after(stop);

const attempt = (more = {}) => ({
  item: 0, attempt: 1, state: 'SUCCEEDED', reason: '', message: '', job: null, cached_from: null, inputs: [], outputs: {}, started_ms: 1_790_000_000_000, finished_ms: 1_790_000_010_000, ...more,
});
const STEPS = () => [
  { name: 'copy', kind: 'train', after: [], state: 'SUCCEEDED', attempts: [attempt({ cached_from: 'nightly-1', outputs: { checkpoint: { value: 'job:digits-1/checkpoint@100', digest: 'ab'.repeat(32) } } })] },
  { name: 'train', kind: 'train', after: ['copy'], state: 'SUCCEEDED', attempts: [attempt({ state: 'FAILED', reason: 'PREEMPTED', message: 'made room for digits-9', job: 'digits-2' }), attempt({ attempt: 2, job: 'digits-3' })] },
  { name: 'try', kind: 'train', after: ['copy'], state: 'RUNNING', attempts: [attempt({ job: 'digits-4', value: 0.1 }), attempt({ item: 1, state: 'RUNNING', job: 'digits-5', value: 0.2, finished_ms: null })] },
  { name: 'ask', kind: 'approve', after: ['train', 'try'], state: 'WAITING', attempts: [attempt({ state: 'WAITING', message: 'is it good enough?' })] },
  { name: 'serve', kind: 'deploy', after: ['ask'], state: 'PENDING', attempts: [] },
];
const RUN = (more = {}) => ({
  id: '01P', name: 'nightly-2', pipeline: 'nightly', project: 'digits', state: 'RUNNING', reason: '', message: '', owner: null, created_ms: 1_790_000_000_000,
  finished_ms: null, params: { epochs: 4, deploy: true }, steps: STEPS(), ...more,
});

/** Visits a page of a server with these runs; `server.asked` has the requests that change something. */
const visit = (server, place, look, options = {}) => on('', async (page) => {
  server.asked = [];
  await page.route('**/api/v1/**', (route, request) => {
    const { pathname, searchParams } = new URL(request.url());
    const [, , , kind, name, part] = pathname.split('/').map(decodeURIComponent);
    if (request.method() !== 'GET') server.asked.push([pathname, request.postDataJSON()]);
    if (kind !== 'pipeline-runs') return route.fulfill({ json: {} });
    if (!name) return route.fulfill({ json: searchParams.get('cursor') ? { runs: server.older, cursor: null } : { runs: server.runs, cursor: server.cursor ?? null } });
    const found = server.runs.find((one) => one.name === name);
    if (!found) return route.fulfill({ status: 404, json: { error: `no pipeline run ${name}`, code: 'not_found', hint: '', request_id: 'r' } });
    if (part === 'approve') Object.assign(found.steps[3], { state: 'SUCCEEDED', attempts: [attempt()] });
    if (part === 'stop') Object.assign(found, { state: 'CANCELLED' });
    if (part === 'restart') Object.assign(found, { state: 'RUNNING' });
    return route.fulfill({ json: found });
  });
  await page.goto(`${url}/#/${place}`);
  await look(page);
}, options);

for (const [look, options] of Object.entries(looks)) {
  test(`runs are listed, ${look}`, () => visit({ runs: [RUN(), RUN({ id: '01O', name: 'nightly-1', state: 'FAILED', reason: 'STEP_FAILED', message: 'step serve failed' })] }, 'pipelines', async (page) => {
    await page.locator('tbody tr').first().waitFor();
    const cells = await page.locator('tr[data-run="nightly-2"] td').allTextContents();
    assert.deepEqual(cells.slice(1, 4), ['RUNNING', 'digits', 'epochs=4 deploy=true']);
    assert.equal(await page.locator('tr[data-run="nightly-1"] td.why').textContent(), 'step serve failed');
    await isUsable(page);
    await isReadable(page);
    await shot(page, `pipelines-${look}`);
  }, options));

  test(`a run shows its steps and their attempts, ${look}`, () => visit({ runs: [RUN()] }, 'pipelines/nightly-2', async (page) => {
    await page.locator('svg.steps').waitFor();
    const boxes = await page.locator('.step').evaluateAll((all) => all.map((box) => [box.dataset.step, box.getAttribute('class'), box.querySelector('.step-note').textContent]));
    assert.deepEqual(boxes, [
      ['copy', 'step succeeded', 'succeeded, cached'],
      ['train', 'step succeeded', 'succeeded, attempt 2'],
      ['try', 'step running', 'running, 1 of 2'],
      ['ask', 'step waiting', 'waiting'],
      ['serve', 'step pending', 'pending'],
    ]);
    assert.equal(await page.locator('.step-line').count(), 5);
    // A box below those that it waits for.
    const y = (name) => page.locator(`[data-step="${name}"] rect`).first().evaluate((rect) => Number(rect.getAttribute('y')));
    assert.ok(await y('copy') < await y('train') && await y('train') === await y('try') && await y('try') < await y('ask'));
    assert.equal(await page.locator('a.step[data-step="train"]').getAttribute('href'), '#/jobs/digits-3');
    assert.equal(await page.locator('table.attempts tbody tr').count(), 7);
    await page.getByText('made room for digits-9').waitFor();
    await isUsable(page);
    await isReadable(page);
    await shot(page, `pipeline-${look}`);
  }, options));
}

test('plugins and data steps show their kinds and typed outputs, and a run whose results it takes', () => {
  const output = (value, type, digest = null) => ({ value, type, digest });
  const steps = [
    { name: 'choose', kind: 'plugin', after: [], state: 'SUCCEEDED', attempts: [attempt({ job: 'p-1', outputs: { count: output(0, 'integer'), good: output(false, 'boolean'), rows: output('job:p-1/output/rows', 'dataset-files') } })] },
    { name: 'rows', kind: 'data', after: ['choose'], state: 'SUCCEEDED', attempts: [attempt({ cached_from: 'nightly-1', outputs: { dataset: output('rows/1', 'dataset', 'cd'.repeat(32)) } })] },
  ];
  return visit({ runs: [RUN({ state: 'SUCCEEDED', reuse_from: 'nightly-1', steps })] }, 'pipelines/nightly-2', async (page) => {
    await page.locator('svg.steps').waitFor();
    const rows = await page.locator('table.attempts tbody tr').evaluateAll((all) => all.map((row) => [...row.querySelectorAll('td')].map((cell) => cell.textContent)));
    assert.deepEqual(rows.map((cells) => cells[0]), ['plugin', 'data']);
    const outputs = await page.locator('table.attempts td.code > div').evaluateAll((all) => all.map((line) => [line.textContent, line.title]));
    assert.deepEqual(outputs, [['count 0', 'integer'], ['good false', 'boolean'], ['rows job:p-1/output/rows', 'dataset-files'], ['dataset rows/1', `dataset ${'cd'.repeat(32)}`]]);
    assert.equal(await page.getByText('are used where nothing changed').getByRole('link').getAttribute('href'), '#/pipelines/nightly-1');
    await isUsable(page);
  });
});

test('a step that waits is approved, without a mouse', () => {
  const server = { runs: [RUN()] };
  return visit(server, 'pipelines/nightly-2', async (page) => {
    await page.getByText('is it good enough?').first().waitFor();
    await page.getByRole('button', { name: 'Approve ask' }).press('Enter');
    await page.getByRole('dialog').getByRole('button', { name: 'Approve' }).press('Enter');
    await becomes(async () => server.asked, [['/api/v1/pipeline-runs/nightly-2/approve', { step: 'ask', approve: true }]]);
    await becomes(() => page.getByRole('button', { name: 'Approve ask' }).count(), 0);
  });
});

test('a run is stopped, and continued from its failed steps', () => {
  const server = { runs: [RUN()] };
  return visit(server, 'pipelines/nightly-2', async (page) => {
    await page.getByRole('button', { name: 'Stop…' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Stop', exact: true }).click();
    await page.getByRole('button', { name: 'Run from the failed steps' }).click();
    await page.getByRole('button', { name: 'Stop…' }).waitFor();
    assert.deepEqual(server.asked.map(([path]) => path.split('/').pop()), ['stop', 'restart']);
  });
});

test('older runs are shown on demand', () => visit({ runs: [RUN()], older: [RUN({ id: '01A', name: 'nightly-0' })], cursor: 3 }, 'pipelines', async (page) => {
  await page.getByRole('button', { name: 'Older runs' }).click();
  await becomes(() => page.locator('tbody th').allTextContents(), ['nightly-2', 'nightly-0']);
}));

test('without runs it says what to run, and a missing one is named', async () => {
  await visit({ runs: [] }, 'pipelines', async (page) => {
    await page.getByRole('heading', { name: 'No pipeline runs yet' }).waitFor();
    await isUsable(page);
  }, looks.narrow);
  await visit({ runs: [] }, 'pipelines/absent', async (page) => {
    await page.getByText('no pipeline run absent').waitFor();
  }, { expected: ['404'] });
});
