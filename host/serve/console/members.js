// The pipeline runs and sweeps that have jobs of an experiment.

import { ask } from './api.js';
import { h, patch } from './dom.js';
import { pollInto } from './poll.js';
import { mark } from './state.js';

const EVERY_MS = 5000;
/** The maximum number of entries of each kind in the list. The number of the others is shown. */
const SHOWN_MAX = 12;

/** Shows them in the element `root` while there are any. Returns `{ refresh, leave }`. */
export function membersView(root, name, live) {
  const state = { experiment: null, error: null };

  function list(title, link, members) {
    if (!members.length) return null;
    const item = ({ name: of, state: is, jobs }) => h(
      'li',
      { 'data-key': of },
      h('a', { href: `#/${link}/${encodeURIComponent(of)}` }, of), ' ', mark(is), h('span', { class: 'note' }, ` ${jobs === 1 ? '1 job' : `${jobs} jobs`}`),
    );
    const rest = members.length - SHOWN_MAX;
    return h(
      'div',
      { 'data-key': link },
      h('h2', {}, title),
      h('ul', { class: 'fields-list', 'aria-label': title }, members.slice(0, SHOWN_MAX).map(item), rest > 0 && h('li', { 'data-key': 'rest' }, `${rest} more`)),
    );
  }

  function render() {
    const runs = state.experiment?.pipeline_runs ?? [];
    const sweeps = state.experiment?.sweeps ?? [];
    root.hidden = runs.length + sweeps.length === 0;
    patch(root, list('Pipeline runs', 'pipelines', runs), list('Sweeps', 'sweeps', sweeps));
  }

  const look = pollInto(state, async () => ({ experiment: await ask('GET', `/api/v1/experiments/${encodeURIComponent(name)}`) }), {
    render,
    // Without jobs there is no experiment. Other errors are also those of the page's own stream.
    live: (error) => error?.status === 401 && live(error),
  }, EVERY_MS);
  render();
  return { refresh: look.now, leave: look.stop };
}
