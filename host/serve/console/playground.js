// The playground: a form of what a model takes, and what it answers.

import { ask, failure, modelPath, predictPath, send } from './api.js';
import { answerView, errorView } from './answer.js';
import { curl } from './curl.js';
import { h, patch } from './dom.js';
import { events } from './events.js';
import { field } from './fields.js';
import { requestOf } from './request.js';

/** Shows the page in `root` until the returned `leave` is called, for `wanted`, `{ model, version }`, either ''. */
export function playgroundPage(root, wanted, live) {
  const state = { models: [], model: null, fields: [], version: wanted.version, call: null, streams: true };
  const choice = h('div', { class: 'choice' });
  const form = h('form', { class: 'inputs', novalidate: true });
  const result = h('section', { class: 'result', 'aria-label': 'Answer' });
  const command = h('section', { class: 'command', 'aria-label': 'The same as a command' });
  patch(
    root,
    h('div', { class: 'page-head' }, h('h1', {}, 'Playground'), choice),
    h('div', { class: 'bench' }, form, h('div', { class: 'outcome' }, result, command)),
  );
  idle(result);

  const streamable = () => state.model?.signature.outputs.some(({ semantics }) => semantics === 'text');
  const request = () => requestOf(state.fields, { streams: streamable() && state.streams });
  const path = () => predictPath(state.model.name, state.version);

  async function showCommand() {
    try {
      patch(command, await curl(path(), await request()));
    } catch (problem) {
      patch(command, h('p', { class: 'note' }, `As a command, once the inputs are whole: ${problem.message}`));
    }
  }

  async function predict() {
    let body;
    try {
      body = await request();
    } catch (problem) {
      patch(result, errorView(problem));
      problem.field?.focus();
      return;
    }
    state.call?.abort();
    const call = new AbortController();
    state.call = call;
    result.setAttribute('aria-busy', 'true');
    const began = performance.now();
    try {
      const response = await send(path(), { method: 'POST', headers: body.headers, body: body.body, signal: call.signal });
      if (!response.ok) throw await failure(response);
      const arrived = performance.now() - began;
      const about = (more) => ({ response, took: performance.now() - began, arrived, ...more });
      const show = (answer, more) => {
        if (state.call === call) patch(result, answerView(state.model.signature.outputs, answer, about(more)));
      };
      if ((response.headers.get('content-type') ?? '').startsWith('text/event-stream')) await events(response, atMostOnceAFrame(show));
      else show(await response.text());
      live(null);
    } catch (error) {
      if (error.name === 'AbortError') return;
      if (state.call === call) patch(result, errorView(error));
      if (error.status === 401 || error.status === 0) live(error);
    } finally {
      if (state.call === call) result.removeAttribute('aria-busy');
    }
  }

  let waiting = 0;
  /** `drawn` is true where a drawing is done, and its answer is wanted at once. */
  const changed = (drawn) => {
    clearTimeout(waiting);
    waiting = setTimeout(showCommand, 150);
    if (drawn) predict();
  };

  function showForm() {
    const { inputs } = state.model.signature;
    state.fields = inputs.map((port) => field(port, changed));
    const stream = streamable() && h('label', { class: 'check' }, h('input', { type: 'checkbox', id: 'stream', checked: state.streams }), ' Show pieces as they come');
    form.replaceChildren(
      ...state.fields.map(({ element }) => element),
      h('div', { class: 'toolbar' }, h('button', { class: 'primary', id: 'send' }, 'Send'), h('kbd', {}, 'Ctrl Enter'), stream || ''),
    );
    idle(result);
    showCommand();
  }

  async function choose(name) {
    try {
      const model = await ask('GET', modelPath(name));
      live(null);
      const same = JSON.stringify(model.signature) === JSON.stringify(state.model?.signature) && name === state.model?.name;
      state.model = model;
      showChoice();
      if (!model.signature) {
        form.replaceChildren();
        patch(command);
        patch(result, notServing(model));
      } else if (!same) {
        showForm();
      } else {
        showCommand();
      }
    } catch (error) {
      live(error);
      patch(result, errorView(error));
    }
  }

  function showChoice() {
    const { model, models, version } = state;
    const option = (value, text, chosen) => h('option', { value, selected: chosen }, text);
    const aliases = Object.entries(model?.aliases ?? {}).map(([alias, of]) => [alias, `${alias} (version ${of})`]);
    const ready = (model?.versions ?? []).filter((one) => one.state === 'READY' || String(one.version) === version);
    const versions = ready.map((one) => [String(one.version), `version ${one.version}`]);
    const known = ['', ...aliases.map(([name]) => name), ...versions.map(([name]) => name)];
    const other = known.includes(version) ? [] : [[version, version]];
    patch(
      choice,
      h('label', { for: 'model' }, 'Model'),
      h('select', { id: 'model' }, models.map(({ name }) => option(name, name, name === model?.name))),
      h('label', { for: 'version' }, 'Version'),
      h(
        'select',
        { id: 'version' },
        option('', 'whichever answers', version === ''),
        [...aliases, ...versions, ...other].map(([value, text]) => option(value, text, value === version)),
      ),
    );
  }

  async function refresh() {
    try {
      state.models = (await ask('GET', '/api/v1/models')).models;
      live(null);
    } catch (error) {
      live(error);
      patch(result, errorView(error));
      return;
    }
    const name = wanted.model || state.models.find(({ serving }) => serving !== null)?.name || state.models[0]?.name;
    if (name) await choose(name);
    else patch(result, nothingToAsk());
  }

  choice.addEventListener('change', ({ target }) => {
    if (target.id === 'model') {
      state.version = '';
      location.replace(`#/playground/${encodeURIComponent(target.value)}`);
    } else {
      state.version = target.value;
      choose(state.model.name);
    }
  });
  /** What the form is made of is known once the model is loaded. */
  result.addEventListener('click', async ({ target }) => {
    if (target.id !== 'load') return;
    target.disabled = true;
    target.textContent = 'Loading…';
    try {
      await ask('POST', modelPath(state.model.name, 'load'), {});
      await choose(state.model.name);
    } catch (error) {
      patch(result, errorView(error));
    }
  });
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    predict();
  });
  form.addEventListener('input', ({ target }) => {
    if (target.id === 'stream') state.streams = target.checked;
    changed(false);
  });
  form.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      predict();
    }
  });
  refresh();
  return {
    keys: {},
    refresh,
    leave() {
      state.call?.abort();
      clearTimeout(waiting);
    },
  };
}

/** Pieces come faster than a screen shows them; the whole answer is always shown. */
function atMostOnceAFrame(show) {
  let frame = 0;
  return (answer, more) => {
    if (answer === null && frame) return;
    cancelAnimationFrame(frame);
    if (answer === null) frame = requestAnimationFrame(() => { frame = 0; });
    show(answer, more);
  };
}

function idle(result) {
  patch(result, h('h2', {}, 'Answer'), h('p', { class: 'note' }, 'Fill in the inputs and send them.'));
}

function notServing({ name, state, reason }) {
  return [
    h('h2', {}, 'Answer'),
    h('p', {}, `No version of ${name} is loaded${state ? `; the model is ${state}` : ''}.`),
    reason && h('p', { class: state === 'FAILED' ? 'reason' : 'note' }, reason),
    h('div', { class: 'toolbar' }, h('button', { type: 'button', class: 'primary', id: 'load' }, 'Load it')),
    h('p', {}, h('a', { href: `#/models/${encodeURIComponent(name)}` }, 'See its versions')),
  ];
}

function nothingToAsk() {
  return [h('h2', {}, 'No models yet'), h('p', {}, 'Predictions need a model. ', h('a', { href: '#/models' }, 'How to get a model'))];
}
