// The tags and the note of a job, edited where it stands in a table.

import { ask, jobPath } from './api.js';
import { h } from './dom.js';

/** The maximum lengths that the server accepts. The inputs accept no longer texts. */
const NAME_MAX = 63;
const VALUE_MAX = 500;
const NOTE_MAX = 16_384;

/** The state of a closed editor. */
export function shutEditor() {
  return { id: null, tag: '', note: null, busy: false, error: null };
}

/** Parses `kind=baseline` into `{ name, value }`; null if the text is not a tag. */
export function readTag(text) {
  const at = text.indexOf('=');
  const name = text.slice(0, at).trim();
  if (at < 0 || name === '' || /\s/.test(name)) return null;
  return { name, value: text.slice(at + 1).trim() };
}

/** The row in which the tags and the note of `job` are edited, below the job's own. `names` are tags that others have. */
export function editorRow(job, editor, columns, names) {
  const key = `edit-${job.id}`;
  const note = editor.note ?? job.note ?? '';
  const chip = ([name, value]) => h(
    'li',
    { 'data-key': name },
    h('b', {}, name), ` ${value} `,
    h('button', { type: 'button', class: 'icon', 'data-click': 'untag', 'data-tag': name, 'aria-label': `Remove the tag ${name}`, disabled: editor.busy }, '×'),
  );
  const tags = Object.entries(job.tags ?? {});
  return h(
    'tr',
    { 'data-key': key, 'data-keydown': 'editor', class: 'editor' },
    h(
      'td',
      { colspan: columns },
      h(
        'div',
        { class: 'annotations', role: 'group', 'aria-label': `Tags and note of ${job.name}` },
        tags.length > 0 && h('ul', { class: 'fields-list', 'data-key': 'tags', 'aria-label': 'Tags' }, tags.map(chip)),
        h(
          'div',
          { class: 'toolbar', 'data-key': 'add' },
          h('input', {
            'data-input': 'tag', value: editor.tag, list: `${key}-names`, placeholder: 'name=value', 'aria-label': 'New tag', maxlength: NAME_MAX + 1 + VALUE_MAX, autocomplete: 'off', spellcheck: 'false',
          }),
          h('datalist', { id: `${key}-names` }, names.map((name) => h('option', { value: `${name}=` }))),
          h('button', { type: 'button', class: 'quiet small', 'data-click': 'tag', disabled: editor.busy || !readTag(editor.tag) }, 'Add the tag'),
        ),
        h('textarea', { 'data-key': 'note', 'data-input': 'note', rows: 3, maxlength: NOTE_MAX, 'aria-label': 'Note', placeholder: 'A note about the run' }, note),
        h(
          'div',
          { class: 'toolbar', 'data-key': 'buttons' },
          h('button', { type: 'button', class: 'primary small', 'data-click': 'note', disabled: editor.busy || note === (job.note ?? '') }, 'Save the note'),
          h('button', { type: 'button', class: 'quiet small', 'data-click': 'shut' }, 'Close'),
        ),
        editor.error && h('p', { class: 'reason', role: 'alert', 'data-key': 'error' }, [editor.error.message, editor.error.hint].filter(Boolean).join('. ')),
      ),
    ),
  );
}

/**
 * The event handlers, for `listen`, of the editor of tags and notes. `state.editor` is its state. `found(id)` returns a job,
 * `changed(job)` receives a job as the server returned it, `render()` draws the page, `row(id)` returns the table's row of a
 * job.
 */
export function editing(state, { found, changed, render, row }) {
  const shut = () => {
    const { id } = state.editor;
    state.editor = shutEditor();
    render();
    row(id)?.querySelector('th a')?.focus();
  };
  const focusInput = (id) => row(`edit-${id}`)?.querySelector('input')?.focus();
  const send = async (body, then) => {
    const { editor } = state;
    const { id } = editor;
    editor.busy = true;
    render();
    try {
      const job = await ask('POST', jobPath(found(id).name, 'annotate'), body);
      changed({ ...found(id), tags: job.tags, note: job.note });
      Object.assign(editor, then, { error: null });
    } catch (error) {
      editor.error = error;
    }
    editor.busy = false;
    render();
  };
  const add = async () => {
    const { id } = state.editor;
    const tag = readTag(state.editor.tag);
    if (!tag || state.editor.busy) return;
    await send({ tags: { [tag.name]: tag.value } }, { tag: '' });
    // A field that has the focus keeps what is typed in it.
    const input = row(`edit-${id}`)?.querySelector('input');
    if (input) input.value = state.editor.tag;
    focusInput(id);
  };
  const edit = (id) => {
    if (state.editor.id === id) return shut();
    state.editor = { ...shutEditor(), id };
    render();
    focusInput(id);
  };
  return {
    edit,
    click: {
      edit: (button) => edit(button.closest('tr').dataset.key),
      shut,
      tag: add,
      async untag({ dataset }) {
        const { id } = state.editor;
        await send({ remove: [dataset.tag] }, {});
        focusInput(id);
      },
      note: () => send({ note: state.editor.note }, { note: null }),
    },
    input: {
      tag({ value }) {
        state.editor.tag = value;
        render();
      },
      note({ value }) {
        state.editor.note = value;
        render();
      },
    },
    keydown: {
      editor(_, event) {
        if (event.key === 'Escape') shut();
        else if (event.key === 'Enter' && event.target.dataset.input === 'tag') add();
        else return;
        event.preventDefault();
      },
    },
  };
}
