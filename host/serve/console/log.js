// A job's log as it comes: of all attempts or one, with search.

import { failure, jobPath, send } from './api.js';
import { h, listen, patch } from './dom.js';
import { title } from './facts.js';
import { follow } from './follow.js';

/** Lines that are kept; older ones are in the whole log. */
const LINES_MAX = 5000;
/** Lines that stand on the page at once. */
const SHOWN_MAX = 1000;
/** Length of a line's time, `2026-11-21T12:03:13.076Z`, and of the part of it that is shown. */
const TIME = 24;
const CLOCK = [11, 19];

/** The log of `job` in `root`. Returns `{ update, choose, focus, find, leave }`; `update(job)` tells of new attempts. */
export function logView(root, job, live) {
  const state = { attempts: [], attempt: 0, search: '', lines: [], left: 0, ended: false, streamed: false, times: true, wraps: true };
  let stream = null;
  let frame = 0;
  let fresh = 0;
  /** Whether the newest line stays in sight. */
  let follows = true;

  const search = h('input', {
    type: 'search', placeholder: 'Search the log', 'aria-label': 'Search the log', autocomplete: 'off', spellcheck: 'false',
  });
  const choice = h('span', { class: 'toolbar' });
  const status = h('p', { class: 'note', role: 'status' });
  const lines = h('div', { class: 'log', role: 'log', 'aria-label': `Log of ${job}`, 'aria-live': 'off', tabindex: '0', 'data-own-keys': '' });
  const newest = h('button', { type: 'button', class: 'small to-newest', hidden: true, 'data-click': 'newest' }, 'To the newest');
  patch(
    root,
    h('div', { class: 'section-head' }, title('Log'), h('div', { class: 'toolbar' }, choice, search)),
    h('div', { class: 'log-box' }, lines, newest),
    status,
  );

  const atEnd = () => lines.scrollHeight - lines.scrollTop - lines.clientHeight < 24;
  const matching = () => {
    const wanted = state.search.toLowerCase();
    return wanted ? state.lines.filter((line) => line.slice(TIME + 1).toLowerCase().includes(wanted)) : state.lines;
  };

  function element(line) {
    const text = line.slice(TIME + 1);
    const time = h('time', { title: line.slice(0, TIME) }, line.slice(...CLOCK));
    return h('div', {}, state.times && time, h('span', {}, state.search ? marked(text, state.search) : text));
  }

  /** Everything anew, as after a search. */
  function redraw() {
    fresh = 0;
    lines.replaceChildren(...matching().slice(-SHOWN_MAX).map(element));
    toNewest();
    tell();
  }

  /** Only the lines that came. */
  function append() {
    frame = 0;
    const wanted = state.search.toLowerCase();
    const came = fresh > 0 ? state.lines.slice(-fresh).slice(-SHOWN_MAX) : [];
    fresh = 0;
    lines.append(...came.filter((line) => line.slice(TIME + 1).toLowerCase().includes(wanted)).map(element));
    while (lines.childElementCount > SHOWN_MAX) lines.firstElementChild.remove();
    if (follows) toNewest();
    tell();
  }

  function tell() {
    const found = state.search && matching().length;
    const parts = [
      state.search ? `${found} of ${state.lines.length} lines have “${state.search}”.` : null,
      state.left > 0 || (!state.search && state.lines.length > SHOWN_MAX) ? 'Only the newest lines are shown.' : null,
      state.lines.length === 0 ? (state.ended ? 'The log is empty.' : 'No line yet.') : null,
    ];
    const whole = `${jobPath(job, 'logs')}?timestamps=1${state.attempt ? `&attempt=${state.attempt}` : ''}`;
    const text = parts.filter(Boolean).join(' ');
    patch(status, text, text && ' ', h('a', { href: whole, 'data-file': `${job}.log`, 'data-key': 'whole' }, 'The whole log as a file'));
    newest.hidden = follows;
  }

  function toNewest() {
    follows = true;
    lines.scrollTop = lines.scrollHeight;
  }

  function take(line) {
    state.lines.push(line);
    fresh += 1;
    if (state.lines.length > LINES_MAX) {
      state.left += 1;
      state.lines.shift();
    }
    if (!frame) frame = requestAnimationFrame(append);
  }

  function showChoice() {
    const option = (value, text) => h('option', { value, selected: value === state.attempt }, text);
    patch(
      choice,
      state.attempts.length > 1 && h(
        'select',
        { 'aria-label': 'Attempt', 'data-change': 'attempt' },
        option(0, 'All attempts'),
        state.attempts.map(({ number }) => option(number, `Attempt ${number}`)),
      ),
      h('label', { class: 'check' }, h('input', { type: 'checkbox', 'data-change': 'times', checked: state.times }), ' Times'),
      h('label', { class: 'check' }, h('input', { type: 'checkbox', 'data-change': 'wraps', checked: state.wraps }), ' Wrap'),
    );
  }

  function begin() {
    stream?.stop();
    Object.assign(state, { lines: [], left: 0, ended: false, streamed: false });
    redraw();
    const query = `timestamps=1&tail=${LINES_MAX}${state.attempt ? `&attempt=${state.attempt}` : ''}`;
    stream = follow(`${jobPath(job, 'logs')}?follow=1&${query}`, {
      opened() {
        // What was asked for without a stream comes again with it.
        if (!state.streamed && state.lines.length) {
          state.lines = [];
          redraw();
        }
      },
      event(name, data) {
        state.streamed = true;
        if (name === 'line') take(data);
        if (name === 'end') {
          state.ended = true;
          tell();
          return false;
        }
        return true;
      },
      async instead() {
        // A stream that broke off goes on after its last line.
        if (state.streamed) return;
        try {
          const response = await send(`${jobPath(job, 'logs')}?${query}`);
          if (!response.ok) throw await failure(response);
          state.lines = (await response.text()).split('\n').filter(Boolean);
          redraw();
        } catch (error) {
          if (error.status === 401) live(error);
          else tell();
        }
      },
    });
  }

  search.addEventListener('input', () => {
    state.search = search.value;
    redraw();
  });
  lines.addEventListener('scroll', () => {
    follows = atEnd();
    newest.hidden = follows;
  });
  // Until the page is shown there is nothing to scroll.
  const sizes = new ResizeObserver(() => follows && toNewest());
  sizes.observe(lines);
  listen(root, 'click', { newest: toNewest });
  listen(root, 'change', {
    attempt: ({ value }) => choose(Number(value)),
    wraps({ checked }) {
      state.wraps = checked;
      lines.classList.toggle('unwrapped', !checked);
    },
    times({ checked }) {
      state.times = checked;
      redraw();
    },
  });

  function choose(attempt) {
    state.attempt = attempt;
    showChoice();
    begin();
  }
  choose(0);
  return {
    chosen: () => state.attempt,
    choose,
    /** A job that goes on after its end, by a restart of the server, say, is followed again. */
    update({ attempts, state: is }) {
      const more = attempts.length > state.attempts.length;
      state.attempts = attempts;
      showChoice();
      if (more && state.ended && is !== 'SUCCEEDED') begin();
    },
    focus() {
      lines.focus({ preventScroll: true });
      root.scrollIntoView({ block: 'start' });
    },
    find: () => search.focus(),
    again: () => stream.again(),
    leave() {
      sizes.disconnect();
      cancelAnimationFrame(frame);
      return stream.stop();
    },
  };
}

/** `text` with every place marked where `wanted` stands in it. */
function marked(text, wanted) {
  const parts = [];
  const low = text.toLowerCase();
  let at = 0;
  for (let found = low.indexOf(wanted.toLowerCase()); found >= 0; found = low.indexOf(wanted.toLowerCase(), at)) {
    parts.push(text.slice(at, found), h('mark', {}, text.slice(found, found + wanted.length)));
    at = found + wanted.length;
  }
  return [...parts, text.slice(at)];
}
