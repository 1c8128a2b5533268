/** The export of HTTP handlers. Only the entry of a plugin whose world has them imports this module. */

import { send, start } from 'saggar:plugin/http-stream@0.1.0';
import { call, exported } from './errors.js';
import { loadedModel } from './exports.js';
import { HttpResponse } from './responses.js';

const METHODS = ['GET', 'POST', 'PUT', 'DELETE', 'PATCH'];
const PIECE_BYTES = 64 << 10;

/** A request to a handler, with the names of the route's parameters as text, and `query` with the first values. */
class HttpRequest {
    constructor({ method, path, parameters, query, headers, body }) {
        Object.assign(this, { method: method.toUpperCase(), path, queryItems: query, body });
        this.parameters = Object.fromEntries(parameters);
        this.query = Object.fromEntries([...query].reverse());
        this.headers = Object.fromEntries(headers);
    }

    /** The body as text. A body that is not UTF-8 is answered with the status 422. */
    text() {
        return new TextDecoder('utf-8', { fatal: true }).decode(this.body);
    }

    /** The body as JSON. A body that is not JSON is answered with the status 422. */
    json() {
        const text = this.text();
        try {
            return JSON.parse(text);
        } catch (error) {
            throw new RangeError(`the body is not JSON: ${error.message}`);
        }
    }
}

function bytes(piece) {
    if (typeof piece === 'string') return new TextEncoder().encode(piece);
    if (piece instanceof Uint8Array) return piece;
    throw new TypeError(`a body consists of texts or Uint8Arrays, not ${typeof piece}`);
}

function sendPieces(piece) {
    const data = bytes(piece);
    for (let at = 0; at < data.length; at += PIECE_BYTES) call(() => send(data.slice(at, at + PIECE_BYTES)));
}

/** Returns what a handler returned as a response: a text, bytes, an iterator, a response, or a value for JSON. */
function response(answer) {
    if (answer instanceof HttpResponse) return answer;
    if (answer === undefined || answer === null) {
        throw new TypeError('a handler returns a text, bytes, an iterator, an HttpResponse, or a value for JSON');
    }
    const isBody = typeof answer === 'string' || answer instanceof Uint8Array || typeof answer.next === 'function';
    return isBody ? new HttpResponse(answer) : HttpResponse.json(answer);
}

function stream(whole, pieces) {
    // What is wrong before the first piece still changes the status.
    const first = pieces.next();
    call(() => start(whole.head()));
    try {
        for (let piece = first; !piece.done; piece = pieces.next()) sendPieces(piece.value);
    } finally {
        pieces.return?.();
    }
}

/** The host's interface `http-handler`. */
export const httpHandler = {
    routes() {
        return loadedModel().handlers().map(({ method, path, description = '' }) => {
            if (!METHODS.includes(method)) throw new RangeError(`method: expected one of ${METHODS.join(', ')}, got ${method}`);
            return { method: method.toLowerCase(), path, description };
        });
    },

    handle(route, given) {
        return exported(() => {
            const model = loadedModel();
            const { handler } = model.handlers()[route];
            const request = new HttpRequest(given);
            const answer = response(typeof handler === 'function' ? handler(request) : model[handler](request));
            if (typeof answer.body === 'string' || answer.body instanceof Uint8Array) {
                return { head: answer.head(), body: bytes(answer.body) };
            }
            stream(answer, answer.body[Symbol.iterator]());
            return undefined;
        });
    },
};
