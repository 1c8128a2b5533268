// The page of one job: how it stands, its attempts, charts, log, files, and what it was asked to do.

import { ask, jobPath } from './api.js';
import { attemptsTable, ribbon } from './attempts.js';
import { charts } from './charts.js';
import { note } from './dialogs.js';
import { h, listen, neighbour, patch } from './dom.js';
import { checkpoints, deploy, fetchable, outputs } from './files.js';
import { facts, heading, history, specification, title } from './facts.js';
import { hasLineage, lineageOfJob, lineageRow } from './lineage.js';
import { logView } from './log.js';
import { loggedPanel } from './logged.js';
import { askAddress, isNotebook, notebookPart } from './notebook.js';
import { orders } from './orders.js';
import { poll } from './poll.js';
import { restart } from './restart.js';
import { retime } from './rows.js';
import { beginnings, growing } from './series.js';
import { isOver } from './state.js';
import { watch } from './watch.js';

/** How often files and times are looked at though nothing was heard. */
const EVERY_MS = 10_000;

/** Shows the page of the job `name` in `root` until the returned `leave` is called; `part` is `logs` or ''. */
export function jobPage(root, { name, part }, live) {
  const state = { job: null, attempts: [], events: [], files: null, checkpoints: null, error: null, busy: false, models: [], datasets: [], notebook: {} };
  /** What is to be asked for. */
  const wanted = { whole: true, series: true, files: true };
  let seen = '';
  let goesToLog = part === 'logs';

  const parts = frame(root, name);
  const log = logView(parts.log, name, live);
  const curves = charts(parts.charts, name);
  const logged = loggedPanel(parts.logged, name);
  const series = growing((from) => ask('GET', `${jobPath(name, 'metrics')}?from=${from}`));
  /** Whether another attempt may have replaced what was logged. */
  let redone = false;
  /** When the files were asked for last. */
  let filesAt = -EVERY_MS;
  fetchable(parts.page);

  function render() {
    const { job, error } = state;
    parts.rest.hidden = !job;
    if (!job) {
      patch(parts.head, h('h1', {}, name), h('p', { class: error ? 'reason' : 'note' }, error ? `${error.message}.` : 'Looking…'));
      return;
    }
    patch(parts.head, heading(job, state.busy));
    parts.notebook.hidden = !isNotebook(job);
    if (isNotebook(job)) patch(parts.notebook, notebookPart(job, state.notebook));
    patch(parts.facts, facts(job, state.phases ?? []));
    patch(parts.ribbon, title('Attempts'), ribbon(state.attempts, log.chosen()), attemptsTable(state.attempts));
    patch(parts.events, history(state.events));
    retime(parts.page);
    if (goesToLog) log.focus();
    goesToLog = false;
  }

  function showFiles() {
    patch(parts.files, title('Outputs'), outputs(name, state.files));
    patch(parts.checkpoints, title('Checkpoints'), checkpoints(name, state.checkpoints));
  }

  function showCurves() {
    curves.update([...series.points].map(([one, points]) => ({ name: one, points })), state.attempts.filter(({ number }) => number > 1).map((one) => [one.first_step, one.number]));
  }

  async function askWhole() {
    const { attempts, phases, events, ...job } = await ask('GET', jobPath(name));
    const undone = state.attempts.length && beginnings(attempts) !== beginnings(state.attempts);
    Object.assign(state, { job, attempts, phases, events });
    // Another attempt does steps again; those before it may have other values.
    if (undone) series.clear();
    redone ||= undone;
    log.update({ attempts, state: job.state });
    patch(parts.spec, specification(job));
    showFiles();
    await askRelated();
  }

  /** What the lineage names besides the job. A key that may not see it sees the job's own part. */
  async function askRelated() {
    const part = async (path, key) => {
      try {
        state[key] = (await ask('GET', path))[key] ?? [];
      } catch {
        state[key] = [];
      }
    };
    await Promise.all([part('/api/v1/models', 'models'), part('/api/v1/datasets', 'datasets')]);
    const found = lineageOfJob(state.job, state);
    parts.lineage.hidden = !hasLineage(found);
    patch(parts.lineage, title('Lineage'), lineageRow(found, `Lineage of ${name}`));
  }

  async function askSeries(whole) {
    const grown = await series.more(whole);
    // Where attempts begin stands in the charts, too.
    if (grown || whole) showCurves();
  }

  async function askFiles() {
    const [{ files }, { checkpoints: stored }] = await Promise.all([ask('GET', jobPath(name, 'output')), ask('GET', jobPath(name, 'checkpoints'))]);
    Object.assign(state, { files, checkpoints: stored });
    filesAt = performance.now();
    showFiles();
    await logged.more(redone);
    redone = false;
  }

  const look = poll(async () => {
    const now = { ...wanted };
    Object.assign(wanted, { whole: false, series: false, files: false });
    const due = state.job && !isOver(state.job.state) && performance.now() - filesAt >= EVERY_MS;
    const requests = [
      (now.whole || !state.job) && askWhole,
      now.series && (() => askSeries(now.whole)),
      (now.files || due) && askFiles,
    ].filter(Boolean);
    try {
      for (const request of requests) await request();
      state.error = null;
      if (requests.length) live(null);
    } catch (error) {
      for (const key of Object.keys(now)) wanted[key] ||= now[key];
      state.error = error;
      live(error.status === 404 ? null : error);
    }
    // Numbers alone are drawn by their charts.
    if (state.error || !(now.series && requests.length === 1)) render();
  }, EVERY_MS);

  const stream = watch({
    job: name,
    changed(jobs) {
      const [job] = jobs.values();
      if (!job) return;
      const is = `${job.state} ${job.attempt}`;
      if (is !== seen) {
        Object.assign(wanted, { whole: true, series: true, files: true });
        state.notebook = {};
      }
      else wanted.series = true;
      seen = is;
      if (state.job) state.job = { ...state.job, ...job };
      render();
      look.now();
    },
    noted(event) {
      if (!state.events.some(({ sequence }) => sequence === event.sequence)) state.events.push(event);
      if (event.kind.includes('CHECKPOINT') || event.kind === 'PUBLISHED') wanted.files = true;
      render();
    },
    live,
  });

  const quiet = () => Promise.all([look.stop(), stream.stop(), log.leave()]);

  const tell = (order) => async () => {
    const work = await order([state.job]);
    if (!work) return;
    state.busy = true;
    render();
    const removes = order === orders.remove;
    // Who asks after a job while it is deleted hears that there is none.
    if (removes) await quiet();
    await work();
    state.busy = false;
    Object.assign(wanted, { whole: true });
    if (removes) location.hash = '#/jobs';
    else await look.now();
  };
  const work = async (done, request) => {
    try {
      await request();
      note(done);
    } catch (error) {
      note(error.message, error);
    }
  };
  /** Opens the notebook in a new tab. Where the browser opens none, the link stays. */
  async function openNotebook() {
    state.notebook = { busy: true };
    render();
    state.notebook = await askAddress(name);
    render();
    const link = parts.notebook.querySelector('[data-notebook]');
    link?.focus();
    link?.click();
  }

  listen(parts.page, 'click', {
    ...Object.fromEntries(Object.entries(orders).map(([key, order]) => [key, tell(order)])),
    restart: () => restart(state.job),
    notebook: openNotebook,
    checkpoint: () => work(`${name} saves a checkpoint at its next step.`, () => ask('POST', jobPath(name, 'checkpoint'))),
    deploy: ({ dataset }) => deploy(state.job, Number(dataset.step)),
    attempt({ dataset }) {
      const number = Number(dataset.attempt);
      log.choose(log.chosen() === number ? 0 : number);
      render();
      parts.log.scrollIntoView({ block: 'nearest' });
    },
  });

  // A hidden section cannot have the focus.
  const sections = () => [...parts.page.querySelectorAll('h2')].filter((head) => head.getClientRects().length > 0);
  const move = (by) => {
    const head = neighbour(sections(), document.activeElement, by);
    head.focus({ preventScroll: true });
    head.scrollIntoView({ block: 'start' });
  };
  render();
  return {
    keys: { '/': log.find, l: log.focus, j: () => move(1), k: () => move(-1) },
    looks: 'The server reports every change',
    refresh() {
      Object.assign(wanted, { whole: true, series: true, files: true });
      stream.again();
      log.again();
      return look.now();
    },
    leave() {
      quiet();
      curves.leave();
      logged.leave();
    },
  };
}

/** What stays on the page; what changes is drawn into its parts. */
function frame(root, name) {
  const card = (kind, label) => h('section', { class: `card ${kind}`, 'aria-label': label });
  const parts = {
    head: h('header', { class: 'job-head' }),
    facts: card('job-facts', 'Facts'),
    notebook: card('', 'Notebook'),
    lineage: card('', 'Lineage'),
    ribbon: card('', 'Attempts'),
    charts: h('div'),
    logged: card('logged', 'Images, tables and histograms'),
    log: card('', 'Log'),
    files: card('', 'Outputs'),
    checkpoints: card('', 'Checkpoints'),
    spec: card('', 'Specification'),
    events: card('', 'Events'),
  };
  const numbers = h('section', { class: 'card', 'aria-label': 'Charts' }, title('Charts'), parts.charts);
  parts.rest = h(
    'div',
    { class: 'job-rest' },
    parts.notebook, parts.facts, parts.lineage, parts.ribbon, numbers, parts.logged, parts.log,
    h('div', { class: 'two files-row' }, parts.checkpoints, parts.files),
    h('div', { class: 'two' }, parts.spec, parts.events),
  );
  parts.page = h('div', { class: 'job-page', 'data-job': name }, h('p', { class: 'crumb' }, h('a', { href: '#/jobs' }, 'Jobs')), parts.head, parts.rest);
  patch(root, parts.page);
  return parts;
}
