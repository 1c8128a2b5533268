// Jobs as they are now, from the server's events, or by asking again and again where there are none.

import { ask, jobPath } from './api.js';
import { follow } from './follow.js';

/** Jobs that are asked for at once where there are no events. */
const JOBS_MAX = 500;

/**
 * Follows all jobs, or the one of the name `job`. `changed(jobs, more)` is called with a map by identifier at most once for
 * each frame of the screen; `more` is the cursor under which older jobs are found, or null. `noted(event)` is called for
 * what happens to them, `live(error or null)` with how the server answers.
 */
export function watch({ job = null, changed, noted = () => {}, live }) {
  const jobs = new Map();
  let more = null;
  let frame = 0;
  /** Those that the stream has listed of since it began; the others are gone once it has listed of all. */
  let listed = new Set();

  const show = () => {
    if (!frame) {
      frame = requestAnimationFrame(() => {
        frame = 0;
        changed(jobs, more);
      });
    }
  };
  const whole = (found, cursor) => {
    for (const id of jobs.keys()) if (!found.has(id)) jobs.delete(id);
    more = cursor;
    show();
  };
  const stream = follow(`/api/v1/events?follow=1${job === null ? '' : `&job=${encodeURIComponent(job)}`}`, {
    opened() {
      listed = new Set();
      live(null);
    },
    event(name, data) {
      const value = JSON.parse(data);
      if (name === 'job') {
        listed.add(value.id);
        jobs.set(value.id, value);
        show();
      } else if (name === 'ready') {
        whole(listed, value.cursor);
      } else if (name === 'gone') {
        jobs.delete(value.id);
        show();
      } else if (name === 'note') {
        noted(value);
      }
    },
    async instead(trouble) {
      try {
        const answer = job === null
          ? await ask('GET', `/api/v1/jobs?limit=${JOBS_MAX}`)
          : { jobs: [await ask('GET', jobPath(job))], cursor: null };
        for (const one of answer.jobs) jobs.set(one.id, one);
        whole(new Set(answer.jobs.map(({ id }) => id)), answer.cursor);
        live(null);
      } catch (error) {
        live(error.status === 0 && trouble ? trouble : error);
      }
    },
  });
  return {
    again: stream.again,
    stop() {
      cancelAnimationFrame(frame);
      return stream.stop();
    },
  };
}
