// A drawing of steps that wait for each other: one row of boxes after the other, with lines between them.

const SVG = 'http://www.w3.org/2000/svg';
/** Pixels of a box and of the space between boxes. */
const BOX = { width: 184, height: 52, across: 24, along: 44 };

/** An element of a drawing. */
function s(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== null) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/**
 * Returns the row of each step: one more than the last row of its dependencies. Steps are `{ name, after }` in topological
 * order. Dependencies that are not in the list are ignored.
 */
export function rowsOfSteps(steps) {
  const rows = new Map();
  for (const { name, after } of steps) {
    rows.set(name, Math.max(-1, ...after.map((one) => rows.get(one) ?? -1)) + 1);
  }
  return rows;
}

/**
 * Draws steps: `{ name, after, label, note, kind, href }`, where `kind` is the class of the box. Narrow drawings run
 * downwards with one box beside the other only where steps wait for the same.
 */
export function drawSteps(steps, title) {
  const rows = rowsOfSteps(steps);
  const counts = [];
  const places = new Map();
  for (const step of steps) {
    const row = rows.get(step.name);
    counts[row] = counts[row] ?? 0;
    places.set(step.name, { x: counts[row] * (BOX.width + BOX.across), y: row * (BOX.height + BOX.along) });
    counts[row] += 1;
  }
  const width = Math.max(1, ...counts) * (BOX.width + BOX.across) - BOX.across;
  const height = counts.length * (BOX.height + BOX.along) - BOX.along;
  // Rows with fewer boxes stand in the middle.
  for (const [name, place] of places) {
    place.x += (width - (counts[rows.get(name)] * (BOX.width + BOX.across) - BOX.across)) / 2;
  }
  const lines = steps.flatMap((step) => step.after.filter((name) => places.has(name)).map((name) => line(places.get(name), places.get(step.name))));
  const boxes = steps.map((step) => box(step, places.get(step.name)));
  return s('svg', { class: 'steps', width: width + 4, height: height + 4, viewBox: `-2 -2 ${width + 4} ${height + 4}`, role: 'group', 'aria-label': title }, ...lines, ...boxes);
}

function line(from, to) {
  const [x1, y1] = [from.x + BOX.width / 2, from.y + BOX.height];
  const [x2, y2] = [to.x + BOX.width / 2, to.y];
  const middle = (y1 + y2) / 2;
  return s('path', { class: 'step-line', d: `M${x1} ${y1}C${x1} ${middle} ${x2} ${middle} ${x2} ${y2}` });
}

function box(step, { x, y }) {
  const clip = (text, max) => (text.length > max ? `${text.slice(0, max - 1)}…` : text);
  const parts = [
    s('rect', { x, y, width: BOX.width, height: BOX.height, rx: 8 }),
    s('text', { class: 'step-name', x: x + 12, y: y + 21 }, clip(step.label ?? step.name, 22)),
    s('text', { class: 'step-note', x: x + 12, y: y + 40 }, clip(step.note, 28)),
    s('title', {}, `${step.name}: ${step.note}`),
  ];
  const attributes = { class: `step ${step.kind}`, 'data-step': step.name };
  return step.href ? s('a', { ...attributes, href: step.href }, ...parts) : s('g', attributes, ...parts);
}
