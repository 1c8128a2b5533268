// Events of the server as they happen, while somebody looks; where there are none to be had, looking again and again.

import { ApiError, failure, send } from './api.js';
import { read } from './events.js';

/** How long after a stream ended another one is asked for. */
const AGAIN_MS = 2000;

/**
 * Follows the events at `path` and calls `event(name, data, id)` for each. A stream that breaks off is asked for again, after
 * the last event that had a number; none is open while the page is hidden.
 *
 * `opened()` is called when a stream begins. `instead(error)` is called, and waited for, each time that there is none, so a
 * page can ask in another way meanwhile. An `event` that gives false ends it for good. Returns `{ again, stop }`;
 * `stop` resolves when nothing is asked for any more.
 */
export function follow(path, { opened = () => {}, event, instead }) {
  let connection = null;
  let timer = 0;
  let running = null;
  let last = '';
  let stopped = false;

  async function listen(signal) {
    const headers = { accept: 'text/event-stream' };
    if (last) headers['last-event-id'] = last;
    const response = await send(path, { headers, signal });
    if (!response.ok) throw await failure(response);
    if (!(response.headers.get('content-type') ?? '').startsWith('text/event-stream')) {
      throw new ApiError(0, { error: 'the server does not send events' });
    }
    opened();
    await read(response.body, (name, data, id) => {
      if (stopped) return;
      if (id !== null) last = id;
      if (event(name, data, id) === false) stop();
    });
  }

  const run = () => {
    running = attempt();
  };

  async function attempt() {
    const mine = new AbortController();
    connection = mine;
    let error = null;
    try {
      await listen(mine.signal);
    } catch (caught) {
      error = caught instanceof ApiError ? caught : new ApiError(0, { error: 'the event stream was cut off' });
    }
    if (mine.signal.aborted) return;
    await instead(error);
    if (!mine.signal.aborted) timer = setTimeout(run, AGAIN_MS);
  }

  function pause() {
    clearTimeout(timer);
    connection?.abort();
  }

  const seen = () => (document.hidden ? pause() : run());
  document.addEventListener('visibilitychange', seen);
  if (!document.hidden) run();

  function stop() {
    stopped = true;
    pause();
    document.removeEventListener('visibilitychange', seen);
    return running;
  }
  return {
    /** Asks anew at once, as with another key. */
    again() {
      pause();
      if (!stopped && !document.hidden) run();
    },
    stop,
  };
}
