// The forms of a new job and of a new sweep, made from what the plugin declares.

import { ask } from './api.js';
import { expectedOf } from './checks.js';
import { runCommand, sweepCommand } from './command.js';
import { h, listen, patch } from './dom.js';
import { short } from './format.js';
import { METHODS, SEARCHES, declaredParameters, hasRungs, mountPoints, newestVersions, projectOf, readJob, readSweep } from './jobform.js';
import { NOTEBOOK_QUEUE } from './newnotebook.js';
import { formFields, formPart, formState, listenToForm, sideCard } from './submission.js';

/** Shows the form of a `job` or a `sweep` in `root`; `wanted` is the digest or the name of the plugin to begin with, or ''. */
export function newJobPage(root, kind, wanted, live) {
  const isSweep = kind === 'sweep';
  const state = {
    plugins: null, datasets: [], devices: [], queues: [], error: null,
    chosen: null, mounts: [], ...formState(),
  };
  const form = h('form', { class: 'job-form', novalidate: true, 'aria-label': isSweep ? 'New sweep' : 'New job' });
  patch(root, h('p', { class: 'crumb' }, h('a', { href: isSweep ? '#/sweeps' : '#/jobs' }, isSweep ? 'Sweeps' : 'Jobs')), h('div', { class: 'page-head' }, h('h1', {}, isSweep ? 'New sweep' : 'New job')), form);

  const able = () => (state.plugins ?? []).filter((plugin) => plugin.trains || (plugin.is_step && !isSweep));
  const plugin = () => able().find(({ digest }) => digest === state.chosen) ?? null;
  const filled = () => ({ plugin: plugin(), values: state.values, mounts: state.mounts, datasets: state.datasets });
  const read = () => (isSweep ? readSweep(filled()) : readJob(filled()));
  const named = () => {
    const one = plugin();
    if (!one) return 'PLUGIN';
    return one.reference ? one.declares?.name ?? one.digest : `${one.declares?.name ?? short(one.digest)}.wasm`;
  };

  function render() {
    if (!state.plugins) {
      patch(form, h('p', { class: state.error ? 'reason' : 'empty' }, state.error ? `${state.error.message}.` : 'Looking…'));
      return;
    }
    const { spec, problems } = read();
    const fields = formFields(state, problems);
    patch(
      form,
      h(
        'div',
        { class: 'form-parts', 'data-key': 'parts' },
        formPart('Plugin', pluginFields(fields)),
        formPart(plugin()?.is_step ? 'Inputs' : 'Parameters', parameterFields(fields)),
        formPart('Data', dataFields(fields)),
        isSweep && formPart('Search', searchFields(fields)),
        formPart('Where and how', settingFields(fields)),
      ),
      side(spec, problems),
    );
  }

  function pluginFields({ choice, text }) {
    const label = ({ declares, digest, reference }) => `${declares?.name ?? short(digest)}${reference ? '' : `, uploaded ${short(digest)}`}`;
    const chosen = plugin();
    return [
      choice('plugin', 'Plugin', [['', able().length ? 'Choose…' : 'No plugin trains here'], ...able().map((one) => [one.digest, label(one)])], 'The reference plugins of this server, and those that were uploaded by saggar run FILE.'),
      !isSweep && state.queues.some(({ name }) => name === NOTEBOOK_QUEUE) && h('p', { class: 'note', 'data-key': 'notebook' }, 'Or ', h('a', { href: '#/new-notebook' }, 'start a notebook'), ', which runs no plugin.'),
      text('project', 'Project', { placeholder: projectOf(chosen), help: 'Jobs are numbered in their project.' }),
      text('experiment', 'Experiment', { help: 'A label that jobs share.' }),
    ];
  }

  function parameterFields(fields) {
    const declared = declaredParameters(plugin());
    return [
      declared.map(([name, declaration]) => parameterField(fields, name, declaration)),
      fields.problemOf('space') && h('p', { class: 'reason', 'data-key': 'space' }, fields.problemOf('space')),
      declared.length === 0 && h('p', { class: 'note', 'data-key': 'none' }, plugin() ? 'The plugin declares no parameters; it checks those of the job when it runs.' : 'Choose a plugin first.'),
      !plugin()?.is_step && h('details', { 'data-key': 'extra', open: declared.length === 0 }, h('summary', {}, 'Other parameters'), fields.area('extra', 'Other parameters, one on each line', { placeholder: 'epochs=3' })),
    ];
  }

  function parameterField(fields, name, declaration) {
    const field = `parameters.${name}`;
    const fallback = declaration.default === undefined || declaration.default === null ? '' : typeof declaration.default === 'string' ? declaration.default : JSON.stringify(declaration.default);
    const accepted = `${expectedOf(declaration)}${fallback === '' ? '' : `; ${fallback} if empty`}.`;
    const help = [declaration.help, accepted[0].toUpperCase() + accepted.slice(1)].filter(Boolean).join(' ');
    const search = state.values[`search.${name}`] ?? 'fixed';
    const control = declaration.type === 'boolean' || declaration.choices?.length
      ? fields.choice(field, name, [['', fallback === '' ? '' : `${fallback} (default)`], ...(declaration.choices ?? ['true', 'false']).map((value) => [value, value])], help)
      : fields.text(field, name, { placeholder: fallback, help, inputmode: ['integer', 'number'].includes(declaration.type) ? 'decimal' : null });
    if (!isSweep) return control;
    const isNumber = declaration.type === 'integer' || declaration.type === 'number';
    const kinds = ['fixed', 'list', ...(isNumber ? ['range'] : []), ...(declaration.type === 'number' ? ['log'] : [])];
    const part = (key, label, placeholder) => h('input', { name: `${key}.${name}`, 'aria-label': `${label} of ${name}`, placeholder, value: state.values[`${key}.${name}`] ?? '', 'data-input': 'set', 'data-focusout': 'leave', autocomplete: 'off', inputmode: key === 'list' ? null : 'decimal' });
    const ends = [declaration.min, declaration.max].map((bound) => (bound === undefined || bound === null ? null : String(bound)));
    const searched = search === 'fixed' ? control : h(
      'div',
      { class: fields.problemOf(field) ? 'form-field wrong' : 'form-field', 'data-key': `${field} searched`, 'data-field': field },
      h('span', { class: 'form-label' }, name),
      search === 'list'
        ? part('list', 'Values', '0.1, 0.01')
        : h('span', { class: 'bounds' }, part('min', 'Least value', ends[0] ?? 'from'), ' to ', part('max', 'Largest value', ends[1] ?? 'to')),
      h('p', { class: 'note' }, help),
      fields.problemOf(field) && h('p', { class: 'reason' }, fields.problemOf(field)),
    );
    const select = h('select', { name: `search.${name}`, 'aria-label': `How ${name} is searched`, 'data-input': 'set' }, kinds.map((value) => h('option', { value, selected: value === search }, SEARCHES[value])));
    return h('div', { class: 'searched', 'data-key': `${field} row` }, searched, select);
  }

  function dataFields(fields) {
    const options = (wanted) => {
      const lacks = (version) => wanted.filter((name) => !version.fields.some((has) => has.name === name));
      const label = (text, version) => (lacks(version).length ? `${text} — lacks ${lacks(version).join(', ')}` : text);
      const of = newestVersions(state.datasets).sort((a, b) => lacks(a).length - lacks(b).length || (a.name < b.name ? -1 : 1)).flatMap((one) => [
        [one.name, label(`${one.name}, the newest version (${one.version})`, one)],
        ...state.datasets.filter(({ name, version }) => name === one.name && version !== one.version).map((old) => [`${old.name}/${old.version}`, label(`${old.name}/${old.version}`, old)]),
      ]);
      return [['', 'Choose…'], ...of, ['job', 'Output of a job…']];
    };
    const points = mountPoints(plugin(), state.mounts);
    return [
      points.map(({ key, mount, fields: wanted, declared }) => h(
        'div',
        { class: 'mount', 'data-key': `mount ${key}` },
        !declared && fields.text(`point.${key}`, 'Mounted at', { placeholder: '/data' }),
        fields.choice(`mount.${key}`, declared ? `Dataset at ${mount}` : 'Dataset', options(wanted), wanted.length ? `The plugin reads ${wanted.join(', ')}.` : null),
        state.values[`mount.${key}`] === 'job' && fields.text(`output.${key}`, 'Output', { placeholder: 'job:mnist-7/output/table' }),
        !declared && h('button', { type: 'button', class: 'quiet small', 'data-click': 'unmount', 'data-mount': key }, 'Do not mount it'),
      )),
      points.length === 0 && h('p', { class: 'note', 'data-key': 'none' }, 'Nothing is mounted.'),
      h('div', { class: 'toolbar', 'data-key': 'more' }, h('button', { type: 'button', class: 'quiet small', 'data-click': 'mount' }, 'Mount a dataset')),
    ];
  }

  function searchFields({ choice, text }) {
    const method = state.values.method || 'full';
    return [
      text('metric', 'Metric', { placeholder: 'validation/accuracy', help: 'The series by which trials are compared; min: or max: before it gives a direction.' }),
      choice('method', 'Method', Object.entries(METHODS).map(([name, what]) => [name === 'full' ? '' : name, `${name}: ${what}`])),
      text('trials', 'Trials', { inputmode: 'numeric', placeholder: method.startsWith('tpe') ? '' : 'every combination', help: 'The number of trials that are drawn.' }),
      text('max_parallel', 'At once', { inputmode: 'numeric', placeholder: '4' }),
      hasRungs(method) && text('eta', 'One in N continues', { inputmode: 'numeric', placeholder: '3', help: 'At each rung.' }),
      hasRungs(method) && text('rungs', 'Rungs', { inputmode: 'numeric', placeholder: '2' }),
      text('budget_seconds', 'Time budget', { placeholder: 'none', help: 'The sweep ends after this time, such as 2h.' }),
      text('budget_device_seconds', 'Device time budget', { placeholder: 'none' }),
    ];
  }

  function settingFields({ choice, text, area }) {
    const names = ['cpu', 'gpu', ...state.devices.map(({ name }) => name).filter((name) => name !== 'cpu')];
    return [
      choice('device', 'Device', [['', 'auto: the fastest that is free'], ...names.map((name) => [name, name === 'gpu' ? 'gpu: any adapter' : name])]),
      state.values.device === 'gpu' && text('gpu_slots', 'Slots of the device', { placeholder: '1', inputmode: 'decimal', help: 'A fraction such as 0.25 shares it.' }),
      text('memory_bytes', 'Memory limit', { placeholder: 'none', help: 'Host memory of the plugin, such as 4GiB.' }),
      text('gpu_memory_bytes', 'Device memory limit', { placeholder: 'none' }),
      text('max_runtime_seconds', 'Time limit', { placeholder: 'none', help: 'Such as 2h; the job is checkpointed and stopped.' }),
      text('retry', 'Retries', { placeholder: '5', inputmode: 'numeric', help: 'Attempts after the first, if the machine fails.' }),
      choice('queue', 'Queue', [['', 'default'], ...state.queues.map(({ name }) => name).filter((name) => !['default', NOTEBOOK_QUEUE].includes(name)).map((name) => [name, name])]),
      text('priority', 'Priority', { placeholder: '50', inputmode: 'numeric', help: '0 to 100; higher starts first.' }),
      choice('preemptible', 'Preemptible', [['', 'no'], ['true', 'yes: others can preempt it']]),
      text('seed', 'Seed', { placeholder: '0', inputmode: 'numeric' }),
      area('message', 'Message', { help: 'What it is for.' }),
    ];
  }

  function side(spec, problems) {
    return sideCard(state, problems, {
      command: isSweep ? sweepCommand(spec, named()) : runCommand(spec, named()),
      notes: plugin() && !plugin().reference && h('p', { class: 'note' }, `${named()} stands for the file of the plugin ${short(plugin().digest)}.`),
      label: isSweep ? 'Start the sweep' : 'Run the job',
      disabled: !plugin(),
    });
  }

  async function load() {
    try {
      state.plugins = (await ask('GET', '/api/v1/plugins')).plugins;
      state.chosen ??= able().find(({ digest, declares }) => wanted && (digest === wanted || declares?.name === wanted))?.digest ?? null;
      state.values.plugin ??= state.chosen ?? '';
      state.error = null;
    } catch (error) {
      state.error = error;
    }
    const part = async (name, path, pick) => {
      try {
        state[name] = pick(await ask('GET', path));
      } catch {
        // What the key may not see cannot be chosen; the server says so if it is needed.
      }
    };
    await Promise.all([
      part('datasets', '/api/v1/datasets', ({ datasets }) => datasets), part('devices', '/api/v1/devices', ({ devices }) => devices), part('queues', '/api/v1/queues', ({ queues }) => queues),
    ]);
    live(state.error);
    render();
  }

  listenToForm(form, state, {
    read,
    path: isSweep ? '/api/v1/sweeps' : '/api/v1/jobs',
    made: isSweep ? { verb: 'started', page: 'sweeps' } : { verb: 'submitted', page: 'jobs' },
    render,
    live,
    set(name, value) {
      if (name === 'plugin') Object.assign(state, { chosen: value || null, tried: false, mounts: [] });
    },
    fieldOf: (name) => name.replace(/^(list|min|max)\./, 'parameters.').replace(/^output\./, 'mount.'),
  });
  listen(form, 'click', {
    mount() {
      state.mounts.push(`added-${state.mounts.length}-${Date.now()}`);
      render();
    },
    unmount({ dataset }) {
      state.mounts = state.mounts.filter((key) => key !== dataset.mount);
      render();
    },
  });
  render();
  load();
  return { keys: {}, looks: '', refresh: load, leave() {} };
}
