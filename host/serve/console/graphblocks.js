// The kernels of a model as boxes of a drawing: each alone, or many as one block that can be opened.

/** Boxes that a drawing has at first, at most. */
export const BOXES_MAX = 60;

/** The block of a plugin that a kernel belongs to: `block3` of `matmul block3.attention.q`; '' without a label. */
export function blockName(label) {
  const first = label.split(/\s+/)[1] ?? '';
  const at = first.search(/[./](?=[^./]*$)/);
  return at > 0 ? first.slice(0, at).split(/[./]/)[0] : '';
}

/** Splits kernels `from` up to `to` at the borders of blocks, or evenly, into at most `BOXES_MAX` ranges `[from, to]`. */
function split(kernels, from, to) {
  if (to - from <= BOXES_MAX) return Array.from({ length: to - from }, (_, at) => [from + at, from + at + 1]);
  const runs = [];
  for (let at = from; at < to; at += 1) {
    const name = blockName(kernels[at].label);
    if (name && runs.length && runs.at(-1).name === name) runs.at(-1).to = at + 1;
    else runs.push({ name, from: at, to: at + 1 });
  }
  if (runs.length <= BOXES_MAX && runs.length > 1) return runs.map((run) => [run.from, run.to]);
  const size = Math.ceil((to - from) / BOXES_MAX);
  return Array.from({ length: Math.ceil((to - from) / size) }, (_, at) => [from + at * size, Math.min(to, from + (at + 1) * size)]);
}

const nameOf = ([from, to]) => (to - from === 1 ? `kernel ${from + 1}` : `kernels ${from + 1} to ${to}`);

/** The ranges that are shown where the blocks with the names in `open` are opened. */
export function shownRanges(kernels, open) {
  const expand = ([from, to], isWhole) => {
    if (to - from === 1) return [[from, to]];
    if (!isWhole && !open.has(nameOf([from, to]))) return [[from, to]];
    return split(kernels, from, to).flatMap((range) => (range[0] === from && range[1] === to ? [range] : expand(range, false)));
  };
  return expand([0, kernels.length], true);
}

/**
 * The boxes of these ranges in execution order: `{ name, kernels, after }`. Kernels are in an order in which each comes after
 * those that it reads, and a range is a part of it, so there are no circles.
 */
export function boxesOf(kernels, ranges) {
  const owner = new Map(ranges.flatMap((range) => Array.from({ length: range[1] - range[0] }, (_, at) => [range[0] + at, nameOf(range)])));
  return ranges.map((range) => {
    const name = nameOf(range);
    const own = kernels.slice(...range);
    const after = new Set(own.flatMap((kernel) => kernel.after.map((at) => owner.get(at))));
    after.delete(name);
    return { name, kernels: own, first: range[0], after: [...after] };
  });
}

/** The mean microseconds of a call of each kernel, by its name in a trace of `saggar bench train --profile`. */
export function timesOf(trace) {
  const calls = new Map();
  for (const { ph, name, dur } of trace.traceEvents ?? []) {
    if (ph === 'X' && Number.isFinite(dur)) calls.set(name, [...(calls.get(name) ?? []), dur]);
  }
  return new Map([...calls].map(([name, all]) => [name, all.reduce((sum, one) => sum + one, 0) / all.length]));
}
