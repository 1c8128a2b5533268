// The page of models: what there is, what state it is in, and what can be done about it.

import { actions } from './actions.js';
import { ask } from './api.js';
import { showCard } from './card.js';
import { h, listen, neighbour, patch } from './dom.js';
import { emptyModels } from './empty.js';
import { save } from './files.js';
import { panel } from './panel.js';
import { followPast } from './past.js';
import { pollInto } from './poll.js';
import { readable, shownCharts } from './timeline.js';
import { timelinesPicture } from './timelinepng.js';
import * as traffic from './traffic.js';

const EVERY_MS = 2000;
/** So few models are filtered opened. */
const OPEN_MAX = 2;
/** The series of all models. */
const MODEL_SERIES = ['requests_per_second', 'errors_per_second', 'latency_p50_seconds', 'latency_p99_seconds', 'batch_items', 'queue_length']
  .map((name) => `series=model_${name}`).join('&');

/**
 * Shows the page in `root` until the returned `leave` is called. `opened` is the model to open, or ''. `live` is called with
 * `(error or null)` after every look at the server.
 */
export function modelsPage(root, opened, live) {
  const state = {
    models: null,
    error: null,
    filter: '',
    /** Models that were opened or closed by hand. */
    open: new Map(opened ? [[opened, true]] : []),
    selected: opened || null,
    drafts: new Map(),
    /** Models all of whose versions are filtered. */
    all: new Set(),
    busy: new Set(),
  };

  const list = h('div', { id: 'list' });
  const filter = h('input', {
    id: 'filter', type: 'search', placeholder: 'Filter', 'aria-label': 'Filter models by name or state', autocomplete: 'off', spellcheck: 'false',
  });
  const count = h('p', { class: 'note', id: 'count', role: 'status' });
  patch(
    root,
    h('div', { class: 'page-head' }, h('h1', {}, 'Models'), count, h('span', { class: 'filter' }, filter, h('kbd', { 'aria-hidden': 'true' }, '/'))),
    list,
  );

  const filtered = () => {
    const wanted = state.filter.toLowerCase();
    return (state.models ?? []).filter(({ name, state: is = '' }) => `${name} ${is}`.toLowerCase().includes(wanted));
  };
  const isOpen = (name) => state.open.get(name) ?? (state.models ?? []).length <= OPEN_MAX;

  readable(list);
  /** The history is asked for while a model is open, and of that model alone where it is only one. */
  const wantedPast = () => {
    const open = filtered().filter(({ name }) => isOpen(name));
    if (open.length === 0) return null;
    return open.length === 1 ? `model=${encodeURIComponent(open[0].name)}` : MODEL_SERIES;
  };
  let pastAsked = null;
  const past = followPast(wantedPast, render);

  function render() {
    const { models, error } = state;
    if (!models) {
      patch(list, h('p', { class: 'empty' }, error ? said(error) : 'Looking…'));
      return;
    }
    const visible = filtered();
    count.textContent = models.length === visible.length ? '' : `${visible.length} of ${models.length}`;
    filter.parentElement.hidden = models.length === 0;
    if (models.length === 0) patch(list, emptyModels());
    else if (visible.length === 0) patch(list, h('p', { class: 'empty' }, `No model’s name or state has “${state.filter}”.`));
    else {
      const view = (model) => panel(model, {
        open: isOpen(model.name),
        selected: state.selected === model.name,
        busy: state.busy.has(model.name),
        draft: traffic.draft(model, state.drafts),
        all: state.all.has(model.name),
        samples: past.samples(),
        span: past.span(),
      });
      patch(list, columns(), visible.map(view));
    }
    if (pastAsked === wantedPast()) return;
    pastAsked = wantedPast();
    past.refresh();
  }

  const look = pollInto(state, () => ask('GET', '/api/v1/models'), { render, live }, EVERY_MS);

  const find = (element) => state.models.find(({ name }) => name === element.closest('[data-model]').dataset.model);
  const toggle = (name) => {
    state.open.set(name, !isOpen(name));
    state.selected = name;
    render();
  };
  const act = (action) => async (element) => {
    const model = find(element);
    const work = await action(model, element.dataset);
    if (!work) return;
    state.busy.add(model.name);
    render();
    try {
      await work();
    } finally {
      state.busy.delete(model.name);
      await look.now();
    }
  };
  const edit = (change) => (element) => {
    change(find(element), state.drafts, element);
    render();
  };

  listen(list, 'click', {
    toggle: (element) => toggle(element.closest('[data-model]').dataset.model),
    async picture(element) {
      const { name } = find(element);
      save(await timelinesPicture(shownCharts(`${name} `), name), `${name}.png`);
    },
    card: (element) => showCard(find(element).name, Number(element.dataset.version)),
    reset: edit(traffic.reset),
    all: edit(({ name }) => state.all.delete(name) || state.all.add(name)),
    ...Object.fromEntries(Object.entries(actions(state.drafts)).map(([name, action]) => [name, act(action)])),
  });
  listen(list, 'input', { share: edit(traffic.change) });
  listen(list, 'change', {
    span: ({ value }) => {
      past.choose(value);
      render();
    },
  });
  filter.addEventListener('input', () => {
    state.filter = filter.value;
    render();
  });

  const move = (by) => {
    const names = filtered().map(({ name }) => name);
    if (!names.length) return;
    state.selected = neighbour(names, state.selected, by);
    render();
    const row = list.querySelector(`[data-model="${CSS.escape(state.selected)}"]`);
    row.scrollIntoView({ block: 'nearest' });
    row.querySelector('[data-click="toggle"]').focus({ preventScroll: true });
  };
  return {
    keys: {
      '/': () => filter.focus(),
      j: () => move(1),
      k: () => move(-1),
      p: () => {
        if (state.selected) location.hash = `#/playground/${encodeURIComponent(state.selected)}`;
      },
    },
    looks: 'Refreshed every two seconds',
    refresh: () => Promise.all([look.now(), past.refresh()]),
    leave() {
      look.stop();
      past.leave();
    },
  };
}

function said({ status, message, hint }) {
  return [status ? `The server says: ${message}.` : `${message[0].toUpperCase()}${message.slice(1)}.`, hint && h('span', { class: 'note' }, ` ${hint}.`)];
}

/** The names of the columns; each panel says them again for those who cannot see the table. */
function columns() {
  const names = ['Model', 'State', 'Answers', 'On device', 'Last change'];
  return h('div', { class: 'columns', 'aria-hidden': 'true', 'data-key': 'columns' }, names.map((name) => h('span', {}, name)));
}
