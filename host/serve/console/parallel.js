// Parallel coordinates: an axis for each parameter and one for the metric, and a line for each trial.

import { number } from './format.js';

const SVG = 'http://www.w3.org/2000/svg';
const HEIGHT = 220;
const TOP = 34;
const BOTTOM = 26;
const AXIS_WIDTH = 146;
const MARGIN = 76;

function s(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== null) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/**
 * The axis of some values: `{ ticks: [[text, place]], place(value) }`, where a place is from 0, below, to 1. Numbers over
 * two and more powers of ten are on a logarithmic axis, other values beside each other.
 */
export function axisOf(values) {
  const known = values.filter((value) => value !== null && value !== undefined);
  if (known.every((value) => typeof value === 'number' && Number.isFinite(value)) && known.length) {
    const [low, high] = [Math.min(...known), Math.max(...known)];
    if (low === high) return { ticks: [[number(low), 0.5]], place: () => 0.5 };
    const isLog = low > 0 && high / low >= 100;
    const scale = isLog ? Math.log : (value) => value;
    const place = (value) => (scale(value) - scale(low)) / (scale(high) - scale(low));
    return { ticks: [[number(low), 0], [number(high), 1]], place };
  }
  const texts = [...new Set(known.map(String))].sort();
  const place = (value) => (texts.length > 1 ? texts.indexOf(String(value)) / (texts.length - 1) : 0.5);
  return { ticks: texts.slice(0, 12).map((text) => [text, place(text)]), place };
}

/** Draws trials, the best of which come first; `selected` is the number of one that is emphasized. */
export function parallelCoordinates(trials, metric, selected) {
  const names = [...new Set(trials.flatMap(({ parameters }) => Object.keys(parameters ?? {})))];
  const columns = [...names.map((name) => [name, ({ parameters }) => parameters?.[name]]), [metric, ({ value }) => value]];
  const axes = columns.map(([name, of], at) => ({ name, of, x: MARGIN + at * AXIS_WIDTH, ...axisOf(trials.map(of)) }));
  const width = MARGIN * 2 + (axes.length - 1) * AXIS_WIDTH;
  const y = (place) => TOP + (1 - place) * (HEIGHT - TOP - BOTTOM);
  const isKnown = (value) => value !== null && value !== undefined;
  const measured = trials.filter((trial) => axes.every(({ of }) => isKnown(of(trial))));
  // Drawn from the worst to the best, so that the best are on top.
  const lines = measured.map((trial, rank) => {
    const points = axes.map(({ of, place, x }) => `${x},${y(place(of(trial))).toFixed(1)}`);
    const kind = trial.number === selected ? 'selected' : rank === 0 ? 'best' : rank < measured.length / 4 ? 'good' : 'other';
    return s('polyline', { class: `trial-line ${kind}`, points: points.join(' '), 'data-trial': trial.number }, s('title', {}, `trial ${trial.number}: ${number(trial.value)}`));
  }).reverse();
  const bars = axes.map(({ x }) => s('line', { class: 'axis', x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM }));
  const words = axes.flatMap(({ name, x, ticks }) => [
    s('text', { class: 'axis-name', x, y: 16, 'text-anchor': 'middle' }, name.length > 20 ? `${name.slice(0, 19)}…` : name),
    ...ticks.map(([text, place]) => s('text', { class: 'axis-tick', x: x + 6, y: y(place) + 4 }, text.length > 14 ? `${text.slice(0, 13)}…` : text)),
  ]);
  const label = `${measured.length} of ${trials.length} trials by their parameters and ${metric}; the table has the numbers`;
  return s('svg', { class: 'parallel', width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, role: 'img', 'aria-label': label }, ...bars, ...lines, ...words);
}
