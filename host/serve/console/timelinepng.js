// A picture of charts over the time of day, which works without the console.

import { linePath, partsOf } from './timeline.js';

const FONT = 'system-ui, -apple-system, "Segoe UI", sans-serif';
/** Pixels of a chart, of its margins, and of the heading of the picture. */
const CHART = { width: 460, height: 110, left: 64, top: 44, right: 16, bottom: 26 };
const HEAD = 40;
const COLUMNS = 2;
const DASHES = [[], [6, 3], [], [2, 3]];

/** A PNG of these charts, as `timeline` takes them, below a title. */
export function timelinesPicture(charts, title) {
  const ratio = window.devicePixelRatio || 1;
  const cell = { width: CHART.left + CHART.width + CHART.right, height: CHART.top + CHART.height + CHART.bottom };
  const columns = Math.min(COLUMNS, charts.length);
  const [width, height] = [cell.width * columns, HEAD + cell.height * Math.ceil(charts.length / columns)];
  const canvas = document.createElement('canvas');
  [canvas.width, canvas.height] = [Math.ceil(width * ratio), Math.ceil(height * ratio)];
  const ctx = canvas.getContext('2d');
  const style = getComputedStyle(document.documentElement);
  const paint = (name) => style.getPropertyValue(name).trim();
  ctx.scale(ratio, ratio);
  ctx.fillStyle = paint('--surface');
  ctx.fillRect(0, 0, width, height);
  ctx.fillStyle = paint('--ink');
  ctx.font = `600 15px ${FONT}`;
  ctx.fillText(title, 16, 26);
  for (const [at, chart] of charts.entries()) {
    ctx.save();
    ctx.translate((at % columns) * cell.width, HEAD + Math.floor(at / columns) * cell.height);
    drawChart(ctx, chart, paint);
    ctx.restore();
  }
  return new Promise((resolve) => { canvas.toBlob(resolve, 'image/png'); });
}

function drawChart(ctx, chart, paint) {
  const { present, top, from, to, value } = partsOf(chart);
  const text = (words, x, y, { align = 'left', colour = '--muted', weight = 400 } = {}) => {
    Object.assign(ctx, { font: `${weight} 12px ${FONT}`, textAlign: align, fillStyle: paint(colour) });
    ctx.fillText(words, x, y);
  };
  text(chart.title, CHART.left, 16, { colour: '--ink', weight: 600 });
  let x = CHART.left;
  for (const line of present) {
    const at = chart.lines.indexOf(line) % 4;
    ctx.fillStyle = paint(`--share-${at}`);
    ctx.fillRect(x, 25, 10, 10);
    const words = `${line.name} ${value(line)}`;
    text(words, x + 15, 34);
    x += 15 + ctx.measureText(words).width + 16;
  }
  ctx.translate(CHART.left, CHART.top);
  ctx.lineWidth = 1;
  for (const share of [0, 0.5, 1]) {
    ctx.strokeStyle = paint(share ? '--line' : '--line-strong');
    ctx.strokeRect(0, CHART.height * (1 - share), CHART.width, 0);
  }
  text(chart.show(top), -8, 8, { align: 'right' });
  text(chart.show(0), -8, CHART.height, { align: 'right' });
  text(from, 0, CHART.height + 18);
  text(to, CHART.width, CHART.height + 18, { align: 'right' });
  // The drawing's own units are stretched to its place, as on the page.
  for (const line of present) {
    const at = chart.lines.indexOf(line) % 4;
    const path = new Path2D();
    path.addPath(new Path2D(linePath(chart.times, line.values, chart.span, top)), new DOMMatrix([CHART.width / 1000, 0, 0, CHART.height / 100, 0, 0]));
    Object.assign(ctx, { strokeStyle: paint(`--share-${at}`), lineWidth: 1.75, lineJoin: 'round' });
    ctx.setLineDash(DASHES[at]);
    ctx.stroke(path);
    ctx.setLineDash([]);
  }
}
