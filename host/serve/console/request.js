// From the fields of the form to the body of a request.

/** An input that is not whole; `field` can be focused. */
export class Problem extends Error {
  constructor(message, field) {
    super(message);
    this.field = field;
  }
}

/**
 * `{ headers, body, parts, json, streams }` of the fields. JSON where every input is one; a form where a picture goes as
 * a file. `parts` are `{ name, json }`, `{ name, text }` or `{ name, blob, filename }`. Throws Problem.
 */
export async function requestOf(fields, { streams }) {
  const parts = (await Promise.all(fields.map(async ({ port, part }) => {
    const value = await part();
    return value && { name: port.name, ...value };
  }))).filter(Boolean);
  const headers = { accept: streams ? 'text/event-stream' : 'application/json' };
  if (parts.some(({ blob }) => blob)) {
    const body = new FormData();
    for (const { name, blob, filename, json, text } of parts) {
      if (blob) body.append(name, blob, filename);
      else body.append(name, json ?? JSON.stringify(text));
    }
    return { headers, body, parts, json: null, streams };
  }
  // Numbers stay as they were typed: JavaScript would round those of 64 bits.
  const json = `{${parts.map(({ name, json: value, text }) => `${JSON.stringify(name)}: ${value ?? JSON.stringify(text)}`).join(', ')}}`;
  return { headers: { ...headers, 'content-type': 'application/json' }, body: json, parts, json, streams };
}
