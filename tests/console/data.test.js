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
    assert.equal(await mnist.getByRole('link', { name: 'mnist-1', exact: true }).getAttribute('href'), '#/jobs/mnist-1');
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

/** Metrics of a device that is busy half of the time. */
const METERS = {
  async before(page) {
    const began = Date.now();
    await page.route('**/metrics', (route) => route.fulfill({
      contentType: 'text/plain; version=0.0.4',
      body: [
        '# HELP saggar_device_busy_seconds_total Seconds.', `saggar_device_busy_seconds_total{device="vulkan:0"} ${(Date.now() - began) / 2000}`,
        'saggar_device_memory_bytes{device="vulkan:0",owner="models"} 1.073741824e+09', 'saggar_job_gpu_memory_bytes{device="vulkan:0",job="a\\"b"} 1048576',
      ].join('\n'),
    }));
  },
};

for (const [look, options] of Object.entries(looks)) {
  test(`devices show what they are, who holds them, and how busy they are, ${look}`, () => visit('devices', DEVICES, {
    ...METERS,
    async then(page) {
      const gpu = card(page, 'Device vulkan:0');
      await gpu.getByText('1.25 of 4 in use, 3 waiting').waitFor();
      assert.deepEqual(await gpu.locator('.pool a').allTextContents(), ['mnist-7', 'mnist-8']);
      assert.equal(await gpu.locator('.slots i').count(), 4);
      const facts = await gpu.locator('.facts').first().locator('dt, dd').allTextContents();
      assert.deepEqual(facts, ['Adapter', '<img src=x>', 'Vendor', 'Mesa', 'Driver', 'driver 1.2', 'Backend', 'vulkan', 'Features', 'shader f16, subgroups of 32', 'buffer bytes max', '2.0 GiB', 'workgroup invocations max', '1,024']);
      await gpu.getByText('1.0 GiB in use').waitFor();
      assert.deepEqual(await gpu.locator('.facts').nth(1).locator('dt').allTextContents(), ['models', 'a"b']);
      await gpu.locator('.strip i').first().waitFor();
      assert.match(await gpu.locator('section b.figure').textContent(), /^\d+ %$/);
      await card(page, 'Device cpu').getByText('No job holds any.').waitFor();
      await page.keyboard.press('j');
      assert.equal(await page.locator('.card.selected').getAttribute('data-device'), 'cpu');
      await isUsable(page);
      await isReadable(page);
      await shot(page, `devices-${look}`);
    },
  }, options));
}

test('a device shows what may be seen of it', () => visit('devices', { devices: DEVICES.devices, queues: {} }, {
  async before(page) {
    await page.route('**/metrics', (route) => route.fulfill({ status: 403, json: { error: 'the key lacks the scope metrics:read', code: 'forbidden', hint: '', request_id: 'r' } }));
  },
  async then(page) {
    await page.getByText('Memory and load are not shown: the key lacks the scope metrics:read.').waitFor();
    await becomes(() => card(page, 'Device vulkan:0').getByText('4 at once').count(), 1);
  },
}, { expected: ['403'] }));
