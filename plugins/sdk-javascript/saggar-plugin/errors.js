/** Errors of this package, and the host's form of an error. */

import { log } from 'saggar:plugin/logging@0.1.0';

/** The job is stopping at a step boundary, and its state is stored. A training that throws it ends successfully. */
export class Stopped extends Error {}

/** A call that the host refused: `code`, `message` and `place` say why. */
export class HostError extends Error {
    constructor({ code, message, place }) {
        super(message);
        this.name = 'HostError';
        this.code = code;
        this.place = place;
        this.layer = undefined;
    }
}

/** Calls a function of the host. Throws `HostError` if the host refuses the call. */
export function call(run) {
    try {
        return run();
    } catch (error) {
        if (error?.payload?.code) throw new HostError(error.payload);
        throw error;
    }
}

/** Runs an exported function. An error becomes the host's, with the innermost line of the plugin's sources. */
export function exported(run) {
    try {
        return run();
    } catch (error) {
        throw toHost(error);
    }
}

const CODES = [
    [RangeError, 'invalid-argument'],
    [TypeError, 'invalid-argument'],
];

function toHost(error) {
    const stack = String(error?.stack ?? '');
    const line = stack.split('\n').map(pluginLine).find((place) => place);
    const fromHost = error instanceof HostError;
    const code = fromHost ? error.code : (CODES.find(([kind]) => error instanceof kind)?.[1] ?? 'internal');
    const message = fromHost ? error.message : String(error);
    const layer = error?.layer ? `layer \`${error.layer}\`` : undefined;
    const places = [error?.place, layer, line].filter((place) => place);
    if (code !== 'cancelled' && code !== 'device-lost') log('error', `${error}\n${stack}`.trimEnd());
    const place = places.length ? places.join(', ') : undefined;
    return Object.assign(new Error(message), { payload: { code, message, place } });
}

/** Returns the place of a frame of the plugin's sources, such as `src/plugin.js:12`, else `undefined`. */
function pluginLine(frame) {
    const place = /(?:^|[@(/ ])(src\/[^:]+:\d+)/.exec(frame);
    return place?.[1];
}
