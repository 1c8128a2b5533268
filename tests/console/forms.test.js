// The forms of a new job and a new sweep, and the upload of a dataset, against a server with the dataset `digits`.

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { api, becomes, isReadable, isUsable, looks, on, shot, start, stop, url } from './browser.js';

before(start);
after(stop);

/** The browser tells of every request that is refused. */
const refused = { expected: ['400', '403', '404', '422'] };
const plugins = async () => (await api('GET', '/api/v1/plugins')).json.plugins;
const datasets = async () => (await api('GET', '/api/v1/datasets')).json.datasets;
const field = (page, name) => page.locator(`[data-field="${name}"]`);
const fill = (page, name, text) => page.locator(`[name="${name}"]`).fill(text);
const command = (page) => page.locator('#command').textContent();

async function choose(page, name) {
  const found = (await plugins()).find(({ declares }) => declares?.name === name);
  await page.locator('[name=plugin]').selectOption(found.digest);
  return found;
}

/** Evaluates `work(module, argument)` on a page, with the module of this name. */
function within(page, name, work, argument) {
  return page.evaluate(`(async (argument) => {
    const path = document.querySelector('script[type=module]').src.replace('main.js', '${name}');
    return (${work})(await import(path), argument);
  })(${JSON.stringify(argument)})`);
}

for (const [look, options] of Object.entries(looks)) {
  test(`the form of a job is made of what the plugin declares, ${look}`, () => on('new-job', async (page) => {
    await page.locator('[name=plugin]').waitFor();
    const { declares } = await choose(page, 'lenet');
    for (const [name, { help, type }] of Object.entries(declares.parameters)) {
      await field(page, `parameters.${name}`).waitFor();
      if (help) assert.ok((await field(page, `parameters.${name}`).textContent()).includes(help), `${name} ${type}`);
    }
    await page.locator('[name="mount./data"]').selectOption('digits');
    assert.equal(await command(page), 'saggar run lenet --project lenet --data digits:/data');
    await page.locator('[name=device]').selectOption('cpu');
    await fill(page, 'parameters.epochs', '2');
    await fill(page, 'max_runtime_seconds', '90m');
    await fill(page, 'memory_bytes', '4GiB');
    await fill(page, 'message', "it's a try");
    assert.equal(await command(page), "saggar run lenet --project lenet --data digits:/data --device cpu --max-runtime 90m --memory 4GiB --message 'it'\\''s a try' -- epochs=2");
    await fill(page, 'parameters.batch', '0');
    await page.locator('[name="parameters.batch"]').blur();
    await field(page, 'parameters.batch').getByText('parameters.batch: expected an integer of at least 1, got 0').waitFor();
    await isUsable(page);
    await isReadable(page);
    await shot(page, `new-job-${look}`);
  }, { ...options, ...refused }));

  test(`the form of a sweep has a range for each parameter, ${look}`, () => on('new-sweep/lenet', async (page) => {
    await page.locator('[name="search.lr"]').selectOption('log');
    await fill(page, 'min.lr', '0.001');
    await fill(page, 'max.lr', '0.1');
    await page.locator('[name="search.batch"]').selectOption('list');
    await fill(page, 'list.batch', '16, 32');
    await page.locator('[name=method]').selectOption('asha');
    await fill(page, 'trials', '6');
    await fill(page, 'metric', 'validation/accuracy');
    await page.locator('[name="mount./data"]').selectOption('digits');
    assert.equal(await command(page), "saggar sweep lenet --project lenet --data digits:/data --space batch=16,32 --space 'lr=log(0.001,0.1)' --random 6 --method asha --metric validation/accuracy");
    await page.getByLabel('Rungs').waitFor();
    await isUsable(page);
    await isReadable(page);
    await shot(page, `new-sweep-${look}`);
  }, { ...options, ...refused }));
}

test('a server that allows no notebooks says how to allow them', () => on('new-notebook', async (page) => {
  await page.getByText('This server allows no notebooks.').waitFor();
  await page.getByText('saggar serve --notebooks 2').waitFor();
  await page.goto(`${url}/#/new-job`);
  await page.locator('[name=plugin]').waitFor();
  assert.equal(await page.getByRole('link', { name: 'start a notebook' }).count(), 0);
}));

/** What is wrong with a job, by the field at which it is shown. `mounts` are mounts that were added. */
const WRONG_JOBS = [
  ['project', { project: 'A B' }],
  ['priority', { priority: '101' }],
  ['retry', { retry: '2000' }],
  ['gpu_slots', { device: 'gpu', gpu_slots: '65' }],
  ['experiment', { experiment: '-x' }],
  ['queue', { queue: 'A' }],
  ['message', { message: 'm'.repeat(5000) }],
  ['parameters.epochs', { 'parameters.epochs': '-1' }],
  ['parameters.epochs', { 'parameters.epochs': '1.5' }],
  ['parameters.epochs', { 'parameters.epochs': 'many' }],
  ['parameters.lr', { 'parameters.lr': '-1' }],
  ['mount./data', { 'mount./data': '' }],
  ['mount./data', { 'mount./data': 'plain' }],
  ['point.more', { 'point.more': 'data' }, ['more']],
  ['point.more', { 'point.more': '/data' }, ['more']],
  ['max_runtime_seconds', { max_runtime_seconds: '0s' }],
  ['memory_bytes', { memory_bytes: '0B' }],
];

const WRONG_SWEEPS = [
  ['space', {}],
  ['parameters.lr', { 'search.lr': 'log', 'min.lr': '0', 'max.lr': '1' }],
  ['parameters.lr', { 'search.lr': 'range', 'min.lr': '0.2', 'max.lr': '0.1' }],
  ['parameters.lr', { 'search.lr': 'range', 'min.lr': '-2', 'max.lr': '0.1' }],
  ['parameters.lr', { 'search.lr': 'list', 'list.lr': '0.1,,0.2' }],
  ['parameters.lr', { 'search.lr': 'list', 'list.lr': '0.1,0.1' }],
  ['parameters.lr', { 'search.lr': 'log', 'min.lr': '0.00001', 'max.lr': '1', trials: '' }],
  ['parameters.batch', { 'search.batch': 'range', 'min.batch': '0', 'max.batch': '8' }],
  ['parameters.batch', { 'search.batch': 'range', 'min.batch': '1.5', 'max.batch': '8' }],
  ['trials', { 'search.lr': 'list', 'list.lr': '0.1,0.2', method: 'tpe', trials: '' }],
  ['trials', { 'search.lr': 'list', 'list.lr': '0.1,0.2', trials: '5000' }],
  ['max_parallel', { 'search.lr': 'list', 'list.lr': '0.1,0.2', max_parallel: '300' }],
];

/** Stores a dataset of one CSV file, whose fields no reference plugin for images reads. */
async function storePlain() {
  const { createHash } = await import('node:crypto');
  const text = 'x,y\n1,0\n2,1\n3,0\n4,1\n';
  const sha256 = createHash('sha256').update(text).digest('hex');
  const begun = await api('POST', '/api/v1/datasets', { name: 'plain', files: [{ path: 'a.csv', size: text.length, sha256, chunks: [sha256] }] });
  const path = `/api/v1/datasets/plain/uploads/${begun.json.upload}`;
  await fetch(`${url}${path}/chunks/${sha256}`, { method: 'PUT', body: text });
  await api('POST', `${path}/commit`);
}

test('what the form finds wrong is what the server says, at the same field', () => on('new-job', async (page) => {
  await storePlain();
  const known = await datasets();
  const plugin = (await plugins()).find(({ declares }) => declares?.name === 'lenet');
  for (const [kind, cases, route] of [['readJob', WRONG_JOBS, '/api/v1/jobs'], ['readSweep', WRONG_SWEEPS, '/api/v1/sweeps']]) {
    for (const [name, wrong, mounts = []] of cases) {
      const values = { 'mount./data': 'digits', 'mount.more': 'digits', metric: 'validation/accuracy', trials: '4', ...wrong };
      const form = { plugin, values, mounts, datasets: known };
      const { spec, problems } = await within(page, 'jobform.js', `(module, form) => module.${kind}(form)`, form);
      const { status, json } = await api('POST', route, spec);
      const what = `${kind} ${name} ${JSON.stringify(wrong).slice(0, 100)}`;
      assert.ok(status >= 400, `${what} was accepted`);
      assert.deepEqual([Object.keys(problems), problems[name]], [[name], json.error], what);
      const fields = [...Object.keys(values), 'project', 'trials', 'space', 'parameters.lr', 'parameters.batch', 'max_parallel', name];
      const found = await within(page, 'jobform.js', ({ fieldOfError }, [message, all]) => fieldOfError(message, all), [json.error, fields]);
      const isMount = name.startsWith('point.') || name.startsWith('mount.');
      assert.equal(isMount ? found?.startsWith('mount.') : found, isMount ? true : name, `${what}: the field of the server's error`);
    }
  }
}, refused));

test('a job is submitted by keyboard, once, with what the form says', () => on('new-job/lenet', async (page) => {
  const sent = [];
  page.on('request', (request) => {
    if (request.method() === 'POST' && request.url().endsWith('/api/v1/jobs')) sent.push([request.headers()['idempotency-key'], request.postDataJSON()]);
  });
  await page.locator('[name=project]').focus();
  await page.keyboard.type('Forms');
  await page.keyboard.press('Enter');
  await page.getByText('2 fields need a change.').waitFor();
  assert.deepEqual(sent, [], 'nothing was sent');
  assert.equal(await page.evaluate(() => document.activeElement.name), 'project', 'the first wrong field has the focus');
  await page.keyboard.press('Control+A');
  await page.keyboard.type('forms');
  await page.locator('[name="mount./data"]').focus();
  await page.keyboard.type('digits');
  await page.locator('[name="parameters.epochs"]').focus();
  await page.keyboard.type('1');
  // The first answer is lost on its way.
  let lost = 0;
  await page.route('**/api/v1/jobs', async (route) => {
    lost += 1;
    if (lost > 1) return route.continue();
    await route.fetch();
    return route.abort();
  });
  await page.keyboard.press('Enter');
  await page.getByRole('alert').getByText('the server does not answer').waitFor();
  await page.locator('[name="parameters.epochs"]').focus();
  await page.keyboard.press('Enter');
  await page.waitForURL('**/#/jobs/forms-1');
  assert.equal(sent.length, 2);
  assert.equal(sent[0][0], sent[1][0], 'the same key for the same job');
  assert.match(sent[0][0], /^[0-9a-f]{32}$/);
  assert.deepEqual(sent[1][1], { project: 'forms', plugin: 'lenet', parameters: { epochs: 1 }, data: [{ dataset: 'digits', mount: '/data' }] });
  const { json } = await api('GET', '/api/v1/jobs?project=forms');
  assert.equal(json.jobs.length, 1, 'one job, though it was sent twice');
}, { expected: ['net::ERR_FAILED'] }));

test('an error of the server is shown at its field', () => on('new-job/lenet', async (page) => {
  await page.locator('[name="mount./data"]').selectOption('digits');
  await page.route('**/api/v1/jobs', (route) => route.fulfill({ status: 400, json: { error: 'parameters.epochs: expected less', code: 'invalid', hint: 'ask for less', request_id: 'r' } }));
  await page.getByRole('button', { name: 'Run the job' }).click();
  await field(page, 'parameters.epochs').getByText('parameters.epochs: expected less').waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.name), 'parameters.epochs');
  await fill(page, 'parameters.epochs', '3');
  await becomes(() => field(page, 'parameters.epochs').locator('.reason').count(), 0);
}, refused));

test('a sweep is started', () => on('new-sweep/lenet', async (page) => {
  await page.locator('[name="search.lr"]').selectOption('list');
  await fill(page, 'list.lr', '0.01,0.05');
  await fill(page, 'parameters.epochs', '1');
  await fill(page, 'metric', 'validation/accuracy');
  await page.locator('[name="mount./data"]').selectOption('digits');
  await page.getByRole('button', { name: 'Start the sweep' }).click();
  await page.waitForURL('**/#/sweeps/lenet-sweep-1');
  const { json } = await api('GET', '/api/v1/sweeps/lenet-sweep-1');
  assert.deepEqual([json.spec.space, json.trials_target, json.spec.job.parameters], [{ lr: '0.01,0.05' }, 2, { epochs: 1 }]);
}));

/** An array of bytes in NumPy's format, another one each time. */
function npy(items, width) {
  const head = `{'descr': '|u1', 'fortran_order': False, 'shape': (${items}, ${width}), }`.padEnd(117) + '\n';
  return Buffer.concat([Buffer.from([0x93]), Buffer.from('NUMPY'), Buffer.from([1, 0, 118, 0]), Buffer.from(head), Buffer.alloc(items * width, randomBytes(16))]);
}

/** A folder on this machine with an array of more than one chunk, removed after `work(folder)`. */
async function withFolder(work) {
  const folder = join(mkdtempSync(join(tmpdir(), 'saggar-')), 'Some Tables');
  mkdirSync(folder);
  try {
    writeFileSync(join(folder, 'bytes.npy'), npy(6000, 1000));
    writeFileSync(join(folder, '.hidden'), randomBytes(16));
    await work(folder);
  } finally {
    rmSync(join(folder, '..'), { recursive: true });
  }
}

test('files that are dropped become a dataset, and an upload that broke off continues', () => on('datasets', async (page) => {
  const chunks = [];
  let broken = true;
  await page.route('**/chunks/*', async (route, request) => {
    if (broken && chunks.length > 0) return route.fulfill({ status: 507, json: { error: 'the disk is full', code: 'storage_full', hint: 'remove something', request_id: 'r' } });
    chunks.push(request.url().split('/').at(-1));
    return route.continue();
  });
  const area = page.getByRole('region', { name: 'New dataset' });
  await area.getByText('drop files or a folder here').waitFor();
  const transfer = await page.evaluateHandle((content) => {
    const data = new DataTransfer();
    data.items.add(new File([Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0))], 'My Bytes.npy'));
    return data;
  }, npy(5000, 1000).toString('base64'));
  await page.locator('main > div').dispatchEvent('dragover', { dataTransfer: transfer });
  await page.locator('.drop-area.over').waitFor();
  await page.locator('main > div').dispatchEvent('drop', { dataTransfer: transfer });
  await becomes(() => page.getByLabel('Name of the dataset').inputValue(), 'my-bytes');
  await page.keyboard.press('Enter');
  await area.getByRole('alert').getByText('The upload of my-bytes stopped: the disk is full.').waitFor();
  await isUsable(page);
  await shot(page, 'upload-stopped');
  broken = false;
  const first = [...chunks];
  // Another page meanwhile: the upload is not forgotten.
  await page.goto(`${url}/#/jobs`);
  await page.getByRole('heading', { name: 'Jobs' }).waitFor();
  await page.goto(`${url}/#/datasets`);
  await area.getByRole('button', { name: 'Continue' }).click();
  await area.getByText('my-bytes/1 is stored: 5,000 items.').waitFor();
  assert.equal(chunks.slice(first.length).some((digest) => first.includes(digest)), false, 'what the server has is not sent again');
  await becomes(async () => (await datasets()).filter(({ name }) => name === 'my-bytes').map(({ version, items }) => [version, items]), [[1, 5000]]);
}, { expected: ['507'] }));

test('a folder is chosen by keyboard, and its name is that of the dataset', () => withFolder((folder) => on('datasets', async (page) => {
  const area = page.getByRole('region', { name: 'New dataset' });
  const chooser = page.waitForEvent('filechooser');
  await page.getByRole('button', { name: 'Choose a folder…' }).press('Enter');
  await (await chooser).setFiles(folder);
  await area.getByText('1 file, 5.7 MiB').waitFor();
  const name = page.getByLabel('Name of the dataset');
  assert.equal(await name.inputValue(), 'some-tables');
  await name.fill('No Name');
  await page.keyboard.press('Enter');
  await area.getByText('name: invalid name "No Name"').waitFor();
  await name.fill('tables');
  await page.keyboard.press('Enter');
  await area.getByText('tables/1 is stored: 6,000 items.').waitFor();
})));
