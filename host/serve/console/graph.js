// Drawings of boxes that come after each other: the steps of a pipeline, and the kernels of a model.

import { edgePath, layered } from './layered.js';
import { s } from './svg.js';

/** Pixels of a box and of the space between boxes. */
const BOX = { width: 184, height: 52, across: 24, along: 44 };

/**
 * Draws boxes: `{ name, after, label, note, kind, href, title, width }` in topological order, where `kind` is the class of the
 * box. A box with `href` is a link; one with `press` has `data-press` and can be pressed. `scale` enlarges the drawing.
 */
export function drawSteps(boxes, title, { scale = 1, along = BOX.along } = {}) {
  const sized = boxes.map((box) => ({ ...box, width: box.width ?? BOX.width, height: BOX.height }));
  const { places, edges, width, height } = layered(sized, { across: BOX.across, along });
  const lines = edges.map(({ from, to, points }) => s('path', { class: 'step-line', d: edgePath(points), 'data-from': from, 'data-to': to }));
  return s(
    'svg',
    { class: 'steps', width: (width + 4) * scale, height: (height + 4) * scale, viewBox: `-2 -2 ${width + 4} ${height + 4}`, role: 'group', 'aria-label': title },
    lines,
    sized.map((box) => drawBox(box, places.get(box.name))),
  );
}

function drawBox(box, { x, y }) {
  const clip = (text, max) => (text.length > max ? `${text.slice(0, max - 1)}…` : text);
  const letters = (box.width - 24) / 8;
  const parts = [
    s('rect', { x, y, width: box.width, height: box.height, rx: 8 }),
    box.share > 0 && s('rect', { class: 'step-share', x: x + 1, y: y + box.height - 5, width: Math.max(2, (box.width - 2) * box.share), height: 4, rx: 2 }),
    s('text', { class: 'step-name', x: x + 12, y: y + 21 }, clip(box.label ?? box.name, Math.floor(letters))),
    s('text', { class: 'step-note', x: x + 12, y: y + 40 }, clip(box.note, Math.floor((box.width - 24) / 6.6))),
    s('title', {}, box.title ?? `${box.name}: ${box.note}`),
  ];
  const attributes = { class: `step ${box.kind}`, 'data-step': box.name };
  if (box.press) return s('g', { ...attributes, role: 'button', tabindex: 0, 'data-press': box.press, 'aria-label': `${box.label ?? box.name}, ${box.note}`, 'aria-pressed': box.kind.includes('selected') ? 'true' : 'false' }, parts);
  return box.href ? s('a', { ...attributes, href: box.href }, parts) : s('g', attributes, parts);
}
