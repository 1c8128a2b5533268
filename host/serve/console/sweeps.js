// Sweeps: the searches, and one search with its trials as a table, as parallel coordinates and as curves.

import { ask, jobPath } from './api.js';
import { chart } from './chart.js';
import { confirm, note } from './dialogs.js';
import { h, listen, neighbour, patch } from './dom.js';
import { emptySweeps } from './empty.js';
import { save } from './files.js';
import { number, words } from './format.js';
import { lineageCard, parentText } from './ancestry.js';
import { parallelCoordinates } from './parallel.js';
import { picking } from './picks.js';
import { pollInto } from './poll.js';
import { cell, reasonText, since, table } from './rows.js';
import { drawingSnapshot } from './snapshot.js';
import { mark } from './state.js';

const EVERY_MS = 2000;
/** Trials whose curves are drawn: the best. */
const CURVES_MAX = 8;

/** Shows the page in `root`: the sweeps, or the sweep `name`. Returns `{ keys, refresh, leave }`. */
export function sweepsPage(root, name, live) {
  return name ? sweepPage(root, name, live) : listPage(root, live);
}

function sweepPath(sweep, ...rest) {
  return ['/api/v1/sweeps', encodeURIComponent(sweep), ...rest].join('/');
}

function value(of) {
  return of === null || of === undefined ? '–' : number(of);
}

/** How many trials there are in each state: `3 running, 5 completed`. */
export function countsOf({ trial_states: states, trials_target: target, method }) {
  const counted = Object.entries(states ?? {}).map(([state, count]) => `${count} ${words(state)}`);
  // The trials of a population are more than its members: each copy is one.
  return `${counted.join(', ') || 'no trials'}${method === 'pbt' ? `, population of ${target}` : ` of ${target}`}`;
}

function listPage(root, live) {
  const state = { sweeps: null, error: null, selected: null };
  const count = h('p', { class: 'note', role: 'status' });
  const list = h('div', {});
  const page = h('div', {}, h('div', { class: 'page-head' }, h('h1', {}, 'Sweeps'), count, h('a', { class: 'button small primary', href: '#/new-sweep' }, 'New sweep')), list);
  patch(root, page);
  const picks = picking('sweeps', () => (state.sweeps ?? []).map(({ name }) => name), () => render());

  function render() {
    const { sweeps } = state;
    if (!sweeps) {
      patch(list, h('p', { class: 'empty' }, state.error ? `${state.error.message}.` : 'Looking…'));
      return;
    }
    count.textContent = sweeps.length ? `${sweeps.length} in all` : '';
    if (!sweeps.length) return patch(list, emptySweeps());
    const line = (sweep) => h(
      'tr',
      { 'data-key': sweep.id, class: state.selected === sweep.id ? 'selected' : null },
      picks.box(sweep.name),
      h('th', { scope: 'row', class: 'name' }, h('a', { href: `#/sweeps/${encodeURIComponent(sweep.name)}` }, sweep.name)),
      cell('State', '', mark(sweep.state)),
      cell('Method', '', sweep.method),
      cell('Trials', '', countsOf(sweep)),
      cell('Metric', '', sweep.metric),
      cell('Best', 'figure', value(sweep.best_value)),
      cell('Created', '', since(sweep.created_ms)),
      cell('Reason', 'why', reasonText(sweep)),
    );
    patch(list, picks.bar(), table('Sweeps, newest first', 'grid jobs', [picks.title(), 'Sweep', 'State', 'Method', 'Trials', 'Metric', 'Best', 'Created', 'Reason'], sweeps.map(line)));
  }

  const look = pollInto(state, async () => ({ sweeps: (await ask('GET', '/api/v1/sweeps')).sweeps }), { render, live }, EVERY_MS);
  listen(page, 'change', picks.change);
  listen(page, 'click', picks.click);
  const pick = () => {
    const sweep = (state.sweeps ?? []).find(({ id }) => id === state.selected);
    if (sweep) picks.toggle(sweep.name);
  };
  const move = (by) => {
    state.selected = neighbour((state.sweeps ?? []).map(({ id }) => id), state.selected, by) ?? null;
    render();
    page.querySelector('tr.selected a')?.focus();
  };
  render();
  return { keys: { j: () => move(1), k: () => move(-1), x: pick, c: picks.compare, n: () => { location.hash = '#/new-sweep'; } }, looks: 'The page asks every two seconds', refresh: look.now, leave: look.stop };
}

/** Trials, the best first; those without a value come last. */
export function ranked({ trials, direction }) {
  const sign = direction === 'max' ? -1 : 1;
  const has = ({ value: of }) => of !== null && of !== undefined;
  return [...(trials ?? [])].sort((a, b) => {
    if (!has(a) || !has(b)) return Number(has(b)) - Number(has(a)) || a.number - b.number;
    return sign * (a.value - b.value) || a.number - b.number;
  });
}

function parameterNames(trials) {
  return [...new Set(trials.flatMap(({ parameters }) => Object.keys(parameters ?? {})))];
}

function sweepPage(root, name, live) {
  const state = { sweep: null, curves: new Map(), error: null, busy: false, selected: null };
  const top = h('div', { class: 'head-part' });
  const plot = chart('', name);
  const curves = h('section', { class: 'card', 'aria-label': 'Curves' }, plot.element);
  const bottom = h('div', { class: 'compare' });
  const page = h('div', { class: 'compare' }, top, curves, bottom);
  patch(root, page);

  function render() {
    const { sweep } = state;
    const crumb = h('p', { class: 'crumb' }, h('a', { href: '#/sweeps' }, 'Sweeps'));
    curves.hidden = true;
    if (!sweep) {
      patch(top, crumb, h('h1', {}, name), h('p', { class: 'empty' }, state.error ? `${state.error.message}.` : 'Looking…'));
      return;
    }
    const trials = ranked(sweep);
    const lines = trials.filter(({ job }) => state.curves.has(job)).slice(0, CURVES_MAX)
      .map(({ number: of, job }) => ({ name: `trial ${of}`, points: state.curves.get(job) }));
    patch(
      top,
      crumb,
      h('div', { class: 'page-head' }, h('h1', {}, sweep.name), mark(sweep.state), h('p', { class: 'note' }, `${sweep.method}, ${sweep.direction} ${sweep.metric} · ${countsOf(sweep)} · `, since(sweep.created_ms))),
      (sweep.reason || sweep.message) && h('p', { class: sweep.state === 'FAILED' ? 'reason' : 'note' }, [words(sweep.reason), sweep.message].filter(Boolean).join(': ')),
      h('div', { class: 'toolbar order-bar' }, buttons(sweep)),
      trials.length > 1 && h('section', { class: 'card', 'aria-label': 'Parallel coordinates' }, h('div', { class: 'section-head' }, h('h2', {}, 'Parameters and the metric'), h('button', { type: 'button', class: 'quiet small', 'data-click': 'picture' }, 'Save as PNG')), h('div', { class: 'scroll' }, parallelCoordinates(trials, sweep.metric, state.selected))),
    );
    curves.hidden = lines.length === 0;
    if (lines.length) plot.update({ key: sweep.metric, series: lines, boundaries: [], log: false, smoothing: 0 });
    const names = parameterNames(trials);
    const traced = state.selected ?? sweep.best ?? trials[0]?.number;
    patch(bottom, lineageCard(trials, traced, names), importance(sweep.importance ?? []), trialTable(trials, names));
  }

  function buttons({ state: of }) {
    const button = (click, label, able) => able && h('button', { type: 'button', class: 'quiet small', 'data-click': click, disabled: state.busy }, label);
    return [button('stop', 'Stop…', of === 'RUNNING'), button('resume', 'Resume', of === 'STOPPED')];
  }

  function importance(found) {
    if (!found.length) return null;
    const line = ({ parameter, importance: of, correlation }) => h(
      'li',
      { 'data-key': parameter },
      h('b', {}, parameter),
      h('span', { class: 'track', 'aria-hidden': 'true' }, h('i', { style: { width: `${Math.round(of * 100)}%` } })),
      h('span', { class: 'figure' }, of.toFixed(2)),
      h('span', { class: 'note' }, correlation === null ? '' : correlation < 0 ? 'negative' : 'positive'),
    );
    return h('section', { class: 'card', 'aria-label': 'Importance' }, h('h2', {}, 'How strongly each parameter and the metric are related'), h('ul', { class: 'importance' }, found.map(line)));
  }

  function trialTable(trials, names) {
    const isPopulation = trials.some(({ member }) => member !== undefined);
    const plain = (of) => (of === undefined ? '–' : typeof of === 'number' ? number(of) : String(of));
    const line = (trial) => h(
      'tr',
      { 'data-key': String(trial.number), 'data-trial': trial.number, class: state.selected === trial.number ? 'selected' : null },
      h('th', { scope: 'row', class: 'name' }, trial.job ? h('a', { href: `#/jobs/${encodeURIComponent(trial.job)}` }, `trial ${trial.number}`) : `trial ${trial.number}`),
      cell('State', '', mark(trial.state)),
      isPopulation && [cell('Member', 'figure', String(trial.member)), cell('From', '', parentText(trial))],
      cell('Step', 'figure', trial.steps_target ? `${trial.step}/${trial.steps_target}` : String(trial.step)),
      cell('Value', 'figure', value(trial.value)),
      names.map((of) => cell(of, 'figure', plain(trial.parameters?.[of]))),
      cell('Reason', 'why', reasonText(trial)),
    );
    return h('div', { class: 'scroll' }, table('Trials, the best first', 'grid jobs runs', ['Trial', 'State', ...(isPopulation ? ['Member', 'From'] : []), 'Step', 'Value', ...names, 'Reason'], trials.map(line)));
  }

  /** Reads the metric of the best trials; of one that is over, once. */
  async function readCurves(sweep) {
    const best = ranked(sweep).filter(({ job }) => job).slice(0, CURVES_MAX);
    await Promise.all(best.map(async ({ job, state: of }) => {
      const isOver = ['COMPLETED', 'STOPPED', 'FAILED'].includes(of);
      const key = `${job} whole`;
      if (state.curves.has(key)) return;
      const only = sweep.metric.includes(',') ? '' : `?series=${encodeURIComponent(sweep.metric)}`;
      const answer = await ask('GET', `${jobPath(job, 'metrics')}${only}`).catch(() => null);
      const points = answer?.series?.find(({ name: series }) => series === sweep.metric)?.points;
      if (points) state.curves.set(job, points);
      if (isOver) state.curves.set(key, true);
    }));
  }

  const look = pollInto(state, async () => {
    const sweep = await ask('GET', sweepPath(name));
    await readCurves(sweep);
    return { sweep };
  }, { render, live: (error) => live(error?.status === 404 ? null : error) }, EVERY_MS);
  const send = async (part, done) => {
    state.busy = true;
    render();
    try {
      await ask('POST', sweepPath(name, part));
      note(done);
    } catch (error) {
      note(error.message, error);
    }
    state.busy = false;
    await look.now();
  };
  listen(page, 'click', {
    async picture() {
      save(await drawingSnapshot(top.querySelector('svg.parallel'), `${name}: parameters and ${state.sweep.metric}`), `${name}-parameters.png`);
    },
    resume: () => send('resume', `${name} goes on.`),
    async stop() {
      const agreed = await confirm({ title: `Stop ${name}?`, text: 'Its running trials save their state and pause. The sweep can be resumed.', yes: 'Stop', danger: true });
      if (agreed) await send('stop', `${name}: stopping.`);
    },
  });
  const move = (by) => {
    const numbers = ranked(state.sweep ?? {}).map(({ number: of }) => of);
    state.selected = neighbour(numbers, state.selected, by) ?? null;
    render();
    bottom.querySelector('tr.selected a')?.focus();
  };
  render();
  return {
    keys: { j: () => move(1), k: () => move(-1) },
    looks: 'The page asks every two seconds',
    refresh: look.now,
    leave() {
      look.stop();
      plot.leave();
    },
  };
}
