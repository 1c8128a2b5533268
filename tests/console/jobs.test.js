// The page of jobs against a double of the server: many of them, hostile ones, and streams that break off.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { becomes, isReadable, isUsable, looks, on, shot, start, stop, url } from './browser.js';
import { event, job, serve } from './jobs-double.js';

before(start);
after(stop);

const rows = (page) => page.locator('table.jobs tbody tr');
const names = (page) => page.locator('table.jobs tbody th a').allTextContents();
const row = (page, name) => page.locator(`tr[data-job="${name}"]`);
const broken = { expected: ['ERR_FAILED'] };

/** Visits the jobs of `server`. */
const visit = (server, look, options = {}, place = 'jobs') => on('', async (page) => {
  await serve(page, server);
  await page.goto(`${url}/#/${place}`);
  await look(page);
}, options);

const SOME = () => [
  job(5, { state: 'QUEUED', reason: 'WAITING_FOR_SLOT', message: 'no slot of pool gpu is free', position: 2, step: 0, steps_target: 0, attempt: 0, metrics: {}, wall_seconds: 0, steps_per_second: null, gpu_seconds: 0 }),
  job(4, { state: 'RUNNING', step: 31, steps_target: 120, attempt: 3, experiment: 'wide', description: 'rate 0.1, wider' }),
  job(3, { state: 'FAILED', reason: 'PLUGIN_ERROR', message: 'the plugin trapped', project: 'letters', name: 'letters-3' }),
  job(2, { spec: { ...job(2).spec, parameters: { epochs: 20, rate: 0.1 } } }),
  job(1),
];

for (const [look, options] of Object.entries(looks)) {
  test(`the table says what \`saggar ps\` says, ${look}`, () => visit({ jobs: SOME() }, async (page) => {
    await rows(page).first().waitFor();
    assert.deepEqual(await names(page), ['mnist-5', 'mnist-4', 'letters-3', 'mnist-2', 'mnist-1']);
    const cells = await row(page, 'mnist-4').locator('td[data-label]').allTextContents();
    assert.deepEqual(cells.slice(0, 7), ['RUNNING', '3/6', '31/120', '25 %', '1.6/s', '0.25', '12.5 s']);
    assert.equal(await row(page, 'mnist-5').locator('td.why').textContent(), 'waiting for slot, place 2 in the queue');
    assert.equal(await row(page, 'letters-3').locator('td.why').textContent(), 'plugin error');
    await isUsable(page);
    await isReadable(page);
    await shot(page, `jobs-${look}`);
  }, options));
}

test('filters take state, project, experiment and words', () => visit({ jobs: SOME() }, async (page) => {
  await rows(page).first().waitFor();
  await page.getByLabel('State', { exact: true }).selectOption('ACTIVE');
  assert.deepEqual(await names(page), ['mnist-5', 'mnist-4']);
  await page.getByLabel('State', { exact: true }).selectOption('');
  await page.getByLabel('Project').selectOption('letters');
  assert.deepEqual(await names(page), ['letters-3']);
  await page.getByLabel('Project').selectOption('');
  await page.getByLabel('Experiment').selectOption('wide');
  assert.deepEqual(await names(page), ['mnist-4']);
  await page.getByLabel('Experiment').selectOption('');
  await page.keyboard.press('Escape');
  await page.locator('h1').click();
  await page.keyboard.press('/');
  await page.keyboard.type('trapped');
  assert.deepEqual(await names(page), ['letters-3']);
  assert.equal(await page.locator('#count').textContent(), '1 of 5');
  await page.keyboard.type('no such');
  await page.getByText('No job matches the filters.').waitFor();
}));

test('jobs are found, selected and opened by keyboard', () => visit({ jobs: SOME() }, async (page) => {
  await rows(page).first().waitFor();
  const selected = () => page.locator('tr.selected').getAttribute('data-job');
  await page.keyboard.press('j');
  assert.equal(await selected(), 'mnist-5');
  for (const key of ['j', 'j', 'j', 'k']) await page.keyboard.press(key);
  assert.equal(await selected(), 'letters-3');
  await page.keyboard.press('x');
  assert.ok(await row(page, 'letters-3').getByRole('checkbox').isChecked());
  await page.keyboard.press('j');
  await page.keyboard.press('x');
  await page.keyboard.press('c');
  await becomes(() => page.evaluate(() => location.hash), '#/compare/letters-3/mnist-2');
  await page.goBack();
  await rows(page).first().waitFor();
  await page.keyboard.press('j');
  await page.keyboard.press('l');
  await becomes(() => page.evaluate(() => location.hash), '#/jobs/mnist-5/logs');
  await becomes(() => page.evaluate(() => document.activeElement.className), 'log');
  await page.keyboard.press('Escape');
  await page.keyboard.press('?');
  await page.getByRole('heading', { name: 'Keyboard' }).waitFor();
}));

test('a comparison that is answered after its page was left does not take the place of the next page', () => {
  let answer;
  const server = { jobs: SOME(), comparison: new Promise((resolve) => { answer = resolve; }) };
  return visit(server, async (page) => {
    await rows(page).first().waitFor();
    const answered = page.waitForResponse((response) => response.url().includes('/api/v1/compare'));
    await page.evaluate(() => { location.hash = '#/compare/letters-3/mnist-2'; });
    await page.getByText('Looking…').waitFor();
    await becomes(() => server.asked.some(({ path }) => path.includes('/api/v1/compare')), true);
    await page.goBack();
    await rows(page).first().waitFor();
    answer();
    await (await answered).finished();
    await page.evaluate(() => new Promise((resolve) => { setTimeout(resolve, 100); }));
    assert.equal(await rows(page).count(), 5);
  });
});

test('texts are text, whatever is in them', () => {
  const nasty = '<script>window.hit = 1</script><img src=x onerror="window.hit=1">';
  const jobs = [job(1, { name: nasty, description: nasty, message: nasty, reason: nasty, experiment: nasty, project: nasty, device: nasty })];
  return visit({ jobs }, async (page) => {
    await page.getByRole('link', { name: nasty, exact: true }).waitFor();
    assert.equal(await page.locator('main script, main img').count(), 0);
    assert.equal(await page.evaluate(() => window.hit), undefined);
    await isUsable(page);
  }, looks.narrow);
});

test('five hundred jobs cost no more than those that change', () => {
  const jobs = Array.from({ length: 500 }, (_, at) => job(500 - at));
  const server = { jobs };
  return on('', async (page) => {
    await serve(page, server);
    await page.addInitScript(() => {
      const create = Document.prototype.createElement;
      window.made = 0;
      Document.prototype.createElement = function createElement(...given) {
        window.made += 1;
        return create.apply(this, given);
      };
    });
    await page.goto(`${url}/#/jobs`);
    await page.reload();
    await rows(page).first().waitFor();
    await becomes(() => rows(page).count(), 100);
    assert.equal(await page.locator('#count').textContent(), '500 in all');
    // Each row is built once, though the jobs came one by one.
    const first = await page.evaluate(() => window.made);
    assert.ok(first < 100 * 40, `${first} elements for 100 rows`);

    await page.evaluate(() => {
      window.made = 0;
      window.changes = 0;
      new MutationObserver((all) => { window.changes += all.length; }).observe(document.querySelector('table.jobs'), {
        subtree: true, childList: true, characterData: true, attributes: true,
      });
    });
    server.jobs = jobs.map((one, at) => (at === 7 ? { ...one, state: 'FAILED', reason: 'PLUGIN_ERROR' } : one));
    await row(page, 'mnist-493').getByText('FAILED').waitFor();
    const [made, changes] = await page.evaluate(() => [window.made, window.changes]);
    assert.ok(made > 0 && made < 200, `${made} elements made for one row`);
    assert.ok(changes > 0 && changes < 20, `${changes} changes for one row`);

    await page.getByRole('button', { name: 'Show 100 more' }).click();
    assert.equal(await rows(page).count(), 200);
    await page.getByLabel('Filter jobs by name, state or message').fill('mnist-3');
    await becomes(() => rows(page).count(), 100);
  });
});

test('a stream that breaks off is asked for again, after the last note', () => {
  const server = { jobs: [job(1, { state: 'RUNNING', step: 1 })], more: event('note', { sequence: 41, kind: 'CLAIMED', text: '', job: 'mnist-1', at_ms: 1 }, 41) };
  return visit(server, async (page) => {
    await row(page, 'mnist-1').getByText('1/100').waitFor();
    server.jobs = [job(2), job(1, { state: 'RUNNING', step: 2 })];
    server.more = '';
    await row(page, 'mnist-1').getByText('2/100').waitFor();
    const streams = () => server.asked.filter(({ path }) => path.startsWith('/api/v1/events'));
    await becomes(() => streams().length >= 2, true);
    assert.deepEqual(streams().slice(0, 2).map(({ headers }) => headers['last-event-id']), [undefined, '41']);
    // What is gone when the next one begins is gone from the page.
    server.jobs = [job(2)];
    await becomes(() => names(page), ['mnist-2']);
  });
});

test('without a stream the page asks again and again', () => {
  const server = { jobs: [job(1, { state: 'RUNNING', step: 1 })], streams: false };
  return visit(server, async (page) => {
    await row(page, 'mnist-1').getByText('1/100').waitFor();
    assert.equal(await page.locator('#live').textContent(), 'Live');
    server.jobs = [job(1, { state: 'RUNNING', step: 77 })];
    await row(page, 'mnist-1').getByText('77/100').waitFor();
  }, broken);
});

test('no stream is open while nobody looks', () => visit({ jobs: [job(1)] }, async (page) => {
  await rows(page).first().waitFor();
  await page.clock.install();
  let asked = 0;
  const hide = (hidden) => page.evaluate((value) => {
    Object.defineProperty(document, 'hidden', { value, configurable: true });
    document.dispatchEvent(new Event('visibilitychange'));
  }, hidden);
  await hide(true);
  assert.equal(await page.locator('#live').textContent(), 'Paused');
  page.on('request', () => { asked += 1; });
  await page.clock.runFor(60_000);
  assert.equal(asked, 0);
  await hide(false);
  await becomes(() => asked > 0, true);
}));

test('older jobs are fetched when they are asked for', () => {
  const server = { jobs: [job(9), job(8)], cursor: 8, older: [job(7)] };
  return visit(server, async (page) => {
    await rows(page).first().waitFor();
    await page.getByRole('button', { name: 'Older jobs' }).click();
    await becomes(() => names(page), ['mnist-9', 'mnist-8', 'mnist-7']);
    assert.equal(await page.getByRole('button', { name: 'Older jobs' }).count(), 0);
    await row(page, 'mnist-7').getByRole('checkbox').check();
    await page.getByRole('toolbar').getByRole('button', { name: 'Delete…' }).click();
    await page.locator('dialog button[value=yes]').click();
    await becomes(() => names(page), ['mnist-9', 'mnist-8']);
  });
});

test('orders go to all that are selected, after a question', () => {
  const server = { jobs: SOME() };
  return visit(server, async (page) => {
    await rows(page).first().waitFor();
    const button = (name) => page.getByRole('toolbar').getByRole('button', { name });
    const orders = () => server.asked.filter(({ method }) => method !== 'GET').map(({ method, path }) => `${method} ${path}`);
    await row(page, 'mnist-4').getByRole('checkbox').check();
    assert.ok(await button('Delete…').isDisabled());
    assert.ok(await button('Compare').isDisabled());
    await button('Preempt…').click();
    await page.getByRole('button', { name: 'Cancel' }).click();
    assert.deepEqual(orders(), []);
    await button('Preempt…').click();
    await page.locator('dialog button[value=yes]').click();
    await page.locator('.toast', { hasText: 'mnist-4: queued again.' }).waitFor();
    await row(page, 'mnist-5').getByRole('checkbox').check();
    assert.ok(await button('Preempt…').isDisabled());
    await button('Stop…').click();
    await page.locator('dialog button[value=yes]').click();
    await page.locator('.toast', { hasText: '2 jobs: stopping.' }).waitFor();
    await button('Clear').click();
    for (const name of ['mnist-1', 'mnist-2']) await row(page, name).getByRole('checkbox').check();
    await button('Delete…').click();
    await page.locator('dialog button[value=yes]').click();
    await page.locator('.toast', { hasText: 'Deleted 2 jobs, which frees 4.0 KiB.' }).waitFor();
    await becomes(() => names(page), ['mnist-5', 'mnist-4', 'letters-3']);
    assert.deepEqual(orders(), [
      'POST /api/v1/jobs/mnist-4/preempt', 'POST /api/v1/jobs/mnist-5/stop', 'POST /api/v1/jobs/mnist-4/stop',
      'DELETE /api/v1/jobs/mnist-2', 'DELETE /api/v1/jobs/mnist-1',
    ]);
  });
});

for (const [look, options] of Object.entries(looks)) {
  test(`jobs are compared by what differs, ${look}`, () => {
    const points = (from) => [[1, from], [50, from / 2], [100, from / 4]];
    const jobs = SOME().map((one) => ({ ...one, metrics: { loss: 0.25, accuracy: 0.5 } }));
    const of = (loss) => [{ name: 'accuracy', points: points(1) }, { name: 'loss', points: points(loss) }];
    const server = { jobs, series: { 'mnist-1': of(2), 'mnist-2': of(3) } };
    return visit(server, async (page) => {
      await page.locator('.sides').waitFor();
      const asked = await page.locator('.sides tbody').first().locator('tr:not(.group)').allTextContents();
      assert.deepEqual(asked, ['epochs205', 'seed21']);
      const legends = () => page.locator('.legend li').allTextContents();
      await becomes(legends, ['mnist-2 0.25', 'mnist-1 0.25', 'mnist-2 0.75', 'mnist-1 0.5']);
      await becomes(() => page.locator('.uplot canvas').count(), 2);
      const metrics = server.asked.filter(({ path }) => path.includes('/metrics')).map(({ path }) => path.split('/').pop());
      assert.deepEqual(metrics, ['metrics?from=0', 'metrics?from=0'], 'all series, and once of jobs that are over');
      await page.getByLabel('Series').selectOption('loss');
      await becomes(legends, ['mnist-2 0.75', 'mnist-1 0.5']);
      await becomes(() => page.locator('.uplot canvas').count(), 1);
      await page.getByLabel('Series').selectOption('all series');
      await becomes(() => page.locator('.uplot canvas').count(), 2);
      await page.getByLabel('Also what is the same').check();
      assert.ok((await page.locator('.sides tbody').first().locator('tr').count()) > 5);
      await isUsable(page);
      await shot(page, `compare-${look}`);
    }, options, 'compare/mnist-2/mnist-1');
  });
}

test('where there are none it tells what to run', () => visit({ jobs: [] }, async (page) => {
  await page.getByRole('heading', { name: 'No jobs yet' }).waitFor();
  assert.deepEqual(await page.locator('.empty pre').allTextContents(), [
    `saggar --host ${url} data push examples/digits --name digits\nsaggar --host ${url} run lenet --data digits -f`,
  ]);
  assert.equal(await page.locator('table.jobs').isVisible(), false);
  await isUsable(page);
}, looks.narrow));
