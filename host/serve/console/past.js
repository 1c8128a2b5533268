// The history that the server keeps, and asking it for what is new.

import { ask } from './api.js';
import { h } from './dom.js';
import { poll } from './poll.js';

/** The time spans that can be shown: their name, their milliseconds, the seconds between samples and between requests. */
export const SPANS = {
  '10m': { label: '10 minutes', ms: 600_000, step: 1, everyMs: 2000 },
  '1h': { label: '1 hour', ms: 3_600_000, step: 60, everyMs: 15_000 },
  '24h': { label: '24 hours', ms: 86_400_000, step: 60, everyMs: 30_000 },
};

const keyOf = ({ name, model, device, owner }) => JSON.stringify([name, model, device, owner]);

/**
 * Adds an answer of the server to the known samples, `{ times, series }`, and cuts off what is older than `ms` before the
 * newest. A series that one of them lacks has null there.
 */
export function merged(known, { times_ms: given = [], series: givenSeries = [] }, ms) {
  const added = given.filter((time) => time > (known.times.at(-1) ?? -1));
  const skipped = given.length - added.length;
  const times = [...known.times, ...added];
  const first = times.findIndex((time) => time > times.at(-1) - ms);
  const fresh = new Map(givenSeries.map((one) => [keyOf(one), one]));
  const old = new Map(known.series.map((one) => [keyOf(one), one]));
  const series = [...new Set([...old.keys(), ...fresh.keys()])].map((key) => {
    const before = old.get(key)?.values ?? new Array(known.times.length).fill(null);
    const after = fresh.get(key)?.values.slice(skipped) ?? new Array(added.length).fill(null);
    return { ...(fresh.get(key) ?? old.get(key)), values: [...before, ...after].slice(first < 0 ? 0 : first) };
  });
  return { times: times.slice(first < 0 ? 0 : first), series: series.filter(({ values }) => values.some((value) => value !== null)) };
}

/**
 * Follows the history: `query()` gives parameters such as `model=digits`, or null while nothing is wanted, and
 * `changed(samples)` hears of new samples. Returns `{ samples, span, choose, refresh, leave }`; `span` is a key of `SPANS`.
 */
export function followPast(query, changed) {
  const state = { span: '10m', samples: { times: [], series: [] }, asked: null, error: null };
  let look = null;

  async function more() {
    const wanted = query();
    if (wanted === null) return;
    const { ms, step } = SPANS[state.span];
    if (state.asked !== wanted) state.samples = { times: [], series: [] };
    const since = state.samples.times.at(-1) ?? Math.max(0, Date.now() - ms);
    try {
      const answer = await ask('GET', `/api/v1/history?step=${step}&since=${since}${wanted && `&${wanted}`}`);
      // Another span or model was chosen meanwhile.
      if (wanted !== query() || step !== SPANS[state.span].step) return;
      state.samples = merged(state.samples, answer, ms);
      state.error = null;
    } catch (error) {
      state.error = error;
    }
    state.asked = wanted;
    changed();
  }
  const start = () => { look = poll(more, SPANS[state.span].everyMs); };
  start();
  return {
    samples: () => state.samples,
    error: () => state.error,
    span: () => state.span,
    choose(span) {
      look.stop();
      Object.assign(state, { span, asked: null, samples: { times: [], series: [] } });
      start();
    },
    refresh: () => look.now(),
    leave: () => look.stop(),
  };
}

/** The values of one series, or null. */
export function valuesOf({ series }, name, subject = {}) {
  const found = series.find((one) => one.name === name && Object.entries(subject).every(([key, value]) => one[key] === value));
  return found ? found.values : null;
}

/** The choice of a span; its `data-change` is `span`. */
export function spanChoice(span) {
  return h(
    'label',
    { class: 'check', 'data-key': 'span' },
    'Shown ',
    h('select', { 'data-change': 'span' }, Object.entries(SPANS).map(([key, { label }]) => h('option', { value: key, selected: key === span }, label))),
  );
}
