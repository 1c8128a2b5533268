// What a form of a job or a sweep says, as a specification, and what is wrong with it. Pure functions of the form's values.

import {
  bytesOf, fieldProblem, jsonOr, messageProblem, mountProblem, nameProblem, notMounted, parameterProblem, expectedOf, quoted, rangeOf, secondsOf, trialsProblem,
  typedValue, wholeNumber,
} from './checks.js';

/** The ways in which a parameter of a sweep is searched, with the words of the choice. */
export const SEARCHES = { fixed: 'fixed', list: 'these values', range: 'a range', log: 'a logarithmic range' };
/** The methods of a sweep, with what they do. */
export const METHODS = {
  full: 'every trial runs to its end', median: 'a trial that is worse than the median of the others is stopped',
  halving: 'the best of each rung continue, once all reached it', asha: 'the best of each rung continue, without waiting for all',
  tpe: 'parameters are drawn where results are best so far', 'tpe-asha': 'parameters as with tpe, trials stopped as with asha',
};
const RUNG_METHODS = ['halving', 'asha', 'tpe-asha'];

/** The parameters that a plugin declares, or the inputs of a step: `[[name, declaration]]`. */
export function declaredParameters(plugin) {
  const { parameters = {}, inputs = {} } = plugin?.declares ?? {};
  return Object.entries(plugin?.is_step ? inputs : parameters);
}

/** The mount points of the form: those that the plugin declares with the fields that it reads, and those that were added. */
export function mountPoints(plugin, added) {
  const declared = Object.entries(plugin?.declares?.data ?? {}).map(([mount, fields]) => ({ key: mount, mount, fields, declared: true }));
  return [...declared, ...added.map((key) => ({ key, mount: null, fields: [], declared: false }))];
}

/** The name of a job's project if none is typed: the plugin's, as the command makes it. */
export function projectOf(plugin) {
  const name = (plugin?.declares?.name ?? '').toLowerCase().replaceAll(/[^a-z0-9._-]/g, '-').slice(0, 63);
  return /^[a-z0-9]/.test(name) ? name : '';
}

/** Collects what is wrong with each field. */
function reader(values) {
  const problems = {};
  const say = (field, problem) => {
    if (problem) problems[field] ??= problem;
  };
  const text = (field) => (values[field] ?? '').trim();
  return { problems, say, text };
}

/**
 * The specification of the job, `{ spec, problems }`: `problems` has the words of the server by field. `form` is `{ plugin,
 * values, mounts, datasets }`.
 */
export function readJob(form, searched = []) {
  const { plugin, values } = form;
  const { problems, say, text } = reader(values);
  const spec = { project: text('project') || projectOf(plugin), plugin: plugin?.reference ? plugin.declares?.name ?? plugin.digest : plugin?.digest ?? '' };
  if (!plugin) say('plugin', 'plugin: choose one');
  say('project', nameProblem('project', spec.project));
  const parameters = readParameters(plugin, values, searched, say);
  if (Object.keys(parameters).length) spec.parameters = parameters;
  const data = readMounts(form, say);
  if (data.length) spec.data = data;
  for (const field of ['experiment', 'queue']) {
    if (!text(field)) continue;
    say(field, nameProblem(field, text(field)));
    spec[field] = text(field);
  }
  if (text('device')) spec.device = text('device');
  readNumbers(spec, text, say);
  if (values.preemptible === 'true') spec.preemptible = true;
  if (text('message')) {
    say('message', messageProblem(text('message')));
    spec.message = text('message');
  }
  return { spec, problems };
}

function readNumbers(spec, text, say) {
  for (const [field, least, most] of [['priority', 0, 100], ['retry', 0, 1000], ['seed', 0, Number.MAX_SAFE_INTEGER]]) {
    if (!text(field)) continue;
    const { value, problem } = wholeNumber(field, text(field), least, most);
    say(field, problem);
    spec[field] = value;
  }
  if (text('gpu_slots') && spec.device === 'gpu') {
    const slots = Number(text('gpu_slots'));
    if (!(slots >= 0.001 && slots <= 64)) say('gpu_slots', `gpu_slots: ${text('gpu_slots')} is not from 0.001 to 64`);
    spec.gpu_slots = slots;
  }
  for (const field of ['memory_bytes', 'gpu_memory_bytes']) {
    if (!text(field)) continue;
    const bytes = bytesOf(text(field));
    if (bytes === null) say(field, `${field}: expected a size with a unit, such as 512MiB or 4GiB, got ${text(field)}`);
    else if (bytes < 1) say(field, `${field}: expected at least 1 byte`);
    spec[field] = bytes;
  }
  if (text('max_runtime_seconds')) spec.max_runtime_seconds = readSeconds('max_runtime_seconds', text, say);
}

function readSeconds(field, text, say) {
  const seconds = secondsOf(text(field));
  if (seconds === null) say(field, `${field}: expected a time with a unit, such as 90s, 10m or 1h, got ${text(field)}`);
  else if (!(seconds > 0)) say(field, `${field}: expected a number of seconds above 0`);
  return seconds;
}

function readParameters(plugin, values, searched, say) {
  const parameters = {};
  for (const [name, declared] of declaredParameters(plugin)) {
    if (searched.includes(name)) continue;
    const field = `parameters.${name}`;
    const typed = values[field] ?? '';
    if (typed === '') {
      const isMissing = plugin.is_step && declared.default === undefined;
      if (isMissing) say(field, `input \`${name}\` is missing: expected ${expectedOf(declared)}; use \`saggar run PLUGIN -- ${name}=VALUE\``);
      continue;
    }
    parameters[name] = typedValue(declared, typed);
    say(field, parameterProblem(name, declared, parameters[name]));
  }
  for (const line of (values.extra ?? '').split('\n').map((one) => one.trim()).filter(Boolean)) {
    const [, name, value] = /^([^=\s]+)=(.*)$/s.exec(line) ?? [];
    if (name === undefined) say('extra', `${quoted(line)} is not a parameter: parameters are written epochs=3, one on each line`);
    else if (Object.hasOwn(parameters, name)) say('extra', `parameter ${name} is given twice`);
    else parameters[name] = jsonOr(value);
  }
  return parameters;
}

function readMounts({ plugin, values, mounts, datasets }, say) {
  const data = [];
  for (const { key, mount: declared, fields, declared: isDeclared } of mountPoints(plugin, mounts)) {
    const mount = declared ?? (values[`point.${key}`] ?? '/data').trim();
    const field = `mount.${key}`;
    const source = values[field] ?? '';
    if (source === '') {
      say(field, isDeclared ? notMounted(mount) : `data: choose what is mounted at ${mount}`);
      continue;
    }
    const [found, problem] = source === 'job' ? outputOf(values[`output.${key}`] ?? '') : datasetOf(source);
    say(field, problem);
    if (found) data.push({ ...found, mount });
    const version = found?.dataset && versionOf(datasets, found);
    if (version) say(field, fieldProblem(mount, fields, version));
    const wrong = mountProblem(data);
    if (wrong) say(isDeclared ? field : `point.${key}`, wrong.problem);
  }
  return data;
}

function outputOf(text) {
  const [, job, path] = /^job:([^/\s]+)\/output(?:\/(.+))?$/.exec(text.trim()) ?? [];
  if (job) return [path ? { job, path } : { job }, null];
  return [null, `invalid data ${quoted(text)}: expected a dataset or a job's output, such as mnist/1 or job:mnist-7/output/table`];
}

function datasetOf(text) {
  const [dataset, version] = text.split('/');
  return [version ? { dataset, version: Number(version) } : { dataset }, null];
}

/** The version of a dataset that a mount means, or undefined. */
export function versionOf(datasets, { dataset, version }) {
  const versions = (datasets ?? []).filter(({ name }) => name === dataset).sort((a, b) => b.version - a.version);
  return version ? versions.find((one) => one.version === version) : versions[0];
}

/** The specification of the sweep, `{ spec, problems }`, as `readJob`. */
export function readSweep(form) {
  const { plugin, values } = form;
  const searches = declaredParameters(plugin).map(([name, declared]) => [name, declared, values[`search.${name}`] ?? 'fixed']).filter(([, , kind]) => kind !== 'fixed');
  const { spec: job, problems } = readJob(form, searches.map(([name]) => name));
  const { say, text } = { ...reader(values), say: (field, problem) => { if (problem) problems[field] ??= problem; } };
  const ranges = {};
  for (const [name, declared, kind] of searches) {
    const of = (part) => values[`${part}.${name}`] ?? '';
    ranges[name] = rangeOf(name, declared, { kind, list: of('list'), min: of('min'), max: of('max') });
    say(`parameters.${name}`, ranges[name].problem);
  }
  const spec = { job, space: Object.fromEntries(Object.entries(ranges).map(([name, { text: range }]) => [name, range])) };
  if (searches.length === 0) say('space', 'space: no parameter is searched; name at least one, such as {"lr": "log(1e-4,1e-1)"}');
  const method = text('method') || 'full';
  if (method !== 'full') spec.method = method;
  spec.metric = text('metric');
  if (!spec.metric) say('metric', 'metric: expected the name of a series, such as validation/accuracy');
  const numbers = [['trials', 1, 2000], ['max_parallel', 1, 256], ...(RUNG_METHODS.includes(method) ? [['eta', 2, 16], ['rungs', 1, 8]] : [])];
  for (const [field, least, most] of numbers) {
    if (!text(field)) continue;
    const { value, problem } = field === 'trials' && /^\d+$/.test(text(field)) ? { value: Number(text(field)) } : wholeNumber(field, text(field), least, most);
    say(field, problem);
    spec[field] = value;
  }
  if (Object.values(ranges).every(({ problem }) => !problem) && searches.length) {
    const problem = trialsProblem(spec.trials ?? null, method, ranges);
    const field = /^space\.([^:]+):/.exec(problem ?? '');
    say(field ? `parameters.${field[1]}` : 'trials', problem);
  }
  for (const field of ['budget_seconds', 'budget_device_seconds']) {
    if (text(field)) spec[field] = readSeconds(field, text, say);
  }
  if (job.seed !== undefined) spec.seed = job.seed;
  return { spec, problems };
}

/** Whether a method compares trials at rungs. */
export function hasRungs(method) {
  return RUNG_METHODS.includes(method);
}

/** The newest version of each dataset. */
export function newestVersions(datasets) {
  const newest = new Map();
  for (const one of datasets) if (!(newest.get(one.name)?.version > one.version)) newest.set(one.name, one);
  return [...newest.values()];
}

/** The field that an error of the server is about, among `fields`, or null. */
export function fieldOfError(message, fields) {
  const [, name = ''] = /^([\w./-]+):/.exec(message) ?? [];
  const input = /^input `([^`]+)`/.exec(message)?.[1];
  const candidates = [name, name.replace(/^space\./, 'parameters.'), input && `parameters.${input}`, /^the key .* is for jobs of/.test(message) && 'project', /^\d+ trials;/.test(message) && 'trials'];
  const found = candidates.find((one) => one && fields.includes(one));
  if (found) return found;
  if (name !== 'data') return null;
  // The mount that the message names, else the first.
  const mounts = fields.filter((field) => field.startsWith('mount.'));
  return mounts.find((field) => message.includes(field.slice('mount.'.length))) ?? mounts[0] ?? null;
}
