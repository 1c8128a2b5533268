// The columns of a table of runs, and filters over them: pure functions of jobs as the server describes them.

import { number, seconds } from './format.js';

/** Columns that every job has: what they are called, their value, and how it is shown. */
const FIXED = [
  ['state', ({ state }) => state, String],
  ['step', ({ step }) => step, String],
  ['ran', ({ wall_seconds: wall }) => wall, seconds],
  ['GPU time', ({ gpu_seconds: gpu }) => gpu, seconds],
  ['device', ({ device }) => device, String],
  ['seed', ({ spec }) => spec?.seed, String],
  ['task', ({ task }) => task, String],
  ['project', ({ project }) => project, String],
  ['message', ({ description }) => description, String],
  ['note', ({ note }) => note, String],
];

/** Text of a parameter. */
function plain(value) {
  return typeof value === 'string' ? value : JSON.stringify(value);
}

/**
 * The columns of these jobs: `{ key, label, group, value(job), show(value) }`. Parameters, tags and metrics are those that any
 * job has. `key` is also the name under which filters find a column whose label is not unique.
 */
export function columnsOf(jobs) {
  const names = (of) => [...new Set(jobs.flatMap((job) => Object.keys(of(job) ?? {})))].sort();
  const group = (title, prefix, of, show) => names(of).map((label) => ({
    key: `${prefix}.${label}`, label, group: title, value: (job) => of(job)?.[label], show,
  }));
  return [
    ...FIXED.map(([label, value, show]) => ({ key: label, label, group: 'Job', value, show })),
    ...group('Parameters', 'params', ({ spec }) => spec?.parameters, plain),
    ...group('Metrics', 'metrics', ({ metrics }) => metrics, number),
    ...group('Tags', 'tags', ({ tags }) => tags, plain),
  ];
}

/** The columns that are shown if nobody chose: the state, parameters that differ, tags, notes, the first metrics, and the time. */
export function usualColumns(columns, jobs) {
  const differs = ({ value }) => new Set(jobs.map((job) => JSON.stringify(value(job)))).size > 1;
  const metrics = columns.filter(({ group }) => group === 'Metrics').sort((a, b) => rank(a.label) - rank(b.label));
  const firstMetrics = new Set(metrics.slice(0, 4));
  const isUsual = (column) => ['state', 'ran'].includes(column.key)
    || (column.group === 'Parameters' && differs(column)) || column.group === 'Tags' || firstMetrics.has(column)
    || (column.key === 'note' && jobs.some(({ note }) => note));
  return new Set(columns.filter(isUsual).map(({ key }) => key));
}

/** Metrics of data that was not trained on tell most. */
function rank(name) {
  const place = ['validation/accuracy', 'validation/loss', 'accuracy', 'loss'].indexOf(name);
  return place < 0 ? 9 : place;
}

/** Whether there is a value that can be compared. */
function isKnown(value) {
  return value !== undefined && value !== null && value !== '';
}

/** Sorts jobs by a column; those without a value come last in both directions. Equal ones keep their order. */
export function sorted(jobs, column, descending) {
  if (!column) return jobs;
  const sign = descending ? -1 : 1;
  return [...jobs].sort((a, b) => {
    const [left, right] = [column.value(a), column.value(b)];
    if (!isKnown(left) || !isKnown(right)) return Number(isKnown(right)) - Number(isKnown(left));
    if (typeof left === 'number' && typeof right === 'number') return sign * (left - right);
    return sign * plain(left).localeCompare(plain(right), undefined, { numeric: true });
  });
}

const TERM = /([^\s<>=!"]+)\s*(<=|>=|!=|=|<|>)\s*("[^"]*"|[^\s"]+)|"[^"]*"|\S+/g;

/**
 * Reads a filter: words that a job's name or texts contain, tags that it has, such as `tag:kind`, and comparisons such as
 * `loss < 0.1`, `state = FAILED` and `tag:kind = baseline`, all of which must hold. Returns `{ matches(job) }`, or
 * `{ problem }` where a name is no column. A tag need not be a column: jobs lose and gain them.
 */
export function parseFilter(text, columns) {
  const tests = [];
  for (const [term, name, operator, wanted] of text.matchAll(TERM)) {
    if (!operator) {
      const tag = tagOf(term);
      const word = unquoted(term).toLowerCase();
      tests.push(tag ? (job) => hasTag(job, tag) : (job) => textOf(job).includes(word));
      continue;
    }
    const tag = tagOf(name);
    if (tag) {
      tests.push((job) => holds(hasTag(job, tag) ? job.tags[tag] : undefined, operator, unquoted(wanted)));
      continue;
    }
    const column = columns.find(({ key }) => key === name) ?? columns.find(({ label }) => label === name);
    if (!column) return { problem: `No column is called ${name}.` };
    tests.push((job) => holds(column.value(job), operator, unquoted(wanted)));
  }
  return { matches: (job) => tests.every((one) => one(job)) };
}

/** The name in `tag:NAME`, or null. */
function tagOf(term) {
  return /^tag:(.+)$/.exec(term)?.[1] ?? null;
}

function hasTag({ tags }, name) {
  return Object.hasOwn(tags ?? {}, name);
}

function unquoted(text) {
  return text.startsWith('"') ? text.slice(1, -1) : text;
}

function textOf({ name, state, reason, description, note, tags }) {
  return [name, state, reason, description, note, ...Object.entries(tags ?? {}).flat()].filter(Boolean).join(' ').toLowerCase();
}

function holds(value, operator, wanted) {
  if (!isKnown(value)) return operator === '!=';
  const isNumber = typeof value === 'number' && wanted !== '' && Number.isFinite(Number(wanted));
  const [left, right] = isNumber ? [value, Number(wanted)] : [plain(value).toLowerCase(), wanted.toLowerCase()];
  switch (operator) {
    case '=': return left === right;
    case '!=': return left !== right;
    case '<': return left < right;
    case '>': return left > right;
    case '<=': return left <= right;
    default: return left >= right;
  }
}
