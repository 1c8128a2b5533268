// How requests that name no version are shared among versions: shown, and edited as a draft until it is applied.

import { h } from './dom.js';

/** What a model's requests go to: `[target, percent]`, a target being an alias or a version's number. */
function current({ traffic = {}, aliases = {}, serving }) {
  const shares = Object.entries(traffic);
  if (shares.length) return shares.sort(([a], [b]) => (b === 'stable') - (a === 'stable'));
  if (serving === null || serving === undefined) return [];
  const names = Object.keys(aliases).filter((alias) => aliases[alias] === serving);
  return [[names.includes('stable') ? 'stable' : names[0] ?? String(serving), 100]];
}

/** Aliases, versions that are ready and have none, and whatever has a share now. */
function targets(model) {
  const aliases = Object.keys(model.aliases ?? {});
  const named = new Set(Object.values(model.aliases ?? {}));
  const ready = model.versions.filter(({ version, state }) => state === 'READY' && !named.has(version));
  const numbers = ready.map(({ version }) => String(version));
  return [...new Set([...current(model).map(([target]) => target), ...aliases, ...numbers])];
}

function versionOf({ aliases = {} }, target) {
  return aliases[target] ?? Number(target);
}

function label(model, target) {
  const version = versionOf(model, target);
  return String(version) === target ? `version ${target}` : `${target} (${version})`;
}

/** A bar of the shares with their names, for the model's line. */
export function split(model) {
  const shares = current(model);
  if (!shares.length) return model.state === 'ASLEEP' ? 'loads on request' : 'not serving';
  if (shares.length === 1) return `version ${versionOf(model, shares[0][0])}`;
  return [bar(shares), h('span', { class: 'split-text' }, shares.map(([target, percent]) => `${target}\u00a0${percent}\u00a0%`).join(' · '))];
}

function bar(shares) {
  const part = ([, percent], at) => h('i', { class: `share share-${at % 4}`, style: { 'flex-grow': String(percent) } });
  return h('span', { class: 'split', 'aria-hidden': 'true' }, shares.filter(([, percent]) => percent > 0).map(part));
}

/** The draft of this model, or what is so now. Drafts of targets that are gone are forgotten. */
export function draft(model, drafts) {
  const savedDraft = drafts.get(model.name);
  const known = targets(model);
  if (savedDraft && Object.keys(savedDraft).every((target) => known.includes(target))) {
    return Object.fromEntries(known.map((target) => [target, savedDraft[target] ?? 0]));
  }
  drafts.delete(model.name);
  const now = Object.fromEntries(current(model));
  return Object.fromEntries(known.map((target) => [target, now[target] ?? 0]));
}

/** Takes over a share from the field or the slider in `element`. Of two shares, the other one follows. */
export function change(model, drafts, element) {
  const { target } = element.dataset;
  const percent = Math.min(100, Math.max(0, Math.round(Number(element.value)) || 0));
  const next = { ...draft(model, drafts), [target]: percent };
  const others = Object.keys(next).filter((name) => name !== target);
  if (others.length === 1) next[others[0]] = 100 - percent;
  drafts.set(model.name, next);
}

/** Forgets the draft. */
export function reset(model, drafts) {
  drafts.delete(model.name);
}

/** The shares above zero, as the server takes them. */
export function shares(model, drafts) {
  return Object.fromEntries(Object.entries(draft(model, drafts)).filter(([, percent]) => percent > 0));
}

/** Shows and edits the shares; `view` is the panel's. */
export function editor(model, view) {
  const entries = Object.entries(view.draft);
  if (entries.length < 2) {
    const asleep = model.state === 'ASLEEP' ? 'The next request loads it.' : 'No version can answer.';
    const only = entries.length ? `All requests go to version ${versionOf(model, entries[0][0])}.` : asleep;
    return h('p', { class: 'note' }, `${only} With a second version ready, requests can be split here.`);
  }
  const sum = entries.reduce((total, [, percent]) => total + percent, 0);
  const now = Object.fromEntries(current(model));
  const changed = entries.some(([target, percent]) => percent !== (now[target] ?? 0));
  const splits = Object.keys(model.traffic ?? {}).length > 0;
  return [
    bar(entries),
    h('div', { class: 'shares' }, entries.map((entry, at) => share(model, entry, at, view))),
    h(
      'div',
      { class: 'toolbar' },
      h('button', { type: 'button', class: 'primary small', 'data-click': 'split', disabled: view.busy || !changed || sum !== 100 }, 'Apply'),
      changed && h('button', { type: 'button', class: 'quiet small', 'data-click': 'reset' }, 'Reset'),
      splits && !changed
        && h('button', { type: 'button', class: 'quiet small', 'data-click': 'unsplit', disabled: view.busy }, 'End the split'),
      sum !== 100 && h('span', { class: 'reason', role: 'status' }, `The shares make ${sum} %; they must make 100 %.`),
    ),
    shadow(model),
  ];
}

function share(model, [target, percent], at, view) {
  const name = label(model, target);
  const common = { min: 0, max: 100, step: 1, value: percent, 'data-input': 'share', 'data-target': target, disabled: view.busy };
  return h(
    'div',
    { class: 'share-row', 'data-key': target },
    h('span', { class: 'share-name' }, h('i', { class: `share share-${at % 4}`, 'aria-hidden': 'true' }), name),
    h('input', { type: 'range', 'aria-label': `Share of ${name}, slider`, ...common }),
    h('span', { class: 'percent' }, h('input', { type: 'number', inputmode: 'numeric', 'aria-label': `Share of ${name} in percent`, ...common }), ' %'),
  );
}

function shadow({ shadow: to }) {
  return to && h('p', { class: 'note' }, `A shadow of ${to.percent} % of the requests also goes to ${to.to}; its answers are dropped.`);
}
