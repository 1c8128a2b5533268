// Pipeline runs and sweeps side by side, against a double of the server: what differs, results, links and refusals.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { becomes, isReadable, isUsable, looks, on, shot, start, stop, url } from './browser.js';

before(start);
after(stop);

const RUN = (name, more = {}) => ({
  id: name, name, pipeline: 'nightly', project: 'digits', state: 'SUCCEEDED', reason: '', message: '', owner: null, created_ms: 1_790_000_000_000, finished_ms: 1_790_000_030_000, params: {}, ...more,
});
const ATTEMPT = (more = {}) => ({ state: 'SUCCEEDED', attempt: 1, seconds: 12.5, job: 'digits-1', cached_from: null, ...more });
const values = (name, ...of) => ({ name, values: of, differs: of.some((value) => value !== of[0]) });
const output = (value, digest = null) => ({ value, digest });

const RUNS = () => ({
  kind: 'pipeline-run',
  pipeline_runs: {
    runs: [RUN('nightly-1'), RUN('nightly-2', { state: 'FAILED', finished_ms: 1_790_000_090_000 })],
    params: [values('epochs', 2, 4), values('model', '<b>', '<b>')],
    steps: [
      {
        name: 'base', attempts: [ATTEMPT(), ATTEMPT({ cached_from: 'nightly-1' })], metrics: [],
        outputs: [{ name: 'checkpoint', outputs: [output('job:digits-1/checkpoint@8', 'ab'.repeat(32)), output('job:digits-1/checkpoint@8', 'ab'.repeat(32))], differs: false }],
      },
      {
        name: 'train', attempts: [ATTEMPT({ job: 'digits-2' }), ATTEMPT({ job: 'digits-4', attempt: 2, seconds: 61 })], metrics: [values('validation/accuracy', 0.91, null)],
        outputs: [{ name: 'model', outputs: [output('model:digits@1', 'cd'.repeat(32)), output('model:digits@2', 'ef'.repeat(32))], differs: true }],
      },
      { name: 'try', item: 0.1, attempts: [ATTEMPT({ job: null, seconds: null, state: 'PENDING' }), null], metrics: [], outputs: [] },
    ],
  },
});
const SWEEP = (name, more = {}) => ({
  name, project: 'digits', state: 'SUCCEEDED', method: 'asha', metric: 'validation/accuracy', direction: 'max', trials_target: 9, trial_states: { COMPLETED: 3, STOPPED: 6 },
  steps: 480, gpu_seconds: 30.25, seconds: 75, best: 2, best_value: 0.97, best_job: 'digits-2', ...more,
});
const SWEEPS = () => ({
  kind: 'sweep',
  sweeps: {
    sweeps: [SWEEP('digits-sweep-1'), SWEEP('digits-sweep-2', { method: 'full', steps: 900, best_value: null, best_job: null, best: null })],
    space: [values('lr', 'log(1e-4,1e-1)', 'log(1e-4,1e-1)'), values('kind', null, 'sgd,adam')],
    settings: [values('seed', 1, 7), values('job.parameters.epochs', 9, 9)],
    best_parameters: [values('lr', 0.05, null)],
  },
});

/** Visits a page of a server that compares things so; `server.asked` has the paths that were asked for. */
const visit = (server, place, look, options = {}) => on('', async (page) => {
  server.asked = [];
  await page.route('**/api/v1/**', (route, request) => {
    const { pathname, search } = new URL(request.url());
    server.asked.push(pathname + search);
    if (pathname === '/api/v1/compare') return route.fulfill({ status: server.status ?? 200, json: server.compared });
    if (pathname === '/api/v1/pipeline-runs') return route.fulfill({ json: { runs: server.runs, cursor: null } });
    if (pathname === '/api/v1/sweeps') return route.fulfill({ json: { sweeps: server.sweeps } });
    return route.fulfill({ json: {} });
  });
  await page.goto(`${url}/#/${place}`);
  await look(page);
}, options);
/** The rows of the table: the name and the texts of its cells. */
const rows = (page) => page.locator('table.sides tbody tr:not(.group)').evaluateAll((all) => all.map((row) => [...row.children].map((cell) => cell.textContent)));
const groups = (page) => page.locator('table.sides tr.group').allTextContents();

for (const [look, options] of Object.entries(looks)) {
  test(`pipeline runs are compared by what differs, ${look}`, () => {
    const server = { compared: RUNS() };
    return visit(server, 'compare/nightly-1/nightly-2', async (page) => {
      await page.getByRole('heading', { name: 'Compare 2 pipeline runs' }).waitFor();
      const found = await rows(page);
      const row = (name) => found.find(([of]) => of === name)?.slice(1);
      assert.deepEqual(row('epochs'), ['2', '4']);
      assert.equal(row('model'), undefined, 'a parameter that is the same is left out');
      assert.deepEqual(row('base'), ['SUCCEEDED12.5 s · digits-1', 'SUCCEEDED12.5 s, cached from nightly-1 · digits-1']);
      assert.deepEqual(row('try[0.1]'), ['PENDING', '–']);
      assert.deepEqual(row('train: model'), ['model:digits@1cdcdcdcdcdcd', 'model:digits@2efefefefefef']);
      assert.equal(row('base: checkpoint'), undefined, 'an output of the same content is left out');
      assert.deepEqual(row('train: validation/accuracy'), ['0.91', '–']);
      await page.getByLabel('Also what is the same').check();
      await becomes(async () => (await rows(page)).some(([name, value]) => name === 'model' && value === '<b>'), true);
      assert.equal(await page.getByRole('link', { name: 'digits-4' }).getAttribute('href'), '#/jobs/digits-4');
      assert.ok(server.asked.includes('/api/v1/compare?names=nightly-1,nightly-2'));
      await isUsable(page);
      await isReadable(page);
      await shot(page, `compare-runs-${look}`);
    }, options);
  });

  test(`sweeps are compared by what differs, ${look}`, () => visit({ compared: SWEEPS() }, 'compare-sweeps/digits-sweep-1/digits-sweep-2', async (page) => {
    await page.getByRole('heading', { name: 'Compare 2 sweeps' }).waitFor();
    const found = await rows(page);
    const row = (name) => found.find(([of]) => of === name)?.slice(1);
    assert.deepEqual([row('method'), row('kind'), row('seed')], [['asha', 'full'], ['–', 'sgd,adam'], ['1', '7']]);
    assert.equal(row('metric'), undefined);
    assert.deepEqual([row('steps used'), row('best value'), row('best job')], [['480', '900'], ['0.97', '–'], ['digits-2', '–']]);
    assert.deepEqual(await groups(page), ['Search', 'Ranges', 'Settings', 'Results', 'Parameters of the best trials']);
    await isUsable(page);
    await isReadable(page);
    await shot(page, `compare-sweeps-${look}`);
  }, options));
}

test('runs and sweeps are selected in their lists, with keys too, and compared', async () => {
  const runs = ['nightly-3', 'nightly-2', 'nightly-1'].map((name) => RUN(name));
  const server = { runs, compared: RUNS() };
  await visit(server, 'pipelines', async (page) => {
    await page.getByText('Select two or more to compare them.').waitFor();
    await page.getByLabel('Select nightly-3').check();
    assert.equal(await page.getByRole('button', { name: 'Compare' }).isDisabled(), true);
    for (const key of ['j', 'j', 'x', 'c']) await page.keyboard.press(key);
    await becomes(() => page.evaluate(() => location.hash), '#/compare-pipelines/nightly-3/nightly-2');
    await page.getByRole('heading', { name: 'Compare 2 pipeline runs' }).waitFor();
    assert.ok(server.asked.includes('/api/v1/compare?names=nightly-3,nightly-2&kind=pipeline-run'));
  });
  const sweep = (name) => ({ ...SWEEP(name), id: name, reason: '', message: '', created_ms: 1_790_000_000_000 });
  await visit({ sweeps: [sweep('digits-sweep-2'), sweep('digits-sweep-1')], compared: SWEEPS() }, 'sweeps', async (page) => {
    await page.getByLabel('Select digits-sweep-1').check();
    await page.getByLabel('Select digits-sweep-2').check();
    await page.getByRole('button', { name: 'Compare' }).click();
    await page.getByRole('heading', { name: 'Compare 2 sweeps' }).waitFor();
  });
});

test('names of several kinds are refused in the words of the server', () => {
  const error = 'names: expected names of one kind: jobs, pipeline runs or sweeps, got "nightly-1 (pipeline run) and digits-1 (job)"';
  const server = { status: 400, compared: { error, code: 'invalid', hint: 'compare things of one kind', request_id: 'r' } };
  return visit(server, 'compare/nightly-1/digits-1', async (page) => {
    await page.getByRole('alert').getByText('nightly-1 (pipeline run) and digits-1 (job)').waitFor();
    await page.getByText('compare things of one kind').waitFor();
  }, { expected: ['400'] });
});
