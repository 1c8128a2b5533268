// What can be told to jobs. Each order asks where it must, and gives the work to do, or nothing.

import { ask, jobPath } from './api.js';
import { confirm, note } from './dialogs.js';
import { bytes } from './format.js';
import { isActive, isOver } from './state.js';

/** Whether an order makes sense for a job in its state. */
export const allows = {
  stop: ({ state }) => !isOver(state) && state !== 'STOPPING',
  preempt: ({ state }) => isActive(state) && state !== 'STOPPING',
  remove: ({ state }) => isOver(state),
};

/** `mnist-7`, or how many there are. */
function named(jobs) {
  return jobs.length === 1 ? jobs[0].name : `${jobs.length} jobs`;
}

/** Does `request` for each job, and says how it went. The jobs with which that is done are in the work's `done`. */
function each(jobs, request, done) {
  const work = async () => {
    const answers = [];
    try {
      for (const job of jobs) {
        answers.push(await request(job));
        work.done.push(job);
      }
      note(done(answers));
    } catch (error) {
      const before = answers.length ? `${answers.length} of ${jobs.length} were done. ` : '';
      note(`${before}${jobs[answers.length].name}: ${error.message}`, error);
    }
  };
  work.done = [];
  return work;
}

async function stop(jobs) {
  const agreed = await confirm({
    title: `Stop ${named(jobs)}?`,
    text: 'A running job saves a checkpoint first, and ends as CANCELLED. It can be restarted from there.',
    yes: 'Stop',
    danger: true,
  });
  return agreed && each(jobs, ({ name }) => ask('POST', jobPath(name, 'stop')), () => `${named(jobs)}: stopping.`);
}

async function preempt(jobs) {
  const agreed = await confirm({
    title: `Preempt ${named(jobs)}?`,
    text: 'The job saves a checkpoint, releases its slot and is queued again. Its next attempt resumes from the checkpoint.',
    yes: 'Preempt',
  });
  return agreed && each(jobs, ({ name }) => ask('POST', jobPath(name, 'preempt')), () => `${named(jobs)}: queued again.`);
}

async function remove(jobs) {
  const agreed = await confirm({
    title: `Delete ${named(jobs)}?`,
    text: 'Logs, checkpoints, outputs and series are deleted permanently. Models that it published stay.',
    yes: 'Delete',
    danger: true,
  });
  const freed = (answers) => answers.reduce((sum, answer) => sum + (answer?.freed_bytes ?? 0), 0);
  return agreed && each(
    jobs,
    ({ name }) => ask('DELETE', jobPath(name)),
    (answers) => `Deleted ${named(jobs)}, which frees ${bytes(freed(answers))}.`,
  );
}

/** Every order by its name in the page. */
export const orders = { stop, preempt, remove };
