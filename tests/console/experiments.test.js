// The page of experiments against a double of the server: columns, order, filters, selection, and many runs.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { becomes, isReadable, isUsable, looks, on, shot, start, stop, url } from './browser.js';
import { job, serve } from './jobs-double.js';

before(start);
after(stop);

const run = (number, parameters, metrics, more = {}) => job(number, {
  experiment: 'rate', metrics, spec: { ...job(number).spec, parameters: { epochs: 5, ...parameters } }, ...more,
});
const RUNS = () => [
  run(4, { lr: 0.5 }, { loss: null, 'validation/accuracy': 0.1 }, { state: 'FAILED', reason: 'NOT_FINITE', message: 'the loss is not a number' }),
  run(3, { lr: 0.1, kind: '<img src=x>' }, { loss: 0.05, 'validation/accuracy': 0.97 }),
  run(2, { lr: 0.01 }, { loss: 0.2, 'validation/accuracy': 0.95 }, { state: 'RUNNING' }),
  run(1, { lr: 0.001 }, { loss: 1.5, 'validation/accuracy': 0.4 }),
  job(9, { experiment: 'other', created_ms: 1_790_000_000_000 }),
  job(8),
];
/** Runs of which three have tags or notes. */
const ANNOTATED = () => {
  const [first, second, third, last] = RUNS();
  const tagged = (of, tags, note = '') => ({ ...of, tags, note });
  return [first, tagged(second, { data: 'clean', kind: 'baseline' }), tagged(third, { kind: 'wide' }, 'a wider layer,\nas <i>asked</i>'), tagged(last, { data: 'all' })];
};

const visit = (server, place, look, options = {}) => on('', async (page) => {
  await serve(page, server);
  await page.goto(`${url}/#/${place}`);
  await look(page);
}, options);
const rows = (page) => page.locator('table.runs tbody tr');
const names = (page) => page.locator('table.runs tbody th a').allTextContents();
const heads = (page) => page.locator('table.runs thead th').allTextContents();
const filter = (page) => page.getByRole('searchbox', { name: 'Filter runs' });

for (const [look, options] of Object.entries(looks)) {
  test(`experiments are listed with their jobs, ${look}`, () => visit({ jobs: RUNS() }, 'experiments', async (page) => {
    await page.locator('table.jobs tbody tr').first().waitFor();
    assert.deepEqual(await page.locator('tbody th').allTextContents(), ['rate', 'other']);
    const cells = await page.locator('tr[data-key="rate"] td').allTextContents();
    assert.deepEqual(cells.slice(0, 3), ['4', '1', '1']);
    await isUsable(page);
    await isReadable(page);
    await shot(page, `experiments-${look}`);
  }, options));

  test(`the runs of an experiment show what differs and what was measured, ${look}`, () => visit({ jobs: RUNS() }, 'experiments/rate', async (page) => {
    await rows(page).first().waitFor();
    assert.deepEqual(await names(page), ['mnist-4', 'mnist-3', 'mnist-2', 'mnist-1']);
    // `epochs` is the same in all runs.
    assert.deepEqual(await heads(page), ['Selected', 'Run', 'state', 'ran', 'kind', 'lr', 'loss', 'validation/accuracy', 'Created', 'Edit']);
    const cells = await page.locator('tr[data-job="mnist-3"] td[data-label]').allTextContents();
    assert.deepEqual(cells.slice(0, 6), ['SUCCEEDED', '20.0 s', '<img src=x>', '0.1', '0.05', '0.97']);
    assert.equal(await page.locator('tr[data-job="mnist-4"] td[data-label="loss"]').textContent(), 'not a number');
    await isUsable(page);
    await isReadable(page);
    await shot(page, `runs-${look}`);
  }, options));
}

for (const [look, options] of Object.entries(looks)) {
  test(`pipeline runs and sweeps of an experiment are linked, ${look}`, () => {
    const member = (name, state, jobs) => ({ name, project: 'mnist', state, created_ms: 1_790_000_000_000, jobs });
    const sweeps = Array.from({ length: 14 }, (_, at) => member(`mnist-sweep-${14 - at}`, 'SUCCEEDED', 9));
    const experiment = { name: 'rate', pipeline_runs: [member('nightly-2', 'RUNNING', 1), member('nightly-1', 'FAILED', 2)], sweeps };
    return visit({ jobs: RUNS(), others: { experiments: experiment } }, 'experiments/rate', async (page) => {
      const runs = page.getByRole('list', { name: 'Pipeline runs' });
      await runs.waitFor();
      assert.deepEqual(await runs.locator('li').allTextContents(), ['nightly-2 RUNNING 1 job', 'nightly-1 FAILED 2 jobs']);
      assert.equal(await runs.getByRole('link', { name: 'nightly-1' }).getAttribute('href'), '#/pipelines/nightly-1');
      const listed = await page.getByRole('list', { name: 'Sweeps' }).locator('li').allTextContents();
      assert.deepEqual([listed.length, listed[0], listed.at(-1)], [13, 'mnist-sweep-14 SUCCEEDED 9 jobs', '2 more']);
      await isUsable(page);
      await shot(page, `members-${look}`);
    }, options);
  });
}

test('an experiment without pipeline runs and sweeps shows no such list', () => visit({ jobs: RUNS() }, 'experiments/rate', async (page) => {
  await rows(page).first().waitFor();
  assert.equal(await page.locator('section.members').isVisible(), false);
}));

test('columns sort, and runs without a value come last', () => visit({ jobs: RUNS() }, 'experiments/rate', async (page) => {
  await rows(page).first().waitFor();
  const head = page.getByRole('button', { name: 'loss', exact: false }).first();
  await head.click();
  assert.deepEqual(await names(page), ['mnist-1', 'mnist-2', 'mnist-3', 'mnist-4']);
  await head.click();
  assert.deepEqual(await names(page), ['mnist-3', 'mnist-2', 'mnist-1', 'mnist-4']);
  assert.equal(await page.locator('th[aria-sort="ascending"]').textContent(), 'loss ↑');
  // Without a mouse, and without heads on a narrow window.
  await page.getByLabel('Sort by').selectOption('params.lr');
  assert.deepEqual(await names(page), ['mnist-4', 'mnist-3', 'mnist-2', 'mnist-1']);
  await page.getByRole('button', { name: 'Highest first' }).press('Enter');
  assert.deepEqual(await names(page), ['mnist-1', 'mnist-2', 'mnist-3', 'mnist-4']);
}));

test('filters take words and comparisons', () => visit({ jobs: RUNS() }, 'experiments/rate', async (page) => {
  await rows(page).first().waitFor();
  for (const [text, found] of [
    ['loss < 0.3', ['mnist-3', 'mnist-2']],
    ['lr>=0.1 state=succeeded', ['mnist-3']],
    ['validation/accuracy > 0.3 loss>1', ['mnist-1']],
    ['params.lr = 0.01', ['mnist-2']],
    ['state != SUCCEEDED', ['mnist-4', 'mnist-2']],
    ['kind = "<img src=x>"', ['mnist-3']],
    ['not_finite', ['mnist-4']],
    ['"mnist-1"', ['mnist-1']],
    ['no such words', []],
  ]) {
    await filter(page).fill(text);
    await becomes(() => names(page), found);
  }
  await page.getByText('No run matches the filter.').waitFor();
  await filter(page).fill('rate < 3');
  await page.getByRole('alert').getByText('No column is called rate.').waitFor();
  assert.equal(await rows(page).count(), 4, 'a filter that cannot be read hides nothing');
}));

for (const [look, options] of Object.entries(looks)) {
  test(`tags and notes are columns, and are edited in the table, ${look}`, () => visit({ jobs: ANNOTATED() }, 'experiments/rate', async (page) => {
    await rows(page).first().waitFor();
    const titles = await heads(page);
    for (const column of ['note', 'data']) assert.ok(titles.some((head) => head.startsWith(column)), column);
    assert.equal(await page.locator('tr[data-job="mnist-2"] td[data-label="note"]').textContent(), 'a wider layer,\nas <i>asked</i>');
    await page.getByRole('button', { name: 'Edit tags and note of mnist-3' }).click();
    const editor = page.getByRole('group', { name: 'Tags and note of mnist-3' });
    assert.deepEqual(await editor.locator('li b').allTextContents(), ['data', 'kind']);
    await isUsable(page);
    await isReadable(page);
    await shot(page, `annotations-${look}`);
  }, options));
}

test('tags and notes filter and sort runs', () => visit({ jobs: ANNOTATED() }, 'experiments/rate', async (page) => {
  await rows(page).first().waitFor();
  for (const [text, found] of [
    ['tag:kind', ['mnist-3', 'mnist-2']],
    ['tag:kind tag:data', ['mnist-3']],
    ['tag:kind = baseline', ['mnist-3']],
    ['tag:kind!=baseline', ['mnist-4', 'mnist-2', 'mnist-1']],
    ['tag:data=clean loss<1', ['mnist-3']],
    ['tag:absent', []],
    ['tag:toString', []],
    ['wider', ['mnist-2']],
  ]) {
    await filter(page).fill(text);
    await becomes(() => names(page), found);
  }
  await filter(page).fill('');
  await page.getByLabel('Sort by').selectOption('tags.kind');
  await becomes(() => names(page), ['mnist-2', 'mnist-3', 'mnist-4', 'mnist-1']);
  await page.getByText(/^Columns/).click();
  await page.getByRole('group', { name: 'Tags' }).getByLabel('kind').uncheck();
  await page.getByRole('checkbox', { name: 'note', exact: true }).uncheck();
  assert.ok(!(await heads(page)).includes('note'));
}));

test('tags are added and removed and a note is written with keys alone', () => {
  const server = { jobs: ANNOTATED() };
  return visit(server, 'experiments/rate', async (page) => {
    await rows(page).first().waitFor();
    for (const key of ['j', 'j', 't']) await page.keyboard.press(key);
    const editor = page.getByRole('group', { name: 'Tags and note of mnist-3' });
    await editor.waitFor();
    const tags = () => editor.locator('li').evaluateAll((all) => all.map((one) => one.firstChild.textContent + one.childNodes[1].textContent.trimEnd()));
    assert.deepEqual(await tags(), ['data clean', 'kind baseline']);
    // The field for a new tag has the focus.
    await page.keyboard.type('a b=c');
    await page.keyboard.press('Enter');
    assert.equal(await editor.getByRole('button', { name: 'Add the tag' }).isDisabled(), true, 'a name with a space is no tag');
    await page.getByLabel('New tag').fill('');
    await page.keyboard.type('best=<b>=x');
    await page.keyboard.press('Enter');
    await becomes(tags, ['data clean', 'kind baseline', 'best <b>=x']);
    assert.equal(await page.getByLabel('New tag').inputValue(), '');
    assert.equal(await page.evaluate(() => document.activeElement.getAttribute('aria-label')), 'New tag');
    await page.keyboard.press('Shift+Tab');
    await page.keyboard.press('Shift+Tab');
    assert.equal(await page.evaluate(() => document.activeElement.getAttribute('aria-label')), 'Remove the tag kind');
    await page.keyboard.press('Enter');
    await becomes(tags, ['data clean', 'best <b>=x']);
    await page.getByLabel('Note', { exact: true }).focus();
    await page.keyboard.type('two\nlines');
    await page.getByRole('button', { name: 'Save the note' }).press('Enter');
    await becomes(() => page.locator('tr[data-job="mnist-3"] td[data-label="note"]').textContent(), 'two\nlines');
    const sent = server.asked.filter(({ method }) => method === 'POST').map(({ path, body }) => [path, body]);
    const path = '/api/v1/jobs/mnist-3/annotate';
    assert.deepEqual(sent, [[path, { tags: { best: '<b>=x' } }], [path, { remove: ['kind'] }], [path, { note: 'two\nlines' }]]);
    await page.getByLabel('New tag').focus();
    await page.keyboard.press('Escape');
    await becomes(() => editor.count(), 0);
    assert.equal(await page.evaluate(() => document.activeElement.textContent), 'mnist-3');
  });
});

test('a run that is edited stays though the filter no longer fits it, and a refusal is shown there', () => {
  const server = { jobs: ANNOTATED() };
  return visit(server, 'experiments/rate', async (page) => {
    await rows(page).first().waitFor();
    await filter(page).fill('tag:kind=wide');
    await becomes(() => names(page), ['mnist-2']);
    await page.getByRole('button', { name: 'Edit tags and note of mnist-2' }).click();
    await page.getByRole('button', { name: 'Remove the tag kind' }).click();
    await page.getByText('No run matches the filter.').waitFor();
    assert.deepEqual(await names(page), ['mnist-2']);
    server.refuses = true;
    await page.getByLabel('New tag').fill('kind=other');
    await page.keyboard.press('Enter');
    await page.getByRole('alert').getByText('there are too many tags. remove one').waitFor();
    assert.equal(await page.getByLabel('New tag').inputValue(), 'kind=other', 'what was typed stays');
    await page.getByRole('button', { name: 'Close' }).click();
    await becomes(() => names(page), []);
  }, { expected: ['400'] });
});

test('columns are chosen, and stay chosen', () => visit({ jobs: RUNS() }, 'experiments/rate', async (page) => {
  await rows(page).first().waitFor();
  await page.getByText(/^Columns/).click();
  await page.getByLabel('epochs').check();
  await page.getByLabel('kind').uncheck();
  const chosen = ['Selected', 'Run', 'state', 'ran', 'epochs', 'lr', 'loss', 'validation/accuracy', 'Created', 'Edit'];
  assert.deepEqual(await heads(page), chosen);
  await page.reload();
  await rows(page).first().waitFor();
  assert.deepEqual(await heads(page), chosen);
  await page.getByText(/^Columns/).click();
  await page.getByRole('button', { name: 'Usual columns' }).click();
  assert.ok(!(await heads(page)).includes('epochs'));
}));

test('runs are selected with keys, and compared', () => visit({ jobs: RUNS() }, 'experiments/rate', async (page) => {
  await rows(page).first().waitFor();
  for (const key of ['j', 'j', 'x', 'j', 'x']) await page.keyboard.press(key);
  await page.getByText('2 selected').waitFor();
  await page.keyboard.press('c');
  await page.waitForURL(/#\/compare\//);
  assert.deepEqual(decodeURIComponent(new URL(page.url()).hash).split('/').slice(2).sort(), ['mnist-2', 'mnist-3']);
}));

test('many runs are shown in parts, and older ones on demand', () => {
  const many = Array.from({ length: 250 }, (_, at) => run(1000 - at, { lr: at / 250 }, { loss: at }));
  const server = { jobs: many, older: [run(5, { lr: 2 }, { loss: 9999 })], cursor: 7 };
  return visit(server, 'experiments/rate', async (page) => {
    await rows(page).first().waitFor();
    assert.equal(await rows(page).count(), 100);
    await page.getByRole('button', { name: 'Show 100 more' }).click();
    await page.getByRole('button', { name: 'Show 50 more' }).click();
    assert.equal(await rows(page).count(), 250);
    await page.getByRole('button', { name: 'Older runs' }).click();
    await becomes(() => rows(page).count(), 251);
    assert.ok(server.asked.some(({ path }) => path.startsWith('/api/v1/jobs?experiment=rate&')));
  });
});

test('without experiments it says what to run, and a missing one is named', async () => {
  await visit({ jobs: [job(1)] }, 'experiments', async (page) => {
    await page.getByRole('heading', { name: 'No experiments yet' }).waitFor();
    assert.match(await page.locator('.empty pre').textContent(), /run lenet --data digits --experiment rate -- lr=0\.05/);
    await isUsable(page);
  }, looks.narrow);
  await visit({ jobs: [job(1)] }, 'experiments/absent', async (page) => {
    await page.getByText('No job has the experiment absent.').waitFor();
  });
});
