// The page of jobs: the table as `saggar ps` has it, live, with filters and what can be told to those that are selected.

import { ask } from './api.js';
import { comparePath } from './compare.js';
import { emptyJobs } from './empty.js';
import { h, listen, neighbour, patch } from './dom.js';
import { allows, orders } from './orders.js';
import { restart } from './restart.js';
import { followTimes, head, row, shownOf } from './rows.js';
import { STATES, isOver } from './state.js';
import { watch } from './watch.js';

/** Rows that are filtered before more are asked for. */
const ROWS_STEP = 100;
const OLDER_MAX = 500;

/** Shows the page in `root` until the returned `leave` is called. `live(error or null)` is called with how the server answers. */
export function jobsPage(root, live) {
  const state = {
    jobs: null, older: new Map(), cursor: null, error: null,
    filter: { text: '', state: '', project: '', experiment: '' },
    picked: new Set(), selected: null, rows: ROWS_STEP, busy: false,
  };
  /** What stands in the table, by identifier: `{ text, element }`. */
  const drawn = new Map();

  const parts = frame(root);
  const { list, body, table, count, text, choices, bar, more } = parts;

  const all = () => [...(state.jobs ?? new Map()).values(), ...state.older.values()].sort((a, b) => (a.id < b.id ? 1 : -1));
  const filtered = () => all().filter((job) => matches(job, state.filter));
  const picked = () => all().filter(({ id }) => state.picked.has(id));

  function render() {
    if (!state.jobs) {
      patch(list, h('p', { class: 'empty' }, state.error ? `${state.error.message}.` : 'Looking…'));
      return;
    }
    const jobs = all();
    const visible = filtered();
    const none = jobs.length === 0;
    for (const element of [parts.filters, table, bar]) element.hidden = none;
    count.textContent = visible.length === jobs.length ? (none ? '' : `${jobs.length} in all`) : `${visible.length} of ${jobs.length}`;
    patch(list, none ? emptyJobs() : visible.length === 0 && h('p', { class: 'empty' }, 'No job matches the filters.'));
    showChoices(jobs);
    showRows(visible.slice(0, state.rows));
    showBar();
    const rest = visible.length - state.rows;
    patch(
      more,
      rest > 0 && h('button', { type: 'button', class: 'quiet', 'data-click': 'more' }, `Show ${Math.min(rest, ROWS_STEP)} more`),
      rest <= 0 && state.cursor !== null && h('button', { type: 'button', class: 'quiet', 'data-click': 'older' }, 'Older jobs'),
    );
  }

  /** Builds the rows that changed, and none else: there may be many. */
  function showRows(jobs) {
    const rows = jobs.map((job) => {
      const view = { picked: state.picked.has(job.id), selected: state.selected === job.id };
      const is = shownOf(job, view);
      const before = drawn.get(job.id);
      if (before?.text === is) return before.element;
      drawn.set(job.id, { text: is, element: null });
      return row(job, view);
    });
    patch(body, rows);
    const there = new Set();
    for (const element of body.children) {
      const { key } = element.dataset;
      there.add(key);
      drawn.get(key).element = element;
    }
    for (const id of drawn.keys()) if (!there.has(id)) drawn.delete(id);
  }

  function showChoices(jobs) {
    const names = (of) => [...new Set(jobs.map(of).filter(Boolean))].sort();
    const select = (key, label, values) => values.length > 0 && h(
      'select',
      { 'data-change': 'choose', 'data-filter': key, 'aria-label': label, 'data-key': key },
      h('option', { value: '', selected: !state.filter[key] }, `${label}: all`),
      values.map((value) => h('option', { value, selected: value === state.filter[key] }, value.replaceAll('_', ' '))),
    );
    patch(
      choices,
      select('state', 'State', ['ACTIVE', ...STATES]),
      select('project', 'Project', names(({ project }) => project)),
      select('experiment', 'Experiment', names(({ experiment }) => experiment)),
    );
  }

  function showBar() {
    const chosen = picked();
    const can = (order) => chosen.length > 0 && chosen.every(allows[order]) && !state.busy;
    const button = (name, label, able, why, kind = 'quiet') => h(
      'button',
      { type: 'button', class: `${kind} small`, 'data-click': name, disabled: !able, title: able ? null : why, 'data-key': name },
      label,
    );
    patch(
      bar,
      chosen.length === 0
        ? h('span', { class: 'note', 'data-key': 'hint' }, 'Select jobs to stop, restart or delete them, and two or more to compare them.')
        : [
          h('b', { 'data-key': 'count' }, `${chosen.length} selected`),
          button('compare', 'Compare', chosen.length > 1, 'Select two or more', 'primary'),
          button('stop', 'Stop…', can('stop'), 'Only unfinished jobs can be stopped'),
          button('preempt', 'Preempt…', can('preempt'), 'Only running jobs can be preempted'),
          button('restart', 'Restart with…', chosen.length === 1 && !state.busy, 'Select one job to restart'),
          button('remove', 'Delete…', can('remove'), 'Only finished jobs can be deleted', 'quiet danger-text'),
          button('clear', 'Clear', true, ''),
        ],
    );
  }

  const stream = watch({
    changed(jobs, cursor) {
      state.jobs = jobs;
      for (const id of jobs.keys()) state.older.delete(id);
      if (state.older.size === 0) state.cursor = cursor;
      const known = new Set(all().map(({ id }) => id));
      for (const id of state.picked) if (!known.has(id)) state.picked.delete(id);
      render();
    },
    live(error) {
      state.error = error;
      if (!state.jobs) render();
      live(error);
    },
  });

  const compare = () => {
    const chosen = picked();
    if (chosen.length > 1) location.hash = comparePath(chosen);
  };
  const tell = (order) => async () => {
    const work = await order(picked());
    if (!work) return;
    state.busy = true;
    render();
    try {
      await work();
    } finally {
      // The server tells only of newer jobs that they are gone.
      for (const { id } of work.done) if (order === orders.remove) state.older.delete(id);
      state.busy = false;
      render();
    }
  };
  const idOf = (element) => element.closest('[data-key][data-job]').dataset.key;
  const pick = (id) => {
    if (!state.picked.delete(id)) state.picked.add(id);
    render();
  };

  listen(parts.page, 'click', {
    ...Object.fromEntries(Object.entries(orders).map(([name, order]) => [name, tell(order)])),
    restart: () => restart(picked()[0]),
    compare,
    clear() {
      state.picked.clear();
      render();
    },
    more() {
      state.rows += ROWS_STEP;
      render();
    },
    async older(button) {
      button.disabled = true;
      try {
        const answer = await ask('GET', `/api/v1/jobs?limit=${OLDER_MAX}&cursor=${state.cursor}`);
        for (const job of answer.jobs) state.older.set(job.id, job);
        state.cursor = answer.cursor;
        state.rows += ROWS_STEP;
      } catch (error) {
        live(error);
      }
      render();
    },
  });
  listen(parts.page, 'change', {
    pick: (element) => pick(idOf(element)),
    choose(element) {
      state.filter[element.dataset.filter] = element.value;
      state.rows = ROWS_STEP;
      render();
    },
  });
  text.addEventListener('input', () => {
    state.filter.text = text.value.toLowerCase();
    state.rows = ROWS_STEP;
    render();
  });

  const stopTimes = followTimes(body);
  const move = (by) => {
    const ids = filtered().slice(0, state.rows).map(({ id }) => id);
    if (!ids.length) return;
    state.selected = neighbour(ids, state.selected, by);
    render();
    const element = drawn.get(state.selected).element;
    element.scrollIntoView({ block: 'nearest' });
    element.querySelector('a').focus({ preventScroll: true });
  };
  const selected = () => all().find(({ id }) => id === state.selected);
  render();
  return {
    keys: {
      '/': () => text.focus(),
      j: () => move(1),
      k: () => move(-1),
      x: () => state.selected && pick(state.selected),
      c: compare,
      n: () => { location.hash = '#/new-job'; },
      l: () => selected() && (location.hash = `#/jobs/${encodeURIComponent(selected().name)}/logs`),
    },
    looks: 'The server reports every change',
    refresh: stream.again,
    leave() {
      stream.stop();
      stopTimes();
    },
  };
}

/** What stays on the page; what changes is drawn into its parts. */
function frame(root) {
  const text = h('input', {
    type: 'search', placeholder: 'Filter', 'aria-label': 'Filter jobs by name, state or message', autocomplete: 'off', spellcheck: 'false',
  });
  const parts = {
    text,
    count: h('p', { class: 'note', id: 'count', role: 'status' }),
    choices: h('span', { class: 'toolbar choices' }),
    bar: h('div', { class: 'toolbar order-bar', role: 'toolbar', 'aria-label': 'Selected jobs' }),
    list: h('div', { id: 'list' }),
    body: h('tbody'),
    more: h('div', { class: 'more' }),
  };
  parts.filters = h('div', { class: 'filters' }, parts.choices, h('span', { class: 'filter' }, text, h('kbd', { 'aria-hidden': 'true' }, '/')));
  parts.table = h('table', { class: 'grid jobs' }, h('caption', { class: 'unseen' }, 'Jobs, newest first'), head(), parts.body);
  const scroll = h('div', { class: 'scroll' }, parts.table);
  const title = h('div', { class: 'page-head' }, h('h1', {}, 'Jobs'), parts.count, h('a', { class: 'button small primary', href: '#/new-job' }, 'New job'), parts.filters);
  parts.page = h('div', {}, title, parts.bar, parts.list, scroll, parts.more);
  patch(root, parts.page);
  return parts;
}

/** Whether a job is what the filters ask for. */
export function matches(job, filter) {
  const { name, state, project, experiment, description, message, reason } = job;
  if (filter.state && (filter.state === 'ACTIVE' ? isOver(state) : state !== filter.state)) return false;
  if (filter.project && project !== filter.project) return false;
  if (filter.experiment && experiment !== filter.experiment) return false;
  const text = [name, state, project, experiment, description, message, reason].filter(Boolean).join(' ').toLowerCase();
  return text.includes(filter.text);
}
