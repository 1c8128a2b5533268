// The images, tables and histograms that a job logged: which there are, and what is in them.

import { apiKey, ask, failure, jobPath, send } from './api.js';

/** Contents of one series that are kept, so that a slider moves through them without asking again. */
const CONTENTS_KEPT = 60;

/** The path of an item on the server. */
export function itemPath(job, { step, kind, name }) {
  return jobPath(job, 'logged', String(step), kind, ...name.split('/'));
}

/**
 * The series of some items: `[{ kind, name, items }]`, images first, then tables and histograms, each by name; the items of a
 * series are by step.
 */
export function seriesOf(items) {
  const found = new Map();
  for (const item of items) {
    const key = `${item.kind} ${item.name}`;
    if (!found.has(key)) found.set(key, { kind: item.kind, name: item.name, items: [] });
    found.get(key).items.push(item);
  }
  const order = ['image', 'table', 'histogram'];
  for (const { items: of } of found.values()) of.sort((a, b) => a.step - b.step);
  return [...found.values()].sort((a, b) => order.indexOf(a.kind) - order.indexOf(b.kind)
    || a.name.localeCompare(b.name, 'en', { numeric: true }));
}

/**
 * The items of a job as they grow. `more()` asks for those of the newest step and later, and gives whether there was
 * anything; `clear()` forgets all, because another attempt can replace them.
 */
export function loggedItems(job) {
  const items = new Map();
  return {
    list: () => [...items.values()],
    clear: () => items.clear(),
    async more() {
      const from = Math.max(0, ...[...items.values()].map(({ step }) => step));
      let changed = false;
      let after = '';
      do {
        const answer = await ask('GET', `${jobPath(job, 'logged')}?from=${from}&after=${encodeURIComponent(after)}`);
        for (const item of answer.items) {
          const key = `${item.step}/${item.kind}/${item.name}`;
          if (items.get(key)?.logged_ms === item.logged_ms) continue;
          items.set(key, item);
          changed = true;
        }
        after = answer.next ?? '';
      } while (after);
      return changed;
    },
  };
}

/** All histograms of one name, by step: `[{ step, edges, counts }]`. */
export async function histogramsOf(job, name) {
  const found = [];
  let after = '';
  do {
    const query = `kind=histogram&name=${encodeURIComponent(name)}&values=1&after=${encodeURIComponent(after)}`;
    const answer = await ask('GET', `${jobPath(job, 'logged')}?${query}`);
    found.push(...answer.items.map(({ step, histogram }) => ({ step, ...histogram })));
    after = answer.next ?? '';
  } while (after);
  return found;
}

/**
 * What is in the items of a series. `of(item)` gives the address of an image, or the document of a table; `leave()` gives up
 * the addresses.
 */
export function contents(job) {
  const cache = new Map();
  const drop = (key) => {
    const content = cache.get(key);
    cache.delete(key);
    if (typeof content === 'string' && content.startsWith('blob:')) URL.revokeObjectURL(content);
  };
  return {
    async of(item) {
      const key = `${item.step} ${item.logged_ms}`;
      if (cache.has(key)) return cache.get(key);
      const content = item.kind === 'image' ? await address(job, item) : await ask('GET', itemPath(job, item));
      cache.set(key, content);
      if (cache.size > CONTENTS_KEPT) drop(cache.keys().next().value);
      return content;
    },
    leave: () => [...cache.keys()].forEach(drop),
  };
}

/** The address of an image. The browser's own requests carry no key, so with one the page fetches it. */
async function address(job, item) {
  // An image that is logged again has the same path.
  const path = `${itemPath(job, item)}?${item.logged_ms}`;
  if (!apiKey()) return path;
  const response = await send(path);
  if (!response.ok) throw await failure(response);
  return URL.createObjectURL(await response.blob());
}
