// The page of one job against a double of the server: attempts, charts, the log, files, and what it can be asked to do.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, test } from 'node:test';

import { becomes, isReadable, isUsable, looks, on, shot, start, stop, url } from './browser.js';
import { attempt, event, job, serve } from './jobs-double.js';

before(start);
after(stop);

/** Steps and losses of a training that was cut short at 40 and 70. */
const points = (scale, every) => Array.from({ length: Math.floor(100 / every) }, (_, at) => [(at + 1) * every, scale / ((at + 1) * every)]);

const SERIES = [
  { name: 'accuracy', points: points(-1, 1).map(([step, value]) => [step, 1 + value]) },
  { name: 'learning-rate', points: points(0.1, 10) },
  { name: 'loss', points: points(3, 1) },
  { name: 'validation/loss', points: points(4, 10) },
];

const ATTEMPTS = [
  attempt(1, { state: 'PREEMPTED', reason: 'PREEMPTED', message: 'a job of higher priority took the slot', last_step: 40, wall_seconds: 4 }),
  attempt(2, { state: 'INTERRUPTED', reason: 'WORKER_LOST', message: 'the worker was killed', first_step: 41, last_step: 70, wall_seconds: 3 }),
  attempt(3, { state: 'RUNNING', first_step: 61, last_step: 100, wall_seconds: 5, ended_ms: null }),
];

/** A log of three attempts: `[number, line]`. */
const LOG = [1, 2, 3].flatMap((number) => Array.from({ length: 20 }, (_, at) => [`${number}:${(at + 1) * 50}`, `2026-11-21T12:0${number}:${String(at).padStart(2, '0')}.000Z attempt ${number} says ${at}`]));

const DIGEST = 'c0ffee'.repeat(10);

function running(more = {}) {
  const one = job(7, { state: 'RUNNING', attempt: 3, step: 100, steps_target: 200, description: 'a wider net', metrics: { loss: 0.03, accuracy: 0.99 } });
  const events = [
    { sequence: 1, at_ms: 1_790_000_000_000, kind: 'SUBMITTED', text: '' },
    { sequence: 9, at_ms: 1_790_000_004_000, kind: 'PREEMPTED', text: 'for letters-1' },
  ];
  return {
    jobs: [one], series: { 'mnist-7': SERIES }, details: { 'mnist-7': { attempts: ATTEMPTS, phases: [], events } }, log: LOG, logEnds: false,
    files: [{ path: 'pictures/a b.png', bytes: 2048 }],
    checkpoints: [{ step: 40, epoch: 4, bytes: 4096, digest: DIGEST, written_ms: 1_790_000_000_000 }, { step: 60, epoch: 6, bytes: 4096, digest: DIGEST, written_ms: 1_790_000_001_000, best: true }],
    ...more,
  };
}

const visit = (server, look, options = {}, place = 'jobs/mnist-7') => on('', async (page) => {
  await serve(page, server);
  await page.goto(`${url}/#/${place}`);
  await look(page);
}, options);
const lines = (page) => page.locator('.log > div');
const agree = (page) => page.locator('dialog button[value=yes]').click();

for (const [look, options] of Object.entries(looks)) {
  test(`a job shows its state, attempts, numbers, log and files, ${look}`, () => visit(running(), async (page) => {
    await page.locator('.job-title .state', { hasText: 'RUNNING' }).waitFor();
    const pieces = page.locator('.ribbon .piece');
    assert.deepEqual(await pieces.allTextContents(), ['1', '2', '3']);
    // Cut short is striped, and said in words.
    const striped = await pieces.evaluateAll((all) => all.map((one) => getComputedStyle(one).backgroundImage.includes('repeating')));
    assert.deepEqual(striped, [true, true, false]);
    assert.match(await pieces.first().getAttribute('title'), /PREEMPTED, preempted: a job of higher priority took the slot/);
    assert.deepEqual(await page.locator('.attempts .state').allTextContents(), ['RUNNING', 'INTERRUPTED', 'PREEMPTED']);
    await becomes(() => page.locator('.uplot canvas').count(), 2);
    await becomes(() => lines(page).count(), 60);
    assert.deepEqual(await page.locator('.checkpoints tbody th').allTextContents(), ['Step 60newestbest', 'Step 40']);
    assert.deepEqual([await page.locator('.files summary').textContent(), await page.locator('.files .tree-name').textContent()], ['pictures/ 1 file, 2.0 KiB', 'a b.png']);
    assert.deepEqual(await page.locator('.history b').allTextContents(), ['preempted', 'submitted']);
    await isUsable(page);
    await isReadable(page);
    await shot(page, `job-${look}`);
  }, options));
}

/** What the charts were given, by chart. */
const drawn = (page) => page.locator('.chart').evaluateAll((all) => Object.fromEntries(
  all.map((one) => [one.dataset.chart, [...one.querySelectorAll('.legend li')].map((entry) => entry.textContent)]),
));

test('series are chosen, smoothed, and shown on a logarithm', () => visit(running(), async (page) => {
  await becomes(() => drawn(page), { loss: ['loss 0.03', 'validation/loss 0.04'], accuracy: ['accuracy 0.99'] });
  const canvas = () => page.locator('[data-chart=loss] canvas').evaluate((one) => one.toDataURL());
  await page.locator('[data-chart=loss] canvas').waitFor();
  const linear = await canvas();
  await page.getByLabel('Log scale').check();
  await becomes(async () => (await canvas()) !== linear, true);
  const log = await canvas();
  await page.getByLabel('Smoothing').fill('0.9');
  await becomes(async () => (await canvas()) !== log, true);
  await page.locator('.menu summary').click();
  await page.getByLabel('learning-rate').check();
  await page.getByLabel('validation/loss').uncheck();
  await becomes(() => drawn(page), { loss: ['loss 0.03'], accuracy: ['accuracy 0.99'], 'learning-rate': ['learning-rate 0.001'] });
}));

test('numbers under the pointer are displayed, and charts are saved as pictures', () => visit(running(), async (page) => {
  const box = page.locator('[data-chart=loss] .u-over');
  await box.waitFor();
  await box.hover();
  await becomes(async () => /^step \d+$/.test((await drawn(page)).loss[0]), true);
  const saved = async (button) => (await Promise.all([page.waitForEvent('download'), button.click()]))[0];
  const one = await saved(page.locator('[data-chart=accuracy]').getByRole('button', { name: 'Save as PNG' }));
  assert.equal(one.suggestedFilename(), 'mnist-7-accuracy.png');
  const { width, height } = await page.locator('[data-chart=accuracy] canvas').evaluate((canvas) => ({ width: canvas.width, height: canvas.height }));
  const file = readFileSync(await one.path());
  assert.equal(file.subarray(1, 4).toString(), 'PNG');
  // The picture has a title, a legend and labels beside the plot. Source: PNG specification, 11.2.1.
  assert.ok(file.readUInt32BE(16) > width && file.readUInt32BE(20) > height + 60, `${file.readUInt32BE(16)}x${file.readUInt32BE(20)}`);
  if (process.env.CONSOLE_SHOTS) await one.saveAs(`${process.env.CONSOLE_SHOTS}/saved-chart.png`);
  const all = await saved(page.getByRole('button', { name: 'Save all as PNG' }));
  assert.equal(all.suggestedFilename(), 'mnist-7-loss.png');
}));

test('a link reopens the chosen series, scale and smoothing', () => visit(running(), async (page) => {
  await page.locator('[data-chart=loss] canvas').waitFor();
  await page.getByLabel('Log scale').check();
  await page.getByLabel('Smoothing').fill('0.6');
  await page.locator('.menu summary').click();
  await page.getByLabel('learning-rate').check();
  await page.getByLabel('validation/loss').uncheck();
  const drawnThen = { loss: ['loss 0.03'], accuracy: ['accuracy 0.99'], 'learning-rate': ['learning-rate 0.001'] };
  await becomes(() => drawn(page), drawnThen);
  const link = await page.getByRole('link', { name: 'Link to this view' }).evaluate((one) => one.href);
  assert.equal(link, page.url());
  assert.match(link, /#\/jobs\/mnist-7\?series=.*&log=1&smooth=0\.6$/);
  await shot(page, 'job-link');
  // Opened from another page.
  await page.goto(`${url}/#/jobs`);
  await page.locator('[data-chart=loss]').waitFor({ state: 'detached' });
  await page.goto(link);
  await becomes(() => drawn(page), drawnThen);
  assert.ok(await page.getByLabel('Log scale').isChecked());
  assert.equal(await page.getByLabel('Smoothing').inputValue(), '0.6');
  // What an address says wrongly is the usual.
  await page.goto(`${url}/#/jobs`);
  await page.locator('[data-chart=loss]').waitFor({ state: 'detached' });
  await page.goto(`${url}/#/jobs/mnist-7?series=absent&log=yes&smooth=7`);
  await page.getByText('Series: 0 of 4').waitFor();
  assert.ok(!(await page.getByLabel('Log scale').isChecked()));
  assert.equal(await page.getByLabel('Smoothing').inputValue(), '0');
}));

test('new points are asked for from where the last ones were', () => {
  const server = running();
  return visit(server, async (page) => {
    await becomes(async () => (await drawn(page)).loss?.[0], 'loss 0.03');
    server.series = { 'mnist-7': SERIES.map((one) => (one.name === 'loss' ? { ...one, points: [...one.points, [110, 0.5]] } : one)) };
    server.jobs = [{ ...server.jobs[0], step: 110 }];
    await becomes(async () => (await drawn(page)).loss[0], 'loss 0.5');
    const asked = server.asked.filter(({ path }) => path.includes('/metrics')).map(({ path }) => new URL(path, url).searchParams.get('from'));
    assert.deepEqual([asked[0], asked.at(-1) === '100' || asked.at(-1) === '110'], ['0', true]);
  });
});

/** How often a part of the job was asked for, and how often events were. */
const count = (server, part) => server.asked.filter(({ path }) => path.startsWith(`/api/v1/jobs/mnist-7/${part}`)).length;
const streams = (server) => server.asked.filter(({ path }) => path.startsWith('/api/v1/events')).length;

test('series that are too much for one answer are whole, the sparse ones too', () => {
  const server = running({ pointsMax: 30 });
  return visit(server, async (page) => {
    await becomes(() => drawn(page), { loss: ['loss 0.03', 'validation/loss 0.04'], accuracy: ['accuracy 0.99'] });
    const asked = server.asked.filter(({ path }) => path.includes('/metrics')).map(({ path }) => new URL(path, url).searchParams.get('from'));
    assert.deepEqual(asked.slice(0, 4), ['0', '31', '61', '91']);
  });
});

test('events ask for numbers, and not for files each time', () => {
  const server = running();
  return visit(server, async (page) => {
    await page.locator('.files .tree-name').waitFor();
    await becomes(() => streams(server) > 3, true);
    assert.ok(count(server, 'metrics') > 2, 'numbers are asked for');
    // At first, and when the state was heard of.
    assert.ok(count(server, 'output') <= 2, `files were asked for ${count(server, 'output')} times`);
  });
});

test('what could not be had is asked for again', () => {
  const server = running({ jobs: [job(7)], logEnds: true, failing: 'output' });
  return visit(server, async (page) => {
    await becomes(() => streams(server) > 2, true);
    assert.equal(await page.locator('.files .tree-name').count(), 0);
    delete server.failing;
    await page.locator('.files .tree-name').waitFor();
  }, { expected: ['503'] });
});

test('a chart that is looked at more closely stays so when points come', () => {
  const server = running();
  return visit(server, async (page) => {
    const over = page.locator('[data-chart=loss] .u-over');
    await over.waitFor();
    const to = async (share) => {
      await over.scrollIntoViewIfNeeded();
      const { x, y, width, height } = await over.boundingBox();
      await page.mouse.move(x + share * width, y + height / 2);
    };
    /** Whether the step at this share of the chart's width is among these. */
    const has = (share, from, until) => async () => {
      await to(share + 0.01);
      await to(share);
      const [step] = (await drawn(page)).loss;
      return /^step \d+$/.test(step) && Number(step.slice(5)) >= from && Number(step.slice(5)) < until;
    };
    const isClose = has(0.01, 40, 60);
    await becomes(has(0.01, 1, 10), true);
    await becomes(has(0.9, 80, 95), true);
    await to(0.5);
    await page.mouse.down();
    await to(0.7);
    await to(0.8);
    await page.mouse.up();
    await becomes(isClose, true);
    await page.mouse.move(2, 2);
    server.series = { 'mnist-7': SERIES.map((one) => (one.name === 'loss' ? { ...one, points: [...one.points, [110, 0.5]] } : one)) };
    await becomes(async () => (await drawn(page)).loss[0], 'loss 0.5');
    const seen = streams(server);
    await becomes(() => streams(server) > seen + 1, true);
    await becomes(isClose, true);
  });
});

test('the log is searched, and shown for one attempt', () => visit(running(), async (page) => {
  await becomes(() => lines(page).count(), 60);
  await page.locator('h1').click();
  await page.keyboard.press('/');
  await page.keyboard.type('SAYS 19');
  assert.equal(await lines(page).count(), 3);
  assert.deepEqual(await page.locator('.log mark').allTextContents(), ['says 19', 'says 19', 'says 19']);
  await page.getByText('3 of 60 lines have “SAYS 19”.').waitFor();
  await page.getByLabel('Search the log').fill('');
  await page.getByLabel('Attempt', { exact: true }).selectOption('2');
  await becomes(() => lines(page).count(), 20);
  assert.match(await lines(page).first().textContent(), /attempt 2 says 0$/);
  await page.locator('.ribbon .piece').first().click();
  await becomes(async () => (await lines(page).count()) === 20 && /attempt 1/.test(await lines(page).first().textContent()), true);
  assert.equal(await page.locator('.piece[aria-pressed=true]').textContent(), '1');
}));

test('a log that breaks off is gone on with, without a line twice', () => {
  const server = running();
  server.log = LOG.slice(0, 30);
  return visit(server, async (page) => {
    await becomes(() => lines(page).count(), 30);
    server.log = LOG;
    await becomes(() => lines(page).count(), 60);
    const texts = await lines(page).locator('span').allTextContents();
    assert.equal(new Set(texts).size, 60);
    const asked = server.asked.filter(({ path, headers }) => path.includes('/logs?') && headers['last-event-id']);
    assert.equal(asked[0].headers['last-event-id'], LOG[29][0]);
  });
});

test('a log that is whole is not asked for again', () => {
  const server = running({ jobs: [job(7)], logEnds: true });
  return visit(server, async (page) => {
    await becomes(() => lines(page).count(), 60);
    const asked = () => server.asked.filter(({ path }) => path.includes('/logs?')).length;
    const streams = () => server.asked.filter(({ path }) => path.startsWith('/api/v1/events')).length;
    const [before, seen] = [asked(), streams()];
    await becomes(() => streams() > seen + 1, true);
    assert.equal(asked(), before);
  });
});

test('hostile texts are text', () => {
  const nasty = '<script>window.hit = 1</script><img src=x onerror="window.hit=1">';
  const one = job(7, { description: nasty, reason: nasty, message: nasty, metrics: { [nasty]: 1 }, spec: { parameters: { [nasty]: nasty } } });
  const details = { attempts: [attempt(1, { message: nasty, reason: nasty, device: nasty })], phases: [], events: [{ sequence: 1, at_ms: 1, kind: nasty, text: nasty }] };
  const server = running({
    jobs: [one], details: { 'mnist-7': details }, log: [['1:9', `2026-11-21T12:00:00.000Z ${nasty}`]],
    series: { 'mnist-7': [{ name: nasty, points: [[1, 1], [2, null]] }] }, files: [{ path: nasty, bytes: 1 }], checkpoints: [],
  });
  return visit(server, async (page) => {
    await lines(page).first().waitFor();
    await page.getByText(nasty).first().waitFor();
    await page.getByLabel('Search the log').fill('img');
    assert.equal(await page.locator('main script, main img').count(), 0);
    assert.equal(await page.evaluate(() => window.hit), undefined);
    await isUsable(page);
  }, looks.narrow);
});

test('a job is restarted with other parameters, from its last checkpoint', () => {
  const server = running({ answer: job(8) });
  return visit(server, async (page) => {
    await page.getByRole('button', { name: 'Restart with…' }).first().click();
    await page.getByLabel('epochs').fill('many');
    await agree(page);
    await page.getByRole('alert').getByText('epochs: expected a number, got “many”').waitFor();
    await page.getByLabel('epochs').fill('20');
    await page.getByLabel('seed').fill('3');
    await page.getByText('More, as JSON').click();
    await page.getByLabel('Other fields of the specification, as JSON').fill('{"parameters": {"units": 64}, "queue": "night"}');
    await page.getByLabel('From the last checkpoint').check();
    await isUsable(page);
    await shot(page, 'restart');
    server.jobs.push(server.answer);
    await agree(page);
    await becomes(() => page.evaluate(() => location.hash), '#/jobs/mnist-8');
    const [posted] = server.asked.filter(({ method }) => method === 'POST');
    assert.deepEqual([posted.path, posted.body], ['/api/v1/jobs/mnist-7/restart', {
      parameters: { epochs: 20, units: 64 }, overrides: { seed: 3, queue: 'night' }, resume: true,
    }]);
  });
});

test('a checkpoint is deployed as a version of a model', () => {
  const server = running({ others: { models: { model: 'digits', version: 4 } } });
  return visit(server, async (page) => {
    await page.getByRole('button', { name: 'Deploy step 40' }).click();
    assert.equal(await page.getByLabel('Model', { exact: true }).inputValue(), 'mnist');
    await page.getByLabel('Model', { exact: true }).fill('digits');
    await agree(page);
    await page.locator('.toast', { hasText: 'Version 4 of digits was created from step 40.' }).waitFor();
    const [posted] = server.asked.filter(({ method }) => method === 'POST');
    assert.deepEqual([posted.path, posted.body], ['/api/v1/models/digits/versions', { from: 'job:mnist-7/checkpoint@40' }]);
    const href = await page.locator('.checkpoints a').last().getAttribute('href');
    assert.equal(href, '/api/v1/jobs/mnist-7/checkpoints/40');
    assert.equal(await page.locator('.files a').getAttribute('href'), '/api/v1/jobs/mnist-7/output/pictures/a%20b.png');
  });
});

test('orders go to the job, and what happens is reported', () => {
  const server = running({ more: event('note', { sequence: 12, at_ms: 1_790_000_005_000, kind: 'CHECKPOINT_SAVED', text: 'step 90', job: 'mnist-7' }, 12) });
  return visit(server, async (page) => {
    await page.locator('.history b', { hasText: 'checkpoint saved' }).waitFor();
    for (const [button, done] of [['Preempt…', 'queued again'], ['Stop…', 'stopping']]) {
      await page.getByRole('button', { name: button }).click();
      await agree(page);
      await page.locator('.toast', { hasText: done }).waitFor();
    }
    await page.getByRole('button', { name: 'Save a checkpoint' }).click();
    await page.locator('.toast', { hasText: 'saves a checkpoint' }).waitFor();
    assert.ok(await page.getByRole('button', { name: 'Delete…' }).isDisabled());
    server.jobs = [job(7, { state: 'CANCELLED', reason: 'STOPPED', message: 'stopped by a user' })];
    await page.getByText('stopped: stopped by a user').waitFor();
    // A deletion takes its time: nothing is asked about a job that may be gone, or the browser complains of refusals.
    server.deletes = new Promise((resolve) => { setTimeout(resolve, 3000); });
    await page.getByRole('button', { name: 'Delete…' }).click();
    await agree(page);
    await becomes(() => page.evaluate(() => location.hash), '#/jobs');
    const orders = server.asked.map(({ method, path }) => `${method} ${path}`);
    const after = orders.slice(orders.indexOf('DELETE /api/v1/jobs/mnist-7') + 1);
    assert.deepEqual(after.filter((one) => one.includes('mnist-7')), []);
    const commands = server.asked.filter(({ method }) => method !== 'GET').map(({ method, path }) => `${method} ${path.replace('/api/v1/jobs/', '')}`);
    assert.deepEqual(commands, ['POST mnist-7/preempt', 'POST mnist-7/stop', 'POST mnist-7/checkpoint', 'DELETE mnist-7']);
  });
});

const still = running();
test('sections are gone through by keyboard, and a job that is not there is said to be missing', () => visit(still, async (page) => {
  await page.locator('.ribbon').waitFor();
  await page.locator('h2', { hasText: 'Lineage' }).waitFor();
  const head = () => page.evaluate(() => document.activeElement.textContent);
  for (const name of ['Lineage', 'Attempts', 'Charts', 'Log']) {
    await page.keyboard.press('j');
    assert.equal(await head(), name);
  }
  // What is brought up to date keeps the focus.
  still.jobs = [{ ...still.jobs[0], step: 123 }];
  await page.getByText('123/200').waitFor();
  assert.equal(await head(), 'Log');
  await page.keyboard.press('k');
  assert.equal(await head(), 'Charts');
  await page.keyboard.press('l');
  await becomes(() => page.evaluate(() => document.activeElement.className), 'log');
  await page.evaluate(() => { location.hash = '#/jobs/mnist-99'; });
  await page.getByText('no job mnist-99.').waitFor();
}, { expected: ['404'] }));

test('outputs are a tree whose folders open and close by keyboard', () => {
  const files = ['b.txt', 'a/2.png', 'a/10.png', 'a/x/1.png'].map((path) => ({ path, bytes: 1024 }));
  return visit(running({ files }), async (page) => {
    const names = () => page.locator('.files .tree-name:visible').allTextContents();
    await page.locator('.files .tree-name', { hasText: 'b.txt' }).waitFor();
    assert.deepEqual(await names(), ['1.png', '2.png', '10.png', 'b.txt']);
    await page.locator('.files summary', { hasText: 'a/' }).first().focus();
    await page.keyboard.press('Enter');
    assert.deepEqual(await names(), ['b.txt']);
    assert.equal(await page.locator('.files summary').first().textContent(), 'a/ 3 files, 3.0 KiB');
    await page.keyboard.press('Enter');
    assert.equal(await page.getByRole('link', { name: 'Download 1.png' }).getAttribute('href'), '/api/v1/jobs/mnist-7/output/a/x/1.png');
  });
});

test('the lineage leads from the data to the versions and the answers that were recorded', () => {
  const models = [{
    name: 'digits', serving: 2, versions: [{ version: 1, state: 'UNLOADED', traffic_percent: 0, aliases: [] }, { version: 2, state: 'READY', traffic_percent: 60, aliases: ['stable', 'canary'] }],
  }];
  const datasets = [{ name: 'recorded-digits', version: 3 }, { name: 'digits', version: 1 }];
  const server = running({ others: { models: { models }, datasets: { datasets } } });
  server.details['mnist-7'].published = [1, 2, 5].map((version) => ({ model: 'digits', version }));
  server.jobs[0].spec.init_from = 'job:mnist-3/checkpoint@100';
  return visit(server, async (page) => {
    const stages = () => page.getByRole('list', { name: 'Lineage of mnist-7' }).locator('.stage').evaluateAll((all) => all.map((stage) => [...stage.querySelectorAll('h3, .chip')].map(({ textContent }) => textContent)));
    await page.getByRole('list', { name: 'Lineage of mnist-7' }).waitFor();
    assert.deepEqual(await stages(), [
      ['Data', 'digits/1', 'mnist-3/checkpoint@100 initial weights'], ['Jobs', 'mnist-7'],
      ['Versions', 'digits@1 unloaded', 'digits@2 default, 60 % of the traffic, canary', 'digits@5 removed'], ['Recorded answers', 'recorded-digits/3 recorded answers'],
    ]);
    const hrefs = await page.locator('.lineage a').evaluateAll((all) => all.map((one) => one.getAttribute('href')));
    assert.deepEqual(hrefs, ['#/datasets/digits', '#/jobs/mnist-3', '#/models/digits', '#/models/digits', '#/models/digits', '#/datasets/recorded-digits']);
    await shot(page, 'lineage');
  });
});

test('rows of a log can be read on a phone: apart, whole, and with their times', () => {
  const table = Array.from({ length: 6 }, (_, at) => [`1:${(at + 1) * 90}`, `2026-11-21T12:00:0${at}.000Z ${'  12  345'.repeat(12)} end${at}`]);
  return visit(running({ log: table }), async (page) => {
    await becomes(() => lines(page).count(), 6);
    const fits = () => page.locator('.log').evaluate((log) => log.scrollWidth <= log.clientWidth);
    assert.equal(await fits(), true, 'long rows are wrapped');
    assert.equal(await lines(page).first().locator('time').isVisible(), true);
    const borders = await lines(page).evaluateAll((all) => all.map((one) => getComputedStyle(one).borderTopWidth));
    assert.deepEqual(borders, ['0px', '1px', '1px', '1px', '1px', '1px']);
    await page.getByLabel('Wrap').focus();
    await page.keyboard.press('Space');
    assert.equal(await fits(), false, 'rows of a table keep their columns, and scroll');
    const heights = await lines(page).evaluateAll((all) => new Set(all.map((one) => one.querySelector('span').getClientRects().length)).size);
    assert.equal(heights, 1);
    await isUsable(page);
    await shot(page, 'log-narrow');
  }, looks.narrow);
});
