// The charts of one or more jobs: which series are shown, on which scale, and how smooth.

import { chart } from './chart.js';
import { h, listen, patch } from './dom.js';
import { save } from './files.js';
import { groups } from './series.js';
import { viewOf, withView } from './view.js';

/** Groups of series that are drawn before any series were chosen. */
const SHOWN_FIRST = 2;

/**
 * Charts in `root`, updated by `update(series, boundaries)`. File names of pictures begin with `name`. The page's address
 * contains the chosen series, the scale and the smoothing.
 */
export function charts(root, name) {
  const { series: linked, log, smoothing } = viewOf(location.hash);
  const state = { series: [], boundaries: [], log, smoothing, chosen: linked && new Set(linked) };
  const chartsByGroup = new Map();
  const picker = h('div', { class: 'toolbar picker' });
  const list = h('div', { class: 'charts' });
  patch(root, picker, list);

  /** Names of the series that are drawn: those of the first groups, until some are chosen. */
  const chosen = () => {
    if (state.chosen) return state.chosen;
    const first = groups(state.series.map((one) => one.name)).slice(0, SHOWN_FIRST);
    return new Set(first.flatMap(([, names]) => names));
  };

  const address = () => withView(location.hash, { series: state.chosen && [...state.chosen], log: state.log, smoothing: state.smoothing });

  /** Shows what was chosen, and keeps it in the address; the page stays. */
  function choose() {
    history.replaceState(history.state, '', address());
    render();
  }

  function render() {
    const wanted = chosen();
    showPicker(wanted);
    const visible = groups(state.series.map((one) => one.name).filter((one) => wanted.has(one)));
    for (const [group, one] of chartsByGroup) {
      if (visible.some(([other]) => other === group)) continue;
      one.leave();
      one.element.remove();
      chartsByGroup.delete(group);
    }
    for (const [at, [group, names]] of visible.entries()) {
      if (!chartsByGroup.has(group)) chartsByGroup.set(group, chart(group, name));
      const one = chartsByGroup.get(group);
      if (list.children[at] !== one.element) list.insertBefore(one.element, list.children[at] ?? null);
      one.update({
        series: names.map((name) => state.series.find((series) => series.name === name)),
        boundaries: state.boundaries,
        log: state.log,
        smoothing: state.smoothing,
      });
    }
    const nothing = state.series.length === 0 ? 'Numbers appear here as the training reports them.' : 'No series is chosen.';
    list.classList.toggle('none', visible.length === 0);
    list.dataset.nothing = nothing;
  }

  function showPicker(wanted) {
    const names = groups(state.series.map((one) => one.name)).flatMap(([, of]) => of);
    patch(
      picker,
      h(
        'details',
        { class: 'menu', 'data-key': 'series', hidden: names.length === 0 },
        h('summary', { class: 'button small' }, `Series: ${names.filter((one) => wanted.has(one)).length} of ${names.length}`),
        h('div', { class: 'menu-body' }, names.map((one) => h(
          'label',
          { class: 'check', 'data-key': one },
          h('input', { type: 'checkbox', 'data-change': 'series', 'data-name': one, checked: wanted.has(one) }),
          ` ${one}`,
        ))),
      ),
      names.length > 0 && [
        h('label', { class: 'check', 'data-key': 'log' }, h('input', { type: 'checkbox', 'data-change': 'log', checked: state.log }), ' Log scale'),
        h(
          'label',
          { class: 'check smoothing', 'data-key': 'smoothing' },
          'Smoothing ',
          h('input', { type: 'range', min: 0, max: 0.95, step: 0.05, value: state.smoothing, 'data-input': 'smoothing' }),
          h('span', { class: 'figure' }, state.smoothing ? state.smoothing.toFixed(2) : 'off'),
        ),
        h('button', { type: 'button', class: 'quiet small', 'data-click': 'png', 'data-key': 'png' }, 'Save all as PNG'),
        h('a', { class: 'button quiet small', href: address(), 'data-key': 'link' }, 'Link to this view'),
      ],
    );
  }

  listen(picker, 'change', {
    series({ dataset, checked }) {
      state.chosen = new Set(chosen());
      if (checked) state.chosen.add(dataset.name);
      else state.chosen.delete(dataset.name);
      choose();
    },
    log({ checked }) {
      state.log = checked;
      choose();
    },
  });
  listen(picker, 'input', {
    smoothing({ value }) {
      state.smoothing = Number(value);
      choose();
    },
  });
  listen(picker, 'click', {
    async png() {
      for (const [group, one] of chartsByGroup) save(await one.png(), `${name}-${group}.png`);
    },
  });
  return {
    update(series, boundaries) {
      Object.assign(state, { series, boundaries });
      render();
    },
    leave() {
      for (const one of chartsByGroup.values()) one.leave();
    },
  };
}
