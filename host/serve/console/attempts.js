// The attempts at a job: a ribbon whose pieces are as wide as they took, and a table that says the same in words.

import { h } from './dom.js';
import { seconds, words, worked } from './format.js';
import { hostsOf, since } from './rows.js';
import { isActive, mark } from './state.js';

/** No piece of the ribbon is narrower than this share of the whole. */
const SHARE_MIN = 0.06;

/** The ribbon of `attempts`; `chosen` is the number of the one whose log is shown, or 0. */
export function ribbon(attempts, chosen) {
  if (attempts.length === 0) return null;
  const whole = attempts.reduce((sum, { wall_seconds: wall }) => sum + wall, 0);
  const piece = (attempt) => {
    const is = attempt.state;
    const why = [words(attempt.reason), attempt.message].filter(Boolean).join(': ');
    const share = whole > 0 ? Math.max(attempt.wall_seconds / whole, SHARE_MIN) : 1;
    const name = `Attempt ${attempt.number}, ${is}${why ? `, ${why}` : ''}`;
    return h(
      'li',
      { style: { 'flex-grow': share.toFixed(4) }, 'data-key': `attempt ${attempt.number}` },
      h(
        'button',
        {
          type: 'button', class: `piece ${is.toLowerCase()}`, 'data-click': 'attempt', 'data-attempt': attempt.number,
          'aria-pressed': String(chosen === attempt.number), 'aria-label': `${name}: show its log`, title: name,
        },
        String(attempt.number),
      ),
    );
  };
  return h('ol', { class: 'ribbon', 'aria-label': 'Attempts' }, attempts.map(piece));
}

/** The same in words, last attempt first. */
export function attemptsTable(attempts) {
  if (attempts.length === 0) return h('p', { class: 'note' }, 'No attempt was made yet.');
  const names = ['Attempt', 'State', 'Why', 'Steps', 'Device', 'Started', 'Took', 'GPU time'];
  const cell = (label, ...content) => h('td', { 'data-label': label }, content);
  const line = (attempt) => h(
    'tr',
    { 'data-key': `attempt ${attempt.number}` },
    h('th', { scope: 'row' }, `Attempt ${attempt.number}`),
    cell('State', mark(attempt.state)),
    h('td', { 'data-label': 'Why', class: attempt.reason || attempt.message ? 'why' : 'why none' }, why(attempt)),
    cell('Steps', span(attempt)),
    cell('Device', [attempt.device || '–', hostsOf(attempt) && `on ${hostsOf(attempt)}`].filter(Boolean).join(' ')),
    cell('Started', since(attempt.started_ms)),
    cell('Took', isActive(attempt.state) && !attempt.wall_seconds ? 'just begun' : seconds(attempt.wall_seconds)),
    cell('GPU time', worked(attempt.gpu_seconds, attempt.gpu_seconds_estimated)),
  );
  return h(
    'table',
    { class: 'grid attempts' },
    h('caption', { class: 'unseen' }, 'Attempts, the last one first'),
    h('thead', {}, h('tr', {}, names.map((name) => h('th', { scope: 'col' }, name)))),
    h('tbody', {}, [...attempts].reverse().map(line)),
  );
}

function why({ reason, message }) {
  if (!reason && !message) return '–';
  return [reason && h('b', {}, words(reason)), reason && message && ': ', message];
}

function span({ first_step: first, last_step: last }) {
  return last ? `${first} → ${last}` : '–';
}
