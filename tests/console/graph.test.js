// The picture of a model's graph against a double of the server: few kernels, many kernels, a profile, and errors.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { becomes, isReadable, isUsable, looks, on, shot, start, stop, url } from './browser.js';

before(start);
after(stop);

const tensor = (name, ...shape) => ({ name, data_type: 'float32', shape });
const kernel = (label, after, ops, operations = 2_500_000, bytes = 40_960) => ({
  label, after, operations, bytes, writes: [ops.length - 1], nodes: ops.map((op) => ({ op, label: null, data_type: 'float32', shape: [32, 10] })),
});
const graphOf = (kernels, graphs = 1) => ({
  model: 'digits', version: 3, graph: 1, kernels, inputs: [tensor('image', 32, 1, 8, 8)], outputs: [tensor('logits', 32, 10)],
  graphs: Array.from({ length: graphs }, (_, at) => ({ graph: at + 1, phase: 'prediction', nodes: kernels.length * 2, kernels: kernels.length, total_bytes: 1 << 20, inputs: [tensor('image', 2 ** at, 64)] })),
});
const FIVE = graphOf([
  kernel('conv2d conv1', [], ['conv2d', 'relu']), kernel('pool2d', [0], ['max_pool2d']), kernel('conv2d conv2', [1], ['conv2d', 'add', 'relu']),
  kernel('matmul <img src=x>', [2], ['matmul']), kernel('fold', [3, 0], ['softmax']),
], 2);
/** A network of 50 blocks with 10 kernels each; each block reads the one before and the first. */
const MANY = graphOf(Array.from({ length: 500 }, (_, at) => kernel(`matmul block${Math.floor(at / 10)}.part${at % 10}`, [at - 1, at % 10 === 0 ? 0 : -1].filter((one) => one >= 0 && one < at), ['matmul'])));

const visit = (graph, look, options = {}) => on('', async (page) => {
  await page.route('**/api/v1/models/digits/versions/3/graph**', (route) => (graph.error ? route.fulfill({ status: 409, json: { code: 'conflict', hint: 'look at its log', request_id: 'r', ...graph } }) : route.fulfill({ json: graph })));
  await page.goto(`${url}/#/graph/digits/3`);
  await look(page);
}, options);
const boxes = (page) => page.locator('.step');

/** No two boxes of a drawing lie over each other, and each edge goes down. */
async function isClear(page) {
  const overlaps = await page.evaluate(() => {
    const all = [...document.querySelectorAll('.step > rect:first-child')].map((one) => one.getBoundingClientRect());
    return all.flatMap((a, at) => all.slice(at + 1).filter((b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom)).length;
  });
  assert.equal(overlaps, 0);
  const tops = await page.locator('.step').evaluateAll((all) => Object.fromEntries(all.map((one) => [one.dataset.step, one.querySelector('rect').getBoundingClientRect().top])));
  for (const [from, to] of await page.locator('.step-line').evaluateAll((all) => all.map(({ dataset }) => [dataset.from, dataset.to]))) assert.ok(tops[from] < tops[to], `${from} to ${to}`);
}

for (const [look, options] of Object.entries(looks)) {
  test(`five kernels are drawn with shapes and work, ${look}`, () => visit(FIVE, async (page) => {
    await becomes(() => boxes(page).count(), 5);
    assert.deepEqual(await boxes(page).first().locator('text').allTextContents(), ['conv2d conv1', 'float32[32, 10] · 2.5 MFLOP']);
    assert.equal(await page.locator('.step-line').count(), 5);
    await isClear(page);
    await page.getByText('10 operators in 5 kernels, 12.5 MFLOP, 1.0 MiB of memory').waitFor();
    await page.getByText('Reads image float32[32, 1, 8, 8]; gives logits float32[32, 10].').waitFor();
    await page.getByRole('button', { name: 'conv2d conv2' }).click();
    assert.deepEqual(await page.locator('.operators li b').allTextContents(), ['conv2d', 'add', 'relu']);
    assert.equal(await page.locator('main img').count(), 0);
    await isUsable(page);
    await isReadable(page);
    await shot(page, `graph-${look}`);
  }, options));
}

test('five hundred kernels are blocks, which open and close by keyboard', () => visit(MANY, async (page) => {
  await becomes(() => boxes(page).count().then((count) => count > 20 && count <= 50), true);
  await isClear(page);
  await isUsable(page);
  await shot(page, 'graph-many');
  const before = await boxes(page).count();
  const block = page.locator('.step.block').nth(3);
  const size = Number(/(\d+) kernels/.exec(await block.locator('text').nth(1).textContent())[1]);
  await block.focus();
  await page.keyboard.press('Enter');
  await becomes(() => boxes(page).count(), before - 1 + size);
  assert.equal(await page.evaluate(() => document.activeElement.dataset.press.startsWith('kernel ')), true, 'the focus is on the first kernel of the block');
  await isClear(page);
  await page.keyboard.press(' ');
  await page.locator('.operators li').first().waitFor();
  await page.keyboard.press('-');
  await page.getByRole('button', { name: 'Close all blocks' }).click();
  await becomes(() => boxes(page).count(), before);
}));

test('a profile adds the time of each kernel', () => visit(FIVE, async (page) => {
  await becomes(() => boxes(page).count(), 5);
  const choose = async (events) => page.getByLabel('Profile', { exact: true }).setInputFiles({ name: 'trace.json', mimeType: 'application/json', buffer: Buffer.from(JSON.stringify({ traceEvents: events })) });
  await choose([{ ph: 'X', name: 'other', dur: 5 }]);
  await page.locator('.toast', { hasText: 'the profile has no kernel of this graph' }).waitFor();
  await choose([{ name: 'conv2d conv1', dur: 1500 }, { name: 'conv2d conv1', dur: 500 }, { name: 'pool2d', dur: 500 }].map(({ name, dur }) => ({ ph: 'X', name: `${name} float32[32, 10]`, dur })).concat({ ph: 'M', name: 'conv2d conv1 float32[32, 10]' }));
  await becomes(() => boxes(page).first().locator('text').nth(1).textContent(), 'float32[32, 10] · 1.0 ms');
  const bars = await page.locator('.step-share').evaluateAll((all) => all.map((one) => Math.round(one.getAttribute('width'))));
  assert.deepEqual(bars, [258, 129], 'the longest fills its box');
}));

test('why there is no graph is said', () => visit({ error: 'graph 1 of digits@3: the plugin failed' }, async (page) => {
  await page.getByText('graph 1 of digits@3: the plugin failed. look at its log').waitFor();
}, { expected: ['409'] }));
