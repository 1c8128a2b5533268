// What a model answered, by the meaning of its outputs, with timings and headers.

import { h } from './dom.js';
import { duration, number } from './format.js';

/** So many classes are shown, the likeliest first. */
const CLASSES_SHOWN = 10;
const HEADERS = ['x-saggar-model', 'x-saggar-digest', 'x-saggar-device', 'x-saggar-cache', 'x-request-id'];
const TEXT_SHOWN_MAX = 20000;

/**
 * The answer `text`, JSON by output, or null while only `pieces` have come. `about` is
 * `{ response, took, arrived, pieces, count }`, times in milliseconds.
 */
export function answerView(outputs, text, about) {
  const { response, pieces, count } = about;
  const values = text === null ? pieces : JSON.parse(text);
  const visibleOutputs = outputs.filter(({ name }) => name in values);
  const model = response.headers.get('x-saggar-model') ?? '';
  const warning = response.headers.get('x-saggar-warning');
  return [
    h('div', { class: 'section-head', 'data-key': 'head' }, h('h2', {}, 'Answer'), h('span', { class: 'note', id: 'answered-by' }, [model, response.headers.get('x-saggar-device')].filter(Boolean).join(' on '))),
    warning && h('p', { class: 'note', role: 'status', 'data-key': 'warning' }, warning),
    h('div', { class: 'outputs', 'data-key': 'outputs', 'aria-live': text === null ? 'off' : 'polite' }, visibleOutputs.map((port) => output(port, values))),
    text === null && h('p', { class: 'note', 'data-key': 'coming' }, `${count} pieces so far…`),
    text !== null && timings(about),
    text !== null && details(text, response),
  ];
}

/** Why there is no answer. */
export function errorView(error) {
  const { message, code, hint, requestId, status } = error;
  return [
    h('h2', { 'data-key': 'head' }, 'No answer'),
    h(
      'div',
      { class: 'refusal', role: 'alert', 'data-key': 'refusal' },
      h('p', { class: 'reason' }, message),
      hint && h('p', {}, hint),
      (status || code) && h('p', { class: 'note' }, [status && `HTTP ${status}`, code, requestId && `request ${requestId}`].filter(Boolean).join(' · ')),
    ),
  ];
}

function output(port, values) {
  const value = values[port.name];
  const name = values[`${port.name}_name`];
  return h('div', { class: 'output', 'data-key': port.name, 'data-output': port.name }, h('h3', {}, port.name), shownAs(port, value, name));
}

function shownAs(port, value, name) {
  if (typeof value === 'string') return h('pre', { class: 'wrap said' }, value);
  if (port.semantics === 'class' && port.shape.length === 0) {
    const text = name ?? port.classes[value] ?? String(value);
    return h('p', { class: 'class' }, text, text !== String(value) && h('span', { class: 'note' }, ` class ${value}`));
  }
  if (isDistribution(port, value)) return bars(port, value);
  const picture = pictureOf(port, value);
  if (picture) return picture;
  if (typeof value === 'number' || value === null) return h('p', { class: 'value' }, number(value));
  return h('pre', { class: 'wrap' }, compact(value));
}

function isDistribution({ semantics, shape }, value) {
  if (shape.length !== 1 || shape[0] < 2 || !Array.isArray(value)) return false;
  if (semantics === 'probabilities') return true;
  const sum = value.reduce((total, one) => total + one, 0);
  return !semantics && Math.abs(sum - 1) < 1e-3 && value.every((one) => one !== null && one >= 0);
}

function bars(port, values) {
  const ranked = values.map((value, at) => ({ value, name: port.classes[at] ?? String(at) }));
  ranked.sort((a, b) => b.value - a.value);
  const bar = ({ name, value }) => h(
    'li',
    {},
    h('span', { class: 'bar-name' }, name),
    h('span', { class: 'bar', 'aria-hidden': 'true' }, h('i', { style: { width: `${Math.max(0, Math.min(1, value)) * 100}%` } })),
    h('span', { class: 'bar-value' }, `${(value * 100).toFixed(value >= 0.9995 || value < 0.0005 ? 0 : 1)} %`),
  );
  const rest = ranked.slice(CLASSES_SHOWN);
  return [
    h('ol', { class: 'bars' }, ranked.slice(0, CLASSES_SHOWN).map(bar)),
    rest.length > 0 && h('details', {}, h('summary', {}, `${rest.length} more`), h('ol', { class: 'bars' }, rest.map(bar))),
  ];
}

function pictureOf({ semantics, shape, name }, value) {
  if (semantics !== 'image' || !Array.isArray(value) || shape.length < 2 || shape.length > 3) return null;
  const planes = shape.length === 3 && (shape[0] === 1 || shape[0] === 3) && shape[2] > 3;
  const [height, width] = planes ? shape.slice(1) : shape;
  const channels = shape.length === 2 ? 1 : planes ? shape[0] : shape[2];
  if (channels !== 1 && channels !== 3) return null;
  const flat = value.flat(2);
  const top = flat.reduce((most, one) => Math.max(most, one), 0) <= 1 ? 255 : 1;
  const at = (pixel, channel) => flat[planes ? channel * height * width + pixel : pixel * channels + channel] * top;
  const pixels = new Uint8ClampedArray(height * width * 4);
  for (let pixel = 0; pixel < height * width; pixel += 1) {
    const of = (channel) => at(pixel, channels === 1 ? 0 : channel);
    pixels.set([of(0), of(1), of(2), 255], pixel * 4);
  }
  // Keyed by its time: what is drawn on a canvas is not among its attributes.
  const canvas = h('canvas', { width, height, class: 'picture', role: 'img', 'aria-label': `${name}, ${width} by ${height} pixels`, 'data-key': `picture ${performance.now()}` });
  canvas.getContext('2d').putImageData(new ImageData(pixels, width, height), 0, 0);
  return canvas;
}

/** JSON with short numbers, rows of numbers in one line each. */
function compact(value) {
  const text = JSON.stringify(value, (_, one) => (typeof one === 'number' ? Number(one.toPrecision(6)) : one)).replaceAll('],[', '],\n[');
  return text.length > TEXT_SHOWN_MAX ? `${text.slice(0, TEXT_SHOWN_MAX)}…` : text.replaceAll(',', ', ').replaceAll(', \n', ',\n');
}

/** `queue;dur=0.1, total;dur=3` as a map. */
function serverTiming(response) {
  const header = response.headers.get('server-timing') ?? '';
  const entry = (text) => [text.split(';')[0].trim(), Number(/dur=([\d.]+)/.exec(text)?.[1])];
  return Object.fromEntries(header.split(',').filter(Boolean).map(entry).filter(([, ms]) => Number.isFinite(ms)));
}

function timings({ response, took, arrived, count }) {
  const { total, ...phases } = serverTiming(response);
  const named = Object.entries(phases).reduce((sum, [, ms]) => sum + ms, 0);
  const parts = [...Object.entries(phases)];
  if (total !== undefined) parts.push(['other work', Math.max(0, total - named)]);
  const part = ([, ms], at) => h('i', { class: `share share-${at % 4}`, style: { 'flex-grow': String(ms) } });
  const fact = ([name, ms], at) => [h('dt', {}, at !== null && h('i', { class: `share share-${at % 4}`, 'aria-hidden': 'true' }), name), h('dd', {}, duration(ms))];
  return h(
    'div',
    { class: 'timings', 'data-key': 'timings' },
    h('h3', {}, 'Time'),
    parts.length > 0 && h('span', { class: 'split', 'aria-hidden': 'true' }, parts.map(part)),
    h(
      'dl',
      { class: 'facts' },
      parts.map(fact),
      total !== undefined && fact(['in the server', total], null),
      count ? [fact([`first piece of ${count}`, arrived], null), fact(['all pieces', took], null)] : fact(['seen from here', took], null),
    ),
  );
}

function details(text, response) {
  const headers = HEADERS.map((name) => [name, response.headers.get(name)]).filter(([, value]) => value);
  const excerpt = text.length > TEXT_SHOWN_MAX ? `${text.slice(0, TEXT_SHOWN_MAX)}…` : text;
  return h(
    'details',
    { 'data-key': 'details' },
    h('summary', {}, 'Headers and JSON'),
    h('dl', { class: 'facts headers' }, headers.map(([name, value]) => [h('dt', {}, name), h('dd', {}, value)])),
    h('pre', { class: 'wrap' }, h('code', {}, excerpt)),
  );
}
