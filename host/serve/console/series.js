// A training's series as numbers for charts: which belong together, smoothing, and what a logarithm can show.

/** Points of one series by step: `{ name, points: [[step, value or null]] }`, as the server gives them. */

/** The chart that a series belongs to: `validation/loss` and `loss` share one. */
export function groupOf(name) {
  return name.split('/').pop();
}

/** The groups of these series, losses first, then by name: `[[group, [name]]]`. */
export function groups(names) {
  const found = new Map();
  for (const name of [...names].sort((a, b) => a.length - b.length)) found.set(groupOf(name), [...(found.get(groupOf(name)) ?? []), name]);
  const order = ([group]) => (group.includes('loss') ? `0${group}` : `1${group}`);
  return [...found].sort((a, b) => (order(a) < order(b) ? -1 : 1));
}

/**
 * The series on the steps of all of them: `[steps, values...]`. Where a series has no point it has `undefined`, which a
 * chart draws across; a value that is not a number is null, which it leaves out.
 */
export function aligned(series) {
  const steps = [...new Set(series.flatMap(({ points }) => points.map(([step]) => step)))].sort((a, b) => a - b);
  const at = new Map(steps.map((step, index) => [step, index]));
  const columns = series.map(({ points }) => {
    const values = new Array(steps.length).fill(undefined);
    for (const [step, value] of points) values[at.get(step)] = value;
    return values;
  });
  return [steps, ...columns];
}

/**
 * An exponential moving average without the pull towards its start: `weight` from 0, which changes nothing, to below 1.
 * Source: the debiasing of Adam (Kingma and Ba 2015, section 3).
 */
export function smooth(values, weight) {
  let sum = 0;
  let count = 0;
  return values.map((value) => {
    if (value === null || value === undefined) return value;
    count += 1;
    sum = weight * sum + (1 - weight) * value;
    return sum / (1 - weight ** count);
  });
}

/** Only what a logarithm can show. */
export function positive(values) {
  return values.map((value) => (value !== undefined && !(value > 0) ? null : value));
}

/** Where in `points` the first one is whose step is not below `step`: their number, where there is none. */
export function placeOf(points, step) {
  let [low, high] = [0, points.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle][0] < step) low = middle + 1;
    else high = middle;
  }
  return low;
}

/**
 * Adds points of the server to those that are there: they replace what was known from the first of them to the last. Whether
 * that changed anything.
 */
export function extend(series, newer) {
  let changed = false;
  for (const { name, points } of newer) {
    const known = series.get(name) ?? [];
    const [from, to] = points.length ? [placeOf(known, points[0][0]), placeOf(known, points.at(-1)[0] + 1)] : [0, 0];
    const same = to - from === points.length && points.every(([step, value], at) => {
      const [before, was] = known[from + at];
      return before === step && was === value;
    });
    if (same && series.has(name)) continue;
    series.set(name, known.slice(0, from).concat(points, known.slice(to)));
    changed = true;
  }
  return changed;
}

/** The attempts with the steps at which they began, as a text: where it changes, points that were known may be undone. */
export function beginnings(attempts) {
  return (attempts ?? []).map(({ number, first_step: step }) => `${number}@${step}`).join(' ');
}

/**
 * A job's series as they grow. `ask(from)` asks the server for the points from a step on, and gives its answer:
 * `{ series, next }`, where `next` is the step to ask from for what was too much for it. Returns `{ points, more, clear }`:
 * `points` by name; `more(whole)` asks for what is new, and where `whole` is set for what may have come late too, and gives
 * whether there was anything.
 */
export function growing(ask) {
  const points = new Map();
  /** Each series has all its points below this step, but for some that came late. */
  let settled = 0;
  return {
    points,
    async more(whole = false) {
      const last = [...points.values()].map((known) => known.at(-1)?.[0] ?? 0);
      const newest = Math.max(0, ...last);
      // The series of one step do not come all at once. One that has ended must not have the others sent again and again.
      let from = last.length ? Math.max(Math.min(...last), whole ? 0 : settled) : 0;
      let changed = false;
      while (from !== null) {
        const answer = await ask(from);
        changed = extend(points, answer.series) || changed;
        from = answer.next ?? null;
      }
      settled = newest;
      return changed;
    },
    clear() {
      points.clear();
      settled = 0;
    },
  };
}
