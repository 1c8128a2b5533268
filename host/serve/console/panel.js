// One model: a line that tells how it is, and its versions, traffic and settings below. A pure function of the REST answer.

import { h } from './dom.js';
import { ago, bytes, duration, moment, words } from './format.js';
import { spanChoice } from './past.js';
import { modelCharts } from './pastcharts.js';
import { editor, split } from './traffic.js';

/** Most versions that are shown. Unloaded versions without an alias are left out first, the oldest before others. */
const VERSIONS_SHOWN = 8;

/** Returns the badge of a state. Each state has a different icon, because not everyone can distinguish the colours. */
export function chip(state) {
  return h('span', { class: `state ${state.toLowerCase()}` }, h('i', { 'aria-hidden': 'true' }), state);
}

/** The panel of `model`; `view` is `{ open, selected, busy, draft, all, samples, span }`. */
export function panel(model, view) {
  const id = `model-${encodeURIComponent(model.name)}`;
  return h(
    'article',
    {
      class: view.selected ? 'model selected' : 'model', 'data-key': `model ${model.name}`, 'data-model': model.name,
      'aria-labelledby': id, 'aria-busy': view.busy ? 'true' : null,
    },
    head(model, view, id),
    view.open && h('div', { class: 'model-body', id: `${id}-body` }, body(model, view)),
  );
}

/** The state of a model, or whether one without a state serves. */
export function stateOf({ state, serving }) {
  return state ?? (serving ? 'READY' : 'LOADING');
}

function head(model, view, id) {
  const { name, versions, last_swap: swap } = model;
  const held = versions.reduce((sum, { bytes: size }) => (size === null || size === undefined ? sum : (sum ?? 0) + size), null);
  return h(
    'div',
    { class: 'model-head' },
    h(
      'h2',
      { id },
      h('button', {
        type: 'button', class: 'toggle', 'data-click': 'toggle', 'aria-expanded': String(Boolean(view.open)),
        'aria-controls': view.open ? `${id}-body` : null,
      }, name),
    ),
    cell('State', chip(stateOf(model))),
    cell('Answers', split(model)),
    cell('On device', bytes(held)),
    cell('Last change', swap ? h('span', { title: moment(swap.at_ms) }, ago(swap.at_ms)) : '–'),
  );
}

function cell(label, ...content) {
  return h('div', { class: 'cell' }, h('span', { class: 'label' }, label), h('span', {}, content));
}

function body(model, view) {
  return [
    model.reason && explained(model),
    model.notice && h('p', { class: 'note', 'data-key': 'notice' }, model.notice),
    toolbar(model, view),
    versions(model, view),
    older(model, view),
    h(
      'section',
      { class: 'model-past', 'data-key': 'past', 'aria-label': `${model.name} over time` },
      h('div', { class: 'section-head' }, h('h3', {}, 'Over time'), h('div', { class: 'toolbar' }, spanChoice(view.span), h('button', { type: 'button', class: 'quiet small', 'data-click': 'picture' }, 'Save as PNG', h('span', { class: 'unseen' }, ` ${model.name}`)))),
      h('div', { class: 'timelines' }, modelCharts(view.samples, view.span, model.name)),
    ),
    h(
      'div',
      { class: 'model-parts', 'data-key': 'parts' },
      h('section', {}, h('h3', {}, 'Traffic'), editor(model, view)),
      h('section', {}, h('h3', {}, 'Last change'), lastSwap(model)),
      model.config && h('section', {}, h('h3', {}, 'Settings'), settings(model.config)),
    ),
  ];
}

/** Why the model is as it is: in red only where that is a fault. */
function explained({ state, reason }) {
  return h('p', { class: state === 'FAILED' ? 'reason' : 'note', 'data-key': 'reason' }, REASONS[reason] ? `Why: ${REASONS[reason]}.` : reason);
}

function button(action, text, view, more = {}) {
  const { class: kind = 'quiet', ...attributes } = more;
  return h('button', { type: 'button', class: `${kind} small`, 'data-click': action, disabled: view.busy, ...attributes }, text);
}

function toolbar(model, view) {
  const state = stateOf(model);
  const asleep = ['ASLEEP', 'UNLOADED', 'FAILED'].includes(state);
  return h(
    'div',
    { class: 'toolbar', 'data-key': 'toolbar' },
    h('a', { class: 'button small primary', href: `#/playground/${encodeURIComponent(model.name)}` }, 'Try it'),
    asleep
      ? button('load', 'Load', view, { title: 'Load the model onto the device' })
      : button('warm', 'Warm', view, { title: 'Run it once, so that the first request is fast' }),
    button('rollback', 'Roll back', view, {
      disabled: view.busy || !canRollBack(model), title: 'Back to the version that was the default before',
    }),
    model.follows_newest === false
      && button('follow', 'Follow the newest', view, { title: 'Let new versions become the default automatically' }),
    !['UNLOADED', 'FAILED'].includes(state) && button('unload', 'Unload', view, { class: 'quiet danger-text', title: 'Free its memory on the device' }),
    view.busy && h('span', { class: 'note', role: 'status' }, 'Working…'),
  );
}

function canRollBack({ versions, serving }) {
  return serving !== null && versions.length > 1;
}

function versions(model, view) {
  const names = ['Version', 'State', 'Aliases', 'Traffic', 'On device', 'Measured', 'Used', 'Made', ''];
  const newestFirst = view.all ? byNumber(model) : shortened(model);
  if (!newestFirst.length) return h('p', { class: 'empty', 'data-key': 'versions' }, 'No versions yet.');
  return h(
    'table',
    { class: 'versions', 'data-key': 'versions' },
    h('caption', { class: 'unseen' }, `Versions of ${model.name}`),
    h('thead', {}, h('tr', {}, names.map((name) => h('th', { scope: 'col' }, name || h('span', { class: 'unseen' }, 'Actions'))))),
    h('tbody', {}, newestFirst.map((version) => row(model, version, view))),
  );
}

function byNumber(model) {
  return [...model.versions].sort((a, b) => b.version - a.version);
}

/** The newest, and besides them whatever is loaded, failed or has an alias. */
function shortened(model) {
  const matters = ({ version, state, aliases = [] }) => version === model.serving || state !== 'UNLOADED' || aliases.length > 0;
  return byNumber(model).filter((version, at) => at < VERSIONS_SHOWN || matters(version));
}

function older(model, view) {
  const hidden = model.versions.length - shortened(model).length;
  if (!hidden) return null;
  const text = view.all ? 'Show fewer versions' : `Show ${hidden} older ${hidden === 1 ? 'version' : 'versions'}`;
  return h('div', { class: 'toolbar', 'data-key': 'older' }, h('button', { type: 'button', class: 'quiet small', 'data-click': 'all' }, text));
}

function row(model, one, view) {
  const { version, state, reason, aliases = [] } = one;
  const serves = version === model.serving;
  const td = (label, ...content) => h('td', { 'data-label': label }, h('div', {}, content));
  return h(
    'tr',
    { 'data-key': String(version), class: serves ? 'serves' : null },
    h('th', { scope: 'row' }, h('span', { class: 'number' }, version), serves && h('span', { class: 'tag' }, 'default')),
    td('State', chip(state), shownReason(one)),
    td('Aliases', aliases.map((alias) => aliasChip(model, alias, version, view)), state === 'READY' && aliasButton(version, view)),
    td('Traffic', one.traffic_percent === undefined ? '–' : `${one.traffic_percent} %`),
    td('On device', bytes(one.bytes)),
    td('Measured', one.measured || '–'),
    td('Used', used(one)),
    td('Made', made(one)),
    h('td', { class: 'row-actions' }, h('div', {}, rowActions(model, one, view))),
  );
}

/** Why a version is as it is: in red only where that is a fault. That a version is older than the default, the table shows. */
function shownReason({ reason, reason_code: code }) {
  if (!reason || code === 'SUPERSEDED') return null;
  return h('p', { class: code ? 'note' : 'reason' }, reason);
}

function aliasChip(model, alias, version, view) {
  if (alias === 'stable') {
    // It is the default, and moves by promotion.
    const title = model.follows_newest ? 'The default; it follows the newest version' : 'The default; it stays until another version is promoted';
    return h('span', { class: 'alias fixed', 'data-key': alias, title }, alias);
  }
  return h(
    'span',
    { class: 'alias', 'data-key': alias },
    alias,
    h('button', {
      type: 'button', class: 'icon', 'data-click': 'unalias', 'data-alias': alias, 'data-version': version, disabled: view.busy,
      'aria-label': `Remove the alias ${alias}`, title: `Remove the alias ${alias}`,
    }, '×'),
  );
}

function aliasButton(version, view) {
  return h('button', {
    type: 'button', class: 'add', 'data-key': 'add', 'data-click': 'alias', 'data-version': version, disabled: view.busy,
    'aria-label': `Give version ${version} an alias`, title: 'Give it an alias',
  }, '+');
}

function used({ last_used_ms: last, expires_in_ms: left }) {
  const when = last ? h('span', { title: moment(last) }, ago(last)) : 'not yet';
  return [when, left !== null && left !== undefined && h('span', { class: 'note' }, `unloads in ${duration(left)}`)];
}

function made({ created_ms: at, source_job: job }) {
  return [at ? h('span', { title: moment(at) }, ago(at)) : '–', job && h('span', { class: 'note' }, 'by ', h('a', { href: `#/jobs/${encodeURIComponent(job)}` }, job))];
}

function rowActions(model, { version, state, aliases = [], traffic_percent: percent }, view) {
  const of = (action, text, title) => button(action, text, view, {
    'data-version': version, 'aria-label': `${text} version ${version}`, title,
  });
  const ready = state === 'READY';
  // The server keeps what something points to.
  const pointed = aliases.length > 0 || percent > 0;
  return [
    version !== model.serving && ['READY', 'UNLOADED'].includes(state) && of('promote', 'Promote', 'Make it the default'),
    ['UNLOADED', 'FAILED'].includes(state) && of('load', 'Load', 'Load it onto the device'),
    ready && version !== model.serving && !pointed && of('unload', 'Unload', 'Free its memory on the device'),
    h('button', { type: 'button', class: 'quiet small', 'data-click': 'card', 'data-version': version, 'aria-label': `Card of version ${version}`, title: 'What it was made from' }, 'Card'),
    h('a', { class: 'button quiet small', href: `#/graph/${encodeURIComponent(model.name)}/${version}`, 'aria-label': `Graph of version ${version}`, title: 'Its kernels with shapes, work and memory' }, 'Graph'),
  ];
}

const KINDS = {
  weights: 'Only the weights were swapped; instances and kernels stayed',
  full: 'Plugin and weights were swapped',
  alias: 'Both versions were loaded already',
  unload: 'Its memory was freed',
};

const REASONS = {
  NEWEST: 'a newer version was published',
  LOADED: 'loaded by a user',
  WOKEN: 'loaded by a request',
  UNLOADED: 'unloaded by a user',
  IDLE: 'no requests',
  MEMORY: 'other models needed its memory',
  REMOVED: 'its files were removed',
};

function lastSwap({ last_swap: swap }) {
  if (!swap) return h('p', { class: 'note' }, 'Nothing has changed since the server started.');
  const { from, to, kind, reason, seconds, at_ms: at } = swap;
  const isStart = from === null && to !== null;
  const what = isStart ? `Version ${to} was loaded` : to === null ? `Version ${from} was unloaded` : `Version ${from} → version ${to}`;
  const how = isStart ? 'Plugin and weights were loaded' : KINDS[kind] ?? kind;
  const why = isStart && reason === 'NEWEST' ? 'its files were found' : REASONS[reason] ?? words(reason);
  return [
    h('p', {}, `${what}, `, h('span', { title: moment(at) }, ago(at)), '.'),
    h('p', { class: 'note' }, 'Reason: ', h('b', {}, why), `. ${how}${seconds > 0 ? `, in ${duration(seconds * 1000)}` : ''}.`),
  ];
}

function settings({ batch = {}, queue = {}, keep_alive: keep, pin, instances, cache = {}, ensemble }) {
  const most = batch.max_items;
  const items = most ? (most === 1 ? 'one item' : `up to ${most} items`) : 'as many items as the model takes';
  const entries = [
    ['Batch', `${items}, ${(batch.max_delay ?? '0s') === '0s' ? 'without waiting' : `waits up to ${batch.max_delay}`}`],
    ['Queue', `${queue.capacity} requests, ${queue.timeout} each`],
    ['Kept loaded', (keep === 'forever' ? 'always' : `for ${keep} unused`) + (pin ? ', even if memory is short' : '')],
    ['Instances', instances.min > 0 ? `${instances.min} to ${instances.max}` : `up to ${instances.max}`],
    ['Cache', cache.max_bytes ? bytes(cache.max_bytes) : 'off'],
    ensemble && ['Steps', ensemble.steps.map(({ model }) => model).join(' → ')],
  ];
  return h('dl', { class: 'facts' }, entries.filter(Boolean).map(([name, value]) => [h('dt', {}, name), h('dd', {}, value)]));
}
