// The console's frame: which page is shown, the keys, the API key, and whether the server answers.

import { apiKey } from './api.js';
import { askKey, help } from './dialogs.js';
import { comparisonPage } from './comparison.js';
import { datasetsPage } from './datasets.js';
import { devicesPage } from './devices.js';
import { experimentsPage } from './experiments.js';
import { jobPage } from './job.js';
import { jobsPage } from './jobs.js';
import { modelsPage } from './models.js';
import { modelGraphPage } from './modelgraph.js';
import { newJobPage } from './newjob.js';
import { newNotebookPage } from './newnotebook.js';
import { overviewPage } from './overview.js';
import { pipelinesPage } from './pipelines.js';
import { playgroundPage } from './playground.js';
import { sweepsPage } from './sweeps.js';
import { workersPage } from './workers.js';

/** Each page by the first part of its place: the link that it belongs to, its title, and what shows it for the other parts. */
const PAGES = {
  overview: ['overview', () => 'Overview', (root) => overviewPage(root, live)],
  models: ['models', () => 'Models', (root, [model = '']) => modelsPage(root, model, live)],
  graph: ['models', ([model, version]) => `Graph of ${model}@${version}`, (root, [model = '', version = '']) => modelGraphPage(root, { model, version }, live)],
  playground: ['playground', () => 'Playground', (root, [model = '', version = '']) => playgroundPage(root, { model, version }, live)],
  jobs: [
    'jobs',
    ([name]) => name || 'Jobs',
    (root, [name, part = '']) => (name ? jobPage(root, { name, part }, live) : jobsPage(root, live)),
  ],
  compare: ['jobs', () => 'Compare', (root, names) => comparisonPage(root, names.filter(Boolean), null, live)],
  'compare-pipelines': ['pipelines', () => 'Compare', (root, names) => comparisonPage(root, names.filter(Boolean), 'pipeline-run', live)],
  'compare-sweeps': ['sweeps', () => 'Compare', (root, names) => comparisonPage(root, names.filter(Boolean), 'sweep', live)],
  'new-job': ['jobs', () => 'New job', (root, [plugin = '']) => newJobPage(root, 'job', plugin, live)],
  'new-notebook': ['jobs', () => 'New notebook', (root) => newNotebookPage(root, live)],
  'new-sweep': ['sweeps', () => 'New sweep', (root, [plugin = '']) => newJobPage(root, 'sweep', plugin, live)],
  experiments: ['experiments', ([name]) => name || 'Experiments', (root, [name = '']) => experimentsPage(root, name, live)],
  sweeps: ['sweeps', ([name]) => name || 'Sweeps', (root, [name = '']) => sweepsPage(root, name, live)],
  pipelines: ['pipelines', ([name]) => name || 'Pipelines', (root, [name = '']) => pipelinesPage(root, name, live)],
  datasets: ['datasets', () => 'Datasets', (root, [name = '']) => datasetsPage(root, name, live)],
  devices: ['devices', () => 'Devices', (root) => devicesPage(root, live)],
  workers: ['workers', () => 'Workers', (root) => workersPage(root, live)],
};

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
  liveSign.title = trouble ? trouble.message : page?.looks || '';
  keyButton.textContent = apiKey() ? 'Key set' : 'Key';
}

/** `#/playground/digits/canary` as `['playground', 'digits', 'canary']`; the page itself reads what follows a `?`. */
function place() {
  const parts = location.hash.split('?')[0].replace(/^#\/?/, '').split('/');
  return parts.map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
}

function show() {
  const [name, ...rest] = place();
  page?.leave();
  const [link, title, open] = PAGES[Object.hasOwn(PAGES, name) ? name : 'overview'];
  for (const one of document.querySelectorAll('[data-page]')) {
    if (one.dataset.page === link) {
      one.setAttribute('aria-current', 'page');
      // On a narrow window the links scroll.
      one.scrollIntoView({ block: 'nearest', inline: 'nearest' });
    } else {
      one.removeAttribute('aria-current');
    }
  }
  document.title = `${title(rest)} · saggar`;
  main.replaceChildren();
  window.scrollTo(0, 0);
  trouble = null;
  page = open(main, rest);
  showLive();
}

function typing(target) {
  return target.closest?.('input:not([type="checkbox"]), textarea, select, [contenteditable], [data-own-keys]') !== null;
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
