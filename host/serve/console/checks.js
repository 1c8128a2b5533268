// The checks of a specification that the server makes too, in its words, so that a form shows them before it is sent.

const NAME = /^[a-z0-9][a-z0-9._-]{0,62}$/;
const TIME_UNITS = { us: 1e-6, ms: 1e-3, s: 1, m: 60, h: 3600, d: 86_400 };
const SIZE_UNITS = { KiB: 1024, MiB: 1024 ** 2, GiB: 1024 ** 3, TiB: 1024 ** 4, B: 1 };
/** Most values of a list and most trials, and the bytes of a message. */
const VALUES_MAX = 1000;
const TRIALS_MAX = 2000;
const MESSAGE_BYTES_MAX = 4096;

/** A text as the server quotes it. */
export const quoted = (text) => JSON.stringify(text);

/** A number as the server writes it: never with an exponent. */
export function decimal(value) {
  const text = String(value);
  if (!text.includes('e')) return text;
  return value.toLocaleString('en', { useGrouping: false, maximumSignificantDigits: 17, notation: 'standard', maximumFractionDigits: 20 });
}

/** A number as the server writes it in a range. */
function debugNumber(value) {
  if (value !== 0 && Math.abs(value) < 1e-4) return value.toExponential();
  return Number.isInteger(value) ? `${value}.0` : String(value);
}

/** What is wrong with a name of a project, a queue or an experiment, or null. */
export function nameProblem(field, name) {
  if (NAME.test(name)) return null;
  return `${field}: invalid name ${quoted(name)}: expected 1 to 63 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit`;
}

/** What a declared parameter accepts, such as `an integer of at least 1`. */
export function expectedOf({ type, choices = [], min, max }) {
  if (type === 'text' && choices.length) return `one of ${choices.join(', ')}`;
  const kinds = {
    integer: 'an integer', number: 'a number', text: 'a text', boolean: 'true or false',
    file: 'a file that a job wrote, such as job:digits-7/output/report.json', dataset: 'a dataset, such as digits/1 or job:digits-7/output/table',
    model: 'a version of a model, such as digits@3', checkpoint: 'a checkpoint, such as job:digits-7/checkpoint@1200',
  };
  const has = (bound) => bound !== undefined && bound !== null;
  if (has(min) && has(max)) return `${kinds[type]} from ${decimal(min)} to ${decimal(max)}`;
  if (has(min)) return `${kinds[type]} of at least ${decimal(min)}`;
  if (has(max)) return `${kinds[type]} of at most ${decimal(max)}`;
  return kinds[type];
}

/** Whether a declared parameter accepts a JSON value. */
export function accepts({ type, choices = [], min, max }, value) {
  const within = (number) => Number.isFinite(number) && (min ?? -Infinity) <= number && number <= (max ?? Infinity);
  if (type === 'integer') return typeof value === 'number' && Number.isInteger(value) && within(value);
  if (type === 'number') return typeof value === 'number' && within(value);
  if (type === 'boolean') return typeof value === 'boolean';
  if (type === 'text') return typeof value === 'string' && (choices.length === 0 || choices.includes(value));
  return typeof value === 'string' && value !== '';
}

/** What was typed for a declared parameter, as JSON: a text where it is no other value. */
export function typedValue({ type }, text) {
  if (type === 'integer' || type === 'number') return jsonOr(text.trim());
  if (type === 'boolean') return text === 'true' || (text === 'false' ? false : text);
  return text;
}

/** JSON, else the text itself, as the command reads a parameter. */
export function jsonOr(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** What is wrong with the value of a declared parameter, or null. `text` is the value as the server quotes it. */
export function parameterProblem(name, declared, value, text = JSON.stringify(value)) {
  if (accepts(declared, value)) return null;
  return `parameters.${name}: expected ${expectedOf(declared)}, got ${[...text].slice(0, 80).join('')}`;
}

function withUnit(text, units) {
  const [, number, unit] = /^([\d.]+)\s*([A-Za-z]+)$/.exec(text.trim()) ?? [];
  const factor = Object.hasOwn(units, unit ?? '') ? units[unit] : undefined;
  return factor === undefined || !Number.isFinite(Number(number)) ? null : Number(number) * factor;
}

/** Seconds of a time such as `90s` or `2h`, or null. */
export const secondsOf = (text) => withUnit(text, TIME_UNITS);

/** Bytes of a size such as `4GiB`, or null. */
export function bytesOf(text) {
  const bytes = withUnit(text, SIZE_UNITS);
  return bytes === null ? null : Math.floor(bytes);
}

/** The whole number in a text, and what is wrong with it: `{ value, problem }`. */
export function wholeNumber(field, text, least, most) {
  if (!/^\d+$/.test(text.trim())) return { problem: `${field}: expected a whole number from ${least} to ${most}, got ${text}` };
  const value = Number(text);
  if (value >= least && value <= most) return { value };
  if (field === 'retry') return { value, problem: `retry: ${value} extra attempts; the maximum is ${most}` };
  return { value, problem: `${field}: ${value} is not from ${least} to ${most}` };
}

/** What is wrong with the mounts, or null. */
export function mountProblem(mounts) {
  const seen = new Set();
  for (const { mount } of mounts) {
    const plain = mount.split('/').slice(1).every((part) => !['', '.', '..'].includes(part));
    if (!mount.startsWith('/') || mount.length < 2 || !plain) return { mount, problem: `data: invalid mount point ${quoted(mount)}: expected an absolute path such as /data` };
    if (seen.has(mount)) return { mount, problem: `data: two datasets are to be mounted at ${mount}` };
    seen.add(mount);
  }
  return null;
}

/** That the plugin reads a dataset where none is mounted. */
export const notMounted = (mount) => `data: the plugin reads a dataset at ${mount}, but the job mounts none there; use \`saggar run --data NAME:${mount}\``;

/** The field that a version of a dataset lacks, or null. */
export function fieldProblem(mount, fields, version) {
  const has = version.fields.map(({ name }) => name);
  const missing = fields.find((field) => !has.includes(field));
  if (missing === undefined) return null;
  return `data: the plugin reads the field \`${missing}\` of ${mount}, but dataset ${version.name}/${version.version} lacks it; it has: ${has.join(', ')}`;
}

/** That the message is too long, or null. */
export function messageProblem(message) {
  const bytes = new TextEncoder().encode(message).length;
  return bytes > MESSAGE_BYTES_MAX ? `message: ${bytes} bytes; the maximum is ${MESSAGE_BYTES_MAX}` : null;
}

/**
 * The range of a searched parameter from its parts, as text such as `log(0.001,0.1)`, and what is wrong with it: `{ text,
 * problem }`. `kind` is `list`, `range` or `log`.
 */
export function rangeOf(name, declared, { kind, list, min, max }) {
  if (kind === 'list') return listOf(name, declared, list);
  const isInteger = declared.type === 'integer';
  const [form, numbers, example] = kind === 'log' ? ['log', 'numbers above 0', 'log(1e-4,1e-1)'] : isInteger ? ['int', 'whole numbers', 'int(1,8)'] : ['uniform', 'numbers', 'uniform(0,0.9)'];
  const bounds = [min, max].map((text) => (text.trim() === '' ? NaN : Number(text)));
  const valid = bounds.every((bound) => Number.isFinite(bound) && (form !== 'int' || Number.isInteger(bound)) && (form !== 'log' || bound > 0));
  const text = `${form}(${min.trim()},${max.trim()})`;
  const failed = (reason) => ({ text, problem: `space.${name}: ${reason}` });
  if (!valid) return failed(`${form}() takes a minimum and a maximum, two ${numbers}, such as ${example}; got ${quoted(`${min.trim()},${max.trim()}`)}`);
  if (bounds[0] >= bounds[1]) return failed(`the maximum ${decimal(bounds[1])} is not above the minimum ${decimal(bounds[0])}`);
  const rangeText = form === 'int' ? text : `${form}(${bounds.map(debugNumber).join(',')})`;
  return { text, rangeText, problem: bounds.map((bound) => parameterProblem(name, declared, bound, form === 'int' ? undefined : debugNumber(bound))).find(Boolean) ?? null };
}

function listOf(name, declared, list) {
  const failed = (reason) => ({ text: list, problem: `space.${name}: ${reason}` });
  const words = list.split(',').map((word) => word.trim());
  if (words.some((word) => word === '')) return failed('a value is missing; expected values separated by commas, such as 0.1,0.01');
  if (words.length > VALUES_MAX) return failed(`${words.length} values; the maximum is ${VALUES_MAX}`);
  const values = words.map(jsonOr);
  // A number with a fraction is another value than a whole one.
  const same = values.map((value, at) => `${JSON.stringify(value)} ${typeof value === 'number' && /[.e]/i.test(words[at])}`);
  const twice = words.find((_, at) => same.indexOf(same[at]) < at);
  if (twice !== undefined) return failed(`the value ${twice} is given twice`);
  return { text: words.join(','), count: words.length, problem: values.map((value) => parameterProblem(name, declared, value)).find(Boolean) ?? null };
}

/** What is wrong with the number of trials, or null. `ranges` are the results of `rangeOf` by name. */
export function trialsProblem(trials, method, ranges) {
  if (trials !== null) return trials >= 1 && trials <= TRIALS_MAX ? null : `${trials} trials; a sweep has 1 to ${TRIALS_MAX}`;
  if (method.startsWith('tpe')) return `trials: ${method} needs a number of trials, such as 40`;
  const open = Object.entries(ranges).find(([, { count }]) => count === undefined);
  if (open) return `space.${open[0]}: ${open[1].rangeText} has no list of values; set \`trials\` to draw values at random, or list them, such as 0.1,0.01`;
  return null;
}
