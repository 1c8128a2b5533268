// What a job logged by step: images, tables and histograms, each name with a slider over its steps.

import { h, listen, patch } from './dom.js';
import { title } from './facts.js';
import { number } from './format.js';
import { bars, heatMap, rangeOf } from './histogram.js';
import { contents, histogramsOf, itemPath, loggedItems, seriesOf } from './loggeditems.js';

/** Names that are displayed before all are asked for. */
const SHOWN_FIRST = 12;
/** Rows of a table that are visible; the file has all. */
const ROWS_SHOWN = 50;

const ENDINGS = { image: '.png', table: '.table.json', histogram: '.histogram.json' };

/**
 * The panel of `job` in `root`, a card that is hidden while nothing is logged. `more(whole)` asks for what is new, and where
 * `whole` is set for everything.
 */
export function loggedPanel(root, job) {
  const items = loggedItems(job);
  const tiles = new Map();
  const view = { all: false, words: '' };
  const tools = h('div', { class: 'toolbar' });
  const grid = h('div', { class: 'logged-grid' });
  const rest = h('div', { class: 'toolbar' });
  patch(root, h('div', { class: 'section-head' }, title('Images, tables and histograms'), tools), grid, rest);
  root.hidden = true;
  listen(root, 'click', {
    all() {
      view.all = true;
      render();
    },
  });
  listen(root, 'input', {
    words(input) {
      view.words = input.value;
      render();
    },
  });

  /** Some of each kind, and then the others in their order. */
  function first(series) {
    const some = new Set(['image', 'table', 'histogram'].flatMap((kind) => series.filter((one) => one.kind === kind).slice(0, SHOWN_FIRST / 3)));
    for (const one of series) if (some.size < SHOWN_FIRST) some.add(one);
    return series.filter((one) => some.has(one));
  }

  function render() {
    const series = seriesOf(items.list());
    root.hidden = series.length === 0;
    const matching = series.filter(({ name }) => name.toLowerCase().includes(view.words.trim().toLowerCase()));
    const visible = view.all ? matching : first(matching);
    patch(tools, series.length > 3 && h('input', { type: 'search', 'data-input': 'words', 'aria-label': 'Names to show', placeholder: 'Filter names', value: view.words }));
    const wanted = new Set(visible.map(({ kind, name }) => `${kind} ${name}`));
    for (const [key, one] of tiles) {
      if (wanted.has(key)) continue;
      one.leave();
      one.element.remove();
      tiles.delete(key);
    }
    for (const [at, one] of visible.entries()) {
      const key = `${one.kind} ${one.name}`;
      if (!tiles.has(key)) tiles.set(key, tile(job, one));
      const { element, update } = tiles.get(key);
      if (grid.children[at] !== element) grid.insertBefore(element, grid.children[at] ?? null);
      update(one.items);
    }
    const hidden = matching.length - visible.length;
    patch(
      rest,
      hidden > 0 && h('button', { type: 'button', class: 'small quiet', 'data-click': 'all' }, `Show ${hidden} more`),
      series.length > 0 && matching.length === 0 && h('p', { class: 'note' }, 'No name has these letters.'),
    );
  }

  return {
    async more(whole = false) {
      if (whole) items.clear();
      if (await items.more() || whole) render();
    },
    leave: () => tiles.forEach((one) => one.leave()),
  };
}

/** One name with its slider: `{ element, update(items), leave() }`. */
function tile(job, { kind, name }) {
  const state = { items: [], at: -1, follows: true, turn: 0 };
  const cache = contents(job);
  const slider = h('input', { type: 'range', min: 0, step: 1, 'aria-label': `Step of ${kind} ${name}` });
  const label = h('output', { class: 'note' });
  const fetch = h('a', { class: 'button small quiet' }, 'Download');
  const body = h('div', { class: 'logged-body' });
  const element = h(
    'figure', { class: `logged-item ${kind}`, 'data-logged': `${kind} ${name}` },
    h('figcaption', {}, h('b', {}, name), h('span', { class: 'note' }, ` ${kind}`)), body,
    h('div', { class: 'logged-step' }, slider, label, fetch),
  );
  const draw = { image: drawImage, table: drawTable, histogram: histogramDrawer(job, name) }[kind];

  async function show() {
    const item = state.items[state.at];
    const turn = ++state.turn;
    label.textContent = `step ${item.step}`;
    slider.setAttribute('aria-valuetext', `step ${item.step}`);
    const file = `${name.replaceAll('/', '-')}-${item.step}${ENDINGS[kind]}`;
    for (const [key, value] of Object.entries({ href: itemPath(job, item), download: file, 'data-file': file, 'aria-label': `Download ${file}` })) fetch.setAttribute(key, value);
    let content;
    try {
      content = await draw(item, cache, state.items);
    } catch (error) {
      content = h('p', { class: 'reason' }, `${error.message}.`);
    }
    // The slider may have moved on meanwhile.
    if (turn === state.turn) body.replaceChildren(content);
  }

  slider.addEventListener('input', () => {
    state.at = Number(slider.value);
    state.follows = state.at === state.items.length - 1;
    show();
  });
  return {
    element,
    update(items) {
      const before = state.items[state.at];
      const newest = state.items.at(-1);
      state.items = items;
      // The newest is visible until another one is chosen.
      const same = items.findIndex(({ step }) => step === before?.step);
      state.at = state.follows || same < 0 ? items.length - 1 : same;
      slider.max = items.length - 1;
      slider.value = state.at;
      slider.hidden = items.length < 2;
      const grown = kind === 'histogram' && newest?.step !== items.at(-1).step;
      if (before?.logged_ms !== items[state.at].logged_ms || before?.step !== items[state.at].step || grown) show();
    },
    leave() {
      state.turn += 1;
      cache.leave();
    },
  };
}

async function drawImage(item, cache) {
  const image = h('img', { src: await cache.of(item), alt: `${item.name} at step ${item.step}` });
  await image.decode();
  return image;
}

async function drawTable(item, cache) {
  const { columns } = await cache.of(item);
  const rows = columns[0].values.length;
  const cell = ({ type, values }, row) => {
    const value = values[row];
    if (value === null) return h('td', { class: 'figure note' }, '–');
    const text = type === 'number' ? number(value) : String(value);
    return h('td', { class: type === 'number' || type === 'integer' ? 'figure' : null }, text);
  };
  const count = Math.min(rows, ROWS_SHOWN);
  return h(
    'div', { class: 'logged-table', tabindex: 0, role: 'region', 'aria-label': `Table ${item.name} at step ${item.step}` },
    h(
      'table', { class: 'values' },
      h('thead', {}, h('tr', {}, columns.map((column) => h('th', { scope: 'col' }, column.name)))),
      h('tbody', {}, Array.from({ length: count }, (_, row) => h('tr', {}, columns.map((column) => cell(column, row))))),
    ),
    rows > count && h('p', { class: 'note' }, `${count} of ${rows} rows; the file has all.`),
  );
}

/** Draws the histograms of one name; they are asked for at once, and again where there are others. */
function histogramDrawer(job, name) {
  let known = null;
  let mark = '';
  return async (item, _, items) => {
    const now = items.map(({ step, logged_ms: at }) => `${step} ${at}`).join();
    if (now !== mark) known = await histogramsOf(job, name);
    mark = now;
    const one = known.find(({ step }) => step === item.step) ?? known.at(-1);
    const total = one.counts.reduce((sum, count) => sum + count, 0);
    const text = `${number(total)} values from ${number(one.edges[0])} to ${number(one.edges.at(-1))}`;
    return h(
      'div', {},
      heatMap(known, one.step, `${name}: the distribution of its values over ${known.length} steps`),
      bars(one, rangeOf(known), `${name} at step ${one.step}: ${text}`),
      h('p', { class: 'note' }, text),
    );
  };
}
