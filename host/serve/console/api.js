// Requests to the server's public interface, and its errors in its own words.

const KEY = 'saggar-api-key';

/** What the server said instead of an answer. `status` is 0 where it said nothing. */
export class ApiError extends Error {
  constructor(status, { error, code = '', hint = '', request_id: requestId = '' }) {
    super(error);
    this.name = 'ApiError';
    Object.assign(this, { status, code, hint, requestId });
  }
}

/** The API key of this tab, or ''. */
export function apiKey() {
  return sessionStorage.getItem(KEY) ?? '';
}

/** Keeps the key until the tab is closed. */
export function setApiKey(key) {
  if (key) sessionStorage.setItem(KEY, key);
  else sessionStorage.removeItem(KEY);
}

/** The headers with the key, where there is one. */
export function authorized(headers = {}) {
  return apiKey() ? { ...headers, authorization: `Bearer ${apiKey()}` } : headers;
}

/** Where a model's predictions are asked for; `version` is a number, an alias or ''. */
export function predictPath(model, version) {
  const reference = version ? `${encodeURIComponent(model)}@${encodeURIComponent(version)}` : encodeURIComponent(model);
  return `/models/${reference}/predict`;
}

/** A model's path under the management interface. */
export function modelPath(model, ...rest) {
  return below('/api/v1/models', [model, ...rest]);
}

/** A job's path under the management interface; `rest` may be the path of a file in several parts. */
export function jobPath(job, ...rest) {
  return below('/api/v1/jobs', [job, ...rest]);
}

/** The path of a dataset's version under the management interface. */
export function datasetPath(name, version, ...rest) {
  return below('/api/v1/datasets', [name, version, ...rest]);
}

function below(root, parts) {
  return [root, ...parts.map(encodeURIComponent)].join('/');
}

/** The response, whatever its status; throws ApiError where none came. */
export async function send(path, options = {}) {
  try {
    return await fetch(path, { ...options, headers: authorized(options.headers), cache: 'no-store' });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ApiError(0, { error: 'the server does not answer', hint: 'is it running? This page tries again' });
  }
}

/** Asks for JSON and gives it; throws ApiError for every status that is no success. */
export async function ask(method, path, body) {
  const headers = { accept: 'application/json' };
  if (body !== undefined) headers['content-type'] = 'application/json';
  const response = await send(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  if (!response.ok) throw await failure(response);
  const text = await response.text();
  return text ? JSON.parse(text) : null;
}

/** The error in a response. */
export async function failure(response) {
  const text = await response.text();
  try {
    const body = JSON.parse(text);
    if (typeof body.error === 'string') return new ApiError(response.status, body);
  } catch {
    // Not JSON: something between the server and this page answered.
  }
  const error = text.trim().slice(0, 300) || response.statusText || 'no reason given';
  return new ApiError(response.status, { error, code: `http_${response.status}` });
}
