// What can be done to a model. Each action asks where it must, and gives the work to do, or nothing.

import { ask, modelPath } from './api.js';
import { askText, confirm, note } from './dialogs.js';
import { shares } from './traffic.js';

/** Work that says how it went. */
function work(done, request) {
  return async () => {
    try {
      await request();
      note(done);
    } catch (error) {
      note(error.message, error);
    }
  };
}

function post(model, verb, body = {}) {
  return ask('POST', modelPath(model.name, verb), body);
}

async function promote(model, { version }) {
  const agreed = await confirm({
    title: `Promote version ${version} of ${model.name}?`,
    text: `From now on version ${version} answers requests that name no version, and new versions no longer become the `
      + `default automatically.${model.serving ? ` Roll back returns to version ${model.serving}.` : ''}`,
    yes: 'Promote',
  });
  return agreed && work(`Version ${version} of ${model.name} is the default.`, () => post(model, 'promote', { version: Number(version) }));
}

async function rollback(model) {
  const agreed = await confirm({
    title: `Roll ${model.name} back?`,
    text: `The version that was the default before version ${model.serving} becomes it again, and stays.`,
    yes: 'Roll back',
  });
  return agreed && work(`${model.name} is rolled back.`, () => post(model, 'rollback'));
}

async function unload(model, { version }) {
  const what = version ? `version ${version} of ${model.name}` : model.name;
  const agreed = await confirm({
    title: `Unload ${what}?`,
    text: version
      ? 'Its memory on the device is freed. Requests that name it are refused until it is loaded again.'
      : 'Its memory on the device is freed, and requests to it are refused until it is loaded again.',
    yes: 'Unload',
    danger: true,
  });
  return agreed && work(`Unloaded ${what}.`, () => post(model, 'unload', version ? { version: Number(version) } : {}));
}

async function alias(model, { version }) {
  const name = await askText({
    title: `An alias for version ${version}`,
    text: `Clients may ask for ${model.name}@ALIAS, and traffic can be split by it. An alias that is in use is moved here.`,
    label: 'Alias',
    value: Object.keys(model.aliases ?? {}).includes('canary') ? '' : 'canary',
    yes: 'Set',
  });
  const path = name && modelPath(model.name, 'aliases', name);
  return name && work(`${name} of ${model.name} is version ${version}.`, () => ask('PUT', path, { version: Number(version) }));
}

async function unalias(model, { alias: name, version }) {
  const agreed = await confirm({
    title: `Remove the alias ${name}?`,
    text: `Requests to ${model.name}@${name} are refused from then on. Version ${version} itself stays.`,
    yes: 'Remove',
    danger: true,
  });
  return agreed && work(`${model.name} has no alias ${name} any more.`, () => ask('DELETE', modelPath(model.name, 'aliases', name)));
}

function follow(model) {
  return work(`${model.name} follows its newest version.`, () => post(model, 'promote', { version: 'newest' }));
}

function load(model, { version }) {
  const what = version ? `version ${version} of ${model.name}` : model.name;
  return work(`Loaded ${what}.`, () => post(model, 'load', version ? { version: Number(version) } : {}));
}

/** Every action by its name in the page; `drafts` are those of the traffic. */
export function actions(drafts) {
  const put = (model, split, done) => work(done, async () => {
    await ask('PUT', modelPath(model.name, 'traffic'), split);
    drafts.delete(model.name);
  });
  return {
    promote,
    rollback,
    unload,
    alias,
    unalias,
    follow,
    load,
    warm: (model) => work(`${model.name} is warm.`, () => post(model, 'warm')),
    split: (model) => put(model, shares(model, drafts), `The traffic of ${model.name} is split.`),
    unsplit: (model) => put(model, {}, `All requests to ${model.name} go to its default.`),
  };
}
