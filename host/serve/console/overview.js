// The overview: what runs, what waits and why, what failed in the last day, and what serves.

import { ask } from './api.js';
import { h, listen, neighbour, patch } from './dom.js';
import { emptyJobs } from './empty.js';
import { number, rate, words } from './format.js';
import { chip, stateOf } from './panel.js';
import { followPast, spanChoice } from './past.js';
import { jobsChart, requestsChart } from './pastcharts.js';
import { poll } from './poll.js';
import { followTimes, progress, reason, since } from './rows.js';
import { isActive, mark } from './state.js';
import { countsOf } from './sweeps.js';
import { readable } from './timeline.js';
import { watch } from './watch.js';

const EVERY_MS = 3000;
/** Failures of this time are shown. */
const RECENT_MS = 24 * 3600 * 1000;
/** The maximum number of entries in each list. The number of the others is shown. */
const SHOWN_MAX = 8;
/** The maximum number of running pipeline runs whose steps are requested, to find those that wait for an approval. */
const RUNS_ASKED_MAX = 8;

/** The series of the charts. */
const PAST = ['jobs_running', 'jobs_queued', 'model_requests_per_second', 'model_errors_per_second'].map((name) => `series=${name}`).join('&');

const FAILED = ['FAILED', 'TIMED_OUT'];

/** What the lists show of jobs, pipeline runs and sweeps at the time `now`: `{ running, waiting, failed }`, newest first. */
export function sorted({ jobs, runs, sweeps }, now) {
  const newestFirst = (things, at) => [...things].sort((a, b) => at(b) - at(a));
  const created = ({ created_ms: at }) => at;
  const ended = ({ finished_ms: at, created_ms: from }) => at ?? from;
  const isRecent = (thing) => FAILED.includes(thing.state) && now - ended(thing) < RECENT_MS;
  const of = (kind, things) => things.map((thing) => ({ ...thing, kind }));
  const all = [...of('jobs', jobs), ...of('pipelines', runs), ...of('sweeps', sweeps)];
  const queued = jobs.filter(({ state }) => state === 'QUEUED');
  // Those that have a place in the queue come in its order; paused ones have none.
  const place = ({ position }) => position ?? Number.MAX_SAFE_INTEGER;
  return {
    running: newestFirst(all.filter(({ kind, state }) => (kind === 'jobs' ? isActive(state) : state === 'RUNNING')), created),
    waiting: of('jobs', queued).sort((a, b) => place(a) - place(b) || a.created_ms - b.created_ms),
    failed: newestFirst(all.filter(isRecent), ended),
  };
}

/** Shows the page in `root` until the returned `leave` is called. */
export function overviewPage(root, live) {
  const state = { jobs: null, models: null, runs: [], sweeps: [], approvals: [], errors: {}, selected: null };
  const count = h('p', { class: 'note', role: 'status' });
  const parts = h('div', { class: 'overview' });
  const page = h('div', {}, h('div', { class: 'page-head' }, h('h1', {}, 'Overview'), count), parts);
  patch(root, page);
  readable(parts);
  const past = followPast(() => PAST, render);

  function report() {
    // What a key may not see is said in its place.
    live(Object.values(state.errors).find((error) => error && error.status !== 403) ?? null);
  }

  function render() {
    const { jobs, models, errors } = state;
    if (!jobs && !models && !errors.jobs && !errors.models) return patch(parts, h('p', { class: 'empty', 'data-key': 'looking' }, 'Looking…'));
    const known = { jobs: [...(jobs ?? new Map()).values()], runs: state.runs, sweeps: state.sweeps };
    const { running, waiting, failed } = sorted(known, Date.now());
    const isNew = jobs && models && known.jobs.length + models.length + state.runs.length + state.sweeps.length === 0;
    const serving = (models ?? []).filter((model) => stateOf(model) === 'READY');
    count.textContent = jobs && models ? `${running.length} running, ${waiting.length + state.approvals.length} waiting, ${failed.length} failed in the last day, ${serving.length} of ${models.length} models loaded` : '';
    if (isNew) return patch(parts, h('div', { class: 'whole', 'data-key': 'new' }, emptyJobs()));
    patch(
      parts,
      section('Running', 'jobs', running.map(runningLine), 'Nothing runs.', errors.jobs),
      section('Waiting', 'jobs', [...state.approvals.map(approvalLine), ...waiting.map(waitingLine)], 'Nothing waits.', errors.jobs),
      section('Failed in the last day', 'jobs', failed.map(failedLine), 'Nothing failed.', errors.jobs),
      section('Models', 'models', ranked(models ?? []).map(modelLine), 'No models.', errors.models),
      overTime(),
    );
  }

  function overTime() {
    const charts = [!state.errors.jobs && jobsChart(past.samples(), past.span()), requestsChart(past.samples(), past.span())];
    const head = h('div', { class: 'section-head' }, h('h2', {}, 'Over time'), spanChoice(past.span()));
    return h('section', { class: 'card whole', 'aria-label': 'Over time', 'data-key': 'past' }, head, h('div', { class: 'timelines' }, charts));
  }

  function section(title, place, lines, none, error) {
    const rest = lines.length - SHOWN_MAX;
    const content = error && lines.length === 0
      ? h('p', { class: 'note' }, `${error.message}.`)
      : lines.length === 0
        ? h('p', { class: 'note' }, none)
        : h('ul', { class: 'lines', 'aria-label': title }, lines.slice(0, SHOWN_MAX));
    const more = rest > 0 && h('p', { class: 'note' }, h('a', { href: `#/${place}` }, `${rest} more`));
    return h('section', { class: 'card', 'aria-label': title, 'data-key': title }, h('div', { class: 'section-head' }, h('h2', {}, title), h('span', { class: 'note' }, lines.length ? String(lines.length) : '')), content, more);
  }

  const line = (key, place, name, sign, ...details) => h(
    'li',
    { 'data-key': key, class: state.selected === key ? 'selected' : null },
    h('div', { class: 'line-head' }, h('a', { href: `#/${place}/${encodeURIComponent(name)}`, 'data-line': key }, name), sign),
    h('div', { class: 'note line-detail' }, details),
  );

  function runningLine(thing) {
    const { kind, id, name } = thing;
    const details = {
      jobs: () => [
        thing.steps_target > 0 && progress(thing), ' ',
        [rate(thing.steps_per_second), thing.metrics?.loss !== undefined && `loss ${number(thing.metrics.loss)}`, thing.device].filter((part) => part && part !== '–').join(', '),
      ],
      pipelines: () => ['pipeline run, ', since(thing.created_ms)],
      sweeps: () => [`sweep, ${countsOf(thing)}`],
    };
    return line(`${kind} ${id}`, kind, name, mark(thing.state), details[kind]());
  }

  const waitingLine = (job) => line(`jobs ${job.id}`, 'jobs', job.name, mark(job.state), reason(job), job.message && h('div', {}, job.message));
  const failedLine = (thing) => line(
    `${thing.kind} ${thing.id}`, thing.kind, thing.name, mark(thing.state), since(thing.finished_ms ?? thing.created_ms), ` · ${[words(thing.reason), thing.message].filter(Boolean).join(': ') || 'no reason given'}`,
  );
  const approvalLine = ({ run, step, message }) => line(`approve ${run} ${step}`, 'pipelines', run, mark('WAITING'), `step ${step} waits for a person`, message && h('div', {}, message));
  /** The models, failed ones first. */
  const ranked = (models) => [...models].sort((a, b) => Number(stateOf(b) === 'FAILED') - Number(stateOf(a) === 'FAILED'));
  const modelLine = (model) => line(
    `models ${model.name}`, 'models', model.name, chip(stateOf(model)), model.serving === null ? 'no version is the default' : `version ${model.serving} is the default`, model.reason && h('div', {}, model.reason),
  );

  async function askApprovals(runs) {
    const details = await Promise.all(runs.filter(({ state: is }) => is === 'RUNNING').slice(0, RUNS_ASKED_MAX).map(({ name }) => ask('GET', `/api/v1/pipeline-runs/${encodeURIComponent(name)}`)));
    const waits = ({ kind, state: is }) => kind === 'approve' && is === 'WAITING';
    return details.flatMap(({ name: run, steps }) => (steps ?? []).filter(waits).map((step) => ({ run, step: step.name, message: step.attempts.at(-1)?.message ?? '' })));
  }

  const look = poll(async () => {
    const part = async (name, work) => {
      try {
        await work();
        state.errors[name] = null;
      } catch (error) {
        state.errors[name] = error;
      }
    };
    await Promise.all([
      part('models', async () => { state.models = (await ask('GET', '/api/v1/models')).models ?? []; }),
      part('runs', async () => {
        const runs = (await ask('GET', '/api/v1/pipeline-runs')).runs ?? [];
        state.approvals = await askApprovals(runs);
        state.runs = runs;
      }),
      part('sweeps', async () => { state.sweeps = (await ask('GET', '/api/v1/sweeps')).sweeps ?? []; }),
    ]);
    report();
    render();
  }, EVERY_MS);
  const stream = watch({
    changed(jobs) {
      state.jobs = jobs;
      render();
    },
    live(error) {
      state.errors.jobs = error;
      report();
      if (!state.jobs) render();
    },
  });
  listen(parts, 'change', {
    span: ({ value }) => {
      past.choose(value);
      render();
    },
  });
  const move = (by) => {
    const links = [...parts.querySelectorAll('[data-line]')];
    state.selected = neighbour(links.map(({ dataset }) => dataset.line), state.selected, by) ?? null;
    render();
    if (state.selected) parts.querySelector(`[data-line="${CSS.escape(state.selected)}"]`).focus();
  };
  const stopTimes = followTimes(page);
  render();
  return {
    keys: { j: () => move(1), k: () => move(-1) },
    looks: 'The server reports every change',
    refresh() {
      stream.again();
      look.now();
      past.refresh();
    },
    leave() {
      past.leave();
      stream.stop();
      look.stop();
      stopTimes();
    },
  };
}
