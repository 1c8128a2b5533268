// The notebook of a job: JupyterLab, which runs on the server and is opened in its own tab.

import { ask, jobPath } from './api.js';
import { h } from './dom.js';
import { title } from './facts.js';
import { isOver } from './state.js';

/** What a notebook's programs can do, in words for those who start or open one. */
export const WARNING = 'A notebook runs programs as the user of the server, with its network. It is not the sandbox of a plugin, which has no files, no network and no system calls.';

/** Whether a job is a notebook. */
export function isNotebook(job) {
  return Boolean(job.spec?.notebook);
}

/**
 * What a job's page says of its notebook: the button that asks for its address, and then the address as a link. The
 * address has a token, so it is asked for only when it is wanted.
 */
export function notebookPart(job, { path, problem, busy }) {
  const ended = isOver(job.state);
  const able = job.state === 'RUNNING' && !busy;
  return [
    title('Notebook'),
    ended && h('p', { class: 'note', 'data-key': 'over' }, 'It has ended. Its documents and files are outputs.'),
    !ended && h(
      'div',
      { class: 'toolbar', 'data-key': 'open' },
      path
        // With an opener, the new tab would get the key of this one.
        ? h('a', { class: 'button primary', href: path, target: '_blank', rel: 'noopener noreferrer', 'data-notebook': '' }, 'Open notebook')
        : h('button', { type: 'button', class: 'primary', 'data-click': 'notebook', disabled: !able }, 'Open notebook'),
      !path && !able && h('span', { class: 'note', role: 'status' }, busy ? 'Asking for its address…' : 'It has not started yet.'),
    ),
    path && !ended && h('p', { class: 'note', 'data-key': 'address' }, 'Everyone with this address can run programs in the notebook.'),
    problem && h('p', { class: 'reason', role: 'alert', 'data-key': 'problem' }, problem),
    h('p', { class: 'note', 'data-key': 'warning' }, WARNING, ' Open a notebook of other people only in a window in which no key was entered.'),
  ];
}

/** Asks for the address of a notebook: `{ path }`, or `{ problem }` in words. Only keys that can submit jobs get it. */
export async function askAddress(name) {
  try {
    const { path, state, reason } = await ask('GET', jobPath(name, 'notebook'));
    if (path) return { path };
    return { problem: `The notebook does not answer yet: its job is ${state}${reason ? `: ${reason}` : ''}. The log says what it does.` };
  } catch (error) {
    return { problem: [error.message, error.hint].filter(Boolean).join('. ') };
  }
}
