// Pipelines: the runs, and one run with its steps as a drawing and as a table.

import { ask } from './api.js';
import { confirm, note } from './dialogs.js';
import { h, listen, neighbour, patch } from './dom.js';
import { emptyPipelines } from './empty.js';
import { words } from './format.js';
import { drawSteps } from './graph.js';
import { picking } from './picks.js';
import { pollInto } from './poll.js';
import { cell, reasonText, since, table } from './rows.js';
import { mark } from './state.js';

const EVERY_MS = 2000;
const OVER = ['SUCCEEDED', 'FAILED', 'CANCELLED'];
/** Shows the page in `root`: the runs, or the run `name`. Returns `{ keys, refresh, leave }`. */
export function pipelinesPage(root, name, live) {
  return name ? runPage(root, name, live) : listPage(root, live);
}

function runPath(run, ...rest) {
  return ['/api/v1/pipeline-runs', encodeURIComponent(run), ...rest].join('/');
}

function listPage(root, live) {
  const state = { runs: null, cursor: null, older: [], error: null, selected: null };
  const count = h('p', { class: 'note', role: 'status' });
  const list = h('div', {});
  const more = h('div', { class: 'more' });
  const page = h('div', {}, h('div', { class: 'page-head' }, h('h1', {}, 'Pipelines'), count), list, more);
  patch(root, page);
  const all = () => {
    const known = new Set((state.runs ?? []).map(({ id }) => id));
    return [...(state.runs ?? []), ...state.older.filter(({ id }) => !known.has(id))];
  };
  const picks = picking('pipelines', () => all().map(({ name }) => name), () => render());

  function render() {
    if (!state.runs) {
      patch(list, h('p', { class: 'empty' }, state.error ? `${state.error.message}.` : 'Looking…'));
      return;
    }
    const runs = all();
    count.textContent = runs.length ? `${runs.length} runs` : '';
    if (!runs.length) return patch(list, emptyPipelines());
    const line = (run) => h(
      'tr',
      { 'data-key': run.id, 'data-run': run.name, class: state.selected === run.id ? 'selected' : null },
      picks.box(run.name),
      h('th', { scope: 'row', class: 'name' }, h('a', { href: `#/pipelines/${encodeURIComponent(run.name)}` }, run.name)),
      cell('State', '', mark(run.state)),
      cell('Project', '', run.project),
      cell('Parameters', 'code', parameters(run.params)),
      cell('Started', '', since(run.created_ms)),
      cell('Reason', 'why', reasonText(run)),
    );
    patch(list, picks.bar(), table('Pipeline runs, newest first', 'grid jobs', [picks.title(), 'Run', 'State', 'Project', 'Parameters', 'Started', 'Reason'], runs.map(line)));
    patch(more, state.cursor !== null && h('button', { type: 'button', class: 'quiet', 'data-click': 'older' }, 'Older runs'));
  }

  const look = pollInto(state, async () => {
    const { runs, cursor } = await ask('GET', '/api/v1/pipeline-runs');
    return state.older.length ? { runs } : { runs, cursor };
  }, { render, live }, EVERY_MS);
  listen(page, 'change', picks.change);
  listen(page, 'click', {
    ...picks.click,
    async older(button) {
      button.disabled = true;
      try {
        const answer = await ask('GET', `/api/v1/pipeline-runs?cursor=${state.cursor}`);
        state.older.push(...answer.runs);
        state.cursor = answer.cursor;
      } catch (error) {
        live(error);
      }
      render();
    },
  });
  const move = (by) => {
    state.selected = neighbour(all().map(({ id }) => id), state.selected, by) ?? null;
    render();
    page.querySelector('tr.selected a')?.focus();
  };
  const pick = () => {
    const run = all().find(({ id }) => id === state.selected);
    if (run) picks.toggle(run.name);
  };
  render();
  return { keys: { j: () => move(1), k: () => move(-1), x: pick, c: picks.compare }, looks: 'The page asks every two seconds', refresh: look.now, leave: look.stop };
}

function parameters(params) {
  const entries = Object.entries(params ?? {});
  return entries.length ? entries.map(([name, value]) => `${name}=${typeof value === 'string' ? value : JSON.stringify(value)}`).join(' ') : '–';
}

/** The current attempt of each item of a step. */
export function currentAttempts(step) {
  const current = new Map();
  for (const attempt of step.attempts) current.set(attempt.item, attempt);
  return [...current.values()];
}

/** What a box of the drawing says of a step: its state, its attempts and its items. */
export function stepNote(step) {
  const current = currentAttempts(step);
  const most = Math.max(0, ...current.map(({ attempt }) => attempt));
  const done = current.filter(({ state }) => state === 'SUCCEEDED').length;
  const parts = [
    words(step.state),
    current.length > 1 && `${done} of ${current.length}`,
    most > 1 && `attempt ${most}`,
    current.some(({ cached_from: from }) => from) && 'cached',
  ];
  return parts.filter(Boolean).join(', ');
}

function runPage(root, name, live) {
  const state = { run: null, error: null, busy: false };
  const page = h('div', { class: 'run-page' });
  patch(root, page);

  function render() {
    const { run } = state;
    const crumb = h('p', { class: 'crumb' }, h('a', { href: '#/pipelines' }, 'Pipelines'));
    if (!run) {
      patch(page, crumb, h('h1', {}, name), h('p', { class: 'empty' }, state.error ? `${state.error.message}.` : 'Looking…'));
      return;
    }
    patch(
      page,
      crumb,
      h('div', { class: 'page-head' }, h('h1', {}, run.name), mark(run.state), h('p', { class: 'note' }, `${run.project} · `, since(run.created_ms))),
      (run.reason || run.message) && h('p', { class: run.state === 'FAILED' ? 'reason' : 'note' }, [words(run.reason), run.message].filter(Boolean).join(': ')),
      run.reuse_from && h('p', { class: 'note' }, 'Results of ', h('a', { href: `#/pipelines/${encodeURIComponent(run.reuse_from)}` }, run.reuse_from), ' are used where nothing changed.'),
      h('p', { class: 'note code' }, parameters(run.params)),
      h('div', { class: 'toolbar order-bar' }, buttons(run)),
      waiting(run.steps ?? []),
      h('section', { class: 'card', 'aria-label': 'Steps as a drawing' }, h('div', { class: 'scroll' }, drawSteps((run.steps ?? []).map(node), `Steps of ${run.name}`))),
      h('section', { class: 'card', 'aria-label': 'Attempts' }, attempts(run.steps ?? [])),
    );
  }

  function buttons(run) {
    const over = OVER.includes(run.state);
    const button = (click, label, able, kind = 'quiet') => able && h('button', { type: 'button', class: `${kind} small`, 'data-click': click, disabled: state.busy }, label);
    return [
      button('stop', 'Stop…', !over),
      button('restart', 'Run from the failed steps', over && run.state !== 'SUCCEEDED', 'primary'),
    ];
  }

  /** Steps that wait for a person. */
  function waiting(steps) {
    return steps.filter(({ kind, state: of }) => kind === 'approve' && of === 'WAITING').map(({ name: step, attempts: of }) => h(
      'section',
      { class: 'card', 'data-key': `wait-${step}`, 'aria-label': `Step ${step} waits` },
      h('p', {}, h('b', {}, step), ' waits for a person. ', of.at(-1)?.message ?? ''),
      h(
        'div',
        { class: 'toolbar' },
        h('button', { type: 'button', class: 'primary small', 'data-click': 'approve', 'data-step': step, disabled: state.busy }, `Approve ${step}`),
        h('button', { type: 'button', class: 'quiet small danger-text', 'data-click': 'reject', 'data-step': step, disabled: state.busy }, `Reject ${step}`),
      ),
    ));
  }

  function node(step) {
    const job = currentAttempts(step).find(({ job: of }) => of)?.job;
    return {
      name: step.name, after: step.after, note: stepNote(step), kind: step.state.toLowerCase(),
      href: job ? `#/jobs/${encodeURIComponent(job)}` : null,
    };
  }

  function attempts(steps) {
    const outputs = ({ outputs: of }) => {
      const entries = Object.entries(of ?? {});
      return entries.length ? entries.map(([key, { value, type, digest }]) => h('div', { title: [type, digest].filter(Boolean).join(' ') }, `${key} ${value}`)) : '–';
    };
    const line = (step) => (attempt) => h(
      'tr',
      { 'data-key': `${step.name} ${attempt.item} ${attempt.attempt}` },
      h('th', { scope: 'row', class: 'name' }, step.name, attempt.value !== undefined && attempt.value !== null && h('div', { class: 'note' }, JSON.stringify(attempt.value))),
      cell('Kind', '', step.kind),
      cell('Attempt', 'figure', String(attempt.attempt)),
      cell('State', '', mark(attempt.state)),
      cell('Job', '', attempt.job ? h('a', { href: `#/jobs/${encodeURIComponent(attempt.job)}` }, attempt.job) : attempt.cached_from ? `cached from ${attempt.cached_from}` : '–'),
      cell('Outputs', 'code', outputs(attempt)),
      cell('Reason', 'why', reasonText(attempt)),
    );
    const pending = (step) => h('tr', { 'data-key': `${step.name} pending` }, h('th', { scope: 'row', class: 'name' }, step.name), cell('Kind', '', step.kind), cell('Attempt', 'figure', '–'), cell('State', '', mark(step.state)), cell('Job', '', '–'), cell('Outputs', 'code', '–'), cell('Reason', 'why', '–'));
    const lines = steps.flatMap((step) => (step.attempts.length ? step.attempts.map(line(step)) : [pending(step)]));
    return table('Attempts of each step', 'grid attempts', ['Step', 'Kind', 'Attempt', 'State', 'Job', 'Outputs', 'Reason'], lines);
  }

  const look = pollInto(state, async () => {
    // A finished run is not requested again. A command clears it first.
    if (state.run && OVER.includes(state.run.state)) return {};
    return { run: await ask('GET', runPath(name)) };
  }, { render, live: (error) => live(error?.status === 404 ? null : error) }, EVERY_MS);

  /** Sends an order, and shows the run that is answered. */
  const send = async (part, body, done) => {
    state.busy = true;
    render();
    try {
      await ask('POST', runPath(name, part), body);
      note(done);
    } catch (error) {
      note(error.message, error);
    }
    state.busy = false;
    state.run = null;
    await look.now();
  };
  const decide = (approve) => async ({ dataset: { step } }) => {
    const agreed = await confirm({
      title: `${approve ? 'Approve' : 'Reject'} ${step}?`,
      text: approve ? 'The steps that wait for it go on.' : 'The step fails, and those that wait for it do not run.',
      yes: approve ? 'Approve' : 'Reject',
      danger: !approve,
    });
    if (agreed) await send('approve', { step, approve }, approve ? `${step} is approved.` : `${step} is rejected.`);
  };
  listen(page, 'click', {
    approve: decide(true),
    reject: decide(false),
    restart: () => send('restart', {}, `${name} goes on.`),
    async stop() {
      const agreed = await confirm({ title: `Stop ${name}?`, text: 'Its running jobs save a checkpoint and end. The run can go on from there.', yes: 'Stop', danger: true });
      if (agreed) await send('stop', undefined, `${name}: stopping.`);
    },
  });
  render();
  return { keys: {}, looks: 'The page asks every two seconds', refresh: look.now, leave: look.stop };
}
