// Jobs as lines of a table: pure functions of the REST answer.

import { h } from './dom.js';
import { ago, moment, number, rate, words, worked } from './format.js';
import { mark } from './state.js';

/** Where a job or an attempt runs: its hosts, or its server; empty without other servers. */
export function hostsOf({ hosts, server }) {
  return hosts?.length > 0 ? hosts.join(', ') : server;
}

/** How often times are brought up to date. */
const TIMES_EVERY_MS = 10_000;

/** The columns: what they are called, and the class of their cells. */
const COLUMNS = [
  ['', 'pick'], ['Job', 'name'], ['State', ''], ['Attempt', 'figure'], ['Step', 'figure'], ['Progress', 'progress-cell'], ['Rate', 'figure'],
  ['Loss', 'figure'], ['GPU time', 'figure'], ['Created', ''], ['Reason', 'why'],
];

/** The table's head. */
export function head() {
  const cell = ([name, kind]) => h('th', { scope: 'col', class: kind }, name || h('span', { class: 'unseen' }, 'Selected'));
  return h('thead', {}, h('tr', {}, COLUMNS.map(cell)));
}

/** What a row shows of `job`, as text: equal where nothing that is shown changed. */
export function shownOf(job, view) {
  const { name, state, attempt, attempts_max: most, step, steps_target: target, steps_per_second: each, gpu_seconds: gpu } = job;
  const estimated = job.gpu_seconds_estimated;
  const rest = [job.metrics?.loss, job.reason, job.message, job.position, job.description, job.experiment, job.device, job.created_ms];
  return JSON.stringify([name, state, attempt, most, step, target, each, gpu, estimated, rest, view]);
}

/** The line of `job`; `view` is `{ picked, selected }`. */
export function row(job, view) {
  const path = `#/jobs/${encodeURIComponent(job.name)}`;
  return h(
    'tr',
    { 'data-key': job.id, 'data-job': job.name, class: view.selected ? 'selected' : null },
    h('td', { class: 'pick' }, h('input', { type: 'checkbox', 'data-change': 'pick', 'aria-label': `Select ${job.name}`, checked: view.picked })),
    h('th', { scope: 'row', class: 'name' }, h('a', { href: path }, job.name), description(job)),
    cell('State', '', mark(job.state)),
    cell('Attempt', 'figure', `${job.attempt}/${job.attempts_max}`),
    cell('Step', 'figure', job.step || job.steps_target ? steps(job) : '–'),
    cell('Progress', 'progress-cell', progress(job)),
    cell('Rate', 'figure', rate(job.steps_per_second)),
    cell('Loss', 'figure', job.metrics?.loss === undefined ? '–' : number(job.metrics.loss)),
    cell('GPU time', 'figure', worked(job.gpu_seconds, job.gpu_seconds_estimated)),
    cell('Created', '', since(job.created_ms)),
    cell('Reason', 'why', reason(job)),
  );
}

/** A cell with its label for narrow windows, which leave out a cell without a value. */
export function cell(label, kind, content) {
  const none = content === '–' ? 'none' : '';
  return h('td', { 'data-label': label, class: `${kind} ${none}`.trim() || null }, content);
}

/** Returns the job's description and its experiment. */
function description({ description: text, experiment }) {
  const parts = [experiment && h('span', { class: 'tag' }, experiment), text && h('span', { class: 'description' }, text)];
  return parts.some(Boolean) && h('div', { class: 'note' }, parts);
}

/** `38/70`, or the steps alone where the end is not known. */
export function steps({ step, steps_target: target }) {
  return target ? `${step}/${target}` : String(step);
}

/** How much is done, as a bar and a number. */
export function progress({ step, steps_target: target, state }) {
  if (!target) return '–';
  const share = Math.min(100, Math.floor((step * 100) / target));
  const kind = state === 'RUNNING' ? 'progress' : 'progress still';
  return h(
    'span',
    { class: kind },
    h('span', { class: 'track', 'aria-hidden': 'true' }, h('i', { style: { width: `${share}%` } })),
    h('span', { class: 'figure' }, `${share} %`),
  );
}

/** A time that the page keeps up to date by itself. */
export function since(at) {
  return h('time', { 'data-at': at, datetime: new Date(at).toISOString(), title: moment(at) }, ago(at));
}

/** Why the job is as it is, with its place in the queue. */
export function reason({ state, reason: code, message, position }) {
  if (state === 'QUEUED') {
    const place = position ? `place ${position} in the queue` : '';
    return h('span', { title: message || null }, [words(code || 'waiting for slot'), place].filter(Boolean).join(', '));
  }
  if (!code && !message) return '–';
  return h('span', { title: message || null }, words(code) || message);
}

/** Writes the times below `root` anew. */
export function retime(root) {
  for (const time of root.querySelectorAll('time[data-at]')) {
    const text = ago(Number(time.dataset.at));
    if (time.textContent !== text) time.textContent = text;
  }
}

/** The reason for a state: its sentence, or else its code in words. */
export function reasonText({ reason: code, message }) {
  return code || message ? h('span', { title: message || null }, message || words(code)) : '–';
}

/** Keeps the times below `root` up to date until the returned function is called. */
export function followTimes(root) {
  const timer = setInterval(() => retime(root), TIMES_EVERY_MS);
  return () => clearInterval(timer);
}

/** A table of rows, with a caption for screen readers and the titles of its columns. */
export function table(caption, kind, titles, rows) {
  const title = (text) => h('th', { scope: 'col' }, text);
  return h('table', { class: kind }, h('caption', { class: 'unseen' }, caption), h('thead', {}, h('tr', {}, titles.map(title))), h('tbody', {}, rows));
}
