// Questions, the key, help, and short notes about what was done.

import { apiKey, setApiKey } from './api.js';
import { h } from './dom.js';

/**
 * Shows a dialog with a form and resolves with what `read(form)` gives when it is sent, or null when it is left. It cannot be
 * sent while `check(form)` gives false.
 */
export function open({ title, body, yes, danger, read, check = () => true, wide }) {
  return new Promise((resolve) => {
    const form = h(
      'form',
      { method: 'dialog' },
      h('h2', { id: 'dialog-title' }, title),
      body,
      h(
        'div',
        { class: 'dialog-buttons' },
        yes && h('button', { type: 'button', class: 'quiet', 'data-leave': '' }, 'Cancel'),
        h('button', { value: 'yes', class: danger ? 'danger' : 'primary' }, yes ?? 'Close'),
      ),
    );
    const dialog = h('dialog', { 'aria-labelledby': 'dialog-title', class: wide ? 'wide' : null }, form);
    form.querySelector('[data-leave]')?.addEventListener('click', () => dialog.close(''));
    form.addEventListener('submit', (event) => {
      if (!check(form)) event.preventDefault();
    });
    dialog.addEventListener('close', () => {
      resolve(dialog.returnValue === 'yes' ? read(form) : null);
      dialog.remove();
    });
    document.body.append(dialog);
    dialog.showModal();
    const first = form.querySelector('input') ?? form.querySelector('[data-leave]') ?? form.querySelector('button');
    first.focus();
  });
}

/** Whether the user agrees. */
export async function confirm({ title, text, yes, danger = false }) {
  return (await open({ title, body: h('p', {}, text), yes, danger, read: () => true })) === true;
}

/** A line of text from the user, or null. */
export function askText({ title, text, label, yes, value = '' }) {
  const input = h('input', { id: 'answer', value, required: true, autocomplete: 'off', spellcheck: 'false' });
  const body = [h('p', {}, text), h('label', { for: 'answer' }, label), input];
  return open({ title, body, yes, read: () => input.value.trim() });
}

/** Asks for the API key and keeps it. Whether one was given. */
export async function askKey(reason) {
  const input = h('input', {
    id: 'key', type: 'password', value: apiKey(), autocomplete: 'off', spellcheck: 'false', placeholder: 'sgr_…',
  });
  const body = [
    h('p', {}, reason ?? 'Requests of this tab carry the key. It is forgotten when the tab is closed.'),
    h('label', { for: 'key' }, 'API key'),
    input,
    h('p', { class: 'note' }, 'Leave it empty to send none. On the server’s machine, ', h('code', {}, 'saggar key create NAME --scope predict,models:write'), ' makes one.'),
  ];
  const key = await open({ title: 'API key', body, yes: 'Use this key', read: () => input.value.trim() });
  if (key === null) return false;
  setApiKey(key);
  return true;
}

const KEYS = [
  ['j', 'k', 'next, previous entry'],
  ['Enter', null, 'open it, or close it'],
  ['/', null, 'filter, or search the log'],
  ['l', null, 'the log, of the job'],
  ['x', null, 'select the job, run or sweep'],
  ['c', null, 'compare what is selected'],
  ['t', null, 'tags and note of the run'],
  ['n', null, 'a new job, a new sweep, a new dataset'],
  ['p', null, 'the model in the playground'],
  ['Esc', null, 'leave a field or a dialog'],
  ['Ctrl', 'Enter', 'send, in the playground'],
  ['?', null, 'this list'],
];

/** The keys that do something. */
export function help() {
  const row = ([first, second, what]) => [
    h('dt', {}, h('kbd', {}, first), second && ' ', second && h('kbd', {}, second)),
    h('dd', {}, what),
  ];
  return open({ title: 'Keyboard', body: h('dl', { class: 'keys' }, KEYS.map(row)), read: () => true });
}

/** Says what was done. Errors stay until they are put away. */
export function note(text, error) {
  const detail = error && [error.hint && h('p', {}, error.hint), error.requestId && h('p', { class: 'note' }, `request ${error.requestId}`)];
  const away = h('button', { type: 'button', class: 'icon', 'aria-label': 'Put this note away' }, '×');
  const element = h(
    'div',
    { class: error ? 'toast bad' : 'toast', role: error ? 'alert' : 'status' },
    h('div', {}, h('p', {}, h('b', {}, error ? 'Not done. ' : 'Done. '), text), detail),
    away,
  );
  const gone = () => element.remove();
  away.addEventListener('click', gone);
  if (!error) setTimeout(gone, 6000);
  document.getElementById('notes').append(element);
}
