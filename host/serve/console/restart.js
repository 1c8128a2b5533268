// The dialog that starts a job again, with other parameters or with none changed.

import { ask, jobPath } from './api.js';
import { note, open } from './dialogs.js';
import { h } from './dom.js';

/** Fields of the specification that are often changed beside the parameters. */
const OVERRIDES = ['seed', 'device', 'retry', 'queue', 'priority', 'message'];

/** Asks what to change, starts the new job and shows it. */
export async function restart(job) {
  const spec = job.spec ?? {};
  const parameters = Object.entries(spec.parameters ?? {}).map(([name, value]) => field('parameter', name, value));
  const others = OVERRIDES.filter((name) => spec[name] !== undefined && spec[name] !== null).map((name) => field('override', name, spec[name]));
  const json = h('textarea', { id: 'restart-json', class: 'code', rows: 4, spellcheck: 'false', placeholder: '{"parameters": {"epochs": 20}, "seed": 1}' });
  // As the server does where nothing is said.
  const resumes = job.state !== 'SUCCEEDED' && job.step > 0;
  const problem = h('p', { class: 'reason', role: 'alert', hidden: true });
  const body = [
    h('p', {}, 'A new job with the same plugin and data. Parameters that you do not change stay the same.'),
    parameters.length > 0 && h('fieldset', { class: 'fields' }, h('legend', {}, 'Parameters'), parameters.map(({ element }) => element)),
    h('fieldset', { class: 'fields' }, h('legend', {}, 'Job'), others.map(({ element }) => element)),
    h(
      'details',
      {},
      h('summary', {}, 'More, as JSON'),
      h('label', { for: 'restart-json', class: 'unseen' }, 'Other fields of the specification, as JSON'),
      json,
    ),
    h(
      'fieldset',
      { class: 'ways' },
      h('legend', {}, 'Starting point'),
      way('scratch', 'From scratch', !resumes),
      way('resume', 'From the last checkpoint', resumes),
    ),
    problem,
  ];
  const read = (form) => ({ ...changes(parameters, others, json.value), resume: form.elements.way.value === 'resume' });
  const check = (form) => {
    try {
      read(form);
      return true;
    } catch (error) {
      problem.textContent = error.message;
      problem.hidden = false;
      return false;
    }
  };
  body.forEach((part) => part && part.addEventListener('input', () => { problem.hidden = true; }));
  const order = await open({ title: `Restart ${job.name} with…`, body, yes: 'Start', read, check, wide: true });
  if (!order) return;
  try {
    const started = await ask('POST', jobPath(job.name, 'restart'), order);
    note(`${started.name} is started.`);
    location.hash = `#/jobs/${encodeURIComponent(started.name)}`;
  } catch (error) {
    note(error.message, error);
  }
}

function way(value, text, checked) {
  return h('label', { class: 'check' }, h('input', { type: 'radio', name: 'way', value, checked }), ` ${text}`);
}

/** A control for a value of any JSON type, which says what was made of it: `{ name, element, value, before }`. */
function field(kind, name, before) {
  const id = `${kind}-${name}`;
  const attributes = { id, name: id, autocomplete: 'off', spellcheck: 'false' };
  if (typeof before === 'boolean') {
    const input = h('input', { ...attributes, type: 'checkbox', checked: before });
    return { name, before, element: h('div', { class: 'pair' }, h('label', { for: id }, name), input), value: () => input.checked };
  }
  const text = typeof before === 'string' ? before : JSON.stringify(before);
  const input = h('input', { ...attributes, value: text, inputmode: typeof before === 'number' ? 'decimal' : null, class: typeof before === 'object' ? 'code' : null });
  const value = () => {
    if (typeof before === 'string') return input.value;
    try {
      const given = JSON.parse(input.value);
      if (typeof before !== 'number' || typeof given === 'number') return given;
    } catch {
      // Said below.
    }
    throw new Error(`${name}: expected ${typeof before === 'number' ? 'a number' : 'JSON'}, got “${input.value}”`);
  };
  return { name, before, element: h('div', { class: 'pair' }, h('label', { for: id }, name), input), value };
}

/** What differs from the job: `{ parameters, overrides }`. Throws an error that says which field cannot be read. */
export function changes(parameters, others, json) {
  const changed = (fields) => Object.fromEntries(
    fields.map((one) => [one.name, one.value(), one.before]).filter(([, now, before]) => JSON.stringify(now) !== JSON.stringify(before)),
  );
  let more = {};
  if (json.trim()) {
    try {
      more = JSON.parse(json);
    } catch (error) {
      throw new Error(`the JSON cannot be read: ${error.message}`);
    }
    if (typeof more !== 'object' || more === null || Array.isArray(more)) throw new Error('the JSON must be an object, such as {"seed": 1}');
  }
  const { parameters: moreParameters = {}, ...overrides } = more;
  return { parameters: { ...changed(parameters), ...moreParameters }, overrides: { ...changed(others), ...overrides } };
}
