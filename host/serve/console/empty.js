// Where there is nothing yet: what to run, word for word.

import { h } from './dom.js';

/** The command's name, with the server where it is not at the default address. */
function saggar() {
  return location.origin === 'http://127.0.0.1:5000' ? 'saggar' : `saggar --host ${location.origin}`;
}

function lines(...text) {
  return h('pre', {}, h('code', {}, text.map((line) => `${saggar()} ${line}`).join('\n')));
}

const PUSH = 'data push examples/digits --name digits';
const RUN = 'run lenet --data digits -f';

function empty(title, ...content) {
  return h('div', { class: 'empty' }, h('h2', {}, title), content, h('p', { class: 'note' }, 'It appears here by itself.'));
}

/** No models. */
export function emptyModels() {
  return empty(
    'No models yet',
    h('p', {}, 'A training that publishes creates one:'),
    lines(PUSH, RUN),
    h('p', {}, 'Or import a model:'),
    lines('import model.onnx --name NAME'),
  );
}

/** No jobs. */
export function emptyJobs() {
  return empty('No jobs yet', h('p', {}, 'Start a training from a shell, with data and a plugin:'), lines(PUSH, RUN));
}

/** No experiments. */
export function emptyExperiments() {
  return empty('No experiments yet', h('p', {}, 'An experiment is a label that jobs share:'), lines(PUSH, 'run lenet --data digits --experiment rate -- lr=0.05', 'run lenet --data digits --experiment rate -- lr=0.01'));
}

/** No runs of pipelines. */
export function emptyPipelines() {
  return empty('No pipeline runs yet', h('p', {}, 'A pipeline is steps in the project file, such as those of examples/nightly:'), lines('pipeline check', 'pipeline run nightly --follow'));
}

/** No sweeps. */
export function emptySweeps() {
  return empty('No sweeps yet', h('p', {}, 'A sweep trains one plugin with many parameters:'), lines(PUSH, "sweep lenet --data digits --space 'lr=log(1e-4,1e-1)' --random 16 --method asha --metric validation/accuracy"));
}

/** No datasets. */
export function emptyDatasets() {
  return empty('No datasets yet', h('p', {}, 'Push a folder as a dataset version:'), lines(PUSH));
}
