// Drawings of histograms: one as bars, and those of all steps as a heat map.

import { number } from './format.js';
import { s } from './svg.js';

const WIDTH = 320;
const MAP_HEIGHT = 150;
const BARS_HEIGHT = 110;
/** Space for the numbers beside and below a drawing. */
const LEFT = 62;
const BELOW = 20;
/** Number of digits of the numbers beside a heat map, which have little space. */
const EDGE_DIGITS = 3;
/** Steps and rows of a heat map that are drawn at most. */
const COLUMNS_MAX = 160;
const ROWS_MAX = 48;

/** The lowest and the highest edge of some histograms. */
export function rangeOf(histograms) {
  const low = Math.min(...histograms.map(({ edges }) => edges[0]));
  const high = Math.max(...histograms.map(({ edges }) => edges.at(-1)));
  return low < high ? [low, high] : [low - 0.5, low + 0.5];
}

/**
 * The share of a histogram's values in each of `rows` equal parts of a range, from the lowest. The values of a bin are taken
 * as equally distributed in it.
 */
export function shares({ edges, counts }, [low, high], rows) {
  const found = new Array(rows).fill(0);
  const total = counts.reduce((sum, count) => sum + count, 0);
  if (!total) return found;
  const height = (high - low) / rows;
  counts.forEach((count, bin) => {
    const [from, to] = [edges[bin], edges[bin + 1]];
    const first = Math.max(0, Math.floor((from - low) / height));
    for (let row = first; row < rows; row += 1) {
      const overlap = Math.min(to, low + (row + 1) * height) - Math.max(from, low + row * height);
      if (overlap > 0) found[row] += (count / total) * (overlap / (to - from));
      if (low + (row + 1) * height >= to) break;
    }
  });
  return found;
}

/** At most `most` of a list, with its first and its last, at equal distances. */
export function thinned(list, most) {
  if (list.length <= most) return list;
  return Array.from({ length: most }, (_, at) => list[Math.round((at * (list.length - 1)) / (most - 1))]);
}

/** Histograms by step, from left to right: the darker, the more of the values. `chosen` is the step that is marked. */
export function heatMap(histograms, chosen, label) {
  const columns = thinned(histograms, COLUMNS_MAX);
  const range = rangeOf(columns);
  const rows = Math.min(ROWS_MAX, Math.max(...columns.map(({ counts }) => counts.length), 8));
  const parts = columns.map((one) => shares(one, range, rows));
  const most = Math.max(...parts.flat(), Number.MIN_VALUE);
  const [wide, high] = [(WIDTH - LEFT) / columns.length, (MAP_HEIGHT - BELOW) / rows];
  const cells = parts.flatMap((of, column) => of.map((share, row) => share > 0 && s('rect', {
    x: (LEFT + column * wide).toFixed(2), y: ((rows - 1 - row) * high).toFixed(2), width: (wide + 0.3).toFixed(2),
    height: (high + 0.3).toFixed(2), 'fill-opacity': (0.08 + 0.92 * Math.sqrt(share / most)).toFixed(3),
  })));
  const at = columns.reduce((best, { step }, index) => (Math.abs(step - chosen) < Math.abs(columns[best].step - chosen) ? index : best), 0);
  const mark = s('rect', { class: 'mark', x: (LEFT + at * wide).toFixed(2), y: 0, width: Math.max(wide, 2).toFixed(2), height: MAP_HEIGHT - BELOW });
  const [first, last] = [columns[0].step, columns.at(-1).step];
  return s(
    'svg', { class: 'heat-map', viewBox: `0 0 ${WIDTH} ${MAP_HEIGHT}`, role: 'img', 'aria-label': label },
    s('g', { class: 'cells' }, cells), columns.length > 1 && mark, scale(range, MAP_HEIGHT),
    s('text', { x: LEFT, y: MAP_HEIGHT - 4 }, `step ${first}`),
    last !== first && s('text', { x: WIDTH, y: MAP_HEIGHT - 4, 'text-anchor': 'end' }, `step ${last}`),
  );
}

/** One histogram: a bar for each bin, as wide as the bin, on the range of all. */
export function bars({ edges, counts }, range, label) {
  const [low, high] = range;
  const place = (value) => LEFT + ((value - low) / (high - low)) * (WIDTH - LEFT);
  const most = Math.max(...counts, 1);
  const height = BARS_HEIGHT - BELOW;
  const drawn = counts.map((count, bin) => count > 0 && s('rect', {
    x: place(edges[bin]).toFixed(2), width: Math.max(place(edges[bin + 1]) - place(edges[bin]) - 0.5, 0.5).toFixed(2),
    y: (height * (1 - count / most)).toFixed(2), height: ((height * count) / most).toFixed(2),
  }));
  return s(
    'svg', { class: 'histogram-bars', viewBox: `0 0 ${WIDTH} ${BARS_HEIGHT}`, role: 'img', 'aria-label': label },
    s('g', { class: 'cells' }, drawn),
    s('line', { class: 'axis', x1: LEFT, x2: WIDTH, y1: height, y2: height }),
    s('text', { x: LEFT - 4, y: 12, 'text-anchor': 'end' }, number(most)),
    s('text', { x: LEFT, y: BARS_HEIGHT - 4 }, number(low)),
    s('text', { x: WIDTH, y: BARS_HEIGHT - 4, 'text-anchor': 'end' }, number(high)),
  );
}

function edge(value) {
  return number(Number(value.toPrecision(EDGE_DIGITS)));
}

/** The lowest and the highest value beside a heat map. */
function scale([low, high], height) {
  return [
    s('text', { x: LEFT - 4, y: 12, 'text-anchor': 'end' }, edge(high)),
    s('text', { x: LEFT - 4, y: height - BELOW, 'text-anchor': 'end' }, edge(low)),
  ];
}
