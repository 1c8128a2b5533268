// The picture of a model's graph: the kernels of a version with shapes, work and memory, and their time if there is a profile.

import { ask, modelPath } from './api.js';
import { note } from './dialogs.js';
import { h, listen, patch } from './dom.js';
import { bytes, duration, number } from './format.js';
import { drawSteps } from './graph.js';
import { boxesOf, shownRanges, timesOf } from './graphblocks.js';

const SCALES = [0.4, 0.6, 0.8, 1, 1.25];

const shape = ({ data_type: type, shape: dims }) => `${type}[${dims.join(', ')}]`;
const work = (operations) => {
  const [unit, size] = [['GFLOP', 1e9], ['MFLOP', 1e6], ['kFLOP', 1e3], ['FLOP', 1]].find(([, each]) => operations >= each) ?? ['FLOP', 1];
  return `${number(Number((operations / size).toPrecision(3)))} ${unit}`;
};

/** Shows the page of the version in `root`. */
export function modelGraphPage(root, { model, version }, live) {
  const state = { graph: null, number: 1, error: null, open: new Set(), selected: null, scale: 1, times: null };
  const page = h('div', { class: 'graph-page' });
  const file = h('input', { type: 'file', accept: '.json,application/json', class: 'unseen', tabindex: -1, 'aria-label': 'Profile', 'data-change': 'profile' });
  const content = h('div', {});
  patch(root, page);
  page.append(content, file);

  const time = (kernels) => {
    if (!state.times) return null;
    const found = kernels.map((kernel) => state.times.get(profiledName(kernel))).filter((one) => one !== undefined);
    return found.length ? found.reduce((sum, one) => sum + one, 0) : null;
  };

  function box({ name, kernels, after }, whole) {
    const [first] = kernels;
    const isBlock = kernels.length > 1;
    const took = time(kernels);
    const operations = kernels.reduce((sum, kernel) => sum + kernel.operations, 0);
    const result = first.nodes[first.writes.at(-1)] ?? first.nodes.at(-1);
    const details = [isBlock ? `${kernels.length} kernels` : result && shape(result), took !== null ? duration(took / 1000) : work(operations)];
    return {
      name, after, label: isBlock ? blockLabel(kernels) : first.label, note: details.filter(Boolean).join(' · '), width: 260,
      kind: [isBlock ? 'block' : 'kernel', state.selected === name ? 'selected' : ''].join(' ').trim(), press: name,
      share: whole > 0 ? (took ?? 0) / whole : 0,
      title: kernels.slice(0, 12).map(({ label }) => label).join('\n'),
    };
  }

  function render() {
    const crumb = h('p', { class: 'crumb' }, h('a', { href: `#/models/${encodeURIComponent(model)}` }, model));
    const head = h('h1', {}, `Graph of ${model}@${version}`);
    if (!state.graph) {
      patch(content, crumb, head, h('p', { class: state.error ? 'reason' : 'empty', role: 'status' }, state.error ? `${state.error.message}. ${state.error.hint ?? ''}` : 'Building the graph…'));
      return;
    }
    const { graphs, kernels, inputs, outputs } = state.graph;
    const boxes = boxesOf(kernels, shownRanges(kernels, state.open));
    const summary = graphs[state.number - 1];
    const whole = state.times ? Math.max(0, ...boxes.map(({ kernels: of }) => time(of) ?? 0)) : 0;
    const total = kernels.reduce((sum, { operations }) => sum + operations, 0);
    patch(
      content,
      crumb,
      h('div', { class: 'page-head' }, head, h('p', { class: 'note', role: 'status' }, `${summary.nodes} operators in ${kernels.length} kernels, ${work(total)}, ${bytes(summary.total_bytes)} of memory`)),
      h(
        'div',
        { class: 'toolbar order-bar' },
        graphs.length > 1 && h('label', { class: 'check' }, 'Graph ', h('select', { 'data-change': 'graph' }, graphs.map(({ graph, phase, inputs: of }) => h('option', { value: graph, selected: graph === state.number }, `${graph}: ${phase} ${of.map((one) => `[${one.shape.join(', ')}]`).join(' ')}`)))),
        h('button', { type: 'button', class: 'quiet small', 'data-click': 'smaller', disabled: state.scale === SCALES[0], 'aria-label': 'Smaller' }, '−'),
        h('button', { type: 'button', class: 'quiet small', 'data-click': 'larger', disabled: state.scale === SCALES.at(-1), 'aria-label': 'Larger' }, '+'),
        state.open.size > 0 && h('button', { type: 'button', class: 'quiet small', 'data-click': 'close' }, 'Close all blocks'),
        h('button', { type: 'button', class: 'quiet small', 'data-click': 'profile' }, state.times ? 'Another profile…' : 'Show times of a profile…'),
      ),
      h('p', { class: 'note' }, 'Reads ', inputs.map((one) => `${one.name} ${shape(one)}`).join(', '), '; gives ', outputs.map((one) => `${one.name} ${shape(one)}`).join(', '), '. ', state.times ? 'Bars are shares of the longest time.' : ['Times: ', h('code', {}, 'saggar bench train PLUGIN --profile trace.json'), ' writes a profile of a training. Kernels with the same label and shape get its times.']),
      h(
        'div',
        { class: 'graph-parts' },
        h('div', { class: 'scroll graph-scroll card', 'data-key': 'drawing' }, drawSteps(boxes.map((one) => box(one, whole)), `Kernels of ${model}@${version}`, { scale: state.scale, along: 30 })),
        details(boxes),
      ),
    );
  }

  function details(boxes) {
    const found = boxes.find(({ name }) => name === state.selected);
    if (!found) return h('aside', { class: 'card graph-details', 'data-key': 'details', 'aria-label': 'Kernel' }, h('p', { class: 'note' }, 'Choose a kernel to see its operators, or a block to open it.'));
    const [kernel] = found.kernels;
    const took = time([kernel]);
    const facts = [['Kernel', `${found.first + 1}`], ['Work', work(kernel.operations)], ['Reads and writes', bytes(kernel.bytes)], took !== null && ['Time in the profile', duration(took / 1000)]].filter(Boolean);
    return h(
      'aside',
      { class: 'card graph-details', 'data-key': 'details', 'aria-label': 'Kernel' },
      h('h2', {}, kernel.label),
      h('dl', { class: 'facts' }, facts.map(([name, value]) => [h('dt', {}, name), h('dd', { class: 'figure' }, value)])),
      h('h3', {}, 'Operators'),
      h('ol', { class: 'operators' }, kernel.nodes.map((node, at) => h('li', {}, h('b', {}, node.op), node.label && ` ${node.label}`, h('div', { class: 'note code' }, shape(node), kernel.writes.includes(at) && ' → memory')))),
    );
  }

  async function load() {
    try {
      state.graph = await ask('GET', `${modelPath(model, 'versions', version, 'graph')}?graph=${state.number}`);
      state.error = null;
    } catch (error) {
      state.error = error;
    }
    live(state.error?.status === 0 || state.error?.status === 401 ? state.error : null);
    render();
  }

  const press = (name) => {
    const found = boxesOf(state.graph.kernels, shownRanges(state.graph.kernels, state.open)).find((one) => one.name === name);
    if (found.kernels.length > 1) state.open.add(name);
    else state.selected = state.selected === name ? null : name;
    render();
    if (found.kernels.length > 1) content.querySelector(`[data-press="kernel ${found.first + 1}"], [data-press^="kernels ${found.first + 1} "]`)?.focus();
  };
  const zoom = (by) => {
    state.scale = SCALES[Math.min(SCALES.length - 1, Math.max(0, SCALES.indexOf(state.scale) + by))];
    render();
  };
  content.addEventListener('click', (event) => {
    const name = event.target.closest?.('[data-press]')?.dataset.press;
    if (name) press(name);
  });
  content.addEventListener('keydown', (event) => {
    const name = event.target.closest?.('[data-press]')?.dataset.press;
    if (!name || !['Enter', ' '].includes(event.key)) return;
    event.preventDefault();
    press(name);
  });
  listen(content, 'click', {
    smaller: () => zoom(-1),
    larger: () => zoom(1),
    close() {
      Object.assign(state, { open: new Set(), selected: null });
      render();
    },
    profile: () => file.click(),
  });
  listen(content, 'change', {
    graph({ value }) {
      Object.assign(state, { number: Number(value), graph: null, open: new Set(), selected: null });
      render();
      load();
    },
  });
  file.addEventListener('change', async () => {
    try {
      const times = timesOf(JSON.parse(await file.files[0].text()));
      if (!state.graph.kernels.some((kernel) => times.has(profiledName(kernel)))) throw new Error('the profile has no kernel of this graph: choose the graph of the batch size that was profiled');
      state.times = times;
    } catch (error) {
      note(error.message, error);
    }
    file.value = '';
    render();
  });
  render();
  load();
  return { keys: { '+': () => zoom(1), '-': () => zoom(-1) }, looks: '', refresh: load, leave() {} };
}

/** The name of a kernel in a profile: its label, and the type and shape of its first result. */
function profiledName({ label, nodes, writes }) {
  const result = nodes[writes[0]];
  return result ? `${label} ${shape(result)}` : label;
}

/** What a block is called: the name that its kernels share, else its first and last kernel. */
function blockLabel(kernels) {
  const labels = kernels.map(({ label }) => label.split(/\s+/)[1] ?? '');
  const [first] = labels;
  const shared = first.split(/[./]/)[0];
  if (shared && labels.every((label) => label.split(/[./]/)[0] === shared)) return shared;
  return `${kernels[0].label} … ${kernels.at(-1).label}`;
}
