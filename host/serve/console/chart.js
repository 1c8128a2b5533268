// Charts of series over steps, drawn by uPlot, which is loaded when the first one is shown.

import { h } from './dom.js';
import { save } from './files.js';
import { number } from './format.js';
import { aligned, placeOf, positive, smooth } from './series.js';
import { snapshot } from './snapshot.js';

const HEIGHT = 260;
/** Colours, and dashes beside them, so that lines differ by more than colour. */
const COLOURS = ['--share-0', '--share-1', '--share-2', '--share-3'];
const DASHES = [[], [7, 4], [2, 3], [10, 3, 2, 3]];

let library = null;

/** uPlot, once. */
function load() {
  library ??= import('./vendor/uPlot.esm.js').then((module) => module.default);
  return library;
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/**
 * A chart of the last `update({ key, series, boundaries, log, smoothing })`: series in the form of the REST interface, and
 * the first step of each later attempt, as `[[step, attempt]]`. A new `key` resets the visible range to all steps. A button
 * saves the chart as a picture, with a file name made of `name` and the title. Returns `{ element, update, png, leave }`.
 */
export function chart(title, name = '') {
  const box = h('div', { class: 'chart-box' });
  const legend = h('ul', { class: 'legend' });
  const button = h('button', { type: 'button', class: 'quiet small save', hidden: true }, 'Save as PNG', h('span', { class: 'unseen' }, ` ${title}`));
  const element = h('figure', { class: 'chart', 'data-chart': title }, h('figcaption', {}, h('b', {}, title), button, legend), box);
  let view = null;
  let plot = null;
  let built = '';
  let left = false;

  async function draw() {
    const uPlot = await load();
    if (left || !view || !box.clientWidth) return;
    const data = columns(view);
    const is = JSON.stringify([view.key, view.series.map(({ name }) => name), view.log, view.smoothing > 0]);
    if (plot && is === built) {
      // What the reader looks at more closely stays; new points may be beside it.
      const { min, max } = plot.scales.x;
      const [steps] = plot.data;
      // A plot that was just made has no scales yet.
      const zoomed = max !== null && (min > steps[0] || max < steps.at(-1));
      plot.setData(data, !zoomed);
      if (zoomed) plot.redraw();
      return;
    }
    plot?.destroy();
    built = is;
    plot = new uPlot(options(uPlot, view, box.clientWidth, () => view.boundaries, showLegend), data, box);
    button.hidden = false;
    showLegend(null);
  }

  /** What the picture is called and titled: the chart's title, or the key of what it shows. */
  const heading = () => [name, title || view?.key].filter(Boolean).join(' ');

  function png() {
    const lines = view.series.map((series, at) => ({ name: series.name, colour: colour(COLOURS[at % COLOURS.length]), dash: dashOf(at) }));
    const smoothed = view.smoothing > 0 ? `, smoothed ${view.smoothing}` : '';
    const y = `${title || view.key || ''}${view.log ? ' (log scale)' : ''}`;
    const paint = { surface: colour('--surface'), ink: colour('--ink'), muted: colour('--muted') };
    return snapshot(plot.ctx.canvas, { title: `${heading()}${smoothed}`, lines, x: 'step', y, paint });
  }

  button.addEventListener('click', async () => {
    save(await png(), `${heading().replaceAll(/[^\w.-]+/g, '-') || 'chart'}.png`);
  });

  /** The series with their colours, and their values where the pointer is, or the last ones. */
  function showLegend(index) {
    if (!view) return;
    const step = index === null ? null : plot?.data[0][index];
    const entry = ({ name, points }, at) => {
      const found = step === null || step === undefined ? points.at(-1) : points[placeOf(points, step)];
      const has = found && (step === null || step === undefined || found[0] === step);
      const value = has ? (found[1] === null ? 'not a number' : number(found[1])) : '';
      return h('li', {}, h('i', { class: `share share-${at % 4}`, 'aria-hidden': 'true' }), name, ' ', h('span', { class: 'figure' }, value));
    };
    const place = step === null || step === undefined ? [] : [h('li', { class: 'note' }, `step ${step}`)];
    legend.replaceChildren(...place, ...view.series.map(entry));
  }

  function anew() {
    built = '';
    draw();
  }
  const sizes = new ResizeObserver(() => {
    if (!plot) draw();
    else if (box.clientWidth) plot.setSize({ width: box.clientWidth, height: HEIGHT });
  });
  sizes.observe(box);
  const dark = matchMedia('(prefers-color-scheme: dark)');
  dark.addEventListener('change', anew);
  return {
    element,
    update(next) {
      view = next;
      showLegend(null);
      draw();
    },
    png,
    leave() {
      left = true;
      sizes.disconnect();
      dark.removeEventListener('change', anew);
      plot?.destroy();
    },
  };
}

/** The dashes of the line with a number. */
function dashOf(at) {
  return DASHES[Math.floor(at / COLOURS.length) % DASHES.length];
}

/** The chart's data: the steps, the lines, and where lines are smoothed, the points behind them. */
function columns({ series, log, smoothing }) {
  const [steps, ...values] = aligned(series);
  const plotted = log ? values.map(positive) : values;
  const lines = smoothing > 0 ? plotted.map((column) => smooth(column, smoothing)) : plotted;
  return [steps, ...lines, ...(smoothing > 0 ? plotted : [])];
}

function options(uPlot, { series, log, smoothing }, width, boundaries, pointed) {
  const line = (at, more = {}) => ({
    stroke: colour(COLOURS[at % COLOURS.length]), width: 2, dash: dashOf(at), points: { show: undefined }, ...more,
  });
  const faint = (at) => line(at, { width: 1, alpha: 0.35, points: { show: false } });
  const axis = {
    stroke: colour('--muted'), grid: { stroke: colour('--line'), width: 1 }, ticks: { stroke: colour('--line'), width: 1 }, font: '12px system-ui, sans-serif',
  };
  const lines = series.map(({ name }, at) => line(at, { label: name }));
  return {
    width,
    height: HEIGHT,
    legend: { show: false },
    cursor: { y: false, sync: { key: 'steps' }, drag: { x: true, y: false } },
    scales: { x: { time: false }, y: log ? { distr: 3 } : {} },
    axes: [{ ...axis, values: (_, ticks) => ticks.map(tick) }, { ...axis, size: 58, values: (_, ticks) => ticks.map(tick) }],
    series: [{}, ...lines, ...(smoothing > 0 ? series.map((_, at) => faint(at)) : [])],
    hooks: {
      draw: [(plot) => mark(uPlot, plot, boundaries())],
      setCursor: [(plot) => pointed(plot.cursor.left >= 0 ? plot.cursor.idx : null)],
    },
  };
}

/** Short words for the numbers beside an axis. */
function tick(value) {
  if (value === null) return '';
  const size = Math.abs(value);
  if (size >= 1e4 && size < 1e6) return `${Number((value / 1e3).toPrecision(4))}k`;
  return size >= 1e6 || (size !== 0 && size < 1e-3) ? value.toExponential(0) : String(Number(value.toPrecision(4)));
}

/** Lines where another attempt took over, with its number. */
function mark(uPlot, plot, boundaries) {
  const { ctx, bbox } = plot;
  const ratio = uPlot.pxRatio ?? window.devicePixelRatio;
  ctx.save();
  ctx.strokeStyle = colour('--muted');
  ctx.fillStyle = colour('--muted');
  ctx.lineWidth = ratio;
  ctx.font = `${11 * ratio}px system-ui, sans-serif`;
  ctx.textBaseline = 'top';
  ctx.textAlign = 'left';
  ctx.setLineDash([3 * ratio, 4 * ratio]);
  const places = boundaries.map(([step, attempt]) => [Math.round(plot.valToPos(step, 'x', true)), attempt]);
  const end = bbox.left + bbox.width;
  for (const [at, [x, attempt]] of places.entries()) {
    if (x < bbox.left || x > end) continue;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    const room = Math.min(places[at + 1]?.[0] ?? end, end) - x - 8 * ratio;
    const label = [`attempt ${attempt}`, String(attempt)].find((text) => ctx.measureText(text).width <= room);
    if (label) ctx.fillText(label, x + 4 * ratio, bbox.top + 2 * ratio);
  }
  ctx.restore();
}
