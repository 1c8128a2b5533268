// The place on the page of datasets where files become a version of a dataset.

import { nameProblem } from './checks.js';
import { h, listen, patch } from './dom.js';
import { bytes } from './format.js';
import { droppedEntries, filesOf, upload } from './upload.js';

/** The upload goes on while other pages are shown, so it is not the page's. */
const current = { chosen: null, upload: null };
let show = () => {};

const PHASES = { reading: 'Reading', sending: 'Sending', storing: 'The server reads the files…' };

/**
 * The element, which takes files that are dropped on `page` and calls `stored()` after an upload. Returns `{ element, choose,
 * leave }`; `choose()` opens the dialog of files.
 */
export function dropArea(page, stored) {
  const files = h('input', { type: 'file', multiple: true, class: 'unseen', tabindex: -1, 'aria-label': 'Files of the dataset', 'data-change': 'chosen' });
  const folder = h('input', { type: 'file', webkitdirectory: true, class: 'unseen', tabindex: -1, 'aria-label': 'Folder of the dataset', 'data-change': 'chosen' });
  const content = h('div', {});
  const element = h('section', { class: 'drop-area', 'aria-label': 'New dataset' }, content, files, folder);

  function render() {
    const { chosen, upload: running } = current;
    patch(content, running ? progress(running.state) : chosen ? confirmation(chosen) : invitation());
  }

  function invitation() {
    return h(
      'div',
      { class: 'drop-line', 'data-key': 'invitation' },
      h('p', {}, h('b', {}, 'New dataset: '), 'drop files or a folder here, or ', h('button', { type: 'button', class: 'quiet small', 'data-click': 'files' }, 'Choose files…'), ' ', h('button', { type: 'button', class: 'quiet small', 'data-click': 'folder' }, 'Choose a folder…')),
    );
  }

  function confirmation({ files: list, name, problem }) {
    const size = list.reduce((sum, { file }) => sum + file.size, 0);
    return h(
      'form',
      { class: 'drop-form', 'data-key': 'confirmation' },
      h('p', {}, `${list.length} ${list.length === 1 ? 'file' : 'files'}, ${bytes(size)}: `, h('span', { class: 'note' }, list.slice(0, 4).map(({ path }) => path).join(', '), list.length > 4 && `, and ${list.length - 4} more`)),
      h(
        'div',
        { class: problem ? 'form-field wrong' : 'form-field' },
        h('label', { for: 'dataset-name' }, 'Name of the dataset'),
        h('input', { id: 'dataset-name', value: name, 'data-input': 'name', autocomplete: 'off', spellcheck: 'false', 'aria-invalid': problem ? 'true' : null, 'aria-describedby': problem ? 'dataset-problem' : null }),
        problem && h('p', { class: 'reason', id: 'dataset-problem' }, problem),
      ),
      h('div', { class: 'toolbar' }, h('button', { class: 'primary small' }, 'Upload'), h('button', { type: 'button', class: 'quiet small', 'data-click': 'forget' }, 'Cancel')),
    );
  }

  function progress({ name, phase, done, total, error, stored: made }) {
    if (phase === 'stored') {
      return h(
        'div',
        { class: 'drop-line', 'data-key': 'stored', role: 'status' },
        h('p', {}, h('b', {}, `${made.name}/${made.version}`), ` is stored: ${made.items.toLocaleString('en')} items. `, (made.notes ?? []).map((one) => h('span', { class: 'note' }, `${one} `))),
        h('button', { type: 'button', class: 'quiet small', 'data-click': 'forget' }, 'Done'),
      );
    }
    if (phase === 'stopped') {
      return h(
        'div',
        { class: 'drop-line', 'data-key': 'stopped', role: 'alert' },
        h('p', { class: 'reason' }, `The upload of ${name} stopped: ${error.message}.`, error.hint && h('span', { class: 'note' }, ` ${error.hint}.`)),
        h('div', { class: 'toolbar' }, h('button', { type: 'button', class: 'primary small', 'data-click': 'resume' }, 'Continue'), h('button', { type: 'button', class: 'quiet small', 'data-click': 'forget' }, 'Give up')),
        h('p', { class: 'note' }, 'What was sent is kept: the same files continue where they were, also after this page was closed.'),
      );
    }
    const text = phase === 'storing' ? PHASES.storing : `${PHASES[phase] ?? 'Waiting'} ${name}: ${bytes(done)} of ${bytes(total)}`;
    return h(
      'div',
      { class: 'drop-line', 'data-key': 'progress' },
      h('p', { role: 'status' }, text),
      h('progress', { max: Math.max(1, total), value: phase === 'storing' ? null : done, 'aria-label': text }),
      phase !== 'storing' && h('button', { type: 'button', class: 'quiet small', 'data-click': 'stop' }, 'Stop'),
    );
  }

  function choose(entries) {
    const { name, files: list } = filesOf(entries);
    // One upload after the other.
    if (list.length === 0 || (current.upload && !['stopped', 'stored'].includes(current.upload.state.phase))) return;
    Object.assign(current, { upload: null, chosen: { files: list, name, problem: null } });
    render();
    content.querySelector('#dataset-name')?.focus();
  }

  async function start() {
    const { files: list, name } = current.chosen;
    const problem = nameProblem('name', name);
    if (problem) {
      current.chosen.problem = problem;
      return render();
    }
    current.upload = upload(name, list, () => show());
    current.chosen = null;
    await run();
  }

  async function run() {
    await current.upload.start();
    if (current.upload?.state.phase === 'stored') stored();
  }

  listen(element, 'click', {
    files: () => files.click(),
    folder: () => folder.click(),
    forget() {
      Object.assign(current, { chosen: null, upload: null });
      render();
    },
    stop: () => current.upload.cancel(),
    resume: run,
  });
  listen(element, 'change', {
    chosen(input) {
      choose([...input.files].map((file) => ({ path: file.webkitRelativePath || file.name, file })));
      input.value = '';
    },
  });
  listen(element, 'input', {
    name({ value }) {
      Object.assign(current.chosen, { name: value.trim(), problem: null });
      render();
    },
  });
  element.addEventListener('submit', (event) => {
    event.preventDefault();
    start();
  });
  const hasFiles = (event) => [...(event.dataTransfer?.types ?? [])].includes('Files');
  const over = (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    element.classList.add('over');
  };
  const out = (event) => {
    if (!page.contains(event.relatedTarget)) element.classList.remove('over');
  };
  const drop = async (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    element.classList.remove('over');
    choose(await droppedEntries(event.dataTransfer));
  };
  page.addEventListener('dragover', over);
  page.addEventListener('dragleave', out);
  page.addEventListener('drop', drop);
  show = render;
  render();
  return {
    element,
    choose: () => files.click(),
    leave() {
      show = () => {};
    },
  };
}
