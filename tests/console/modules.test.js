// Modules of the console by themselves, in the browser that runs them.

import assert from 'node:assert/strict';
import { execFile, execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';

import { on, start, stop, url } from './browser.js';

before(start);
after(stop);

/** Evaluates `work(module, argument)` on a page, with the module of this name. */
async function within(page, name, work, argument) {
  const source = `(async (argument) => {
    const path = document.querySelector('script[type=module]').src.replace('main.js', '${name}');
    return (${work})(await import(path), argument);
  })(${JSON.stringify(argument) ?? ''})`;
  return page.evaluate(source);
}

test('a word for the shell is the text itself, whatever is in it', () => on('', async (page) => {
  const texts = ['plain', '', "it's", '$HOME `id` $(id)', '"', '\\', 'a\nb', '!x', '*', '~', '-n', 'né😀', "''", '#', 'a;b', '{"a": [1]}', '\t'];
  const words = await within(page, 'curl.js', ({ quote }, all) => all.map(quote), texts);
  for (const [at, word] of words.entries()) {
    assert.equal(execFileSync('bash', ['-c', `printf %s ${word}`], { encoding: 'utf8' }), texts[at]);
  }
}));

/** The body that a command for a shell sends, run in an empty folder. */
async function sent(text) {
  const bodies = [];
  const server = createServer((request, response) => {
    const pieces = [];
    request.on('data', (piece) => pieces.push(piece));
    request.on('end', () => {
      bodies.push({ body: Buffer.concat(pieces).toString('latin1'), type: request.headers['content-type'] });
      response.end('{}');
    });
  });
  await new Promise((listening) => { server.listen(0, '127.0.0.1', listening); });
  const folder = mkdtempSync(join(tmpdir(), 'console-'));
  try {
    const here = text.replace(url, `http://127.0.0.1:${server.address().port}`).replace('curl', 'curl -sS --max-time 20');
    await promisify(execFile)('bash', ['-c', here], { cwd: folder });
  } finally {
    rmSync(folder, { recursive: true });
    server.close();
  }
  assert.equal(bodies.length, 1);
  return bodies[0];
}

test('a command sends what was typed and no file, whatever an input is called', () => on('', async (page) => {
  const names = ['image', 'a=@/etc/passwd;x', '@/etc/passwd', '</etc/passwd', 'a=</etc/passwd', "it's", 'a"b', '-o', 'a;type=x', '$(id)', 'né'];
  for (const name of names) {
    const command = await within(page, 'curl.js', async ({ command }, named) => {
      const [blob, body] = [new Blob(['PICTURE'], { type: 'image/png' }), new FormData()];
      const parts = [{ name: named, blob, filename: 'image.png' }, { name: named, text: '@/etc/passwd;type=x' }];
      body.append(named, blob, 'image.png');
      body.append(named, JSON.stringify(parts[1].text));
      return command('/predict', { json: null, parts, body, streams: false });
    }, name);
    assert.deepEqual(command.files, []);
    const { body, type } = await sent(command.text);
    assert.ok(type.startsWith('multipart/form-data; boundary='), type);
    assert.ok(body.includes('PICTURE') && body.includes('"@/etc/passwd;type=x"'), `${name}: ${body}`);
    assert.ok(!body.includes('root:'), `${name}: ${body}`);
    assert.equal(body.split('form-data; name=').length, 3, `${name}: ${body}`);
  }
  const json = JSON.stringify({ 'a=@/etc/passwd;x': '@/etc/passwd' });
  const text = await within(page, 'curl.js', async ({ command }, typed) => (await command('/predict', { json: typed, parts: [], streams: false })).text, json);
  assert.equal((await sent(text)).body, json);
}));

test('events are the same however they are cut', () => on('', async (page) => {
  const text = 'event: piece\ndata: {"said":"né😀"}\n\n: a comment\n\nevent: piece\r\ndata: {"item":0,\r\ndata: "said":"!"}\r\n\r\nevent: done\ndata: {"said":"né😀!"}\n\n';
  const seen = await within(page, 'events.js', async ({ events }, whole) => {
    const bytes = new TextEncoder().encode(whole);
    const found = new Set();
    for (let cut = 0; cut <= bytes.length; cut += 1) {
      const body = new ReadableStream({
        start(controller) {
          controller.enqueue(bytes.slice(0, cut));
          controller.enqueue(bytes.slice(cut));
          controller.close();
        },
      });
      const calls = [];
      await events({ body, status: 200 }, (answer, { pieces, count, done }) => calls.push([answer, pieces && { ...pieces }, count, done]));
      found.add(JSON.stringify(calls));
    }
    return [...found].map((one) => JSON.parse(one));
  }, text);
  assert.deepEqual(seen, [[
    [null, { said: 'né😀' }, 1, false],
    [null, { said: 'né😀!' }, 2, false],
    ['{"said":"né😀!"}', null, 2, true],
  ]]);
}));

test('an answer that ends with an error, or not at all, is no answer', () => on('', async (page) => {
  const failures = await within(page, 'events.js', ({ events }, texts) => Promise.all(texts.map(async (text) => {
    const body = new Blob([text]).stream();
    return events({ body, status: 200 }, () => {}).then(() => 'no failure', ({ message, code }) => [message, code]);
  })), ['event: error\ndata: {"error":"the plugin trapped","code":"plugin_trap"}\n\n', 'event: piece\ndata: {"said":"a"}\n\n', '']);
  assert.deepEqual(failures, [['the plugin trapped', 'plugin_trap'], ['the response was cut off', ''], ['the response was cut off', '']]);
}));

test('what is shown is brought up to date without losing what has the focus', () => on('', async (page) => {
  const result = await within(page, 'dom.js', ({ h, patch }) => {
    const root = document.body.appendChild(h('div', {}));
    const item = (key, value) => h('li', { 'data-key': key }, h('input', { value }), key);
    patch(root, 'text ', h('ul', {}, item('a', '1'), item('b', '2'), item('c', '3')));
    const [, b, c] = root.querySelectorAll('li');
    const input = b.querySelector('input');
    input.focus();
    input.value = 'being typed';
    patch(root, 'other ', h('ul', { class: 'new' }, item('c', '30'), item('b', '20'), item('d', '4')));
    const after = [...root.querySelectorAll('li')];
    return {
      text: root.textContent,
      class: root.querySelector('ul').className,
      same: [after[0] === c, after[1] === b, document.activeElement === input],
      values: after.map((one) => one.querySelector('input').value),
    };
  });
  assert.deepEqual(result, { text: 'other cbd', class: 'new', same: [true, true, true], values: ['30', 'being typed', '4'] });
}));

test('numbers and times are short', () => on('', async (page) => {
  const texts = await within(page, 'format.js', ({ bytes, duration, number, ago }) => [
    [0, 1023, 1536, 10 * 1024, 5 * 2 ** 30, null].map(bytes),
    [0.0004, 0.82, 4.23, 999.4, 1300, 59_000, 3_600_000, 90_000_000].map(duration),
    [1, 0.123456789, -1.2345678e-7, 12345678.9, null].map(number),
    [0, 4999, 30_000, 120_000].map((past) => ago(1e12 - past, 1e12)),
  ]);
  assert.deepEqual(texts, [
    ['0 bytes', '1023 bytes', '1.5 KiB', '10 KiB', '5.0 GiB', '–'],
    ['0 µs', '820 µs', '4.2 ms', '999 ms', '1.3 s', '59 s', '1 h', '1 d'],
    ['1', '0.12346', '-1.235e-7', '1.235e+7', 'not a number'],
    ['just now', 'just now', '30 s ago', '2 min ago'],
  ]);
}));

test('events have numbers, or none', () => on('', async (page) => {
  const seen = await within(page, 'events.js', async ({ read }, text) => {
    const found = [];
    await read(new Blob([text]).stream(), (...event) => found.push(event));
    return found;
  }, 'id: 1:29\nevent: line\ndata: one\n\n: still here\n\nevent: line\ndata: \n\nevent: cut\ndata: o');
  assert.deepEqual(seen, [['line', 'one', '1:29'], ['line', '', null]]);
}));

test('series are put together, smoothed, and gone on with', () => on('', async (page) => {
  const seen = await within(page, 'series.js', ({ groups, aligned, smooth, positive, extend }) => {
    const series = new Map([['loss', [[1, 5], [2, 4], [3, 3]]]]);
    extend(series, [{ name: 'loss', points: [[2, 9], [5, 8]] }, { name: 'other', points: [[1, 1]] }, { name: 'loss', points: [] }]);
    return {
      groups: groups(['accuracy', 'epoch/loss', 'loss', 'validation/accuracy']),
      aligned: aligned([{ points: [[1, 5], [3, null]] }, { points: [[2, 7]] }]).map((column) => column.map((value) => (value === undefined ? 'none' : value))),
      smooth: smooth([1, null, 1, 4], 0.5),
      untouched: smooth([3, 1], 0),
      positive: positive([1, 0, -1, null]),
      extended: [...series],
    };
  });
  assert.deepEqual(seen, {
    groups: [['loss', ['loss', 'epoch/loss']], ['accuracy', ['accuracy', 'validation/accuracy']]],
    aligned: [[1, 2, 3], [5, 'none', null], ['none', 7, 'none']],
    // (0.5 + 1 + 8) / 4 over the weights' sum, 7/8.
    smooth: [1, null, 1, (0.125 + 0.25 + 2) / 0.875],
    untouched: [3, 1],
    positive: [1, null, null, null],
    extended: [['loss', [[1, 5], [2, 9], [5, 8]]], ['other', [[1, 1]]]],
  });
}));

test('series grow by what is new, whatever is asked of the server at once', () => on('', async (page) => {
  const seen = await within(page, 'series.js', async ({ growing }) => {
    const there = { dense: [], sparse: [] };
    const asked = [];
    const most = 4;
    const series = growing(async (from) => {
      asked.push(from);
      const parts = Object.entries(there).map(([name, points]) => ({ name, points: points.filter(([step]) => step >= from).slice(0, most) }));
      const cut = parts.filter(({ points }) => points.length === most).map(({ points }) => points.at(-1)[0] + 1);
      return { series: parts, next: cut.length ? Math.min(...cut) : null };
    });
    const steps = (name) => (series.points.get(name) ?? []).map(([step]) => step).join(' ');
    const changed = [];
    for (let step = 1; step <= 10; step += 1) there.dense.push([step, step]);
    there.sparse.push([5, 1], [10, null]);
    changed.push(await series.more(true), await series.more());
    const whole = [steps('dense'), steps('sparse')];
    // A point that comes late is found by whoever asks for everything.
    for (let step = 11; step <= 30; step += 1) there.dense.push([step, step]);
    changed.push(await series.more(), await series.more());
    there.sparse.push([12, 3]);
    const before = asked.length;
    changed.push(await series.more());
    const few = asked.length - before;
    changed.push(await series.more(true));
    return { whole, changed, few, dense: steps('dense'), sparse: steps('sparse') };
  });
  const to = (last) => Array.from({ length: last }, (_, at) => at + 1).join(' ');
  assert.deepEqual(seen, { whole: [to(10), '5 10'], changed: [true, false, true, false, false, true], few: 1, dense: to(30), sparse: '5 10 12' });
}));

test('samples of the past are added, and a series that an answer lacks has gaps', () => on('', async (page) => {
  const seen = await within(page, 'past.js', ({ merged }) => {
    const series = (model, values) => ({ name: 'model_requests_per_second', model, device: null, owner: null, values });
    const first = merged({ times: [], series: [] }, { times_ms: [1000, 2000], series: [series('a', [1, 2])] }, 3000);
    const second = merged(first, { times_ms: [2000, 3000, 4000], series: [series('b', [9, 3, 4])] }, 3000);
    const third = merged(second, { times_ms: [], series: [] }, 3000);
    return [second, third, merged(third, { times_ms: [9000], series: [] }, 3000)].map(({ times, series: all }) => [times, all.map(({ model, values }) => [model, values])]);
  });
  const expected = [[2000, 3000, 4000], [['a', [2, null, null]], ['b', [null, 3, 4]]]];
  assert.deepEqual(seen, [expected, expected, [[9000], []]]);
}));

test('a line through samples is broken at gaps, and a scale ends at a round number', () => on('', async (page) => {
  const [paths, tops] = await within(page, 'timeline.js', ({ linePath, niceMax }) => [
    [[1, 2, null, 4], [null, 2, null, null], [9, null, null, null]].map((values) => linePath([0, 10, 20, 30], values, [0, 100], 4)),
    [0, 0.3, 1, 1.7, 2.4, 26, 99, 1001].map(niceMax),
  ]);
  assert.deepEqual(paths, ['M0.0 75.00L100.0 50.00M300.0 0.00h0.01', 'M100.0 50.00h0.01', 'M0.0 0.00h0.01']);
  assert.deepEqual(tops, [1, 0.5, 1, 2, 2.5, 50, 100, 2000]);
}));

test('a digest in pieces is that of the whole', () => on('', async (page) => {
  const sizes = [0, 1, 55, 56, 63, 64, 65, 119, 128, 1000, 70_001];
  const byte = (at) => (at * 31 + 7) % 256;
  const found = await within(page, 'sha256.js', ({ Sha256 }, all) => all.map((size) => {
    const bytes = Uint8Array.from({ length: size }, (_, at) => (at * 31 + 7) % 256);
    const digest = new Sha256();
    for (let at = 0; at < size; at += 97) digest.update(bytes.subarray(at, at + 97));
    return digest.hex();
  }), sizes);
  assert.deepEqual(found, sizes.map((size) => createHash('sha256').update(Uint8Array.from({ length: size }, (_, at) => byte(at))).digest('hex')));
}));

test('files of a folder have paths within it, and hidden ones are left out', () => on('', async (page) => {
  const found = await within(page, 'upload.js', ({ filesOf }, all) => all.map((paths) => {
    const { name, files } = filesOf(paths.map((path) => ({ path, file: null })));
    return [name, files.map(({ path }) => path)];
  }), [['My Digits/b.csv', 'My Digits/a/1.png', 'My Digits/.git/x'], ['wine.csv.gz'], ['a.csv', 'b.csv'], ['x/1', 'y/2'], ['.hidden']]);
  assert.deepEqual(found, [['my-digits', ['a/1.png', 'b.csv']], ['wine', ['wine.csv.gz']], ['', ['a.csv', 'b.csv']], ['', ['x/1', 'y/2']], ['', []]]);
}));

test('outputs are a tree, because names with a slash act as folders', () => on('', async (page) => {
  const found = await within(page, 'files.js', ({ outputTree }) => {
    const text = ({ folders, files }) => [...folders.map(({ name, tree }) => [`${name}/ ${tree.count} ${tree.bytes}`, text(tree)]), ...files.map(({ name }) => name)];
    return text(outputTree(['b.txt', 'a/10.png', 'a/2.png', 'a/x/1.png', 'ab'].map((path) => ({ path, bytes: 2 }))));
  });
  assert.deepEqual(found, [['a/ 3 6', [['x/ 1 2', ['1.png']], '2.png', '10.png']], 'ab', 'b.txt']);
}));

test('a card becomes headings, tables, lists and code, and its HTML stays text', () => on('', async (page) => {
  const text = [
    '# digits@3', '', 'Published by job `digits-7`,', 'see <script>alert(1)</script> &lt;b&gt; a\\|b.', '', '## Data', '', '| Mount | Dataset |', '|---|---|',
    '| `/data` | a\\|b, <img src=x onerror=alert(1)> |', '', '- Seed: 5', '* [x](javascript:alert(1))', '```', '| not | a table |', '# not a heading', '```', '| no table', 'x',
  ].join('\n');
  const found = await within(page, 'markdown.js', ({ markdown }, of) => markdown(of).map(({ outerHTML }) => outerHTML), text);
  assert.deepEqual(found, [
    '<h3>digits@3</h3>',
    '<p>Published by job <code>digits-7</code>, see &lt;script&gt;alert(1)&lt;/script&gt; &lt;b&gt; a|b.</p>',
    '<h4>Data</h4>',
    '<div class="scroll"><table class="sides"><thead><tr><th scope="col">Mount</th><th scope="col">Dataset</th></tr></thead><tbody>'
      + '<tr><td><code>/data</code></td><td>a|b, &lt;img src=x onerror=alert(1)&gt;</td></tr></tbody></table></div>',
    '<ul><li>Seed: 5</li><li>[x](javascript:alert(1))</li></ul>',
    '<pre><code>| not | a table |\n# not a heading</code></pre>',
    '<p>| no table x</p>',
  ]);
  // Long lines of marks take no long time.
  const long = ['|'.repeat(50_000), '|-'.repeat(50_000) + 'x', '`'.repeat(50_000), '#'.repeat(50_000), '```'].join('\n');
  const took = await within(page, 'markdown.js', ({ markdown }, of) => {
    const began = performance.now();
    markdown(of);
    return performance.now() - began;
  }, long);
  assert.ok(took < 2000, `${took} ms`);
}));

test('jobs differ in what they were asked for', () => on('', async (page) => {
  const rows = await within(page, 'compare.js', ({ rowsOf }) => rowsOf([
    { parameters: { epochs: 5, layers: [1, 2] }, seed: 0, data: [{ dataset: 'a' }] }, { parameters: { epochs: 6, layers: [1, 2] }, seed: 0, data: [{ dataset: 'a' }], queue: null },
  ]));
  assert.deepEqual(rows, [
    ['parameters.epochs', ['5', '6'], true], ['parameters.layers', ['[1,2]', '[1,2]'], false], ['seed', ['0', '0'], false],
    ['data.0.dataset', ['a', 'a'], false], ['queue', [null, 'null'], true],
  ]);
}));
