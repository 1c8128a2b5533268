// The form of a new notebook, on a server that allows notebooks.

import { ask } from './api.js';
import { bytesOf, messageProblem, nameProblem, secondsOf } from './checks.js';
import { runCommand } from './command.js';
import { h, patch } from './dom.js';
import { newestVersions } from './jobform.js';
import { WARNING } from './notebook.js';
import { formFields, formPart, formState, listenToForm, sideCard } from './submission.js';

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
  const state = { datasets: [], allowed: null, error: null, ...formState() };
  const form = h('form', { class: 'job-form', novalidate: true, 'aria-label': 'New notebook' });
  patch(root, h('p', { class: 'crumb' }, h('a', { href: '#/jobs' }, 'Jobs')), h('div', { class: 'page-head' }, h('h1', {}, 'New notebook')), form);

  function render() {
    if (state.allowed === null) return patch(form, h('p', { class: state.error ? 'reason' : 'empty' }, state.error ? `${state.error.message}.` : 'Looking…'));
    if (!state.allowed) return patch(form, h('p', { class: 'reason' }, 'This server allows no notebooks. Its operator can start it with ', h('code', {}, 'saggar serve --notebooks 2'), '.'));
    const { spec, problems } = readNotebook(state.values);
    const side = {
      command: runCommand(spec, null),
      notes: h('p', { class: 'note', id: 'warning' }, WARNING),
      label: 'Start the notebook',
      'aria-describedby': 'warning',
    };
    return patch(form, h('div', { class: 'form-parts', 'data-key': 'parts' }, part(formFields(state, problems))), sideCard(state, problems, side));
  }

  function part({ choice, text }) {
    const newest = newestVersions(state.datasets).map(({ name }) => name).sort();
    const options = [['', 'none'], ...newest.map((name) => [name, `${name}, the newest version`]), ...state.datasets.map(({ name, version }) => [`${name}/${version}`, `${name}/${version}`])];
    return formPart(
      'Notebook',
      text('project', 'Project', { placeholder: 'notebook', help: 'Jobs are numbered in their project.' }),
      choice('data', 'Dataset', options, `Readable at ${MOUNT} as .npy files.`),
      text('idle_timeout', 'Idle timeout', { placeholder: '1h', help: 'It stops after this time without a running cell, a used terminal or a saved document.' }),
      text('memory_bytes', 'Memory limit', { placeholder: '4GiB', help: 'It ends when its programs use more.' }),
      text('secrets', 'Secrets', { placeholder: 'none', help: 'Names, with commas. Each is an environment variable of the notebook.' }),
      text('message', 'Message', { help: 'What it is for.' }),
    );
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

  const read = () => readNotebook(state.values);
  listenToForm(form, state, { read, path: '/api/v1/jobs', made: { verb: 'submitted', page: 'jobs' }, render, live });
  render();
  load();
  return { keys: {}, looks: '', refresh: load, leave() {} };
}
