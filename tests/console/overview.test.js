// The overview against a double of the server: what runs, waits, failed and serves, as it changes, and an empty server.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { becomes, isReadable, isUsable, looks, on, shot, start, stop, url } from './browser.js';
import { event, job, opening } from './jobs-double.js';

before(start);
after(stop);

const now = () => Date.now();
const JOBS = () => [
  job(6, { state: 'QUEUED', reason: 'WAITING_FOR_SLOT', message: 'every slot of the pool cpu is taken', position: 2 }),
  job(5, { state: 'QUEUED', reason: 'DEVICE_MEMORY', message: 'needs 3 GiB', position: 1 }),
  job(4, { state: 'RUNNING', step: 40, metrics: { loss: 0.125 } }),
  job(3, { state: 'FAILED', reason: 'PLUGIN_ERROR', message: '<b>no field label</b>', finished_ms: now() - 60_000 }),
  job(2, { state: 'FAILED', reason: 'PLUGIN_ERROR', finished_ms: now() - 48 * 3600 * 1000 }),
  job(1, { finished_ms: now() - 1000 }),
];
const RUN = (name, more = {}) => ({ id: name, name, pipeline: 'nightly', project: 'mnist', state: 'RUNNING', reason: '', message: '', created_ms: now() - 5000, finished_ms: null, params: {}, ...more });
const SWEEP = (name, more = {}) => ({
  id: name, name, project: 'mnist', state: 'RUNNING', reason: '', message: '', method: 'asha', metric: 'loss', direction: 'min', trials_target: 9, trial_states: { RUNNING: 2 }, created_ms: now() - 9000, finished_ms: null, ...more,
});
const MODEL = (name, more = {}) => ({ name, state: 'READY', serving: 3, versions: [], reason: '', ...more });
const SERVER = () => ({
  jobs: JOBS(),
  runs: [RUN('nightly-2'), RUN('nightly-1', { state: 'FAILED', reason: 'STEP_FAILED', message: 'step serve failed', finished_ms: now() - 120_000 })],
  waits: { 'nightly-2': 'is it good enough?' },
  sweeps: [SWEEP('mnist-sweep-1')],
  models: [MODEL('digits'), MODEL('faces', { state: 'FAILED', serving: null, reason: 'the plugin is damaged' })],
});

/** Visits the page of a server with these things. `server.more` are events that the stream sends after the first ones. */
const visit = (server, look, options = {}, place = 'overview') => on('', async (page) => {
  await page.route('**/api/v1/**', (route, request) => {
    const { pathname } = new URL(request.url());
    const [, , , kind, name] = pathname.split('/').map(decodeURIComponent);
    const refused = server.refused?.[kind];
    if (refused) return route.fulfill({ status: refused, json: { error: 'the key lacks the scope models:read', code: 'missing_scope', hint: '', request_id: 'r' } });
    if (kind === 'events') return route.fulfill({ status: 200, contentType: 'text/event-stream', body: opening(server.jobs) + (server.more ?? []).map((one) => event('job', one)).join('') });
    // Once the stream has ended, the page asks for all jobs.
    if (kind === 'jobs') return route.fulfill({ json: { jobs: server.jobs.map((one) => (server.more ?? []).find(({ id }) => id === one.id) ?? one), cursor: null } });
    if (kind === 'models') return route.fulfill({ json: { models: server.models } });
    if (kind === 'sweeps') return route.fulfill({ json: { sweeps: server.sweeps } });
    if (kind === 'pipeline-runs' && name) {
      const attempts = [{ item: 0, attempt: 1, state: 'WAITING', message: server.waits[name] }];
      return route.fulfill({ json: { ...server.runs.find((one) => one.name === name), steps: server.waits[name] ? [{ name: 'ask', kind: 'approve', after: [], state: 'WAITING', attempts }] : [] } });
    }
    if (kind === 'pipeline-runs') return route.fulfill({ json: { runs: server.runs, cursor: null } });
    return route.fulfill({ json: {} });
  });
  await page.goto(`${url}/#/${place}`);
  // At the start page already, the browser would load nothing.
  if (place === '') await page.reload();
  await look(page);
}, options);
const links = (page, list) => page.getByRole('list', { name: list, exact: true }).locator('a').evaluateAll((all) => all.map((one) => one.getAttribute('href')));
const text = (page, list, at) => page.getByRole('list', { name: list, exact: true }).locator('li').nth(at).textContent();

for (const [look, options] of Object.entries(looks)) {
  test(`it shows what runs, waits, failed and serves, ${look}`, () => visit(SERVER(), async (page) => {
    await page.getByText('3 running, 3 waiting, 2 failed in the last day, 1 of 2 models loaded').waitFor();
    assert.deepEqual((await links(page, 'Running')).sort(), ['#/jobs/mnist-4', '#/pipelines/nightly-2', '#/sweeps/mnist-sweep-1']);
    assert.match(await page.locator('a[href="#/jobs/mnist-4"]').locator('xpath=ancestor::li').textContent(), /40 %.*1\.6\/s, loss 0\.125, cpu/);
    // A person first, and then by the place in the queue.
    assert.deepEqual(await links(page, 'Waiting'), ['#/pipelines/nightly-2', '#/jobs/mnist-5', '#/jobs/mnist-6']);
    assert.match(await text(page, 'Waiting', 0), /step ask waits for a person.*is it good enough\?/);
    assert.match(await text(page, 'Waiting', 1), /device memory, place 1 in the queue.*needs 3 GiB/);
    // One of two days ago is left out.
    assert.deepEqual(await links(page, 'Failed in the last day'), ['#/jobs/mnist-3', '#/pipelines/nightly-1']);
    assert.match(await text(page, 'Failed in the last day', 0), /plugin error: <b>no field label<\/b>/);
    assert.deepEqual(await links(page, 'Models'), ['#/models/faces', '#/models/digits']);
    assert.match(await text(page, 'Models', 1), /READY.*version 3 is the default/);
    await isUsable(page);
    await isReadable(page);
    await shot(page, `overview-${look}`);
  }, options));
}

test('it is the start page, and keys move over all lists', () => visit(SERVER(), async (page) => {
  await page.getByRole('list', { name: 'Running' }).waitFor();
  assert.equal(await page.locator('nav [aria-current]').textContent(), 'Overview');
  await page.getByText('3 running').waitFor();
  const focused = () => page.evaluate(() => document.activeElement.getAttribute('href'));
  await page.keyboard.press('j');
  const [first, , third] = await links(page, 'Running');
  assert.equal(await focused(), first);
  for (const key of ['j', 'j', 'j', 'k']) await page.keyboard.press(key);
  assert.equal(await focused(), third);
  for (const key of ['k', 'k', 'Enter']) await page.keyboard.press(key);
  await becomes(() => page.evaluate(() => location.hash), '#/pipelines/nightly-2');
}, {}, ''));

test('what changes on the server changes on the page', () => {
  const server = { ...SERVER(), runs: [], sweeps: [], waits: {} };
  // The stream says that the running job failed.
  server.more = [{ ...server.jobs[2], state: 'FAILED', reason: 'NOT_FINITE', message: 'the loss is not a number', finished_ms: now() }];
  return visit(server, async (page) => {
    await page.getByText('Nothing runs.').waitFor();
    assert.match(await text(page, 'Failed in the last day', 0), /^mnist-4FAILED.*not finite: the loss is not a number/);
    server.models = [MODEL('faces', { serving: 1 })];
    await becomes(() => links(page, 'Models'), ['#/models/faces']);
    await page.getByText('1 of 1 models loaded').waitFor();
  });
});

test('long lists are cut, and lead to their page', () => {
  const jobs = Array.from({ length: 20 }, (_, at) => job(100 - at, { state: 'RUNNING' }));
  return visit({ jobs, runs: [], sweeps: [], models: [], waits: {} }, async (page) => {
    const running = page.getByRole('region', { name: 'Running' });
    await running.getByRole('link', { name: '12 more' }).waitFor();
    assert.equal((await links(page, 'Running')).length, 8);
    assert.equal(await running.getByRole('link', { name: '12 more' }).getAttribute('href'), '#/jobs');
  });
});

test('an empty server says what to run, and a part that a key may not see says so', async () => {
  const empty = { jobs: [], runs: [], sweeps: [], models: [], waits: {} };
  await visit(empty, async (page) => {
    await page.getByRole('heading', { name: 'No jobs yet' }).waitFor();
    assert.match(await page.locator('.empty pre').textContent(), /run lenet --data digits/);
    await isUsable(page);
    await shot(page, 'overview-empty');
  }, looks.narrow);
  await visit({ ...SERVER(), refused: { models: 403 } }, async (page) => {
    await page.getByRole('region', { name: 'Models' }).getByText('the key lacks the scope models:read.').waitFor();
    await page.getByRole('link', { name: 'mnist-4' }).waitFor();
    await becomes(() => page.locator('#live').textContent(), 'Live');
  }, { expected: ['403'] });
});
