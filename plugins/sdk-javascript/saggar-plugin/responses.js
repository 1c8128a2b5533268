/** Responses of handlers of HTTP requests. */

/**
 * A response: a body of text, bytes or an iterator of pieces of either, a status and headers. An iterator is streamed:
 * each piece is at the client before the next one is computed.
 */
export class HttpResponse {
    constructor(body = new Uint8Array(), { status = 200, contentType, headers = {} } = {}) {
        Object.assign(this, { body, status, contentType, headers });
    }

    /** Returns a value as JSON. */
    static json(value, status = 200) {
        return new HttpResponse(JSON.stringify(value), { status, contentType: 'application/json' });
    }

    /** Returns a page. Browsers show it without rights to use the server. */
    static html(page, status = 200) {
        return new HttpResponse(page, { status, contentType: 'text/html; charset=utf-8' });
    }

    /** Returns the status and the headers in the host's form. */
    head() {
        const isBytes = this.body instanceof Uint8Array;
        const isEmpty = isBytes && this.body.length === 0;
        const byDefault = isBytes ? 'application/octet-stream' : 'text/plain; charset=utf-8';
        const kind = this.contentType ?? (isEmpty ? undefined : byDefault);
        const given = Object.entries(this.headers).map(([name, value]) => [name.toLowerCase(), value]);
        const isTyped = kind === undefined || given.some(([name]) => name === 'content-type');
        return { status: this.status, headers: isTyped ? given : [...given, ['content-type', kind]] };
    }
}
