// Files that a job leaves: its outputs and its checkpoints, to be fetched, and checkpoints to be deployed.

import { apiKey, ask, failure, jobPath, modelPath, send } from './api.js';
import { askText, note } from './dialogs.js';
import { h } from './dom.js';
import { bytes, short } from './format.js';
import { since } from './rows.js';

/** Keeps `blob` as a file of the reader's. */
export function save(blob, name) {
  const url = URL.createObjectURL(blob);
  h('a', { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/**
 * Fetches what links with `data-file` below `root` lead to. A browser's own download carries no key, so with one the page
 * fetches it.
 */
export function fetchable(root) {
  root.addEventListener('click', async (event) => {
    const link = event.target.closest?.('a[data-file]');
    if (!link || !apiKey()) return;
    event.preventDefault();
    try {
      const response = await send(link.getAttribute('href'));
      if (!response.ok) throw await failure(response);
      save(await response.blob(), link.dataset.file);
    } catch (error) {
      note(error.message, error);
    }
  });
}

function download(href, file, text = 'Download') {
  return h('a', { class: 'button small quiet', href, download: file, 'data-file': file }, text, h('span', { class: 'unseen' }, ` ${file}`));
}

/** If there are at most this many files, every folder is open at first. */
const OPEN_MAX = 40;

/**
 * Files as a tree, because names with `/` act as folders: `{ folders: [{ name, path, tree }], files, count, bytes }`, sorted by
 * name; a file is `{ name, path, bytes }`.
 */
export function outputTree(files, prefix = '') {
  const folders = new Map();
  const here = [];
  for (const file of files) {
    const rest = file.path.slice(prefix.length);
    const at = rest.indexOf('/');
    if (at < 0) here.push({ name: rest, path: file.path, bytes: file.bytes });
    else folders.set(rest.slice(0, at), [...(folders.get(rest.slice(0, at)) ?? []), file]);
  }
  const sorted = (list) => list.sort((a, b) => a.name.localeCompare(b.name, 'en', { numeric: true }));
  return {
    folders: sorted([...folders].map(([name, of]) => ({ name, path: `${prefix}${name}`, tree: outputTree(of, `${prefix}${name}/`) }))),
    files: sorted(here),
    count: files.length,
    bytes: files.reduce((sum, { bytes: size }) => sum + size, 0),
  };
}

/** The files that a job wrote. */
export function outputs(job, files) {
  if (!files?.length) return h('p', { class: 'note' }, 'The job wrote no files.');
  const file = ({ name, path, bytes: size }) => h(
    'li',
    { 'data-key': `file ${path}`, class: 'tree-file' },
    h('span', { class: 'tree-name' }, name),
    h('span', { class: 'figure note' }, bytes(size)),
    download(jobPath(job, 'output', ...path.split('/')), name),
  );
  const folder = ({ name, path, tree }) => h(
    'li',
    { 'data-key': `folder ${path}` },
    h(
      'details',
      { open: files.length <= OPEN_MAX },
      h('summary', {}, h('b', {}, `${name}/`), h('span', { class: 'note' }, ` ${tree.count} ${tree.count === 1 ? 'file' : 'files'}, ${bytes(tree.bytes)}`)),
      list(tree),
    ),
  );
  const list = (tree, label) => h('ul', { class: 'tree', 'aria-label': label }, tree.folders.map(folder), tree.files.map(file));
  return h('div', { class: 'files' }, list(outputTree(files), 'Outputs'));
}

/** The checkpoints that are list, the newest first. */
export function checkpoints(job, list) {
  if (!list?.length) return h('p', { class: 'note' }, 'No checkpoint is kept.');
  const newest = Math.max(...list.map(({ step }) => step));
  const line = ({ step, epoch, bytes: size, digest, written_ms: at, best }) => h(
    'tr',
    { 'data-key': `${step}` },
    h('th', { scope: 'row' }, `Step ${step}`, step === newest && h('span', { class: 'tag' }, 'newest'), best && h('span', { class: 'tag' }, 'best')),
    h('td', { 'data-label': 'Epoch', class: 'figure' }, epoch ?? '–'),
    h('td', { 'data-label': 'Size', class: 'figure' }, bytes(size)),
    h('td', { 'data-label': 'Written' }, since(at)),
    h('td', { 'data-label': 'Digest' }, h('code', { title: digest }, short(digest))),
    h(
      'td',
      { class: 'row-actions' },
      h(
        'div',
        {},
        download(jobPath(job, 'checkpoints', step), `${job}-${step}.safetensors`),
        h('button', { type: 'button', class: 'small', 'data-click': 'deploy', 'data-step': step, 'aria-label': `Deploy step ${step}` }, 'Deploy…'),
      ),
    ),
  );
  const names = ['Checkpoint', 'Epoch', 'Size', 'Written', 'Digest'];
  return h(
    'table',
    { class: 'grid checkpoints' },
    h('caption', { class: 'unseen' }, 'Checkpoints'),
    h('thead', {}, h('tr', {}, names.map((name) => h('th', { scope: 'col' }, name)), h('th', {}, h('span', { class: 'unseen' }, 'Actions')))),
    h('tbody', {}, [...list].sort((a, b) => b.step - a.step).map(line)),
  );
}

/** Asks for the model that the checkpoint becomes a version of, and makes it one. */
export async function deploy(job, step) {
  const model = await askText({
    title: `Deploy step ${step} of ${job.name}`,
    text: 'The checkpoint becomes the newest version of a model, which is loaded like any other.',
    label: 'Model',
    value: job.project,
    yes: 'Deploy',
  });
  if (!model) return;
  try {
    const made = await ask('POST', modelPath(model, 'versions'), { from: `job:${job.name}/checkpoint@${step}` });
    note(`Version ${made.version} of ${made.model ?? model} was created from step ${step}.`);
  } catch (error) {
    note(error.message, error);
  }
}
