// A control for each input of a model, by its data type, shape and meaning. Each is `{ port, element, part }`: `part` gives
// the value for the request, or null where the input is left out for its default, or throws Problem.

import { h } from './dom.js';
import { bytes } from './format.js';
import { framed } from './frame.js';
import { pictureField, pictureShape } from './picture.js';
import { Problem } from './request.js';

/** So many numbers have a field each. */
const NUMBERS_MAX = 8;
/** So many numbers are written out as a beginning. */
const EXAMPLE_MAX = 64;

const INTEGERS = {
  uint8: [0n, 255n], int8: [-128n, 127n],
  uint32: [0n, 2n ** 32n - 1n], int32: [-(2n ** 31n), 2n ** 31n - 1n],
  uint64: [0n, 2n ** 64n - 1n], int64: [-(2n ** 63n), 2n ** 63n - 1n],
};

/** The control of `port`; it calls `changed` when its value is another. */
export function field(port, changed) {
  const { shape, semantics, classes, dtype } = port;
  if (semantics === 'text' && dtype === 'uint8' && shape.length === 1) return textField(port);
  if (semantics === 'class' && shape.length === 0 && classes.length) return classField(port);
  if (pictureShape(port)) return pictureField(port, changed, jsonField(port));
  if (shape.length === 0 || (shape.length === 1 && shape[0] <= NUMBERS_MAX)) return numberField(port);
  return jsonField(port);
}

function textField(port) {
  const bytesMax = port.shape[0];
  const left = h('span', { class: 'note', 'aria-live': 'off' });
  const area = h('textarea', { rows: 4, 'aria-label': port.name, spellcheck: 'false' });
  const size = () => new TextEncoder().encode(area.value).length;
  const show = () => {
    left.textContent = `${size()} of ${bytes(bytesMax)}`;
    left.classList.toggle('reason', size() > bytesMax);
  };
  area.addEventListener('input', show);
  show();
  const part = () => {
    if (area.value === '' && port.default !== null) return null;
    return { text: area.value };
  };
  return { port, element: framed(port, [area, left], 'text'), part };
}

function classField(port) {
  const select = h(
    'select',
    { 'aria-label': port.name },
    port.default !== null && h('option', { value: '' }, `default: ${port.classes[port.default] ?? port.default}`),
    port.classes.map((name, at) => h('option', { value: at }, name)),
  );
  return { port, element: framed(port, select, 'class'), part: () => (select.value === '' ? null : { json: select.value }) };
}

function numberField(port) {
  const { shape, dtype, classes } = port;
  const count = shape.length ? shape[0] : 1;
  const inputs = Array.from({ length: count }, (_, at) => {
    const name = classes[at] ?? (shape.length ? `${port.name}[${at}]` : port.name);
    return h('input', {
      type: 'text', inputmode: 'decimal', 'aria-label': name, title: name, autocomplete: 'off',
      placeholder: port.default === null ? '' : String(port.default), value: port.default === null ? '0' : null,
    });
  });
  const part = () => {
    if (port.default !== null && inputs.every(({ value }) => value.trim() === '')) return null;
    const values = inputs.map((input) => literal(input, port, dtype));
    return { json: shape.length ? `[${values.join(', ')}]` : values[0] };
  };
  const named = (input, at) => (classes[at] ? h('label', {}, h('span', { class: 'note' }, classes[at]), input) : input);
  return { port, element: framed(port, h('div', { class: 'numbers' }, inputs.map(named))), part };
}

/** What was typed, as JSON, in the words of the data type where it is none. */
function literal(input, port, dtype) {
  const typed = input.value.trim() || (port.default === null ? '' : String(port.default));
  const range = INTEGERS[dtype];
  if (range) {
    if (/^-?\d+$/.test(typed) && BigInt(typed) >= range[0] && BigInt(typed) <= range[1]) return String(BigInt(typed));
    throw new Problem(`${input.title}: expected a whole number from ${range[0]} to ${range[1]}, got “${typed}”`, input);
  }
  if (typed !== '' && Number.isFinite(Number(typed))) return JSON.stringify(Number(typed));
  throw new Problem(`${input.title}: expected a number, got “${typed}”`, input);
}

function zeros([length, ...rest]) {
  return length === undefined ? 0 : Array.from({ length }, () => zeros(rest));
}

function jsonField(port) {
  const small = port.shape.reduce((product, length) => product * length, 1) <= EXAMPLE_MAX;
  const area = h('textarea', {
    rows: 6, class: 'code', 'aria-label': `${port.name} as JSON`, spellcheck: 'false',
    placeholder: `JSON of the shape [${port.shape.join(', ')}]${port.default === null ? '' : `; default ${port.default}`}`,
  });
  if (small && port.default === null) area.value = JSON.stringify(zeros(port.shape)).replaceAll('],[', '],\n [');
  const part = () => {
    if (area.value.trim() === '' && port.default !== null) return null;
    try {
      JSON.parse(area.value);
    } catch (error) {
      throw new Problem(`${port.name}: invalid JSON: ${error.message}`, area);
    }
    return { json: area.value.trim() };
  };
  return { port, element: framed(port, area), part, area };
}
