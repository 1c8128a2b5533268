// The pages of datasets and devices against a double of the server.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { becomes, isReadable, isUsable, looks, on, shot, start, stop, url } from './browser.js';
import { serve } from './jobs-double.js';

before(start);
after(stop);

const version = (name, number, more = {}) => ({
  name, version: number, digest: 'ab'.repeat(32), items: 70_000, bytes: 55_000_000, splits: { train: 60_000, test: 10_000 }, created_ms: 1_790_000_000_000,
  fields: [{ name: 'image', dtype: 'uint8', shape: [28, 28], classes: null }, { name: 'label', dtype: 'uint8', shape: [], classes: 10 }],
  used_by: [], ...more,
});

const DATASETS = [
  version('mnist', 1, { used_by: ['mnist-1', 'mnist-2', 'mnist-3', 'mnist-4', 'mnist-5', 'mnist-6', 'mnist-7'] }),
  version('mnist', 2),
  version('letters', 1, { fields: [{ name: '<img src=x>', dtype: 'uint8', shape: [100], classes: null }], splits: { train: 12 } }),
];

const visit = (place, others, look, options = {}, server = { jobs: [] }) => on('', async (page) => {
  await serve(page, Object.assign(server, { others }));
  await look.before?.(page);
  await page.goto(`${url}/#/${place}`);
  await (look.then ?? look)(page);
}, options);
const card = (page, name) => page.getByRole('article', { name, exact: true });

for (const [look, options] of Object.entries(looks)) {
  test(`datasets show their versions, fields, sizes and users, ${look}`, () => visit('datasets', { datasets: { datasets: DATASETS } }, async (page) => {
    const mnist = card(page, 'Dataset mnist');
    await mnist.waitFor();
    assert.deepEqual(await mnist.getByRole('list', { name: 'Fields' }).locator('li').allTextContents(), ['image uint8 [28, 28]', 'label uint8, 10 classes']);
    const versions = await mnist.locator('tbody tr').evaluateAll((rows) => rows.map((row) => [...row.querySelectorAll('td[data-label]')].map((cell) => cell.textContent)));
    assert.equal(versions.length, 2);
    assert.deepEqual([versions[0][0], versions[0][1], versions[0][2], versions[0][4]], ['70,000', 'train 60,000test 10,000', '52 MiB', 'no job']);
    assert.equal(versions[1][4], 'mnist-1, mnist-2, mnist-3, mnist-4, mnist-5 and 2 more');
    assert.equal(await mnist.getByRole('table').getByRole('link', { name: 'mnist-1', exact: true }).getAttribute('href'), '#/jobs/mnist-1');
    assert.equal(await page.locator('main img').count(), 0);
    await isUsable(page);
    await isReadable(page);
    await shot(page, `datasets-${look}`);
  }, options));
}

test('datasets are found by keyboard, and a version is deleted after a question', () => {
  const server = { jobs: [] };
  return visit('datasets', { datasets: { datasets: DATASETS } }, async (page) => {
    await card(page, 'Dataset mnist').waitFor();
    await page.keyboard.press('j');
    await page.keyboard.press('j');
    assert.equal(await page.locator('.card.selected').getAttribute('aria-label'), 'Dataset mnist');
    await page.keyboard.press('/');
    await page.keyboard.type('label');
    assert.equal(await page.getByRole('article').count(), 1);
    await page.getByRole('button', { name: 'Delete mnist/2' }).click();
    await page.getByRole('button', { name: 'Cancel' }).click();
    await page.getByRole('button', { name: 'Delete mnist/2' }).click();
    await page.locator('dialog button[value=yes]').click();
    await page.locator('.toast', { hasText: 'Deleted mnist/2.' }).waitFor();
    assert.deepEqual(server.asked.filter(({ method }) => method !== 'GET').map(({ method, path }) => `${method} ${path}`), ['DELETE /api/v1/datasets/mnist/2']);
    assert.equal(await page.getByRole('link', { name: 'Export mnist-1.tar' }).getAttribute('href'), '/api/v1/datasets/mnist/1/export');
  }, {}, server);
});

test('a dataset shows which jobs and versions came of it, and whose answers it has', () => {
  const models = [{ name: 'digits', serving: 4, versions: [{ version: 4, state: 'READY', source_job: 'mnist-2', traffic_percent: 100 }, { version: 3, state: 'UNLOADED', source_job: 'other-1' }] }];
  const datasets = [version('mnist', 1, { used_by: ['mnist-3'], was_used_by: ['mnist-2'] }), version('recorded-digits', 2)];
  return visit('datasets', { datasets: { datasets }, models: { models } }, async (page) => {
    const stages = (name) => page.getByRole('list', { name: `Lineage of ${name}` }).locator('.stage').evaluateAll((all) => all.map((stage) => [...stage.querySelectorAll('h3, .chip')].map(({ textContent }) => textContent)));
    await page.getByRole('list', { name: 'Lineage of mnist', exact: true }).waitFor();
    assert.deepEqual(await stages('mnist'), [['Data', 'mnist'], ['Jobs', 'mnist-3', 'mnist-2'], ['Versions', 'digits@4 default'], ['Recorded answers', 'recorded-digits/2 recorded answers']]);
    assert.deepEqual(await stages('recorded-digits'), [['Made from', 'digits answers of this model'], ['Data', 'recorded-digits']]);
  });
});

test('without datasets it tells what to run', () => visit('datasets', { datasets: { datasets: [] } }, async (page) => {
  assert.equal(await page.locator('.empty pre').textContent(), `saggar --host ${url} data push examples/digits --name digits`);
}));

const DEVICES = {
  devices: {
    devices: [
      { name: 'cpu', adapter: 'A processor', vendor: 'Vendor', driver: 'avx2, 8 threads', backend: 'cpu', software: false, exact_seconds: false, serves: false, job_slots: 1 },
      { name: 'vulkan:0', adapter: '<img src=x>', vendor: 'Mesa', driver: 'driver 1.2', backend: 'vulkan', software: false, exact_seconds: true, serves: true, job_slots: 4, features: ['shader_f16', 'subgroups_of_32'], limits: { buffer_bytes_max: 2_147_483_648, workgroup_invocations_max: 1024 } },
    ],
  },
  queues: {
    queues: [{ name: 'default', pools: ['gpu', 'cpu'], spill: true, max_running_jobs: null, running: 2, waiting: 3 }],
    pools: [
      { name: 'gpu', device: 'vulkan:0', slots: 4, used: 1.25, jobs: ['mnist-7', 'mnist-8'] }, { name: 'cpu', device: 'cpu', slots: 1, used: 0, jobs: [] },
    ],
  },
};

/** A minute of samples, the newest now: a device that is busy half of the time, and who holds its memory. */
const PAST = () => {
  const times = Array.from({ length: 60 }, (_, at) => Date.now() - (59 - at) * 1000);
  const series = (name, more, value) => ({ name, model: null, device: 'vulkan:0', owner: null, ...more, values: times.map((_, at) => value(at)) });
  return {
    newest_ms: times.at(-1), step_seconds: 1, times_ms: times, series_left_out: 0,
    series: [
      series('device_busy_ratio', {}, (at) => (at < 20 ? null : 0.5)),
      series('device_memory_bytes', { owner: 'models' }, () => 2 ** 30),
      series('device_memory_bytes', { owner: 'a"b' }, (at) => (at < 30 ? 0 : 2 ** 20)),
    ],
  };
};
const figure = (page, id) => page.locator(`[data-timeline="${id}"]`);
const legend = (page, id) => figure(page, id).locator('.legend li').allTextContents();

for (const [look, options] of Object.entries(looks)) {
  test(`devices show what they are, who holds them, and how busy they were, ${look}`, () => visit('devices', { ...DEVICES, history: PAST() }, async (page) => {
    const gpu = card(page, 'Device vulkan:0');
    await gpu.getByText('1.25 of 4 in use, 3 waiting').waitFor();
    assert.deepEqual(await gpu.locator('.pool a').allTextContents(), ['mnist-7', 'mnist-8']);
    assert.equal(await gpu.locator('.slots i').count(), 4);
    const facts = await gpu.locator('.facts').first().locator('dt, dd').allTextContents();
    assert.deepEqual(facts, ['Adapter', '<img src=x>', 'Vendor', 'Mesa', 'Driver', 'driver 1.2', 'Backend', 'vulkan', 'Features', 'shader f16, subgroups of 32', 'buffer bytes max', '2.0 GiB', 'workgroup invocations max', '1,024']);
    await gpu.getByText('1.0 GiB in use').waitFor();
    assert.deepEqual(await gpu.locator('.facts').nth(1).locator('dt').allTextContents(), ['models', 'a"b']);
    assert.deepEqual(await legend(page, 'vulkan:0 busy'), ['vulkan:0 50 %']);
    assert.deepEqual(await legend(page, 'vulkan:0 memory'), ['models 1.0 GiB', 'a"b 1.0 MiB']);
    assert.match(await figure(page, 'vulkan:0 busy').locator('svg').getAttribute('aria-label'), /^Busy: vulkan:0 50 % now, at most 50 %$/);
    await card(page, 'Device cpu').getByText('No job holds any.').waitFor();
    await page.keyboard.press('j');
    assert.equal(await page.locator('.card.selected').getAttribute('data-device'), 'cpu');
    await isUsable(page);
    await isReadable(page);
    await shot(page, `devices-${look}`);
  }, options));
}

test('a chart shows the values where the arrow keys or the pointer are', () => visit('devices', { ...DEVICES, history: PAST() }, async (page) => {
  const memory = figure(page, 'vulkan:0 memory');
  await memory.locator('.timeline-line').first().waitFor({ state: 'attached' });
  await memory.locator('svg').focus();
  for (let press = 0; press < 5; press += 1) await page.keyboard.press('ArrowLeft');
  assert.deepEqual(await legend(page, 'vulkan:0 memory'), ['models 1.0 GiB', 'a"b 0 bytes'], 'fifty seconds before the newest');
  assert.equal(await memory.locator('.timeline-cursor').count(), 1);
  await page.keyboard.press('Tab');
  assert.deepEqual(await legend(page, 'vulkan:0 memory'), ['models 1.0 GiB', 'a"b 1.0 MiB'], 'without the focus the newest');
  const box = await memory.locator('svg').boundingBox();
  await page.mouse.move(box.x + box.width - 1, box.y + box.height / 2);
  assert.match(await memory.locator('.timeline-x').textContent(), /\d\d:\d\d:\d\d/);
}));

test('the past of a day is asked for by the minute', () => {
  const server = { jobs: [] };
  return visit('devices', { ...DEVICES, history: PAST() }, async (page) => {
    await figure(page, 'vulkan:0 busy').waitFor();
    await page.getByLabel('Shown').selectOption('24h');
    const wanted = () => server.asked.filter(({ path }) => path.includes('/history?step=60'));
    await becomes(() => wanted().length > 0, true);
    const since = Number(new URLSearchParams(wanted()[0].path.split('?')[1]).get('since'));
    assert.ok(Math.abs(Date.now() - 86_400_000 - since) < 60_000, `since ${since}`);
  }, {}, server);
});

test('a device shows what may be seen of it', () => visit('devices', { devices: DEVICES.devices, queues: {} }, {
  async before(page) {
    await page.route('**/api/v1/history**', (route) => route.fulfill({ status: 403, json: { error: 'the key was revoked', code: 'forbidden', hint: '', request_id: 'r' } }));
  },
  async then(page) {
    await page.getByText('Memory and load are not shown: the key was revoked.').waitFor();
    await becomes(() => card(page, 'Device vulkan:0').getByText('4 at once').count(), 1);
  },
}, { expected: ['403'] }));
