// The page of devices: what this machine computes with, who holds its slots and its memory, and how busy it is and was.

import { ask } from './api.js';
import { h, listen, neighbour, patch } from './dom.js';
import { bytes } from './format.js';
import { followPast, spanChoice } from './past.js';
import { deviceCharts, memoryOf } from './pastcharts.js';
import { poll } from './poll.js';
import { readable } from './timeline.js';

const EVERY_MS = 2000;
const SERIES = 'series=device_busy_ratio&series=device_memory_bytes';
/** Facts that have a place of their own, or say nothing to people. */
const KNOWN = ['name', 'adapter', 'vendor', 'driver', 'backend', 'software', 'exact_seconds', 'serves', 'job_slots', 'limits'];

/** Shows the page in `root` until the returned `leave` is called. */
export function devicesPage(root, live) {
  const state = { devices: null, pools: null, queues: [], error: null, selected: null };
  const list = h('div', { class: 'cards' });
  const head = h('div', { class: 'page-head' });
  const page = h('div', {}, head, list);
  patch(root, page);
  readable(list);
  const past = followPast(() => SERIES, render);

  function render() {
    const { devices, error } = state;
    patch(head, h('h1', {}, 'Devices'), h('div', { class: 'filters' }, spanChoice(past.span())));
    if (!devices) {
      patch(list, h('p', { class: 'empty' }, error ? `${error.message}.` : 'Looking for devices…'));
      return;
    }
    const refused = past.error() && h('p', { class: 'note', 'data-key': 'refused' }, `Memory and load are not shown: ${past.error().message}.`);
    const view = (device) => card(device, {
      pools: (state.pools ?? []).filter((pool) => pool.device === device.name),
      queues: state.queues,
      samples: past.samples(),
      span: past.span(),
      selected: state.selected === device.name,
    });
    patch(list, refused, devices.map(view));
  }

  const look = poll(async () => {
    try {
      state.devices = (await ask('GET', '/api/v1/devices')).devices;
      state.error = null;
    } catch (error) {
      state.error = error;
    }
    try {
      Object.assign(state, await ask('GET', '/api/v1/queues'));
    } catch {
      // A key may see devices and not jobs: then there are only the devices' own facts.
      state.pools = null;
    }
    render();
    live(state.error);
  }, EVERY_MS);

  listen(head, 'change', {
    span: ({ value }) => {
      past.choose(value);
      render();
    },
  });
  const move = (by) => {
    const names = (state.devices ?? []).map(({ name }) => name);
    if (!names.length) return;
    state.selected = neighbour(names, state.selected, by);
    render();
    const found = list.querySelector(`[data-key="device ${CSS.escape(state.selected)}"]`);
    found.focus({ preventScroll: true });
    found.scrollIntoView({ block: 'nearest' });
  };
  return {
    keys: { j: () => move(1), k: () => move(-1) },
    looks: 'Refreshed every two seconds',
    refresh: () => Promise.all([look.now(), past.refresh()]),
    leave() {
      look.stop();
      past.leave();
    },
  };
}

function card(device, view) {
  const traits = [
    device.serves && 'models predict here',
    device.software && 'shaders run on the processor',
    device.exact_seconds ? 'seconds from its own clock' : 'seconds estimated from the wall clock',
  ].filter(Boolean);
  const facts = [
    ['Adapter', device.adapter], ['Vendor', device.vendor], ['Driver', device.driver], ['Backend', device.backend],
    ...Object.entries(device).filter(([key, value]) => !KNOWN.includes(key) && value !== null && typeof value !== 'object'),
    ['Features', (device.features ?? []).join(', ').replaceAll('_', ' ')],
    ...Object.entries(device.limits ?? {}),
  ];
  return h(
    'article',
    { class: view.selected ? 'card device selected' : 'card device', 'data-key': `device ${device.name}`, 'data-device': device.name, tabindex: -1, 'aria-label': `Device ${device.name}` },
    h('div', { class: 'section-head' }, h('h2', {}, device.name), h('p', { class: 'note' }, traits.join(' · '))),
    h(
      'div',
      { class: 'device-parts' },
      h('dl', { class: 'facts' }, facts.filter(([, value]) => value !== '' && value !== undefined).map(([name, value]) => [
        h('dt', {}, name.replaceAll('_', ' ')), h('dd', {}, limit(name, value)),
      ])),
      h('section', {}, h('h3', {}, 'Job slots'), slots(device, view)),
      h('section', {}, h('h3', {}, 'Memory'), held(memoryOf(view.samples, device.name).map(([owner, values]) => [owner, values.at(-1) ?? 0]))),
    ),
    h('div', { class: 'timelines' }, deviceCharts(view.samples, view.span, device.name)),
  );
}

/** A limit as people read it. */
function limit(name, value) {
  if (typeof value === 'number' && /bytes|memory|size/.test(name)) return bytes(value);
  return typeof value === 'number' ? value.toLocaleString('en') : String(value);
}

function slots(device, { pools, queues }) {
  if (pools.length === 0) return h('p', {}, `${device.job_slots} at once`);
  const link = (name) => h('a', { href: `#/jobs/${encodeURIComponent(name)}` }, name);
  const waiting = ({ name }) => queues.filter((queue) => queue.pools?.[0] === name).reduce((sum, queue) => sum + (queue.waiting ?? 0), 0);
  return pools.map((pool) => {
    const { name, slots: all, used, jobs } = pool;
    const count = Math.ceil(all);
    const waits = waiting(pool);
    return h(
      'div',
      { class: 'pool', 'data-pool': name },
      h('p', {}, h('b', {}, name), `: ${used} of ${all} in use`, waits > 0 && `, ${waits} waiting`),
      count <= 32 && h(
        'div',
        { class: 'slots', 'aria-hidden': 'true' },
        Array.from({ length: count }, (_, at) => h('i', { style: { '--full': `${100 * Math.min(1, Math.max(0, used - at))}%` } })),
      ),
      h('p', { class: 'note' }, jobs?.length ? ['Held by ', jobs.flatMap((job, at) => (at ? [', ', link(job)] : [link(job)]))] : 'No job holds any.'),
    );
  });
}

function held(memory) {
  const owners = memory.filter(([, value]) => value > 0).sort(([, a], [, b]) => b - a);
  if (owners.length === 0) return h('p', { class: 'note' }, 'Nothing is held.');
  const whole = owners.reduce((sum, [, value]) => sum + value, 0);
  return [
    h('p', {}, `${bytes(whole)} in use`),
    h('div', { class: 'split', 'aria-hidden': 'true' }, owners.map(([, value], at) => h('span', { class: `share share-${at % 4}`, style: { 'flex-grow': String(value) } }))),
    h('dl', { class: 'facts' }, owners.map(([owner, value], at) => [
      h('dt', {}, h('i', { class: `share share-${at % 4}`, 'aria-hidden': 'true' }), owner), h('dd', { class: 'figure' }, bytes(value)),
    ])),
  ];
}
