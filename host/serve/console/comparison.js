// Things of one kind side by side, whatever the names are: jobs, pipeline runs or sweeps.

import { ask } from './api.js';
import { comparePage } from './compare.js';
import { h, listen, patch } from './dom.js';
import { pollInto } from './poll.js';
import { runGroups, sweepGroups } from './sides.js';

const EVERY_MS = 5000;

/** What is shown of each kind: its title, where its things are listed and shown, and the rows of its table. */
const KINDS = {
  'pipeline-run': {
    title: 'pipeline runs', link: 'pipelines', list: 'Pipelines', names: ({ pipeline_runs: of }) => of.runs.map(({ name }) => name), groups: ({ pipeline_runs: of }) => runGroups(of),
  },
  sweep: { title: 'sweeps', link: 'sweeps', list: 'Sweeps', names: ({ sweeps: of }) => of.sweeps.map(({ name }) => name), groups: ({ sweeps: of }) => sweepGroups(of) },
};

/** Shows the page in `root` for these names; `kind` is what they are, or null. Returns `{ keys, refresh, leave }`. */
export function comparisonPage(root, names, kind, live) {
  const state = { found: null, error: null, all: false };
  const page = h('div', {});
  let jobs = null;
  patch(root, page);

  function render() {
    if (jobs) return;
    const { found, error } = state;
    if (found?.kind === 'job') {
      look.stop();
      // Its elements have listeners, so they must not be taken over by those of this page.
      root.replaceChildren();
      jobs = comparePage(root, names, live);
      return;
    }
    const known = KINDS[found?.kind];
    if (!known) {
      const text = error ? `${error.message}.` : found ? `This page cannot show ${found.kind}.` : 'Looking…';
      patch(page, h('h1', {}, 'Compare'), h('p', { class: error ? 'reason' : 'empty', role: error ? 'alert' : null }, text), error?.hint && h('p', { class: 'note' }, error.hint));
      return;
    }
    const columns = known.names(found);
    patch(
      page,
      h('p', { class: 'crumb', 'data-key': 'crumb' }, h('a', { href: `#/${known.link}` }, known.list)),
      h('div', { class: 'page-head', 'data-key': 'head' }, h('h1', {}, `Compare ${columns.length} ${known.title}`)),
      table(known, columns, known.groups(found), state.all),
    );
  }

  const path = `/api/v1/compare?names=${names.map(encodeURIComponent).join(',')}${kind ? `&kind=${kind}` : ''}`;
  const look = pollInto(state, async () => ({ found: await ask('GET', path) }), {
    render,
    // Names that cannot be compared are shown on the page.
    live: (error) => jobs || live([400, 404].includes(error?.status) ? null : error),
  }, EVERY_MS);
  listen(page, 'change', {
    all({ checked }) {
      state.all = checked;
      render();
    },
  });
  render();
  return {
    keys: {},
    refresh: () => (jobs ?? { refresh: look.now }).refresh(),
    leave() {
      look.stop();
      jobs?.leave();
    },
  };
}

/** The table: a column for each name, and groups of rows as `[title, [[name, cells, differs]], text without rows]`. */
function table(known, names, groups, all) {
  const row = ([name, cells, differs]) => h(
    'tr',
    { 'data-key': name },
    h('th', { scope: 'row' }, name),
    cells.map((cell) => h('td', { class: differs ? 'differs' : null }, cell ?? h('span', { class: 'note' }, '–'))),
  );
  const group = ([title, rows, none]) => {
    const visible = rows.filter(([, , differs]) => all || differs !== false);
    if (!visible.length && !none) return null;
    return h(
      'tbody',
      { 'data-key': title },
      h('tr', { class: 'group' }, h('th', { colspan: names.length + 1, scope: 'rowgroup' }, title)),
      visible.length ? visible.map(row) : h('tr', {}, h('td', { colspan: names.length + 1, class: 'note' }, none)),
    );
  };
  const head = (name) => h('th', { scope: 'col' }, h('a', { href: `#/${known.link}/${encodeURIComponent(name)}` }, name));
  return h(
    'section',
    { class: 'card', 'aria-label': 'Comparison', 'data-key': 'table' },
    h(
      'div',
      { class: 'section-head' },
      h('h2', {}, all ? 'Everything' : 'What differs'),
      h('label', { class: 'check' }, h('input', { type: 'checkbox', 'data-change': 'all', checked: all }), ' Also what is the same'),
    ),
    h('div', { class: 'scroll' }, h('table', { class: 'sides' }, h('thead', {}, h('tr', {}, h('td', {}), names.map(head))), groups.map(group))),
  );
}
