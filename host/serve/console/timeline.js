// Charts of samples over the time of day: a line for each series, the values where the pointer or the arrow keys are.

import { h, patch } from './dom.js';
import { s } from './svg.js';

/** The drawing's own units; it is stretched to its place, and the text stands beside it. */
const WIDTH = 1000;
const HEIGHT = 100;
/** Milliseconds that an arrow key moves, as a share of what is shown. */
const STEP = 1 / 60;

/** What is shown of each chart by its id, and the time that is pointed to. */
const viewsById = new Map();
const pointed = new Map();

/** The smallest of 1, 2, 2.5 and 5 times a power of ten that is not below `value`. */
export function niceMax(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((step) => step >= value * 0.999999);
}

/** The power of two that is not below `value`, for bytes. */
export function niceBytes(value) {
  return value > 0 ? 2 ** Math.ceil(Math.log2(value)) : 1024;
}

/** A line through the values, broken where there is none: the attribute `d` of a path. */
export function linePath(times, values, [from, to], max) {
  const x = (time) => (((time - from) / (to - from)) * WIDTH).toFixed(1);
  const y = (value) => (HEIGHT - (Math.min(value, max) / max) * HEIGHT).toFixed(2);
  let path = '';
  let drawing = false;
  for (const [at, value] of values.entries()) {
    if (value === null || value === undefined) {
      drawing = false;
      continue;
    }
    // A value between gaps is a dot.
    const alone = !drawing && (values[at + 1] ?? null) === null;
    path += `${drawing ? 'L' : 'M'}${x(times[at])} ${y(value)}${alone ? 'h0.01' : ''}`;
    drawing = true;
  }
  return path;
}

const clock = (time, seconds) => new Date(time).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', second: seconds ? '2-digit' : undefined, hourCycle: 'h23' });

/**
 * A chart: `{ id, title, times, span, lines, show, nice, max }`, where `span` is `[from, to]` in milliseconds, a line is
 * `{ name, values }` with a value or null for each time, `show(value)` writes a value, and `max` is the top of the scale, or
 * `nice(highest value)` gives it.
 */
export function timeline(view) {
  viewsById.set(view.id, view);
  return h('figure', { class: 'timeline', 'data-timeline': view.id, 'data-key': view.id }, parts(view));
}

/** What a chart shows: the lines with any value, the top of the scale, both ends of the time, and a line's last value. */
export function partsOf({ times, span, lines, show, nice = niceMax, max }) {
  const present = lines.filter(({ values }) => values?.some((value) => value !== null));
  const highest = Math.max(0, ...present.flatMap(({ values }) => values.filter((value) => value !== null)));
  const value = ({ values }, index = times.length - 1) => (values[index] === null || values[index] === undefined ? '–' : show(values[index]));
  return { present, top: max ?? nice(highest), from: clock(span[0]), to: clock(span[1]), value };
}

/** The charts whose identifiers begin so, as they are shown. */
export function shownCharts(prefix) {
  return [...viewsById].filter(([id]) => id.startsWith(prefix)).map(([, view]) => view);
}

function parts(view) {
  const { id, title, times, span, lines, show } = view;
  const { present, top, from, to, value } = partsOf(view);
  const at = indexAt(times, pointed.get(id));
  const last = times.length - 1;
  const summary = present.map((line) => `${line.name} ${value(line, last)} now, at most ${show(Math.max(...line.values.filter((one) => one !== null)))}`);
  const cursor = at === null ? null : ((times[at] - span[0]) / (span[1] - span[0])) * WIDTH;
  return [
    h(
      'figcaption',
      {},
      h('b', {}, title),
      h('ul', { class: 'legend' }, present.map((line) => h(
        'li',
        {},
        h('i', { class: `share share-${lines.indexOf(line) % 4}`, 'aria-hidden': 'true' }),
        `${line.name} `,
        h('span', { class: 'figure' }, value(line, at ?? last)),
      ))),
    ),
    h('div', { class: 'timeline-y figure', 'aria-hidden': 'true' }, h('span', {}, show(top)), h('span', {}, show(0))),
    s(
      'svg',
      {
        viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none', role: 'img', tabindex: 0, 'data-own-keys': true,
        'aria-label': `${title}: ${summary.join('; ') || 'no samples'}`,
      },
      [0.5, 1].map((share) => s('path', { class: 'timeline-grid', d: `M0 ${HEIGHT * (1 - share)}h${WIDTH}` })),
      present.map((line) => s('path', { class: `timeline-line line-${lines.indexOf(line) % 4}`, d: linePath(times, line.values, span, top) })),
      cursor !== null && s('path', { class: 'timeline-cursor', d: `M${cursor.toFixed(1)} 0V${HEIGHT}` }),
    ),
    h(
      'div',
      { class: 'timeline-x figure', 'aria-hidden': 'true' },
      h('span', {}, from),
      h('span', {}, at === null ? (present.length ? '' : 'no samples') : clock(times[at], true)),
      h('span', {}, to),
    ),
  ];
}

/** The index of the sample next to a time, or null without a time or samples. */
function indexAt(times, time) {
  if (time === undefined || times.length === 0) return null;
  const after = times.findIndex((one) => one >= time);
  if (after < 0) return times.length - 1;
  return after > 0 && time - times[after - 1] < times[after] - time ? after - 1 : after;
}

/** Lets the charts in `root` show the values where the pointer is, or where the arrow keys move to. */
export function readable(root) {
  const of = (event) => event.target.closest?.('[data-timeline]');
  const point = (figure, time) => {
    const id = figure.dataset.timeline;
    if (time === undefined) pointed.delete(id);
    else pointed.set(id, time);
    patch(figure, parts(viewsById.get(id)));
  };
  root.addEventListener('pointermove', (event) => {
    const figure = of(event);
    const place = event.target.closest?.('svg')?.getBoundingClientRect();
    if (!figure || !place) return;
    const [from, to] = viewsById.get(figure.dataset.timeline).span;
    point(figure, from + ((event.clientX - place.left) / place.width) * (to - from));
  });
  const leave = (event) => {
    const figure = of(event);
    if (figure && !figure.contains(event.relatedTarget)) point(figure);
  };
  root.addEventListener('pointerout', leave);
  root.addEventListener('focusout', leave);
  root.addEventListener('keydown', (event) => {
    const figure = of(event);
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!figure || !by) return;
    event.preventDefault();
    const { times, span } = viewsById.get(figure.dataset.timeline);
    if (!times.length) return;
    const time = (pointed.get(figure.dataset.timeline) ?? times.at(-1)) + by * (span[1] - span[0]) * STEP;
    point(figure, Math.min(times.at(-1), Math.max(times[0], time)));
  });
}
