// Sending files as a version of a dataset: in chunks, of which only those are sent that the server lacks. So an upload that
// broke off, or the same files again, continues where it was.

import { ask, failure, send } from './api.js';
import { Sha256 } from './sha256.js';

/** The server's maximum. */
export const CHUNK_BYTES = 4 << 20;
/** Chunks that are sent at the same time, and how often each is tried. */
const PARALLEL = 3;
const TRIES = 4;
const PAUSE_MS = 500;

/**
 * The files of a folder or of a choice, with their paths in the dataset: what begins with a dot is left out, and one folder
 * around all files is not part of the paths. `entries` are `{ path, file }`. Returns `{ name, files }`; `name` is that of the
 * folder or of the only file, as a dataset can have it.
 */
export function filesOf(entries) {
  const plain = entries.filter(({ path }) => path.split('/').every((part) => !part.startsWith('.')));
  const tops = new Set(plain.map(({ path }) => path.split('/')[0]));
  const isFolder = tops.size === 1 && plain.length > 0 && plain.every(({ path }) => path.includes('/'));
  const files = plain.map(({ path, file }) => ({ path: isFolder ? path.slice(path.indexOf('/') + 1) : path, file }));
  const named = isFolder ? [...tops][0] : plain.length === 1 ? plain[0].path.replace(/(\.[^.]+)?(\.gz)?$/, '') : '';
  const name = named.toLowerCase().replaceAll(/[^a-z0-9._-]+/g, '-').replace(/^[^a-z0-9]+/, '').slice(0, 63);
  return { name, files: files.sort((a, b) => (a.path < b.path ? -1 : 1)) };
}

/** What is dropped, as `{ path, file }`; folders are read as a whole. */
export async function droppedEntries(transfer) {
  const found = [];
  const roots = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  // What is no file of this machine, such as a picture of a page, is no entry.
  if (roots.length === 0) return [...transfer.files].map((file) => ({ path: file.name, file }));
  const walk = async (entry, path) => {
    if (entry.isFile) {
      found.push({ path, file: await new Promise((resolve, reject) => { entry.file(resolve, reject); }) });
      return;
    }
    const reader = entry.createReader();
    // A browser gives some of the entries at a time.
    for (;;) {
      const some = await new Promise((resolve, reject) => { reader.readEntries(resolve, reject); });
      if (some.length === 0) return;
      for (const one of some) await walk(one, `${path}/${one.name}`);
    }
  };
  for (const root of roots) await walk(root, root.name);
  return found;
}

const hex = (buffer) => [...new Uint8Array(buffer)].map((byte) => byte.toString(16).padStart(2, '0')).join('');

/** The digest of a chunk, by the browser itself where it can. */
async function digestOf(bytes) {
  return crypto.subtle ? hex(await crypto.subtle.digest('SHA-256', bytes)) : new Sha256().update(bytes).hex();
}

/**
 * An upload: `{ state, start, cancel }`. `state` is `{ phase, done, total, error, stored }`, where `phase` is `ready`,
 * `reading`, `sending`, `storing`, `stopped` or `stored`; `changed()` hears of changes. `start()` begins, or continues after
 * it stopped.
 */
export function upload(name, files, changed) {
  const state = { name, files, phase: 'ready', done: 0, total: files.reduce((sum, { file }) => sum + file.size, 0), error: null, stored: null };
  /** The announcement, once the files were read, and where each chunk is: `[file, start, end]`. */
  let announced = null;
  const places = new Map();
  let stop = new AbortController();

  const set = (change) => {
    Object.assign(state, change);
    changed();
  };
  const alive = () => stop.signal.throwIfAborted();

  async function readFiles() {
    set({ phase: 'reading', done: 0 });
    const list = [];
    for (const { path, file } of files) {
      const whole = new Sha256();
      const chunks = [];
      for (let start = 0; start < file.size; start += CHUNK_BYTES) {
        const end = Math.min(file.size, start + CHUNK_BYTES);
        const bytes = new Uint8Array(await file.slice(start, end).arrayBuffer());
        alive();
        const digest = await digestOf(bytes);
        if (file.size > CHUNK_BYTES) whole.update(bytes);
        chunks.push(digest);
        places.set(digest, [file, start, end]);
        set({ done: state.done + bytes.length });
      }
      const sha256 = chunks.length === 1 ? chunks[0] : whole.hex();
      list.push({ path, size: file.size, sha256, chunks });
    }
    announced = { name, files: list };
  }

  async function sendChunk(path, digest) {
    const [file, start, end] = places.get(digest);
    for (let tried = 1; ; tried += 1) {
      try {
        const response = await send(`${path}/chunks/${digest}`, { method: 'PUT', headers: { 'content-type': 'application/octet-stream' }, body: file.slice(start, end), signal: stop.signal });
        if (!response.ok) throw await failure(response);
        return end - start;
      } catch (error) {
        // No answer, or a server that is busy, may be otherwise soon.
        const isPassing = error.status === 0 || error.status === 429 || error.status === 503;
        if (!isPassing || tried === TRIES) throw error;
        await new Promise((resolve) => { setTimeout(resolve, PAUSE_MS * 2 ** tried); });
        alive();
      }
    }
  }

  async function sendMissing(path, missing) {
    const size = (digest) => places.get(digest)[2] - places.get(digest)[1];
    const left = [...missing];
    set({ phase: 'sending', total: left.reduce((sum, digest) => sum + size(digest), 0), done: 0 });
    const worker = async () => {
      for (let digest = left.shift(); digest !== undefined; digest = left.shift()) {
        const sent = await sendChunk(path, digest);
        set({ done: state.done + sent });
      }
    };
    const ended = await Promise.allSettled(Array.from({ length: PARALLEL }, worker));
    const failed = ended.find(({ status }) => status === 'rejected');
    if (failed) throw failed.reason;
  }

  async function run() {
    if (!announced) await readFiles();
    const begun = await ask('POST', '/api/v1/datasets', announced);
    alive();
    const path = `/api/v1/datasets/${encodeURIComponent(name)}/uploads/${begun.upload}`;
    await sendMissing(path, begun.missing);
    set({ phase: 'storing' });
    set({ phase: 'stored', stored: await ask('POST', `${path}/commit`) });
  }

  return {
    state,
    async start() {
      stop = new AbortController();
      set({ phase: 'ready', error: null });
      try {
        await run();
      } catch (error) {
        const isLeft = error.name === 'AbortError';
        const unreadable = error.name === 'NotReadableError' || error.name === 'NotFoundError';
        const reason = unreadable ? new Error('a file cannot be read: it was changed or moved meanwhile; choose the files again') : error;
        set({ phase: 'stopped', error: isLeft ? new Error('you stopped it') : reason });
      }
    },
    cancel: () => stop.abort(),
  };
}
