// Samples of Prometheus' text format. Source: Prometheus, exposition formats, version 0.0.4.

/** The samples of the families `names` in `text`: `[{ name, labels, value }]`. Lines that are not understood are left out. */
export function samples(text, names) {
  const found = [];
  for (const line of text.split('\n')) {
    const parts = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/.exec(line);
    if (!parts || !names.includes(parts[1])) continue;
    const labels = {};
    for (const [, label, value] of (parts[2] ?? '').matchAll(/([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g)) {
      labels[label] = value.replace(/\\(.)/g, (_, c) => (c === 'n' ? '\n' : c));
    }
    found.push({ name: parts[1], labels, value: Number(parts[3]) });
  }
  return found;
}
