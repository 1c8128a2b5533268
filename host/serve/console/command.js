// The command that does what a form does.

import { decimal } from './checks.js';
import { quote } from './curl.js';

/** Seconds as a time with a unit. */
function time(seconds) {
  const [unit, size] = [['h', 3600], ['m', 60], ['s', 1]].find(([, each]) => seconds % each === 0) ?? ['s', 1];
  return `${decimal(seconds / size)}${unit}`;
}

/** Bytes as a size with a unit. */
function size(bytes) {
  const [unit, each] = [['GiB', 1024 ** 3], ['MiB', 1024 ** 2], ['KiB', 1024], ['B', 1]].find(([, of]) => bytes % of === 0);
  return `${bytes / each}${unit}`;
}

const mounted = ({ dataset, version, job, path, mount }) => (job ? `job:${job}/output${path ? `/${path}` : ''}:${mount}` : `${dataset}${version ? `/${version}` : ''}:${mount}`);

/** Options of `saggar run` that a job's specification is written as. `plugin` is the name or the file of the plugin; null for a notebook. */
function runWords(spec, plugin) {
  const option = (name, value) => (value === undefined || value === null ? [] : [name, String(value)]);
  return [
    ...(plugin === null ? ['--mode', 'notebook'] : [plugin]),
    ...option('--project', spec.project),
    ...(spec.data ?? []).flatMap((mount) => ['--data', mounted(mount)]),
    ...(spec.gpu_slots === undefined ? option('--device', spec.device) : [`--gpu=${decimal(spec.gpu_slots)}`]),
    ...option('--seed', spec.seed),
    ...option('--queue', spec.queue),
    ...option('--priority', spec.priority),
    ...(spec.preemptible ? ['--preemptible'] : []),
    ...Object.entries(spec.labels ?? {}).flatMap(([name, value]) => ['--label', `${name}=${value}`]),
    ...option('--retry', spec.retry),
    ...option('--max-runtime', spec.max_runtime_seconds && time(spec.max_runtime_seconds)),
    ...option('--idle-timeout', spec.notebook?.idle_timeout_seconds && time(spec.notebook.idle_timeout_seconds)),
    ...option('--memory', spec.memory_bytes && size(spec.memory_bytes)),
    ...option('--gpu-memory', spec.gpu_memory_bytes && size(spec.gpu_memory_bytes)),
    ...option('--experiment', spec.experiment),
    ...(spec.secrets ?? []).flatMap((name) => ['--secret', name]),
    ...option('--message', spec.message),
  ];
}

function parameterWords(parameters) {
  const entries = Object.entries(parameters ?? {});
  // A text that is JSON, such as a number, needs quotes to stay a text.
  const text = (value) => (typeof value === 'string' && !isJson(value) ? value : JSON.stringify(value));
  return entries.length ? ['--', ...entries.map(([name, value]) => `${name}=${text(value)}`)] : [];
}

function isJson(text) {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/** The command that submits a job of this specification. */
export function runCommand(spec, plugin) {
  return ['saggar', 'run', ...[...runWords(spec, plugin), ...parameterWords(spec.parameters)].map(quote)].join(' ');
}

/** The command that starts a sweep of this specification. */
export function sweepCommand({ job, space, trials, method, metric, max_parallel: parallel, seed, eta, rungs, budget_seconds: budget, budget_device_seconds: deviceBudget }, plugin) {
  const option = (name, value) => (value === undefined || value === null ? [] : [name, String(value)]);
  const words = [
    ...runWords({ ...job, seed: seed ?? job.seed }, plugin),
    ...Object.entries(space ?? {}).flatMap(([name, range]) => ['--space', `${name}=${range}`]),
    ...option('--random', trials),
    ...option('--method', method),
    ...option('--metric', metric),
    ...option('--max-parallel', parallel),
    ...option('--eta', eta),
    ...option('--rungs', rungs),
    ...option('--budget', budget && time(budget)),
    ...option('--device-budget', deviceBudget && time(deviceBudget)),
    ...parameterWords(job?.parameters),
  ];
  return ['saggar', 'sweep', ...words.map(quote)].join(' ');
}
