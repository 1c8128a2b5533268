// The request as a command for a shell.

import { apiKey } from './api.js';
import { h } from './dom.js';

/** The maximum length of an image or body in the command itself, in characters. A longer one is a file beside it. */
const INLINE_MAX = 64 * 1024;
/** A name of a field in which curl sees nothing of its own: it ends a name at `=`, and then reads files at `@` and `<`. */
const PLAIN_NAME = /^[\w.-]+$/;
/** So much of a command is excerpt; all of it is copied. */
const SHOWN_MAX = 1200;

/** A word of a POSIX shell that means `text`, whatever is in it. */
export function quote(text) {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** The command for `request`, as `requestOf` makes it, and the files that it needs: `{ text, files }`. */
export async function command(path, request) {
  const words = ['curl'];
  const files = [];
  let before = '';
  if (request.streams) words.push('-N', '-H', quote('accept: text/event-stream'));
  // The key itself stays in this tab.
  if (apiKey()) words.push('-H', '"authorization: Bearer $SAGGAR_API_KEY"');
  if (request.json === null && !request.parts.every(({ name }) => PLAIN_NAME.test(name))) {
    // The whole form as the browser writes it, which curl passes on as it is.
    const form = new Response(request.body);
    words.push('-H', quote(`content-type: ${form.headers.get('content-type')}`));
    const blob = await form.blob();
    const base64 = await inBase64(blob);
    if (base64.length <= INLINE_MAX) {
      before = `printf %s ${quote(base64)} | base64 -d |\n  `;
      words.push('--data-binary', '@-');
    } else {
      files.push({ name: 'input.form', blob });
      words.push('--data-binary', '@input.form');
    }
  } else if (request.json === null) {
    for (const part of request.parts) {
      if (part.blob) {
        const base64 = await inBase64(part.blob);
        if (base64.length <= INLINE_MAX && !before) {
          before = `printf %s ${quote(base64)} | base64 -d |\n  `;
          words.push('-F', quote(`${part.name}=@-;type=${part.blob.type};filename=${part.filename}`));
        } else {
          files.push({ name: part.filename, blob: part.blob });
          words.push('-F', quote(`${part.name}=@${part.filename}`));
        }
      } else {
        words.push('--form-string', quote(`${part.name}=${part.json ?? JSON.stringify(part.text)}`));
      }
    }
  } else {
    words.push('-H', quote('content-type: application/json'));
    if (request.json.length <= INLINE_MAX) {
      words.push('--data-raw', quote(request.json));
    } else {
      files.push({ name: 'input.json', blob: new Blob([request.json], { type: 'application/json' }) });
      words.push('--data-binary', '@input.json');
    }
  }
  return { text: `${before}${words.join(' ')} \\\n  ${quote(location.origin + path)}`, files };
}

async function inBase64(blob) {
  const bytes = new Uint8Array(await blob.arrayBuffer());
  let text = '';
  for (let at = 0; at < bytes.length; at += 8192) text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return btoa(text);
}

/** The command as a block with a button that copies it. */
export async function curl(path, request) {
  const { text, files } = await command(path, request);
  const button = h('button', { type: 'button', class: 'quiet small', id: 'copy', 'data-key': 'copy' }, 'Copy');
  button.addEventListener('click', () => copy(text, button));
  const excerpt = text.length > SHOWN_MAX ? `${text.slice(0, SHOWN_MAX / 2)} … ${text.slice(-SHOWN_MAX / 4)}` : text;
  // Made anew each time: the button copies the text of its time.
  const block = h('div', { 'data-key': `curl ${Date.now()} ${Math.random()}` }, h('div', { class: 'section-head' }, h('h2', {}, 'As a command'), button), h('pre', { class: 'wrap', tabindex: 0, 'aria-label': 'The command' }, h('code', {}, excerpt)));
  block.querySelector('code').dataset.whole = text;
  for (const { name, blob } of files) {
    const link = h('a', { href: URL.createObjectURL(blob), download: name }, name);
    block.append(h('p', { class: 'note' }, 'It reads the file ', link, ' from the folder it runs in.'));
  }
  return block;
}

async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = 'Copied';
  } catch {
    // Without a secure context there is no clipboard: the text is selected for the user to copy.
    const code = button.closest('.command').querySelector('code');
    code.textContent = text;
    getSelection().selectAllChildren(code);
    button.textContent = 'Selected: press Ctrl C';
  }
  setTimeout(() => {
    button.textContent = 'Copy';
  }, 2500);
}
