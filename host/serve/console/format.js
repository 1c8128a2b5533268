// Numbers and times as people read them.

const UNITS = ['bytes', 'KiB', 'MiB', 'GiB', 'TiB'];

/** `1536` as `1.5 KiB`; nothing known as a dash. */
export function bytes(count) {
  if (count === null || count === undefined) return '–';
  let unit = 0;
  let value = count;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit && value < 10 ? value.toFixed(1) : Math.round(value)} ${UNITS[unit]}`;
}

/** Milliseconds as `820 µs`, `4.2 ms`, `1.3 s`, `5 min`, `3 h`, `2 d`. */
export function duration(ms) {
  if (ms < 1) return `${Math.round(ms * 1000)} µs`;
  if (ms < 1000) return `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  return coarse(seconds);
}

function coarse(seconds) {
  if (seconds < 3600) return `${Math.round(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

/** How long ago; the clocks of server and browser may differ a little. */
export function ago(at, now = Date.now()) {
  const seconds = Math.max(0, (now - at) / 1000);
  if (seconds < 5) return 'just now';
  return `${seconds < 60 ? `${Math.round(seconds)} s` : coarse(seconds)} ago`;
}

/** A point in time for a tooltip. */
export function moment(at) {
  return new Date(at).toISOString().replace('T', ' ').replace(/\.\d+Z$/, ' UTC');
}

/** A number with as many digits as tell something. */
export function number(value) {
  if (value === null) return 'not a number';
  if (Number.isInteger(value)) return String(value);
  const size = Math.abs(value);
  return size >= 1e6 || size < 1e-4 ? value.toExponential(3) : String(Number(value.toPrecision(5)));
}

/** `REASON_IN_CAPITALS` as words. */
export function words(reason) {
  return reason.toLowerCase().replaceAll('_', ' ');
}

/** Seconds of a device or a clock, to what tells something: `0.42 s`, `31.4 s`, `2 h`. */
export function seconds(value) {
  if (value === null || value === undefined) return '–';
  if (value < 1) return `${value.toFixed(2)} s`;
  return value < 120 ? `${value.toFixed(1)} s` : coarse(value);
}

/** Seconds that a device worked: `4.9 s`, or `4.9 s estimated` where it has no clock of its own. */
export function worked(value, estimated) {
  return estimated && value ? `${seconds(value)} estimated` : seconds(value);
}

/** Steps or anything else in a second: `4.9/s`, `1250/s`. */
export function rate(each) {
  if (!each) return '–';
  return `${each < 100 ? each.toFixed(1) : Math.round(each)}/s`;
}

/** As many digits of a digest as people compare. */
export function short(digest) {
  return String(digest ?? '').slice(0, 12);
}
