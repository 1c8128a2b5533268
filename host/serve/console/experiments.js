// Experiments: the labels that jobs share, and the runs of one as a table with columns to choose.

import { editing, editorRow, shutEditor } from './annotations.js';
import { ask } from './api.js';
import { comparePath } from './compare.js';
import { columnsOf, parseFilter, sorted, usualColumns } from './columns.js';
import { h, listen, neighbour, patch } from './dom.js';
import { emptyExperiments } from './empty.js';
import { membersView } from './members.js';
import { cell, followTimes, since, table } from './rows.js';
import { isOver, mark } from './state.js';
import { watch } from './watch.js';

/** Rows that are shown before more are asked for. */
const ROWS_STEP = 100;
const OLDER_MAX = 500;

/** Shows the page in `root`: the experiments, or the runs of `name`. Returns `{ keys, refresh, leave }`. */
export function experimentsPage(root, name, live) {
  return name ? runsPage(root, name, live) : listPage(root, live);
}

function experimentPath(name) {
  return `#/experiments/${encodeURIComponent(name)}`;
}

/** The experiments of jobs, the one with the newest job first: `[{ name, jobs }]`. */
export function experimentsOf(jobs) {
  const found = new Map();
  for (const job of jobs) {
    if (job.experiment) found.set(job.experiment, [...(found.get(job.experiment) ?? []), job]);
  }
  const newest = ({ jobs: of }) => Math.max(...of.map(({ created_ms: at }) => at));
  return [...found].map(([name, of]) => ({ name, jobs: of })).sort((a, b) => newest(b) - newest(a));
}

function listPage(root, live) {
  const state = { jobs: null, error: null, selected: null };
  const count = h('p', { class: 'note', role: 'status' });
  const list = h('div', {});
  const page = h('div', {}, h('div', { class: 'page-head' }, h('h1', {}, 'Experiments'), count), list);
  patch(root, page);
  const all = () => experimentsOf([...(state.jobs ?? new Map()).values()]);

  function render() {
    if (!state.jobs) {
      patch(list, h('p', { class: 'empty' }, state.error ? `${state.error.message}.` : 'Looking…'));
      return;
    }
    const experiments = all();
    count.textContent = experiments.length ? `${experiments.length} in all` : '';
    if (!experiments.length) return patch(list, emptyExperiments());
    const line = ({ name, jobs }) => h(
      'tr',
      { 'data-key': name, class: state.selected === name ? 'selected' : null },
      h('th', { scope: 'row', class: 'name' }, h('a', { href: experimentPath(name) }, name)),
      cell('Jobs', 'figure', String(jobs.length)),
      cell('Unfinished', 'figure', String(jobs.filter(({ state: of }) => !isOver(of)).length)),
      cell('Failed', 'figure', String(jobs.filter(({ state: of }) => ['FAILED', 'TIMED_OUT'].includes(of)).length)),
      cell('Newest', '', since(Math.max(...jobs.map(({ created_ms: at }) => at)))),
    );
    patch(list, table('Experiments', 'grid jobs', ['Experiment', 'Jobs', 'Unfinished', 'Failed', 'Newest'], experiments.map(line)));
  }

  const stream = watch({
    changed(jobs) {
      state.jobs = jobs;
      render();
    },
    live: withError(state, render, live),
  });
  const move = (by) => {
    state.selected = neighbour(all().map(({ name }) => name), state.selected, by) ?? null;
    render();
    if (state.selected) page.querySelector('tr.selected a').focus();
  };
  const stopTimes = followTimes(page);
  render();
  return {
    keys: { j: () => move(1), k: () => move(-1) },
    looks: 'The server reports every change',
    refresh: stream.again,
    leave() {
      stream.stop();
      stopTimes();
    },
  };
}

function withError(state, render, live) {
  return (error) => {
    state.error = error;
    if (!state.jobs) render();
    live(error);
  };
}

function runsPage(root, name, live) {
  const state = {
    jobs: null, older: new Map(), cursor: null, error: null, filter: '', sort: { key: null, descending: true }, columns: storedColumns(name),
    picked: new Set(), selected: null, rows: ROWS_STEP, editor: shutEditor(),
  };
  const parts = frame(root, name);
  const { text, count, choices, chooser, bar, list, table, more, problem } = parts;

  const all = () => [...(state.jobs ?? new Map()).values(), ...state.older.values()]
    .filter(({ experiment }) => experiment === name)
    .sort((a, b) => (a.id < b.id ? 1 : -1));
  const picked = () => all().filter(({ id }) => state.picked.has(id));

  /** What is shown now: the columns, those chosen, and the rows in order. */
  function view() {
    const jobs = all();
    const columns = columnsOf(jobs);
    const chosen = state.columns ?? usualColumns(columns, jobs);
    const filter = parseFilter(state.filter, columns);
    const rows = filter.problem ? jobs : jobs.filter(filter.matches);
    const column = columns.find(({ key }) => key === state.sort.key);
    return { jobs, columns, chosen, problem: filter.problem, rows: sorted(rows, column, state.sort.descending) };
  }

  function render() {
    const { jobs, columns, chosen, problem: wrong, rows } = view();
    const none = jobs.length === 0;
    const rest = rows.length - state.rows;
    patch(
      more,
      rest > 0 && h('button', { type: 'button', class: 'quiet', 'data-click': 'more' }, `Show ${Math.min(rest, ROWS_STEP)} more`),
      rest <= 0 && state.cursor !== null && h('button', { type: 'button', class: 'quiet', 'data-click': 'older' }, 'Older runs'),
    );
    for (const part of [parts.filters, bar, table, chooser]) part.hidden = none;
    if (none) {
      patch(list, h('p', { class: 'empty' }, state.jobs ? `No job has the experiment ${name}.` : state.error ? `${state.error.message}.` : 'Looking…'));
      return;
    }
    count.textContent = rows.length === jobs.length ? `${jobs.length} runs` : `${rows.length} of ${jobs.length} runs`;
    problem.textContent = wrong ?? '';
    patch(list, rows.length === 0 && h('p', { class: 'empty' }, 'No run matches the filter.'));
    const visible = columns.filter(({ key }) => chosen.has(key));
    showSort(columns);
    showChooser(columns, chosen);
    // A run that is edited stays though the filter no longer fits it.
    const edited = rows.slice(0, state.rows).some(({ id }) => id === state.editor.id) ? null : jobs.find(({ id }) => id === state.editor.id);
    const lines = [edited, ...rows.slice(0, state.rows)].filter(Boolean).flatMap((job) => withEditor(job, visible, columns));
    patch(table, h('caption', { class: 'unseen' }, `Runs of ${name}`), head(visible), h('tbody', {}, lines));
    showBar();
  }

  /** On a narrow window there are no heads to sort by. */
  function showSort(columns) {
    const { key, descending } = state.sort;
    const option = (value, label) => h('option', { value, selected: value === (key ?? '') }, label);
    patch(
      choices,
      h('select', { 'data-change': 'sort', 'aria-label': 'Sort by' }, option('', 'Sort: newest first'), columns.map(({ key: of, label }) => option(of, `Sort: ${label}`))),
      key !== null && h('button', { type: 'button', class: 'quiet small', 'data-click': 'turn' }, descending ? 'Highest first' : 'Lowest first'),
    );
  }

  function showChooser(columns, chosen) {
    const box = ({ key, label }) => h('label', { class: 'check' }, h('input', { type: 'checkbox', 'data-change': 'column', value: key, checked: chosen.has(key) }), ` ${label}`);
    const groups = [...new Set(columns.map(({ group }) => group))];
    const fieldset = (title) => h('fieldset', { 'data-key': title }, h('legend', {}, title), columns.filter(({ group }) => group === title).map(box));
    patch(
      chooser,
      h('summary', {}, `Columns (${columns.filter(({ key }) => chosen.has(key)).length} of ${columns.length})`),
      h('div', { class: 'column-groups' }, groups.map(fieldset), h('button', { type: 'button', class: 'quiet small', 'data-click': 'usual' }, 'Usual columns')),
    );
  }

  function head(visible) {
    const sortable = ({ key, label }) => {
      const isSorted = state.sort.key === key;
      const order = isSorted ? (state.sort.descending ? 'descending' : 'ascending') : 'none';
      const sign = isSorted ? (state.sort.descending ? ' ↓' : ' ↑') : '';
      return h('th', { scope: 'col', 'aria-sort': order }, h('button', { type: 'button', class: 'sort', 'data-click': 'order', 'data-column': key }, `${label}${sign}`));
    };
    return h('thead', {}, h('tr', {}, h('th', { scope: 'col', class: 'pick' }, h('span', { class: 'unseen' }, 'Selected')), h('th', { scope: 'col' }, 'Run'), visible.map(sortable), h('th', { scope: 'col' }, 'Created'), h('th', { scope: 'col' }, h('span', { class: 'unseen' }, 'Edit'))));
  }

  function withEditor(job, visible, columns) {
    const tags = columns.filter(({ group }) => group === 'Tags').map(({ label }) => label);
    return state.editor.id === job.id ? [line(job, visible), editorRow(job, state.editor, visible.length + 4, tags)] : [line(job, visible)];
  }

  function line(job, visible) {
    const cell = (column) => {
      const value = column.value(job);
      const isMissing = value === undefined || value === '' || (value === null && column.group !== 'Metrics');
      const content = isMissing ? '–' : column.key === 'state' ? mark(value) : column.show(value);
      if (column.key === 'note') return h('td', { 'data-label': 'note', class: `why ${isMissing ? 'none' : ''}`.trim() }, isMissing ? '–' : h('div', { class: 'clipped', title: value }, value));
      const kind = `${typeof value === 'number' || column.group === 'Metrics' ? 'figure' : 'code'} ${isMissing ? 'none' : ''}`.trim();
      return h('td', { 'data-label': column.label, class: column.key === 'state' ? null : kind }, content);
    };
    return h(
      'tr',
      { 'data-key': job.id, 'data-job': job.name, class: state.selected === job.id ? 'selected' : null },
      h('td', { class: 'pick' }, h('input', { type: 'checkbox', 'data-change': 'pick', 'aria-label': `Select ${job.name}`, checked: state.picked.has(job.id) })),
      h('th', { scope: 'row', class: 'name' }, h('a', { href: `#/jobs/${encodeURIComponent(job.name)}` }, job.name)),
      visible.map(cell),
      h('td', { 'data-label': 'Created' }, since(job.created_ms)),
      h('td', { class: 'edit' }, h('button', { type: 'button', class: 'quiet small', 'data-click': 'edit', 'aria-label': `Edit tags and note of ${job.name}`, 'aria-expanded': String(state.editor.id === job.id) }, 'Edit')),
    );
  }

  function showBar() {
    const chosen = picked();
    patch(
      bar,
      chosen.length === 0
        ? h('span', { class: 'note', 'data-key': 'hint' }, 'Select two or more runs to compare them.')
        : [
          h('b', { 'data-key': 'count' }, `${chosen.length} selected`),
          h('button', { type: 'button', class: 'primary small', 'data-click': 'compare', disabled: chosen.length < 2, title: chosen.length < 2 ? 'Select two or more' : null }, 'Compare'),
          h('button', { type: 'button', class: 'quiet small', 'data-click': 'clear' }, 'Clear'),
        ],
    );
  }

  const members = membersView(parts.members, name, live);
  const stream = watch({
    changed(jobs, cursor) {
      state.jobs = jobs;
      for (const id of jobs.keys()) state.older.delete(id);
      if (state.older.size === 0) state.cursor = cursor;
      render();
    },
    live: withError(state, render, live),
  });
  const set = (change) => () => {
    change();
    render();
  };
  const pick = (id) => {
    if (!state.picked.delete(id)) state.picked.add(id);
    render();
  };
  const compare = () => {
    const chosen = picked();
    if (chosen.length > 1) location.hash = comparePath(chosen);
  };
  const editor = editing(state, {
    found: (id) => all().find((job) => job.id === id),
    changed: (job) => (state.older.has(job.id) ? state.older : state.jobs).set(job.id, job),
    render,
    row: (key) => table.querySelector(`tr[data-key="${CSS.escape(key)}"]`),
  });
  listen(parts.page, 'input', editor.input);
  listen(parts.page, 'keydown', editor.keydown);
  listen(parts.page, 'click', {
    ...editor.click,
    compare,
    clear: set(() => state.picked.clear()),
    more: set(() => { state.rows += ROWS_STEP; }),
    async older(button) {
      button.disabled = true;
      try {
        const answer = await ask('GET', `/api/v1/jobs?experiment=${encodeURIComponent(name)}&limit=${OLDER_MAX}&cursor=${state.cursor}`);
        for (const job of answer.jobs) state.older.set(job.id, job);
        state.cursor = answer.cursor;
        state.rows += ROWS_STEP;
      } catch (error) {
        live(error);
      }
      render();
    },
    turn: set(() => { state.sort.descending = !state.sort.descending; }),
    order(button) {
      const { column } = button.dataset;
      state.sort = { key: column, descending: state.sort.key === column ? !state.sort.descending : true };
      render();
      parts.page.querySelector(`[data-column="${CSS.escape(column)}"]`)?.focus();
    },
    usual() {
      state.columns = null;
      storeColumns(name, null);
      render();
    },
  });
  listen(parts.page, 'change', {
    pick: (element) => pick(element.closest('tr').dataset.key),
    sort({ value }) {
      state.sort = { key: value || null, descending: true };
      render();
    },
    column({ value, checked }) {
      const chosen = new Set(view().chosen);
      if (checked) chosen.add(value);
      else chosen.delete(value);
      state.columns = chosen;
      storeColumns(name, chosen);
      render();
    },
  });
  text.addEventListener('input', set(() => { state.filter = text.value; }));
  const move = (by) => {
    const ids = view().rows.slice(0, state.rows).map(({ id }) => id);
    if (!ids.length) return;
    state.selected = neighbour(ids, state.selected, by);
    render();
    table.querySelector('tr.selected a').focus();
  };
  const stopTimes = followTimes(parts.page);
  render();
  return {
    keys: { '/': () => text.focus(), j: () => move(1), k: () => move(-1), x: () => state.selected && pick(state.selected), t: () => state.selected && editor.edit(state.selected), c: compare },
    looks: 'The server reports every change',
    refresh() {
      stream.again();
      members.refresh();
    },
    leave() {
      stream.stop();
      members.leave();
      stopTimes();
    },
  };
}

function frame(root, name) {
  const parts = {
    text: h('input', { type: 'search', placeholder: 'loss < 0.1 tag:kind', 'aria-label': 'Filter runs by words, tags or comparisons', autocomplete: 'off', spellcheck: 'false' }),
    count: h('p', { class: 'note', role: 'status' }),
    choices: h('span', { class: 'toolbar choices' }),
    chooser: h('details', { class: 'chooser' }),
    bar: h('div', { class: 'toolbar order-bar', role: 'toolbar', 'aria-label': 'Selected runs' }),
    list: h('div', {}),
    problem: h('p', { class: 'reason', role: 'alert' }),
    members: h('section', { class: 'members', 'aria-label': 'Pipeline runs and sweeps', hidden: true }),
    table: h('table', { class: 'grid jobs runs' }),
    more: h('div', { class: 'more' }),
  };
  parts.filters = h('div', { class: 'filters' }, parts.choices, h('span', { class: 'filter' }, parts.text, h('kbd', { 'aria-hidden': 'true' }, '/')));
  const title = h('div', { class: 'page-head' }, h('h1', {}, name), parts.count, parts.filters);
  const crumb = h('p', { class: 'crumb' }, h('a', { href: '#/experiments' }, 'Experiments'));
  parts.page = h('div', {}, crumb, title, parts.members, parts.problem, parts.chooser, parts.bar, parts.list, h('div', { class: 'scroll' }, parts.table), parts.more);
  patch(root, parts.page);
  return parts;
}

function storageKey(name) {
  return `saggar-columns-${name}`;
}

/** The columns that were chosen for an experiment in this browser, or null. */
function storedColumns(name) {
  try {
    const found = JSON.parse(localStorage.getItem(storageKey(name)) ?? 'null');
    return Array.isArray(found) ? new Set(found) : null;
  } catch {
    return null;
  }
}

function storeColumns(name, columns) {
  try {
    if (columns) localStorage.setItem(storageKey(name), JSON.stringify([...columns]));
    else localStorage.removeItem(storageKey(name));
  } catch {
    // A browser that stores nothing forgets the choice with the page.
  }
}
