// The page of hosts that run jobs: what each offers, what it runs, and whether it takes more.

import { ask } from './api.js';
import { confirm, note } from './dialogs.js';
import { h, listen, neighbour, patch } from './dom.js';
import { pollInto } from './poll.js';
import { mark } from './state.js';

const EVERY_MS = 2000;

/** Shows the page in `root` until the returned `leave` is called. */
export function workersPage(root, live) {
  const state = { workers: null, error: null, selected: null };
  const list = h('div', { class: 'cards' });
  const count = h('p', { class: 'note', id: 'count', role: 'status' });
  patch(root, h('div', {}, h('div', { class: 'page-head' }, h('h1', {}, 'Workers'), count), list));

  function render() {
    const { workers, error } = state;
    if (!workers) {
      patch(list, h('p', { class: 'empty' }, error ? `${error.message}.` : 'Looking…'));
      return;
    }
    const ready = workers.filter((worker) => worker.state === 'READY').length;
    const text = `${ready} of ${workers.length} ready`;
    if (count.textContent !== text) count.textContent = text;
    patch(list, table(workers, state.selected));
  }

  const look = pollInto(state, async () => ask('GET', '/api/v1/workers'), { render, live }, EVERY_MS);

  async function change(name, verb, body, done) {
    try {
      await ask('POST', `/api/v1/workers/${encodeURIComponent(name)}/${verb}`, body);
      note(done);
    } catch (error) {
      note(error.message, error);
    }
    await look.now();
  }

  listen(list, 'click', {
    async drain({ dataset: { name } }) {
      const agreed = await confirm({
        title: `Drain ${name}?`,
        text: 'It takes no new jobs. Its running jobs save their state and are queued again. A worker then ends; a server stays.',
        yes: 'Drain',
        danger: true,
      });
      if (agreed) await change(name, 'drain', {}, `${name} takes no new jobs.`);
    },
    resume: ({ dataset: { name } }) => change(name, 'resume', {}, `${name} takes jobs again.`),
  });
  const move = (by) => {
    const names = (state.workers ?? []).map(({ name }) => name);
    if (!names.length) return;
    state.selected = neighbour(names, state.selected, by);
    render();
    const found = list.querySelector(`[data-key="worker ${CSS.escape(state.selected)}"]`);
    found.focus({ preventScroll: true });
    found.scrollIntoView({ block: 'nearest' });
  };
  return {
    keys: { j: () => move(1), k: () => move(-1) },
    looks: 'Refreshed every two seconds',
    refresh: look.now,
    leave: () => look.stop(),
  };
}

function table(workers, selected) {
  const names = ['Name', 'State', 'Labels', 'Slots', 'Jobs', 'Last seen', ''];
  return h(
    'article',
    { class: 'card', 'data-key': 'workers', 'aria-label': 'Hosts that run jobs' },
    h(
      'table',
      { class: 'grid' },
      h('caption', { class: 'unseen' }, 'Hosts that run jobs'),
      h('thead', {}, h('tr', {}, names.map((label) => h('th', { scope: 'col' }, label || h('span', { class: 'unseen' }, 'Actions'))))),
      h('tbody', {}, workers.map((worker) => line(worker, selected === worker.name))),
    ),
  );
}

function line(worker, isSelected) {
  const { name, kind, state, labels, reserve, slots, used, jobs, version, devices, unseen_seconds: unseen } = worker;
  const cell = (label, ...content) => h('td', { 'data-label': label }, content);
  const link = (job) => h('a', { href: `#/jobs/${encodeURIComponent(job)}` }, job);
  const traits = [kind, `version ${version}`, devices && devices.join(', ')].filter(Boolean).join(' · ');
  return h(
    'tr',
    { 'data-key': `worker ${name}`, tabindex: -1, class: isSelected ? 'selected' : '' },
    h('th', { scope: 'row' }, name, h('div', { class: 'note' }, traits)),
    cell('State', mark(state)),
    cell(
      'Labels',
      Object.entries(labels).map(([label, value]) => h('div', {}, `${label}=${value}`)),
      reserve !== 'none' && h('div', { class: 'note' }, reserve),
    ),
    cell('Slots', `${used} of ${slots}`),
    cell('Jobs', jobs.length ? jobs.flatMap((job, at) => (at ? [', ', link(job)] : [link(job)])) : h('span', { class: 'note' }, 'none')),
    cell('Last seen', unseen < 10 ? 'now' : `${Math.round(unseen)} s ago`),
    h('td', { class: 'row-actions' }, h('div', {}, action(worker))),
  );
}

function action({ name, state }) {
  const button = (click, text, look) => h('button', {
    type: 'button', class: `quiet small ${look}`, 'data-click': click, 'data-name': name, 'aria-label': `${text} ${name}`,
  }, text);
  if (state === 'READY') return button('drain', 'Drain', 'danger-text');
  return state === 'DRAINING' && button('resume', 'Resume', '');
}
