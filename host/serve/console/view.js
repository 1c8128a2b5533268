// What is chosen of a page's charts, in the page's address, so that a link reopens it.

/** Most series that an address names, and the longest name. */
const SERIES_MAX = 50;
const NAME_MAX = 200;

/** What an address says: `{ series: [name] or null, log, smoothing }`. What it does not say, or wrongly, is the usual. */
export function viewOf(hash) {
  const at = hash.indexOf('?');
  const query = new URLSearchParams(at < 0 ? '' : hash.slice(at + 1));
  const names = query.getAll('series').filter((name) => name.length <= NAME_MAX).slice(0, SERIES_MAX);
  const smoothing = Number(query.get('smooth'));
  return {
    series: names.length > 0 ? names : null,
    log: query.get('log') === '1',
    smoothing: smoothing > 0 && smoothing <= 0.95 ? smoothing : 0,
  };
}

/** The address of the same page with a view: `#/jobs/digits-1?series=loss&log=1&smooth=0.6`. */
export function withView(hash, { series, log, smoothing }) {
  const query = new URLSearchParams();
  for (const name of series ?? []) query.append('series', name);
  if (log) query.set('log', '1');
  if (smoothing > 0) query.set('smooth', String(smoothing));
  const page = hash.split('?')[0] || '#/';
  return query.size > 0 ? `${page}?${query}` : page;
}
