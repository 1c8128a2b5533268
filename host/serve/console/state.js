// States of jobs, attempts, pipeline runs and sweeps, and what those of jobs allow.

import { h } from './dom.js';

/** Every state of a job, in the order in which it meets them. */
export const STATES = ['QUEUED', 'STARTING', 'RUNNING', 'STOPPING', 'SUCCEEDED', 'FAILED', 'CANCELLED', 'TIMED_OUT'];

/** The look of each state's mark, among those of the theme. */
const LOOKS = {
  QUEUED: 'queued', STARTING: 'loading', RUNNING: 'loading', STOPPING: 'draining', SUCCEEDED: 'ready', FAILED: 'failed',
  CANCELLED: 'cancelled', TIMED_OUT: 'failed', PREEMPTED: 'cut', INTERRUPTED: 'cut',
  // Hosts.
  READY: 'ready', DRAINING: 'draining', LOST: 'failed',
  // Steps of pipelines, and trials of sweeps.
  PENDING: 'queued', WAITING: 'cut', SKIPPED: 'cancelled', PAUSED: 'queued', COMPLETED: 'ready', STOPPED: 'cancelled',
};

/** Whether nothing comes after it. */
export function isOver(state) {
  return ['SUCCEEDED', 'FAILED', 'CANCELLED', 'TIMED_OUT'].includes(state);
}

/** Whether a worker has the job. */
export function isActive(state) {
  return ['STARTING', 'RUNNING', 'STOPPING'].includes(state);
}

/** A state as a mark of its own shape and a word. */
export function mark(state) {
  return h('span', { class: `state ${LOOKS[state] ?? ''}` }, h('i', { 'aria-hidden': 'true' }), state.replaceAll('_', ' '));
}
