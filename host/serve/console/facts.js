// The parts of a job's page that are pure functions of the REST answer.

import { h } from './dom.js';
import { bytes, number, rate, seconds, short, words, worked } from './format.js';
import { allows } from './orders.js';
import { hostsOf, progress, since, steps } from './rows.js';
import { isActive, mark } from './state.js';

/** Events that are entries of a job that has more. */
const EVENTS_MAX = 200;

/** The title of a section, which can have the focus: one goes through them by keyboard. */
export function title(text) {
  return h('h2', { tabindex: -1 }, text);
}

/** The name, the state, why it is so, and what can be done. */
export function heading(job, busy) {
  const button = (name, text, able, kind = 'quiet') => h(
    'button',
    { type: 'button', class: `${kind} small`, 'data-click': name, disabled: busy || !able, 'data-key': name },
    text,
  );
  const waits = job.state === 'QUEUED' && [words(job.reason || 'waiting for slot'), job.position && `place ${job.position} in the queue`];
  const why = [...(waits || [job.reason && words(job.reason)]), job.message].filter(Boolean).join(': ');
  return [
    h('div', { class: 'job-title' }, h('h1', {}, job.name), mark(job.state), job.experiment && h('span', { class: 'tag' }, job.experiment)),
    job.description && h('p', { class: 'description', 'data-key': 'description' }, job.description),
    why && h('p', { class: job.state === 'FAILED' || job.state === 'TIMED_OUT' ? 'reason' : 'note', 'data-key': 'why' }, why),
    h(
      'div',
      { class: 'toolbar', 'data-key': 'toolbar' },
      button('restart', 'Restart with…', true, 'primary'),
      button('stop', 'Stop…', allows.stop(job)),
      button('preempt', 'Preempt…', allows.preempt(job)),
      button('checkpoint', 'Save a checkpoint', job.state === 'RUNNING'),
      button('remove', 'Delete…', allows.remove(job), 'quiet danger-text'),
      busy && h('span', { class: 'note', role: 'status' }, 'Working…'),
    ),
  ];
}

/** What the job's time went into, in percent of it. */
function split(time = {}) {
  const parts = [
    ['compute', time.compute_seconds],
    ['data', time.data_seconds],
    ['all-reduce', time.all_reduce_seconds],
    ['checkpoints', time.checkpoint_seconds],
    ['other', time.other_seconds],
  ].filter(([, took]) => took > 0);
  const whole = parts.reduce((sum, [, took]) => sum + took, 0);
  return parts.map(([name, took]) => `${name} ${Math.round((took / whole) * 100)} %`).join(', ') || null;
}

/** What people ask first, as names and values. */
export function facts(job, phases) {
  const loss = job.metrics?.loss;
  const entries = [
    ['Progress', job.steps_target ? progress(job) : null],
    ['Step', job.step || job.steps_target ? steps(job) : '–'],
    ['Loss', loss === undefined ? '–' : number(loss)],
    ['Rate', rate(job.steps_per_second)],
    ['Attempt', `${job.attempt} of ${job.attempts_max}`],
    ['Device', job.device ?? '–'],
    ['Hosts', hostsOf(job)],
    ['Ran', seconds(job.wall_seconds)],
    ['GPU time', worked(job.gpu_seconds, job.gpu_seconds_estimated)],
    ['Time', job.wall_seconds > 0 && split(job.time)],
    ['Hint', job.hints?.length > 0 && job.hints.map((hint) => h('span', { class: 'hint' }, hint))],
    ['Queue', job.queue && [job.queue, job.priority !== undefined && `, priority ${job.priority}`, job.preemptible && ', preemptible']],
    ['Pool', job.pool],
    ['Created', since(job.created_ms)],
    [isActive(job.state) ? 'Running since' : 'Started', job.started_ms && since(job.started_ms)],
    ['Ended', job.finished_ms && since(job.finished_ms)],
    ['By', job.owner],
    ['Phases', phases.length > 1 && phases.map((phase) => h('span', { class: 'phase' }, phase.name, ' ', mark(phase.state)))],
  ];
  const fact = ([name, value]) => h('div', { 'data-key': name }, h('dt', {}, name), h('dd', {}, value));
  return h('dl', { class: 'figures' }, entries.filter(([, value]) => value !== null && value !== undefined && value !== false).map(fact));
}

/** What the job was asked to do. */
export function specification(job) {
  const spec = job.spec ?? {};
  const parameters = Object.entries(spec.parameters ?? {});
  const value = (of) => (typeof of === 'string' ? of : JSON.stringify(of));
  const row = ([name, of]) => [h('dt', {}, name), h('dd', { class: 'code' }, of)];
  const every = spec.checkpoint_every ?? 'auto';
  const rest = [
    ['Plugin', spec.plugin && h('span', { title: spec.plugin }, short(spec.plugin))],
    ['Data', spec.data?.length && spec.data.map(mounted)],
    ['Device', spec.device],
    ['Seed', spec.seed === undefined ? null : String(spec.seed)],
    ['Checkpoint every', every.steps ? `${every.steps} steps` : every.milliseconds ? `${every.milliseconds / 1000} s` : every],
    ['Begins from', spec.init_from],
    ['At most', spec.max_runtime_seconds && seconds(spec.max_runtime_seconds)],
    ['Memory', spec.memory_bytes && bytes(spec.memory_bytes)],
    ['Device memory', spec.gpu_memory_bytes && bytes(spec.gpu_memory_bytes)],
  ];
  return [
    h('div', { class: 'section-head' }, title('Specification'), h('button', { type: 'button', class: 'small', 'data-click': 'restart' }, 'Restart with…')),
    parameters.length > 0 && [h('h3', {}, 'Parameters'), h('dl', { class: 'facts' }, parameters.map(([name, of]) => row([name, value(of)])))],
    h('dl', { class: 'facts' }, rest.filter(([, of]) => of).map(row)),
    h('details', { 'data-key': 'json' }, h('summary', {}, 'As JSON'), h('pre', { class: 'wrap' }, h('code', {}, JSON.stringify(spec, null, 2)))),
  ];
}

function mounted({ dataset, version, job, path, mount }) {
  const from = job
    ? h('a', { href: `#/jobs/${encodeURIComponent(job)}` }, path ? `${job}/${path}` : job)
    : h('a', { href: `#/datasets/${encodeURIComponent(dataset)}` }, version ? `${dataset}/${version}` : dataset);
  return h('div', {}, from, ` at ${mount}`);
}

/** What happened, the newest first. */
export function history(events) {
  const line = ({ sequence, at_ms: at, kind, text }) => h('li', { 'data-key': `event ${sequence}` }, since(at), h('div', {}, h('b', {}, words(kind)), text && ` ${text}`));
  const newest = [...events].sort((a, b) => b.sequence - a.sequence).slice(0, EVENTS_MAX);
  return [
    title('Events'),
    newest.length === 0 ? h('p', { class: 'note' }, 'Nothing happened yet.') : h('ol', { class: 'history' }, newest.map(line)),
    events.length > EVENTS_MAX && h('p', { class: 'note' }, `The newest ${EVENTS_MAX} of ${events.length}.`),
  ];
}
