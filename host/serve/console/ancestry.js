// The lineage of a trial of a population: the trials whose training led to it, with their parameters.

import { h } from './dom.js';
import { number } from './format.js';
import { cell, table } from './rows.js';

/** The trials whose training led to the trial `last`, oldest first. A parent has a lower number than its copy. */
export function lineageOf(trials, last) {
  const byNumber = new Map((trials ?? []).map((trial) => [trial.number, trial]));
  const path = [];
  for (let trial = byNumber.get(last); trial; trial = trial.parent && trial.parent.trial < trial.number ? byNumber.get(trial.parent.trial) : null) path.unshift(trial);
  return path;
}

/** Where a trial begins: `trial 4 at step 120`, or a dash if it has the initial state. */
export function parentText({ parent }) {
  if (!parent) return '–';
  return parent.step === null || parent.step === undefined ? `trial ${parent.trial}` : `trial ${parent.trial} at step ${parent.step}`;
}

/** A table of the lineage of a trial; null if the trial has kept its parameters from the first step. */
export function lineageCard(trials, last, names) {
  const path = lineageOf(trials, last);
  if (path.length < 2) return null;
  const plain = (of) => (of === undefined ? '–' : typeof of === 'number' ? number(of) : String(of));
  const line = ({ number: of, job, parent, parameters }) => h(
    'tr',
    { 'data-key': String(of) },
    h('th', { scope: 'row', class: 'name' }, job ? h('a', { href: `#/jobs/${encodeURIComponent(job)}` }, `trial ${of}`) : `trial ${of}`),
    cell('From step', 'figure', parent ? plain(parent.step ?? undefined) : '0'),
    names.map((name) => cell(name, 'figure', plain(parameters?.[name]))),
  );
  const title = `How the parameters of trial ${last} changed over its training`;
  return h('section', { class: 'card', 'aria-label': 'Lineage' }, h('h2', {}, title), h('div', { class: 'scroll' }, table(title, 'grid jobs runs', ['Trial', 'From step', ...names], path.map(line))));
}
