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
let trouble = null;

/** Tells whether the server answers, and asks for a key where it wants one. */
async function live(error) {
  trouble = error;
  showLive();
  if (error?.status !== 401 || asking || keyButton.dataset.refused === apiKey()) return;
  asking = true;
  // The same key is not asked for again and again.
  keyButton.dataset.refused = apiKey();
  const given = await askKey(`The server says: ${error.message}.`);
  asking = false;
  if (given) page?.refresh();
}

/** The sign beside the pages: what goes wrong, and on a page that looks again and again, that it does. */
function showLive() {
  const [kind, text] = trouble
    ? ['off', trouble.status ? 'Refused' : 'No answer']
    : !page?.looks ? ['', ''] : document.hidden ? ['paused', 'Paused'] : ['on', 'Live'];
  liveSign.className = `live ${kind}`;
  liveSign.textContent = text;
  liveSign.title = trouble ? trouble.message : 'Looks at the server every two seconds';
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
  trouble = null;
  page = playground ? playgroundPage(main, { model, version }, live) : modelsPage(main, model, live);
  showLive();
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
document.addEventListener('visibilitychange', showLive);
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
