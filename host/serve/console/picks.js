// Rows of a list that are selected to be compared.

import { h } from './dom.js';

/**
 * The selection of a list of pipeline runs or sweeps. `link` is `pipelines` or `sweeps`, `names()` gives those that are listed,
 * and `render()` draws the page. Returns what the page is made of: `box(name)` and `bar()`, and what it does.
 */
export function picking(link, names, render) {
  const picked = new Set();
  const chosen = () => names().filter((name) => picked.has(name));
  const toggle = (name) => {
    if (!picked.delete(name)) picked.add(name);
    render();
  };
  const compare = () => {
    if (chosen().length > 1) location.hash = `#/compare-${link}/${chosen().map(encodeURIComponent).join('/')}`;
  };
  return {
    toggle,
    compare,
    /** The title of the column. */
    title: () => h('span', { class: 'unseen' }, 'Selected'),
    box: (name) => h('td', { class: 'pick' }, h('input', { type: 'checkbox', 'data-change': 'pick', 'data-name': name, 'aria-label': `Select ${name}`, checked: picked.has(name) })),
    bar() {
      const count = chosen().length;
      return h(
        'div',
        { class: 'toolbar order-bar', role: 'toolbar', 'aria-label': 'Selected' },
        count === 0
          ? h('span', { class: 'note', 'data-key': 'hint' }, 'Select two or more to compare them.')
          : [
            h('b', { 'data-key': 'count' }, `${count} selected`),
            h('button', { type: 'button', class: 'primary small', 'data-click': 'compare', disabled: count < 2, title: count < 2 ? 'Select two or more' : null }, 'Compare'),
            h('button', { type: 'button', class: 'quiet small', 'data-click': 'clear' }, 'Clear'),
          ],
      );
    },
    click: {
      compare,
      clear() {
        picked.clear();
        render();
      },
    },
    change: { pick: ({ dataset }) => toggle(dataset.name) },
  };
}
