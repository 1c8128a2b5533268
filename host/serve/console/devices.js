// The page of devices: what this machine computes with, who holds its slots and its memory, and how busy it is.

import { ask, failure, send } from './api.js';
import { h, neighbour, patch } from './dom.js';
import { bytes } from './format.js';
import { samples } from './meters.js';
import { poll } from './poll.js';

const EVERY_MS = 2000;
/** Looks at how busy a device was that are kept: two minutes of them. */
const LOOKS_MAX = 60;
const BUSY = 'saggar_device_busy_seconds_total';
const MEMORY = 'saggar_device_memory_bytes';
/** Jobs compute in processes of their own, which the owners of memory do not name. */
const JOB_MEMORY = 'saggar_job_gpu_memory_bytes';
/** Facts that have a place of their own, or say nothing to people. */
const KNOWN = ['name', 'adapter', 'vendor', 'driver', 'backend', 'software', 'exact_seconds', 'serves', 'job_slots', 'limits'];

/** Shows the page in `root` until the returned `leave` is called. */
export function devicesPage(root, live) {
  const state = { devices: null, pools: null, queues: [], error: null, refused: null, selected: null };
  /** By device: what it holds by owner, and `[time in ms, busy seconds]` of the looks. */
  const memory = new Map();
  const looks = new Map();
  const list = h('div', { class: 'cards' });
  const page = h('div', {}, h('div', { class: 'page-head' }, h('h1', {}, 'Devices')), list);
  patch(root, page);

  async function measure() {
    const response = await send('/metrics', { headers: { accept: 'text/plain' } });
    if (!response.ok) throw await failure(response);
    const now = performance.now();
    memory.clear();
    for (const { name, labels: { device, owner, job }, value } of samples(await response.text(), [BUSY, MEMORY, JOB_MEMORY])) {
      if (name !== BUSY) memory.set(device, [...(memory.get(device) ?? []), [owner ?? job, value]]);
      else looks.set(device, [...(looks.get(device) ?? []), [now, value]].slice(-LOOKS_MAX - 1));
    }
  }

  function render() {
    const { devices, error } = state;
    if (!devices) {
      patch(list, h('p', { class: 'empty' }, error ? `${error.message}.` : 'Looking for devices…'));
      return;
    }
    const refused = state.refused && h('p', { class: 'note', 'data-key': 'refused' }, `Memory and load are not shown: ${state.refused.message}.`);
    const view = (device) => card(device, {
      pools: (state.pools ?? []).filter((pool) => pool.device === device.name),
      queues: state.queues,
      memory: memory.get(device.name) ?? [],
      looks: looks.get(device.name) ?? [],
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
    try {
      await measure();
      state.refused = null;
    } catch (error) {
      state.refused = error;
    }
    render();
    live(state.error);
  }, EVERY_MS);

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
    refresh: look.now,
    leave: look.stop,
  };
}

/** Shares of the time between looks in which the device was busy, from 0 to 1. */
export function busy(looks) {
  const shares = [];
  for (let at = 1; at < looks.length; at += 1) {
    const [[then, before], [now, after]] = [looks[at - 1], looks[at]];
    shares.push(now > then ? Math.min(1, Math.max(0, ((after - before) * 1000) / (now - then))) : 0);
  }
  return shares;
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
      h('section', {}, h('h3', {}, 'Memory'), held(view.memory)),
      h('section', {}, h('h3', {}, 'Busy'), load(view.looks)),
    ),
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

function load(looks) {
  const shares = busy(looks);
  if (shares.length === 0) return h('p', { class: 'note' }, looks.length ? 'Measuring…' : 'No work has run here yet.');
  const percent = (share) => `${Math.round(share * 100)} %`;
  const mean = shares.reduce((sum, share) => sum + share, 0) / shares.length;
  return [
    h('p', {}, h('b', { class: 'figure' }, percent(shares.at(-1))), h('span', { class: 'note' }, ` now, ${percent(mean)} since this page was opened`)),
    h('div', { class: 'strip', 'aria-hidden': 'true' }, shares.map((share) => h('i', { style: { height: `${Math.max(2, share * 100)}%` } }))),
  ];
}
