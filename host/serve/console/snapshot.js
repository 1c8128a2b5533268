// Charts as PNG files: with a title, the names and signs of their lines, and labels of their axes.

const FONT = 'system-ui, sans-serif';

/** Entries in rows of a width: `[[{ entry, x }]]`, where `width(entry)` is in pixels. */
function rowsOf(entries, width, most) {
  const rows = [];
  let x = 0;
  for (const entry of entries) {
    const needed = width(entry);
    if (rows.length === 0 || (x > 0 && x + needed > most)) {
      rows.push([]);
      x = 0;
    }
    rows.at(-1).push({ entry, x });
    x += needed;
  }
  return rows;
}

/** A text that is at most so wide, shortened in its middle. */
function fitted(ctx, text, most) {
  if (ctx.measureText(text).width <= most) return text;
  const letters = [...text];
  for (let count = Math.min(letters.length - 1, 200); count > 2; count -= 1) {
    const head = Math.ceil((count - 1) / 2);
    const shorter = `${letters.slice(0, head).join('')}…${letters.slice(letters.length - (count - 1 - head)).join('')}`;
    if (ctx.measureText(shorter).width <= most) return shorter;
  }
  return '…';
}

/**
 * A PNG of the canvas `plot`. `lines` are `{ name, colour, dash }`, `paint` the colours `{ surface, ink, muted }`, and `x`
 * and `y` the labels of the axes.
 */
export function snapshot(plot, { title, lines, x, y, paint }) {
  const ratio = window.devicePixelRatio || 1;
  const canvas = document.createElement('canvas');
  const ctx = canvas.getContext('2d');
  const [margin, row, sample, side] = [12 * ratio, 18 * ratio, 24 * ratio, y ? 20 * ratio : 0];
  const small = `${12 * ratio}px ${FONT}`;
  canvas.width = plot.width + side;
  const room = canvas.width - 2 * margin;
  ctx.font = small;
  const named = lines.map((line) => ({ ...line, text: fitted(ctx, line.name, room - sample) }));
  const rows = rowsOf(named, ({ text }) => sample + ctx.measureText(text).width + 18 * ratio, room);
  const head = 32 * ratio;
  const top = head + rows.length * row + 6 * ratio;
  canvas.height = top + plot.height + (x ? 20 * ratio : 0);

  ctx.fillStyle = paint.surface;
  ctx.fillRect(0, 0, canvas.width, canvas.height);
  ctx.textBaseline = 'middle';
  ctx.font = `600 ${15 * ratio}px ${FONT}`;
  ctx.fillStyle = paint.ink;
  ctx.fillText(fitted(ctx, title, room), margin, head / 2 + 2 * ratio);
  ctx.font = small;
  for (const [at, entries] of rows.entries()) {
    const middle = head + (at + 0.5) * row;
    for (const { entry, x: left } of entries) {
      ctx.strokeStyle = entry.colour;
      ctx.lineWidth = 2 * ratio;
      ctx.setLineDash(entry.dash.map((length) => length * ratio));
      ctx.beginPath();
      ctx.moveTo(margin + left, middle);
      ctx.lineTo(margin + left + sample - 6 * ratio, middle);
      ctx.stroke();
      ctx.fillStyle = paint.ink;
      ctx.fillText(entry.text, margin + left + sample, middle);
    }
  }
  ctx.setLineDash([]);
  ctx.drawImage(plot, side, top);
  ctx.fillStyle = paint.muted;
  ctx.textAlign = 'center';
  if (x) ctx.fillText(x, side + plot.width / 2, canvas.height - 11 * ratio);
  if (y) {
    ctx.translate(11 * ratio, top + plot.height / 2);
    ctx.rotate(-Math.PI / 2);
    ctx.fillText(fitted(ctx, y, plot.height), 0, 0);
  }
  return new Promise((resolve) => { canvas.toBlob(resolve, 'image/png'); });
}

/** A PNG of a drawing of lines and texts, as the page shows it, with a title. */
export function drawingSnapshot(svg, title) {
  const ratio = window.devicePixelRatio || 1;
  const { width, height } = svg.viewBox.baseVal;
  const head = 34;
  const canvas = document.createElement('canvas');
  canvas.width = Math.ceil(width * ratio);
  canvas.height = Math.ceil((height + head) * ratio);
  const ctx = canvas.getContext('2d');
  const paint = getComputedStyle(document.documentElement);
  ctx.scale(ratio, ratio);
  ctx.fillStyle = paint.getPropertyValue('--surface').trim();
  ctx.fillRect(0, 0, width, height + head);
  ctx.font = `600 15px ${FONT}`;
  ctx.fillStyle = paint.getPropertyValue('--ink').trim();
  ctx.textBaseline = 'middle';
  ctx.fillText(fitted(ctx, title, width - 24), 12, head / 2 + 2);
  ctx.textBaseline = 'alphabetic';
  ctx.translate(0, head);
  for (const shape of svg.querySelectorAll('line, polyline, text')) {
    const style = getComputedStyle(shape);
    ctx.globalAlpha = Number(style.opacity) * Number(shape.localName === 'text' ? style.fillOpacity : style.strokeOpacity);
    if (shape.localName === 'text') {
      ctx.font = `${style.fontWeight} ${style.fontSize} ${FONT}`;
      ctx.fillStyle = style.fill;
      ctx.textAlign = { middle: 'center', end: 'right' }[style.textAnchor] ?? 'left';
      const at = [shape.textContent, shape.x.baseVal[0].value, shape.y.baseVal[0].value];
      if (style.stroke !== 'none') {
        ctx.strokeStyle = style.stroke;
        ctx.lineWidth = Number.parseFloat(style.strokeWidth);
        ctx.strokeText(...at);
      }
      ctx.fillText(...at);
      continue;
    }
    const { x1, y1, x2, y2 } = shape;
    const corners = shape.localName === 'polyline' ? [...shape.points].map(({ x, y }) => [x, y])
      : [[x1.baseVal.value, y1.baseVal.value], [x2.baseVal.value, y2.baseVal.value]];
    ctx.strokeStyle = style.stroke;
    ctx.lineWidth = Number.parseFloat(style.strokeWidth);
    ctx.beginPath();
    for (const corner of corners) ctx.lineTo(...corner);
    ctx.stroke();
  }
  return new Promise((resolve) => { canvas.toBlob(resolve, 'image/png'); });
}
