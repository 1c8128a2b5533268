// The rows of comparisons: pure functions of the server's answer. A row is `[name, cells, differs]`, where `differs` is false
// for what is the same, true for what is not, and null for results, which are always shown.

import { h } from './dom.js';
import { number, seconds, short } from './format.js';
import { since } from './rows.js';
import { mark } from './state.js';
import { countsOf } from './sweeps.js';

/** A value of a parameter, a range or a metric as text; null where there is none. */
function plain(value) {
  if (value === null || value === undefined) return null;
  if (typeof value === 'number') return number(value);
  return typeof value === 'string' ? value : JSON.stringify(value);
}

function valueRows(values, prefix, differs) {
  return values.map((one) => [`${prefix}${one.name}`, one.values.map(plain), differs === undefined ? one.differs : differs]);
}

function jobLink(job) {
  return job && h('a', { href: `#/jobs/${encodeURIComponent(job)}` }, job);
}

/** The name of a step, with its item if it has items. */
function itemName({ name, item }) {
  return item === undefined ? name : `${name}[${JSON.stringify(item)}]`;
}

/** A step in a run: its state, how long it took, and the job or the run that its result comes from. */
function attemptCell(attempt) {
  if (!attempt) return null;
  const note = [
    attempt.seconds !== null && seconds(attempt.seconds),
    attempt.attempt > 1 && `attempt ${attempt.attempt}`,
    attempt.cached_from && `cached from ${attempt.cached_from}`,
  ];
  return [mark(attempt.state), h('div', { class: 'note' }, note.filter(Boolean).join(', '), note.some(Boolean) && attempt.job && ' · ', jobLink(attempt.job))];
}

function outputCell(output) {
  return output && [h('span', { class: 'code' }, String(output.value)), output.digest && h('div', { class: 'note code', title: output.digest }, short(output.digest))];
}

/** The rows of pipeline runs. */
export function runGroups({ runs, params, steps }) {
  const ended = ({ created_ms: from, finished_ms: to }) => (to ? seconds((to - from) / 1000) : null);
  const outputs = steps.flatMap((step) => step.outputs.map((one) => [`${itemName(step)}: ${one.name}`, one.outputs.map(outputCell), one.differs]));
  return [
    ['Runs', [
      ['state', runs.map(({ state }) => mark(state)), null],
      ['started', runs.map(({ created_ms: at }) => since(at)), null],
      ['took', runs.map(ended), null],
    ]],
    ['Parameters', valueRows(params, ''), 'Their parameters are the same.'],
    ['Steps', steps.map((step) => [itemName(step), step.attempts.map(attemptCell), null])],
    ['Outputs, by their digests', outputs, outputs.length ? 'Their outputs are the same.' : null],
    ['Last numbers', steps.flatMap((step) => valueRows(step.metrics, `${itemName(step)}: `, null))],
  ];
}

/** The rows of sweeps. */
export function sweepGroups({ sweeps, space, settings, best_parameters: best }) {
  const differs = (of) => sweeps.some((sweep) => of(sweep) !== of(sweeps[0]));
  const row = (name, of, cell = of) => [name, sweeps.map(cell), differs(of)];
  return [
    ['Search', [
      ['state', sweeps.map(({ state }) => mark(state)), null],
      row('method', ({ method }) => method),
      row('metric', ({ metric, direction }) => `${metric} (${direction})`),
      row('trials to have', ({ trials_target: target }) => String(target)),
    ]],
    ['Ranges', valueRows(space, ''), 'Their ranges are the same.'],
    ['Settings', valueRows(settings, ''), 'Their settings are the same.'],
    ['Results', [
      ['trials', sweeps.map(countsOf), null],
      ['steps used', sweeps.map(({ steps }) => String(steps)), null],
      ['GPU time', sweeps.map(({ gpu_seconds: used }) => seconds(used)), null],
      ['took', sweeps.map(({ seconds: took }) => seconds(took)), null],
      ['best value', sweeps.map(({ best_value: value }) => plain(value)), null],
      ['best job', sweeps.map(({ best_job: job }) => jobLink(job)), null],
    ]],
    ['Parameters of the best trials', valueRows(best, '', null)],
  ];
}
