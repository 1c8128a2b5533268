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

/**
 * Adds newer points of the server to those that are there: a step that comes again has its newer value.
 */
export function extend(series, newer) {
  for (const { name, points } of newer) {
    const known = series.get(name);
    if (!known) {
      series.set(name, points);
    } else if (points.length) {
      const [from] = points[0];
      series.set(name, [...known.filter(([step]) => step < from), ...points]);
    }
  }
}
