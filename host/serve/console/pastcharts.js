// The charts of the history of a model, of a device and of the jobs.

import { bytes, duration, number } from './format.js';
import { SPANS, valuesOf } from './past.js';
import { niceBytes, timeline } from './timeline.js';

/** Owners of memory that have a line each; the others are one line. */
const OWNERS_MAX = 3;

const each = (value) => `${number(Number(value.toPrecision(3)))}/s`;
const percent = (value) => `${Math.round(value * 100)} %`;
const seconds = (value) => (value === 0 ? '0' : duration(value * 1000));
const count = (value) => number(Number(value.toPrecision(3)));

/** The time span that the charts show: the chosen one, until the newest sample. */
function spanOf({ times }, span) {
  const to = times.at(-1) ?? Date.now();
  return [to - SPANS[span].ms, to];
}

/** The charts of one model. */
export function modelCharts(samples, span, model) {
  const chart = (id, title, show, lines) => timeline({
    id: `${model} ${id}`, title, times: samples.times, span: spanOf(samples, span), show,
    lines: lines.map(([name, quantity]) => ({ name, values: valuesOf(samples, quantity, { model }) })),
  });
  return [
    chart('requests', 'Requests', each, [['requests', 'model_requests_per_second'], ['errors', 'model_errors_per_second']]),
    chart('latency', 'Latency', seconds, [['p50', 'model_latency_p50_seconds'], ['p99', 'model_latency_p99_seconds']]),
    chart('batches', 'Items in a batch', count, [['mean', 'model_batch_items']]),
    chart('queue', 'Waiting predictions', count, [['queue', 'model_queue_length']]),
  ];
}

/** The memory of a device by owner, the largest first: `[[owner, values]]`. */
export function memoryOf({ series }, device) {
  const found = series.filter((one) => one.name === 'device_memory_bytes' && one.device === device);
  const size = ({ values }) => Math.max(0, ...values.filter((value) => value !== null));
  return found.sort((a, b) => size(b) - size(a)).map(({ owner, values }) => [owner, values]);
}

/** The charts of one device. */
export function deviceCharts(samples, span, device) {
  const owners = memoryOf(samples, device);
  const rest = owners.slice(OWNERS_MAX);
  const sum = samples.times.map((_, at) => {
    const values = rest.map(([, of]) => of[at]).filter((value) => value !== null);
    return values.length ? values.reduce((total, value) => total + value, 0) : null;
  });
  const lines = owners.slice(0, OWNERS_MAX).map(([name, values]) => ({ name, values }));
  const common = { times: samples.times, span: spanOf(samples, span) };
  return [
    timeline({ ...common, id: `${device} busy`, title: 'Busy', show: percent, max: 1, lines: [{ name: device, values: valuesOf(samples, 'device_busy_ratio', { device }) }] }),
    timeline({ ...common, id: `${device} memory`, title: 'Memory by owner', show: bytes, nice: niceBytes, lines: rest.length ? [...lines, { name: `${rest.length} others`, values: sum }] : lines }),
  ];
}

/** The jobs that run and wait. */
export function jobsChart(samples, span) {
  const zeros = samples.times.map(() => 0);
  const line = (name, quantity) => ({ name, values: valuesOf(samples, quantity) ?? zeros });
  return timeline({ id: 'jobs', title: 'Jobs', times: samples.times, span: spanOf(samples, span), show: count, lines: [line('running', 'jobs_running'), line('waiting', 'jobs_queued')] });
}

/** The requests of all models together. */
export function requestsChart(samples, span) {
  const sumOf = (quantity) => {
    const found = samples.series.filter(({ name }) => name === quantity);
    return samples.times.map((_, at) => found.reduce((sum, { values }) => sum + (values[at] ?? 0), 0));
  };
  return timeline({
    id: 'requests', title: 'Requests to models', times: samples.times, span: spanOf(samples, span), show: each,
    lines: [{ name: 'requests', values: sumOf('model_requests_per_second') }, { name: 'errors', values: sumOf('model_errors_per_second') }],
  });
}
