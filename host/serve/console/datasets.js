// The page of datasets: their versions, what is in them, and which jobs use them.

import { ask, datasetPath } from './api.js';
import { confirm, note } from './dialogs.js';
import { h, listen, neighbour, patch } from './dom.js';
import { dropArea } from './droparea.js';
import { emptyDatasets } from './empty.js';
import { fetchable } from './files.js';
import { bytes, short } from './format.js';
import { hasLineage, lineageOfDataset, lineageRow } from './lineage.js';
import { pollInto } from './poll.js';
import { since } from './rows.js';

const EVERY_MS = 5000;
/** Jobs that are named of those that use a version. */
const USERS_SHOWN = 5;

/** Shows the page in `root` until the returned `leave` is called; `wanted` is the dataset to show first, or ''. */
export function datasetsPage(root, wanted, live) {
  const state = { datasets: null, models: [], error: null, filter: wanted, selected: wanted || null };
  const list = h('div', { class: 'cards' });
  const filter = h('input', {
    type: 'search', placeholder: 'Filter', 'aria-label': 'Filter datasets by name or field', autocomplete: 'off', spellcheck: 'false', value: wanted,
  });
  const filters = h('span', { class: 'filter' }, filter, h('kbd', { 'aria-hidden': 'true' }, '/'));
  const count = h('p', { class: 'note', id: 'count', role: 'status' });
  const page = h('div', {}, h('div', { class: 'page-head' }, h('h1', {}, 'Datasets'), count, filters));
  const drop = dropArea(page, () => look.now());
  page.append(drop.element, list);
  patch(root, page);
  fetchable(page);

  const filtered = () => grouped(state.datasets ?? []).filter(([name, versions]) => {
    const text = [name, ...versions.flatMap(({ fields }) => fields.map((field) => field.name))].join(' ');
    return text.toLowerCase().includes(state.filter.toLowerCase());
  });

  function render() {
    if (!state.datasets) {
      patch(list, h('p', { class: 'empty' }, state.error ? `${state.error.message}.` : 'Looking…'));
      return;
    }
    const visible = filtered();
    const whole = state.datasets.reduce((sum, { bytes: size }) => sum + size, 0);
    count.textContent = state.datasets.length ? `${visible.length} shown, ${bytes(whole)} in all` : '';
    filters.hidden = state.datasets.length === 0;
    if (state.datasets.length === 0) patch(list, emptyDatasets());
    else if (visible.length === 0) patch(list, h('p', { class: 'empty' }, `No dataset’s name or field has “${state.filter}”.`));
    else patch(list, visible.map(([name, versions]) => card(name, versions, state)));
  }

  const look = pollInto(state, async () => {
    const [{ datasets }, { models }] = await Promise.all([ask('GET', '/api/v1/datasets'), ask('GET', '/api/v1/models')]);
    return { datasets, models: models ?? [] };
  }, { render, live }, EVERY_MS);

  filter.addEventListener('input', () => {
    state.filter = filter.value;
    render();
  });
  listen(list, 'click', {
    async remove({ dataset: { name, version } }) {
      const agreed = await confirm({
        title: `Delete ${name}/${version}?`,
        text: 'Its content is deleted permanently, except what other versions share. A version that a job needs is not deleted.',
        yes: 'Delete',
        danger: true,
      });
      if (!agreed) return;
      try {
        await ask('DELETE', datasetPath(name, version));
        note(`Deleted ${name}/${version}.`);
      } catch (error) {
        note(error.message, error);
      }
      await look.now();
    },
  });
  const move = (by) => {
    const names = filtered().map(([name]) => name);
    if (!names.length) return;
    state.selected = neighbour(names, state.selected, by);
    render();
    const found = list.querySelector(`[data-key="dataset ${CSS.escape(state.selected)}"]`);
    found.focus({ preventScroll: true });
    found.scrollIntoView({ block: 'nearest' });
  };
  return {
    keys: { '/': () => filter.focus(), j: () => move(1), k: () => move(-1), n: drop.choose },
    looks: 'Refreshed every five seconds',
    refresh: look.now,
    leave() {
      look.stop();
      drop.leave();
    },
  };
}

/** Versions by dataset, the newest first: `[[name, versions]]`. */
function grouped(datasets) {
  const found = new Map();
  for (const one of datasets) found.set(one.name, [...(found.get(one.name) ?? []), one]);
  for (const versions of found.values()) versions.sort((a, b) => b.version - a.version);
  return [...found].sort(([a], [b]) => (a < b ? -1 : 1));
}

function card(name, versions, state) {
  const found = lineageOfDataset(name, versions, state);
  const [newest] = versions;
  const names = ['Version', 'Items', 'Parts', 'Size', 'Made', 'Used by', ''];
  return h(
    'article',
    { class: state.selected === name ? 'card selected' : 'card', 'data-key': `dataset ${name}`, tabindex: -1, 'aria-label': `Dataset ${name}` },
    h('div', { class: 'section-head' }, h('h2', {}, name), h('code', { class: 'note' }, `--data ${name}`)),
    fields(newest),
    h(
      'table',
      { class: 'grid' },
      h('caption', { class: 'unseen' }, `Versions of ${name}`),
      h('thead', {}, h('tr', {}, names.map((label) => h('th', { scope: 'col' }, label || h('span', { class: 'unseen' }, 'Actions'))))),
      h('tbody', {}, versions.map((version) => line(name, version, newest))),
    ),
    hasLineage(found) && lineageRow(found, `Lineage of ${name}`),
  );
}

function fields({ fields: of }) {
  const field = ({ name, dtype, shape, classes }) => h(
    'li',
    {},
    h('b', {}, name),
    ` ${dtype}${shape.length ? ` [${shape.join(', ')}]` : ''}${counted(classes)}`,
  );
  return h('ul', { class: 'fields-list', 'aria-label': 'Fields' }, of.map(field));
}

function counted(classes) {
  const count = Array.isArray(classes) ? classes.length : classes;
  return count ? `, ${count} classes` : '';
}

function line(name, version, newest) {
  const { version: number, items, splits, bytes: size, digest, created_ms: made, fields: of } = version;
  const other = JSON.stringify(of) === JSON.stringify(newest.fields) ? null : fields(version);
  const cell = (label, ...content) => h('td', { 'data-label': label }, content);
  const href = datasetPath(name, number, 'export');
  const file = `${name}-${number}.tar`;
  return h(
    'tr',
    { 'data-key': `version ${number}` },
    h('th', { scope: 'row' }, `${name}/${number}`, h('div', { class: 'note' }, h('code', { title: digest }, short(digest))), other),
    cell('Items', items.toLocaleString('en')),
    cell('Parts', Object.entries(splits).map(([part, count]) => h('div', {}, `${part} ${count.toLocaleString('en')}`))),
    cell('Size', bytes(size)),
    cell('Made', since(made)),
    h('td', { 'data-label': 'Used by', class: 'used' }, users(version)),
    h(
      'td',
      { class: 'row-actions' },
      h(
        'div',
        {},
        h('a', { class: 'button small quiet', href, download: file, 'data-file': file }, 'Export', h('span', { class: 'unseen' }, ` ${file}`)),
        h('button', {
          type: 'button', class: 'quiet small danger-text', 'data-click': 'remove', 'data-name': name, 'data-version': number, 'aria-label': `Delete ${name}/${number}`,
        }, 'Delete…'),
      ),
    ),
  );
}

function users({ used_by: active, was_used_by: finished }) {
  if (!active) return '–';
  const jobs = [...active, ...(finished ?? [])];
  if (!jobs.length) return 'no job';
  const links = jobs.slice(0, USERS_SHOWN).map((job) => h('a', { href: `#/jobs/${encodeURIComponent(job)}` }, job));
  const rest = jobs.length - USERS_SHOWN;
  return [links.flatMap((link, at) => (at ? [', ', link] : [link])), rest > 0 && ` and ${rest} more`];
}
