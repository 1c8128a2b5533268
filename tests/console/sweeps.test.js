// The page of sweeps against a double of the server: states, order of the trials, drawings, and orders.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, test } from 'node:test';

import { becomes, isReadable, isUsable, looks, on, shot, start, stop, url } from './browser.js';

before(start);
after(stop);

const trial = (number, value, parameters, more = {}) => ({
  number, state: 'COMPLETED', reason: '', message: '', parameters, job: `digits-${number}`, job_state: 'SUCCEEDED', step: 88, steps_target: 88,
  gpu_seconds: 1, rung: 2, rung_values: [value], value, ...more,
});
const TRIALS = () => [
  trial(1, 0.91, { lr: 0.01, optimizer: 'sgd' }),
  trial(2, 0.97, { lr: 0.05, optimizer: 'adam' }),
  trial(3, null, { lr: 9, optimizer: 'sgd' }, { state: 'FAILED', reason: 'NOT_FINITE', message: 'the loss is not a number' }),
  trial(4, 0.5, { lr: 0.0001, optimizer: '<b>' }, { state: 'STOPPED', reason: 'NOT_PROMOTED', message: 'rank 4 of 4 at rung 0', step: 10 }),
];
const SWEEP = (more = {}) => ({
  id: '01S', name: 'digits-sweep-1', project: 'digits', owner: null, state: 'RUNNING', reason: '', message: '', method: 'asha', metric: 'validation/accuracy',
  direction: 'max', trials_target: 6, trial_states: { RUNNING: 2, COMPLETED: 2, FAILED: 1, STOPPED: 1 }, best: 2, best_value: 0.97,
  created_ms: 1_790_000_000_000, finished_ms: null, spec: {}, trials: TRIALS(),
  importance: [{ parameter: 'lr', importance: 0.8, correlation: 0.8 }, { parameter: 'optimizer', importance: 0.3, correlation: null }], ...more,
});
const SERIES = { series: [{ name: 'validation/accuracy', points: [[10, 0.3], [44, 0.8], [88, 0.95]] }] };

/** Visits a page of a server with this sweep; `server.asked` has the requests that change something. */
const visit = (server, place, look, options = {}) => on('', async (page) => {
  server.asked = [];
  await page.route('**/api/v1/**', (route, request) => {
    const { pathname } = new URL(request.url());
    const [, , , kind, name, part] = pathname.split('/').map(decodeURIComponent);
    if (request.method() !== 'GET') server.asked.push([request.method(), pathname]);
    if (kind === 'jobs') return route.fulfill({ json: SERIES });
    if (kind !== 'sweeps') return route.fulfill({ json: {} });
    if (!name) return route.fulfill({ json: { sweeps: server.sweeps } });
    const found = server.sweeps.find((one) => one.name === name);
    if (!found) return route.fulfill({ status: 404, json: { error: `no sweep ${name}`, code: 'not_found', hint: '', request_id: 'r' } });
    if (part === 'stop') found.state = 'STOPPED';
    if (part === 'resume') found.state = 'RUNNING';
    return route.fulfill({ json: found });
  });
  await page.goto(`${url}/#/${place}`);
  await look(page);
}, options);

for (const [look, options] of Object.entries(looks)) {
  test(`sweeps are listed, ${look}`, () => visit({ sweeps: [SWEEP(), SWEEP({ id: '01R', name: 'digits-sweep-0', state: 'FAILED', reason: 'NO_METRIC', message: 'trial 1 ended without validation/acc' })] }, 'sweeps', async (page) => {
    await page.locator('tbody tr').first().waitFor();
    const cells = await page.locator('tr[data-key="01S"] td').allTextContents();
    assert.deepEqual(cells.slice(1, 6), ['RUNNING', 'asha', '2 running, 2 completed, 1 failed, 1 stopped of 6', 'validation/accuracy', '0.97']);
    await page.getByText('trial 1 ended without validation/acc').waitFor();
    await isUsable(page);
    await isReadable(page);
    await shot(page, `sweeps-${look}`);
  }, options));

  test(`a sweep shows its trials, the best first, ${look}`, () => visit({ sweeps: [SWEEP()] }, 'sweeps/digits-sweep-1', async (page) => {
    await page.locator('tr[data-trial]').first().waitFor();
    assert.deepEqual(await page.locator('tbody th').allTextContents(), ['trial 2', 'trial 1', 'trial 4', 'trial 3']);
    const cells = await page.locator('tr[data-trial="2"] td').allTextContents();
    assert.deepEqual(cells.slice(0, 5), ['COMPLETED', '88/88', '0.97', '0.05', 'adam']);
    assert.equal(await page.locator('tr[data-trial="4"] td.why').textContent(), 'rank 4 of 4 at rung 0');
    // Every trial with a value is a line, and the best is drawn last.
    const lines = page.locator('svg.parallel polyline');
    assert.deepEqual(await lines.evaluateAll((all) => all.map((line) => line.dataset.trial)), ['4', '1', '2']);
    assert.equal(await lines.last().getAttribute('class'), 'trial-line best');
    assert.deepEqual(await page.locator('.axis-name').allTextContents(), ['lr', 'optimizer', 'validation/accuracy']);
    await page.locator('.chart canvas').waitFor();
    await page.getByRole('region', { name: 'Importance' }).getByText('positive').waitFor();
    await isUsable(page);
    await isReadable(page);
    await shot(page, `sweep-${look}`);
  }, options));
}

test('the drawing and the curves of a sweep are saved as pictures', () => visit({ sweeps: [SWEEP()] }, 'sweeps/digits-sweep-1', async (page) => {
  await page.locator('.chart canvas').waitFor();
  const saved = async (region) => {
    const button = page.getByRole('region', { name: region }).getByRole('button', { name: 'Save as PNG' });
    return (await Promise.all([page.waitForEvent('download'), button.click()]))[0];
  };
  const names = { 'Parallel coordinates': 'digits-sweep-1-parameters.png', Curves: 'digits-sweep-1-validation-accuracy.png' };
  for (const [region, name] of Object.entries(names)) {
    const download = await saved(region);
    assert.equal(download.suggestedFilename(), name);
    const picture = `data:image/png;base64,${readFileSync(await download.path()).toString('base64')}`;
    // The picture is no empty ground: it has many colours, because letters have smooth edges.
    const colours = await page.evaluate(async (bytes) => {
      const image = await createImageBitmap(new Blob([Uint8Array.from(atob(bytes.split(',')[1]), (c) => c.charCodeAt(0))]));
      const canvas = new OffscreenCanvas(image.width, image.height);
      canvas.getContext('2d').drawImage(image, 0, 0);
      const { data } = canvas.getContext('2d').getImageData(0, 0, image.width, image.height);
      return new Set(new Uint32Array(data.buffer)).size;
    }, picture);
    assert.ok(colours > 20, `${colours}`);
    if (process.env.CONSOLE_SHOTS) await download.saveAs(`${process.env.CONSOLE_SHOTS}/saved-${region === 'Curves' ? 'curves' : 'parallel'}.png`);
  }
}));

const POPULATION = () => SWEEP({
  method: 'pbt', best: 5, trials_target: 3, trial_states: { COMPLETED: 3, STOPPED: 2 }, trials: [
    trial(1, 0.91, { lr: 0.01 }, { member: 1 }),
    trial(2, 0.5, { lr: 0.3 }, { member: 2, state: 'STOPPED', reason: 'REPLACED', message: 'trial 4 continues in its place from the state of trial 1' }),
    trial(3, 0.8, { lr: 0.05 }, { member: 3, state: 'STOPPED', reason: 'REPLACED', message: 'trial 5 continues in its place from the state of trial 4' }),
    trial(4, 0.93, { lr: 0.008 }, { member: 2, parent: { trial: 1, rung: 0, step: 22 } }),
    trial(5, 0.97, { lr: 0.0064 }, { member: 3, parent: { trial: 4, rung: 1, step: 44 } }),
  ],
});

for (const [look, options] of Object.entries(looks)) {
  test(`a population shows its members and the lineage of the best or the selected trial, ${look}`, () => visit({ sweeps: [POPULATION()] }, 'sweeps/digits-sweep-1', async (page) => {
    await page.locator('tr[data-trial]').first().waitFor();
    const cells = await page.locator('tr[data-trial="5"] td').allTextContents();
    assert.deepEqual(cells.slice(0, 6), ['COMPLETED', '3', 'trial 4 at step 44', '88/88', '0.97', '0.0064']);
    await page.getByText('population of 3').waitFor();
    const lineage = page.getByRole('region', { name: 'Lineage' });
    const lines = () => lineage.locator('tbody tr').evaluateAll((rows) => rows.map((row) => [...row.children].map((one) => one.textContent)));
    assert.deepEqual(await lines(), [['trial 1', '0', '0.01'], ['trial 4', '22', '0.008'], ['trial 5', '44', '0.0064']]);
    await isUsable(page);
    await isReadable(page);
    await shot(page, `population-${look}`);
    // The second best trial.
    await page.locator('body').press('j');
    await page.locator('body').press('j');
    await becomes(lines, [['trial 1', '0', '0.01'], ['trial 4', '22', '0.008']]);
    // A trial with one set of parameters has no lineage.
    await page.locator('body').press('j');
    await lineage.waitFor({ state: 'detached' });
  }, options));
}

test('a sweep that is minimized has its lowest value first', () => visit({ sweeps: [SWEEP({ direction: 'min' })] }, 'sweeps/digits-sweep-1', async (page) => {
  await page.locator('tr[data-trial]').first().waitFor();
  assert.deepEqual(await page.locator('tbody th').allTextContents(), ['trial 4', 'trial 1', 'trial 2', 'trial 3']);
}));

test('a sweep is stopped and resumed', () => {
  const server = { sweeps: [SWEEP()] };
  return visit(server, 'sweeps/digits-sweep-1', async (page) => {
    await page.getByRole('button', { name: 'Stop…' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Stop', exact: true }).click();
    await page.getByRole('button', { name: 'Resume' }).click();
    await page.getByRole('button', { name: 'Stop…' }).waitFor();
    await becomes(async () => server.asked, [['POST', '/api/v1/sweeps/digits-sweep-1/stop'], ['POST', '/api/v1/sweeps/digits-sweep-1/resume']]);
  });
});

test('keys select a trial, which its line shows', () => visit({ sweeps: [SWEEP()] }, 'sweeps/digits-sweep-1', async (page) => {
  await page.locator('tr[data-trial]').first().waitFor();
  await page.keyboard.press('j');
  await page.keyboard.press('j');
  await becomes(() => page.locator('.trial-line.selected').getAttribute('data-trial'), '1');
  assert.equal(await page.evaluate(() => document.activeElement.textContent), 'trial 1');
}));

test('without sweeps it says what to run, and a missing one is named', async () => {
  await visit({ sweeps: [] }, 'sweeps', async (page) => {
    await page.getByRole('heading', { name: 'No sweeps yet' }).waitFor();
    await isUsable(page);
  }, looks.narrow);
  await visit({ sweeps: [] }, 'sweeps/absent', async (page) => {
    await page.getByText('no sweep absent').waitFor();
  }, { expected: ['404'] });
});
