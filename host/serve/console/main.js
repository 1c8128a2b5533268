// The console's frame: which page is shown, the keys, the API key, and whether the server answers.

import { apiKey } from './api.js';
import { askKey, help } from './dialogs.js';
import { modelsPage } from './models.js';
import { playgroundPage } from './playground.js';

const main = document.getElementById('main');
const liveSign = document.getElementById('live');
const keyButton = document.getElementById('key-button');

let page = null;
let asking = false;
let answers = true;

/** Tells whether the server answers, and asks for a key where it wants one. */
async function live(error) {
  answers = !error;
  showLive(error);
  if (error?.status !== 401 || asking || keyButton.dataset.refused === apiKey()) return;
  asking = true;
  // The same key is not asked for again and again.
  keyButton.dataset.refused = apiKey();
  const given = await askKey(`The server says: ${error.message}.`);
  asking = false;
  if (given) page?.refresh();
}

function showLive(error) {
  const [kind, text] = document.hidden
    ? ['paused', 'Paused']
    : !error ? ['on', 'Live'] : error.status ? ['off', 'Refused'] : ['off', 'No answer'];
  liveSign.className = `live ${kind}`;
  liveSign.textContent = text;
  liveSign.title = error ? error.message : 'What is shown is at most two seconds old';
  keyButton.textContent = apiKey() ? 'Key set' : 'Key';
}

/** `#/playground/digits/canary` as `['playground', 'digits', 'canary']`. */
function place() {
  const parts = location.hash.replace(/^#\/?/, '').split('/');
  return parts.map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
}

function show() {
  const [name, model = '', version = ''] = place();
  page?.leave();
  const playground = name === 'playground';
  for (const link of document.querySelectorAll('[data-page]')) {
    if (link.dataset.page === (playground ? 'playground' : 'models')) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  document.title = `${playground ? 'Playground' : 'Models'} · saggar`;
  main.replaceChildren();
  page = playground ? playgroundPage(main, { model, version }, live) : modelsPage(main, model, live);
}

function typing(target) {
  return target.closest?.('input, textarea, select, [contenteditable], [data-own-keys]') !== null;
}

document.addEventListener('keydown', (event) => {
  if (event.key === 'Escape' && typing(event.target)) event.target.blur();
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  if (typing(event.target) || document.querySelector('dialog[open]')) return;
  const action = event.key === '?' ? help : page?.keys[event.key];
  if (!action) return;
  event.preventDefault();
  action();
});
document.addEventListener('visibilitychange', () => showLive(answers ? null : { message: '' }));
document.getElementById('help-button').addEventListener('click', help);
keyButton.addEventListener('click', async () => {
  if (await askKey()) page?.refresh();
});
document.querySelector('.skip').addEventListener('click', (event) => {
  event.preventDefault();
  main.focus();
});
window.addEventListener('hashchange', show);
show();
