// The form of a new notebook, on a server that allows notebooks.

import { ask, failure, send } from './api.js';
import { bytesOf, messageProblem, nameProblem, secondsOf } from './checks.js';
import { runCommand } from './command.js';
import { note } from './dialogs.js';
import { h, listen, patch } from './dom.js';
import { fieldOfError } from './jobform.js';
import { WARNING } from './notebook.js';

/** The queue of notebooks, which a server has if it allows them. */
export const NOTEBOOK_QUEUE = 'notebooks';
const MOUNT = '/data';

/** The specification that the form says, and what is wrong with its fields: `{ spec, problems }`. */
export function readNotebook(values) {
  const problems = {};
  const say = (field, problem) => {
    if (problem) problems[field] ??= problem;
  };
  const text = (field) => (values[field] ?? '').trim();
  const spec = { project: text('project') || 'notebook', notebook: {} };
  say('project', nameProblem('project', spec.project));
  if (text('data')) {
    const [dataset, version] = text('data').split('/');
    spec.data = [version ? { dataset, version: Number(version), mount: MOUNT } : { dataset, mount: MOUNT }];
  }
  if (text('idle_timeout')) {
    const seconds = secondsOf(text('idle_timeout'));
    if (!(seconds > 0)) say('idle_timeout', `idle_timeout: expected a time above 0 with a unit, such as 90s, 10m or 1h, got ${text('idle_timeout')}`);
    else spec.notebook.idle_timeout_seconds = seconds;
  }
  if (text('memory_bytes')) {
    const bytes = bytesOf(text('memory_bytes'));
    if (!(bytes >= 1)) say('memory_bytes', `memory_bytes: expected a size with a unit, such as 512MiB or 4GiB, got ${text('memory_bytes')}`);
    else spec.memory_bytes = bytes;
  }
  const secrets = text('secrets').split(/[\s,]+/).filter(Boolean);
  for (const name of secrets) say('secrets', nameProblem('secrets', name));
  if (secrets.length) spec.secrets = secrets;
  if (text('message')) {
    say('message', messageProblem(text('message')));
    spec.message = text('message');
  }
  return { spec, problems };
}

/** Shows the form in `root`. */
export function newNotebookPage(root, live) {
  const state = { values: {}, datasets: [], allowed: null, error: null, touched: new Set(), tried: false, refused: null, busy: false };
  const form = h('form', { class: 'job-form', novalidate: true, 'aria-label': 'New notebook' });
  patch(root, h('p', { class: 'crumb' }, h('a', { href: '#/jobs' }, 'Jobs')), h('div', { class: 'page-head' }, h('h1', {}, 'New notebook')), form);

  function render() {
    if (state.allowed === null) return patch(form, h('p', { class: state.error ? 'reason' : 'empty' }, state.error ? `${state.error.message}.` : 'Looking…'));
    if (!state.allowed) return patch(form, h('p', { class: 'reason' }, 'This server allows no notebooks. Its operator can start it with ', h('code', {}, 'saggar serve --notebooks 2'), '.'));
    const { spec, problems } = readNotebook(state.values);
    return patch(form, h('div', { class: 'form-parts', 'data-key': 'parts' }, part(problems)), sideCard(spec, problems));
  }

  function part(problems) {
    const field = (name, label, help, control) => {
      const problem = state.refused?.field === name ? state.refused.message : state.tried || state.touched.has(name) ? problems[name] : null;
      const attributes = { id: `f-${name}`, name, 'aria-invalid': problem ? 'true' : null, 'aria-describedby': problem ? `p-${name}` : `h-${name}`, 'data-input': 'set', 'data-focusout': 'leave' };
      return h(
        'div',
        { class: problem ? 'form-field wrong' : 'form-field', 'data-key': name, 'data-field': name },
        h('label', { for: `f-${name}` }, label),
        control(attributes),
        h('p', { class: 'note', id: `h-${name}` }, help),
        problem && h('p', { class: 'reason', id: `p-${name}` }, problem),
      );
    };
    const text = (name, label, placeholder, help) => field(name, label, help, (attributes) => h('input', { autocomplete: 'off', spellcheck: 'false', placeholder, value: state.values[name] ?? '', ...attributes }));
    const newest = new Map();
    for (const one of state.datasets) if (!(newest.get(one.name)?.version > one.version)) newest.set(one.name, one);
    const options = [['', 'none'], ...[...newest.keys()].sort().map((name) => [name, `${name}, the newest version`]), ...state.datasets.map(({ name, version }) => [`${name}/${version}`, `${name}/${version}`])];
    return h(
      'fieldset',
      { class: 'card form-part', 'data-key': 'fields' },
      h('legend', {}, 'Notebook'),
      text('project', 'Project', 'notebook', 'Jobs are numbered in their project.'),
      field('data', 'Dataset', `Readable at ${MOUNT} as .npy files.`, (attributes) => h('select', attributes, options.map(([value, label]) => h('option', { value, selected: (state.values.data ?? '') === value }, label)))),
      text('idle_timeout', 'Idle timeout', '1h', 'It stops after this time without a running cell, a used terminal or a saved document.'),
      text('memory_bytes', 'Memory limit', '4GiB', 'It ends when its programs use more.'),
      text('secrets', 'Secrets', 'none', 'Names, with commas. Each is an environment variable of the notebook.'),
      text('message', 'Message', '', 'What it is for.'),
    );
  }

  function sideCard(spec, problems) {
    const count = Object.keys(problems).length;
    const unplaced = state.refused && !state.refused.field ? state.refused : null;
    return h(
      'aside',
      { class: 'card form-side', 'data-key': 'side', 'aria-label': 'Command and submission' },
      h('h2', {}, 'The same as a command'),
      h('pre', { class: 'wrap' }, h('code', { id: 'command' }, runCommand(spec, null))),
      h('p', { class: 'note', id: 'warning' }, WARNING),
      unplaced && h('p', { class: 'reason', role: 'alert' }, unplaced.message, unplaced.hint && h('span', { class: 'note' }, ` ${unplaced.hint}`)),
      h('p', { class: 'note', role: 'status' }, state.tried && count ? `${count} ${count === 1 ? 'field needs' : 'fields need'} a change.` : ''),
      h('button', { class: 'primary', disabled: state.busy, 'aria-describedby': 'warning' }, state.busy ? 'Sending…' : 'Start the notebook'),
    );
  }

  async function submit() {
    const { spec, problems } = readNotebook(state.values);
    Object.assign(state, { tried: true, refused: null });
    render();
    if (Object.keys(problems).length) return form.querySelector('.wrong input, .wrong select')?.focus();
    state.busy = true;
    render();
    try {
      const response = await send('/api/v1/jobs', { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(spec) });
      if (!response.ok) throw await failure(response);
      const made = await response.json();
      note(`${made.name} is submitted.`);
      location.hash = `#/jobs/${encodeURIComponent(made.name)}`;
    } catch (error) {
      const fields = [...form.querySelectorAll('[data-field]')].map((element) => element.dataset.field);
      state.refused = { message: error.message, hint: error.hint, field: fieldOfError(error.message, fields) };
      state.busy = false;
      render();
      live(error.status === 0 ? error : null);
    }
  }

  async function load() {
    try {
      const { queues } = await ask('GET', '/api/v1/queues');
      state.allowed = queues.some(({ name }) => name === NOTEBOOK_QUEUE);
      state.error = null;
    } catch (error) {
      state.error = error;
    }
    try {
      state.datasets = (await ask('GET', '/api/v1/datasets')).datasets;
    } catch {
      // What the key may not see cannot be chosen.
    }
    live(state.error);
    render();
  }

  listen(form, 'input', {
    set({ name, value }) {
      state.values[name] = value;
      state.refused = null;
      render();
    },
  });
  listen(form, 'focusout', {
    leave({ name, value }) {
      if (value === '') return;
      state.touched.add(name);
      render();
    },
  });
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    if (!state.busy) submit();
  });
  render();
  load();
  return { keys: {}, looks: '', refresh: load, leave() {} };
}
