// Asks again and again while somebody looks.

/**
 * Calls `work` now and then every `every` milliseconds, one call at a time, never while the page is hidden.
 * Returns `{ now, stop }`: `now` asks at once and resolves when that is done, `stop` when nothing is asked for any more.
 */
export function poll(work, every) {
  let timer = 0;
  let running = null;
  let again = false;
  let stopped = false;

  const schedule = () => {
    clearTimeout(timer);
    if (!stopped && !document.hidden) timer = setTimeout(now, every);
  };
  const run = async () => {
    do {
      again = false;
      await work();
    } while (again && !stopped);
    running = null;
    schedule();
  };
  const now = () => {
    clearTimeout(timer);
    if (stopped) return Promise.resolve();
    // What is asked for during a call must see what happened since it began.
    if (running) again = true;
    else running = run();
    return running;
  };
  const seen = () => (document.hidden ? clearTimeout(timer) : now());
  document.addEventListener('visibilitychange', seen);
  now();
  return {
    now,
    stop() {
      stopped = true;
      clearTimeout(timer);
      document.removeEventListener('visibilitychange', seen);
      return running ?? Promise.resolve();
    },
  };
}

/**
 * As `poll`, of a page that shows what one `ask()` gives: it goes into `state`, or the error into `state.error`, and then the
 * page is drawn by `render()` and `live(error or null)` hears how the server answers. An answer that comes after `stop` is
 * dropped: another page can be where this one was.
 */
export function pollInto(state, ask, { render, live }, every) {
  let stopped = false;
  const look = poll(async () => {
    try {
      Object.assign(state, await ask(), { error: null });
    } catch (error) {
      state.error = error;
    }
    if (stopped) return;
    render();
    live(state.error);
  }, every);
  return {
    now: look.now,
    stop() {
      stopped = true;
      return look.stop();
    },
  };
}
