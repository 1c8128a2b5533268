// A picture as an input: drawn, dropped, pasted or chosen. What is shown is what the model sees, pixel by pixel.

import { h } from './dom.js';
import { framed } from './frame.js';
import { Pad } from './pad.js';
import { Problem } from './request.js';

const RANGES = { '0 … 1': (v) => v / 255, '0 … 255': (v) => v, '−1 … 1': (v) => v / 127.5 - 1 };

/** `{ height, width, channels, planes }` where the port's shape is a picture's; `planes`: channels come first. */
export function pictureShape({ dtype, shape, semantics }) {
  const of = (height, width, channels, planes) => {
    const fits = [height, width].every((side) => side >= 4 && side <= 4096);
    return fits ? { height, width, channels, planes } : null;
  };
  if (!['uint8', 'float32', 'float16'].includes(dtype) || (semantics && semantics !== 'image')) return null;
  const [a, b, c] = shape;
  if (shape.length === 2 && (semantics || a === b)) return of(a, b, 1, false);
  if (shape.length === 3 && (c === 1 || c === 3)) return of(a, b, c, false);
  if (shape.length === 3 && (a === 1 || a === 3)) return of(b, c, a, true);
  return null;
}

/** The control; `changed(drawn)` is called with true when a picture is done. `json` is the control for plain JSON. */
export function pictureField(port, changed, json) {
  const size = pictureShape(port);
  const { height, width, channels } = size;
  const takesPng = port.dtype === 'uint8' && !size.planes && port.semantics === 'image';
  const pad = new Pad(size, changed);
  const state = { form: takesPng ? 'png' : 'numbers' };
  const ranges = port.dtype !== 'uint8' && select('Values from', Object.keys(RANGES));
  const forms = select('Sent as', takesPng ? ['PNG', 'JSON', 'typed JSON'] : ['JSON', 'typed JSON']);
  const file = h('input', { type: 'file', accept: 'image/*', class: 'unseen', 'aria-label': `A picture for ${port.name}` });
  const choose = h('button', { type: 'button', class: 'quiet small' }, 'Choose a picture');
  const clear = h('button', { type: 'button', class: 'quiet small' }, 'Clear');
  const invert = h('button', { type: 'button', class: 'quiet small' }, 'Invert');
  const ink = channels === 3 && pad.draws && h('input', { type: 'color', value: '#ffffff', 'aria-label': 'Colour of the ink' });
  json.element.hidden = true;
  const drawing = h(
    'div',
    { class: 'pad-box' },
    pad.element,
    h('p', { class: 'note' }, pad.draws ? 'Draw here, or drop or paste a picture. ' : 'Drop or paste a picture. ', 'This is what the model sees.'),
    h('div', { class: 'toolbar' }, choose, file, clear, invert, ink),
  );
  const element = framed(port, [drawing, json.area, h('div', { class: 'toolbar' }, forms, ranges)], `picture, ${width} × ${height}${channels === 3 ? ', colour' : ''}`);
  json.area.hidden = true;

  const take = async (blob) => {
    try {
      await pad.take(blob);
      changed(true);
    } catch {
      pad.say('The browser cannot read this file as a picture.');
    }
  };
  choose.addEventListener('click', () => file.click());
  file.addEventListener('change', () => file.files.length && take(file.files[0]));
  clear.addEventListener('click', () => {
    pad.clear();
    file.value = '';
    changed(false);
  });
  invert.addEventListener('click', () => {
    pad.invert();
    changed(true);
  });
  if (ink) ink.addEventListener('input', () => { pad.colour = ink.value; });
  drawing.addEventListener('dragover', (event) => event.preventDefault());
  drawing.addEventListener('drop', (event) => {
    event.preventDefault();
    if (event.dataTransfer.files.length) take(event.dataTransfer.files[0]);
  });
  drawing.addEventListener('paste', (event) => {
    const pasted = [...event.clipboardData.files].find(({ type }) => type.startsWith('image/'));
    if (pasted) take(pasted);
  });
  forms.querySelector('select').addEventListener('change', ({ target }) => {
    state.form = { PNG: 'png', JSON: 'numbers', 'typed JSON': 'typed' }[target.value];
    const typed = state.form === 'typed';
    if (typed && !pad.empty) json.area.value = nested(pad.pixels(), size, scale()).replaceAll('],[', '],\n [');
    drawing.hidden = typed;
    json.area.hidden = !typed;
  });
  const scale = () => (ranges ? RANGES[ranges.querySelector('select').value] : (value) => value);
  const part = async () => {
    if (state.form === 'typed') return json.part();
    if (pad.empty && port.default !== null) return null;
    if (pad.empty) throw new Problem(`${port.name}: no picture was given`, pad.element);
    if (state.form === 'png') return { blob: await pad.png(), filename: `${port.name.replace(/[^\w-]/g, '_') || 'picture'}.png` };
    return { json: nested(pad.pixels(), size, scale()) };
  };
  return { port, element, part };
}

function select(text, options) {
  return h('label', { class: 'check' }, `${text} `, h('select', {}, options.map((name) => h('option', {}, name))));
}

/** Values of RGBA pixels as nested JSON of the port's shape. One channel takes the red of grey pixels. */
function nested(pixels, { height, width, channels, planes }, scale) {
  const value = (row, column, channel) => Number(scale(pixels[(row * width + column) * 4 + channel]).toFixed(4));
  const range = (length, of) => Array.from({ length }, (_, at) => of(at));
  const plane = (channel) => range(height, (row) => range(width, (column) => value(row, column, channel)));
  if (planes) return JSON.stringify(range(channels, plane));
  if (channels === 1) return JSON.stringify(plane(0));
  return JSON.stringify(range(height, (row) => range(width, (column) => range(channels, (channel) => value(row, column, channel)))));
}
