// What the forms of jobs, sweeps and notebooks share: fields that show what is wrong with them, and sending.

import { failure, send } from './api.js';
import { note } from './dialogs.js';
import { h, listen } from './dom.js';
import { fieldOfError } from './jobform.js';

/** What a form knows: `values` by field, the fields that were left (`touched`), whether sending was tried, and what the server refused. */
export function formState() {
  return { values: {}, touched: new Set(), tried: false, refused: null, busy: false };
}

/** Makes fields: each shows what is wrong with it once it was left or sending was tried, and what the server refused. */
export function formFields(state, problems) {
  const problemOf = (name) => {
    if (state.refused?.field === name) return state.refused.message;
    return state.tried || state.touched.has(name) ? problems[name] : null;
  };
  const framed = (name, label, control, help) => {
    const problem = problemOf(name);
    return h(
      'div',
      { class: problem ? 'form-field wrong' : 'form-field', 'data-key': name, 'data-field': name },
      h('label', { for: `f-${name}` }, label),
      control({ id: `f-${name}`, name, 'aria-invalid': problem ? 'true' : null, 'aria-describedby': problem ? `p-${name}` : help ? `h-${name}` : null, 'data-input': 'set', 'data-focusout': 'leave' }),
      help && h('p', { class: 'note', id: `h-${name}` }, help),
      problem && h('p', { class: 'reason', id: `p-${name}` }, problem),
    );
  };
  return {
    problemOf,
    text: (name, label, { help, ...more } = {}) => framed(name, label, (attributes) => h('input', { autocomplete: 'off', spellcheck: 'false', value: state.values[name] ?? '', ...attributes, ...more }), help),
    choice: (name, label, options, help) => framed(name, label, (attributes) => h('select', attributes, options.map(([value, text]) => h('option', { value, selected: (state.values[name] ?? '') === value }, text))), help),
    area: (name, label, { help, ...more }) => framed(name, label, (attributes) => h('textarea', { rows: 2, spellcheck: 'false', ...attributes, ...more }, state.values[name] ?? ''), help),
  };
}

/** A part of a form with its title. */
export function formPart(title, ...content) {
  return h('fieldset', { class: 'card form-part', 'data-key': title }, h('legend', {}, title), content);
}

/** The card beside a form: the same as a command, notes, what the server refused without naming a field, and the button. */
export function sideCard(state, problems, { command, notes, label, ...button }) {
  const count = Object.keys(problems).length;
  const unplaced = state.refused && !state.refused.field ? state.refused : null;
  return h(
    'aside',
    { class: 'card form-side', 'data-key': 'side', 'aria-label': 'Command and submission' },
    h('h2', {}, 'The same as a command'),
    h('pre', { class: 'wrap' }, h('code', { id: 'command' }, command)),
    notes,
    unplaced && h('p', { class: 'reason', role: 'alert' }, unplaced.message, unplaced.hint && h('span', { class: 'note' }, ` ${unplaced.hint}`)),
    h('p', { class: 'note', role: 'status' }, state.tried && count ? `${count} ${count === 1 ? 'field needs' : 'fields need'} a change.` : ''),
    h('button', { class: 'primary', ...button, disabled: state.busy || Boolean(button.disabled) }, state.busy ? 'Sending…' : label),
  );
}

/**
 * Sends what a form says when it is submitted, and keeps its values as they are typed. `read` returns `{ spec, problems }`,
 * `path` is where the specification goes, `made` what is noted and opened then: `{ verb, page }`.
 */
export function listenToForm(form, state, { read, path, made, render, live, set = () => {}, fieldOf = (name) => name }) {
  /** The idempotency key of what was sent, so that sending the same again makes no second job. */
  const keys = new Map();

  /** Focuses the first field that is wrong. */
  function showFirst() {
    const first = form.querySelector('.wrong input, .wrong select, .wrong textarea');
    first?.focus();
    first?.scrollIntoView({ block: 'center' });
  }

  async function submit() {
    const { spec, problems } = read();
    state.tried = true;
    state.refused = null;
    render();
    if (Object.keys(problems).length) return showFirst();
    const body = JSON.stringify(spec);
    if (!keys.has(body)) keys.set(body, randomKey());
    state.busy = true;
    render();
    try {
      const response = await send(path, { method: 'POST', headers: { 'content-type': 'application/json', 'idempotency-key': keys.get(body) }, body });
      if (!response.ok) throw await failure(response);
      const { name } = await response.json();
      note(`${name} is ${made.verb}.`);
      location.hash = `#/${made.page}/${encodeURIComponent(name)}`;
    } catch (error) {
      const fields = [...form.querySelectorAll('[data-field]')].map((element) => element.dataset.field);
      state.refused = { message: error.message, hint: error.hint, field: fieldOfError(error.message, fields) };
      state.busy = false;
      render();
      showFirst();
      live(error.status === 0 ? error : null);
    }
  }

  listen(form, 'input', {
    set({ name, value }) {
      state.values[name] = value;
      set(name, value);
      state.refused = null;
      render();
    },
  });
  listen(form, 'focusout', {
    leave({ name, value }) {
      if (value === '') return;
      state.touched.add(fieldOf(name));
      render();
    },
  });
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    if (!state.busy) submit();
  });
}

/** A text that nobody else has. `randomUUID` is only for pages of secure origins. */
function randomKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, '0')).join('');
}
