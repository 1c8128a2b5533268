// Server-sent events: of any stream, and of an answer that comes in pieces. Source of the form: WHATWG HTML.

import { ApiError } from './api.js';

/**
 * Reads the pieces of `response` and calls `show(text, { pieces, done })` as they come: `text` is the whole answer as JSON,
 * or null before it is there, `pieces` the texts so far by output. Throws ApiError where the answer ends with an error.
 */
export async function events(response, show) {
  const pieces = {};
  const others = { count: 0 };
  let ended = false;
  await read(response.body, (name, data) => {
    if (name === 'done') {
      ended = true;
      show(data, { pieces: null, count: others.count, done: true });
    } else if (name === 'error') {
      throw new ApiError(response.status, JSON.parse(data));
    } else {
      others.count += 1;
      for (const [output, value] of Object.entries(JSON.parse(data))) {
        if (typeof value === 'string') pieces[output] = (pieces[output] ?? '') + value;
      }
      show(null, { pieces, count: others.count, done: false });
    }
  });
  if (!ended) throw new ApiError(0, { error: 'the response was cut off', hint: 'the server may have stopped' });
}

/** Calls `event(name, data, id)` for each event of the stream; `id` is null where it has none. */
export async function read(body, event) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      text = (text + value).replaceAll('\r\n', '\n');
      const blocks = text.split('\n\n');
      text = blocks.pop();
      for (const block of blocks) dispatch(block, event);
    }
  } finally {
    // Tells the server that nobody listens any more.
    reader.cancel().catch(() => {});
  }
}

function dispatch(block, event) {
  let name = 'message';
  let id = null;
  const data = [];
  for (const line of block.split('\n')) {
    const [field, ...rest] = line.split(':');
    const value = rest.join(':').replace(/^ /, '');
    if (field === 'event') name = value;
    if (field === 'id') id = value;
    if (field === 'data') data.push(value);
  }
  if (data.length) event(name, data.join('\n'), id);
}
