// Jobs side by side: what differs in what they were asked to do, and what came of it.

import { ask, jobPath } from './api.js';
import { chart } from './chart.js';
import { h, listen, patch } from './dom.js';
import { number, seconds, short, worked } from './format.js';
import { poll } from './poll.js';
import { beginnings, growing } from './series.js';
import { isOver, mark } from './state.js';

const EVERY_MS = 5000;
/** Charts that are drawn at most, if no series is chosen. */
const CHARTS_MAX = 12;

/** The place of the comparison of these jobs. */
export function comparePath(jobs) {
  return `#/compare/${jobs.map(({ name }) => encodeURIComponent(name)).join('/')}`;
}

/** Shows the page in `root` for the jobs `names` until the returned `leave` is called. */
export function comparePage(root, names, live) {
  const state = { jobs: [], error: null, all: false, metric: null };
  /** What is drawn, by job and metric, or null for all; of a job that was over when it was asked for, it is whole. */
  const series = new Map();
  const body = h('div', { class: 'compare' });
  /** The charts by metric. */
  const plots = new Map();
  const page = h(
    'div',
    {},
    h('p', { class: 'crumb' }, h('a', { href: '#/jobs' }, 'Jobs')),
    h('div', { class: 'page-head' }, h('h1', {}, `Compare ${names.length} jobs`)),
    body,
  );
  patch(root, page);
  const choice = h('div', { class: 'section-head' });
  const grid = h('div', { class: 'charts' });
  const curves = h('section', { class: 'card', 'aria-label': 'Charts' }, choice, grid);
  const table = h('div', {});
  body.append(table, curves);

  function render() {
    if (state.jobs.length === 0) {
      curves.hidden = true;
      patch(table, h('p', { class: 'empty' }, state.error ? `${state.error.message}.` : 'Looking…'));
      return;
    }
    patch(table, comparison(state.jobs, state.all));
    const metrics = measured();
    curves.hidden = metrics.length === 0;
    const option = (name) => h('option', { value: name, selected: name === state.metric }, name);
    const every = metrics.length > CHARTS_MAX ? `the first ${CHARTS_MAX} of ${metrics.length} series` : 'all series';
    const options = [h('option', { value: '', selected: state.metric === null }, every), metrics.map(option)];
    patch(choice, h('h2', {}, 'Charts'), h('select', { 'aria-label': 'Series', 'data-change': 'metric' }, options));
    draw(state.metric === null ? metrics.slice(0, CHARTS_MAX) : [state.metric]);
  }

  /** Draws a chart for each of these metrics, with a line for each job. */
  function draw(metrics) {
    for (const [metric, plot] of plots) {
      if (metrics.includes(metric)) continue;
      plot.leave();
      plot.element.remove();
      plots.delete(metric);
    }
    for (const metric of metrics) if (!plots.has(metric)) plots.set(metric, chart(metric, 'compare'));
    for (const [at, metric] of metrics.entries()) {
      const { element } = plots.get(metric);
      if (grid.children[at] !== element) grid.insertBefore(element, grid.children[at] ?? null);
      const pointsOf = (job) => (series.get(keyOf(job, metric)) ?? series.get(keyOf(job, null)))?.points.get(metric) ?? [];
      const lines = names.map((job) => ({ name: job, points: pointsOf(job) }));
      plots.get(metric).update({ key: metric, series: lines, boundaries: [], log: false, smoothing: 0 });
    }
  }

  const measured = () => [...new Set(state.jobs.flatMap(({ metrics }) => Object.keys(metrics ?? {})))].sort();
  const keyOf = (job, metric) => JSON.stringify([job, metric]);

  /** Asks for what a job measured since it was asked for, and nothing of one that is over and known. */
  async function askSeries({ attempts }, name, over, metric) {
    const key = keyOf(name, metric);
    const began = beginnings(attempts);
    // Another attempt does steps again: what was known of them is undone.
    if (series.get(key)?.began !== began) series.delete(key);
    // A comma would stand between names.
    const only = metric === null || metric.includes(',') ? '' : `&series=${encodeURIComponent(metric)}`;
    if (!series.has(key)) series.set(key, growing((from) => ask('GET', `${jobPath(name, 'metrics')}?from=${from}${only}`)));
    const of = series.get(key);
    of.began = began;
    if (of.whole) return;
    await of.more(over);
    of.whole = over;
  }

  const look = poll(async () => {
    try {
      const now = (name, at) => (state.jobs[at] && isOver(state.jobs[at].state) ? state.jobs[at] : ask('GET', jobPath(name)));
      state.jobs = await Promise.all(names.map(now));
      await Promise.all(names.map((name, at) => askSeries(state.jobs[at], name, isOver(state.jobs[at].state), state.metric)));
      state.error = null;
      live(null);
    } catch (error) {
      state.error = error;
      live(error.status === 404 ? null : error);
    }
    render();
  }, EVERY_MS);
  listen(page, 'change', {
    all({ checked }) {
      state.all = checked;
      render();
    },
    metric({ value }) {
      state.metric = value || null;
      render();
      look.now();
    },
  });
  return {
    keys: {},
    refresh: look.now,
    leave() {
      look.stop();
      for (const plot of plots.values()) plot.leave();
    },
  };
}

/** The specification as names and texts: `parameters.epochs` is `5`. */
export function flat(value, name = '') {
  if (value === null || typeof value !== 'object' || (Array.isArray(value) && !value.some((one) => typeof one === 'object'))) {
    return [[name, typeof value === 'string' ? value : JSON.stringify(value)]];
  }
  return Object.entries(value).flatMap(([key, of]) => flat(of, name ? `${name}.${key}` : key));
}

/** The rows of several jobs' specifications: `[[name, texts, whether they differ]]`; what a job has not is null. */
export function rowsOf(specs) {
  const maps = specs.map((spec) => new Map(flat(spec)));
  const names = [...new Set(maps.flatMap((map) => [...map.keys()]))];
  return names.map((name) => {
    const values = maps.map((map) => map.get(name) ?? null);
    return [name, values, values.some((value) => value !== values[0])];
  });
}

function comparison(jobs, all) {
  const rows = rowsOf(jobs.map(({ spec }) => spec ?? {})).sort(([a], [b]) => rank(a) - rank(b));
  const visibleRows = rows.filter(([, , differs]) => all || differs);
  const metrics = [...new Set(jobs.flatMap(({ metrics: of }) => Object.keys(of ?? {})))].sort();
  const line = (name, values, differs) => h(
    'tr',
    { 'data-key': name },
    h('th', { scope: 'row' }, name.replace(/^parameters\./, '')),
    values.map((value) => h('td', { class: differs ? 'differs code' : 'code' }, value ?? h('span', { class: 'note' }, 'not set'))),
  );
  const group = (title, lines) => h('tbody', { 'data-key': title }, h('tr', { class: 'group' }, h('th', { colspan: jobs.length + 1, scope: 'rowgroup' }, title)), lines);
  const result = (name, of) => h('tr', { 'data-key': name }, h('th', { scope: 'row' }, name), jobs.map((job) => h('td', { class: 'figure' }, of(job))));
  const text = (name, value) => (name === 'plugin' && value ? short(value) : value);
  return h(
    'section',
    { class: 'card', 'aria-label': 'Comparison' },
    h(
      'div',
      { class: 'section-head' },
      h('h2', {}, all ? 'Everything' : 'What differs'),
      h('label', { class: 'check' }, h('input', { type: 'checkbox', 'data-change': 'all', checked: all }), ' Also what is the same'),
    ),
    h('div', { class: 'scroll' }, h(
      'table',
      { class: 'sides' },
      h('thead', {}, h('tr', {}, h('td', {}), jobs.map(({ name }) => h('th', { scope: 'col' }, h('a', { href: `#/jobs/${encodeURIComponent(name)}` }, name))))),
      group('Asked for', visibleRows.length ? visibleRows.map(([name, values, differs]) => line(name, values.map((value) => text(name, value)), differs))
        : h('tr', {}, h('td', { colspan: jobs.length + 1, class: 'note' }, 'Their specifications are the same.'))),
      group('Results', [
        result('state', ({ state }) => mark(state)),
        result('step', ({ step }) => String(step)),
        result('ran', ({ wall_seconds: wall }) => seconds(wall)),
        result('GPU time', ({ gpu_seconds: gpu, gpu_seconds_estimated: estimated }) => worked(gpu, estimated)),
      ]),
      metrics.length > 0 && group('Last numbers', metrics.map((name) => result(name, ({ metrics: of }) => (of?.[name] === undefined ? '–' : number(of[name]))))),
    )),
  );
}

/** Parameters come first. */
function rank(name) {
  return name.startsWith('parameters.') ? 0 : 1;
}
