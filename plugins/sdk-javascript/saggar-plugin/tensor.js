/** Tensors on the host's device, and the elements in them. */

import { Tensor as RawTensor } from 'saggar:plugin/tensors@0.1.0';
import { call } from './errors.js';

const ARRAYS = {
    float32: Float32Array,
    int64: BigInt64Array,
    uint64: BigUint64Array,
    int32: Int32Array,
    uint32: Uint32Array,
    int8: Int8Array,
    uint8: Uint8Array,
};

/** Returns the little-endian elements of these numbers. */
export function pack(dataType, values) {
    const numbers = dataType.endsWith('64') ? Array.from(values, BigInt) : Array.from(values, Number);
    return new Uint8Array(ARRAYS[dataType].from(numbers).buffer);
}

/** Returns the numbers of little-endian elements. */
export function unpack(dataType, bytes) {
    if (!ARRAYS[dataType]) throw new TypeError(`${dataType} cannot be read: convert it to float32 in the graph`);
    return Array.from(new ARRAYS[dataType](bytes.slice().buffer), Number);
}

/** A dense tensor, owned by the host. */
export class Tensor {
    constructor(raw) {
        this.raw = raw;
    }

    /** Creates a tensor of little-endian elements in row-major order. */
    static fromBytes(dataType, shape, bytes) {
        return new Tensor(call(() => RawTensor.fromBytes({ dataType, shape }, bytes)));
    }

    /** Creates a tensor of these numbers, in row-major order. */
    static of(values, shape, dataType = 'float32') {
        return new Tensor(call(() => RawTensor.fromBytes({ dataType, shape }, pack(dataType, values))));
    }

    get dataType() {
        return this.raw.descriptor().dataType;
    }

    get shape() {
        return Array.from(this.raw.descriptor().shape);
    }

    /** Returns the elements, little-endian, in row-major order. Waits for the work that produces them. */
    read() {
        return call(() => this.raw.read());
    }

    /** Returns the elements as one array of numbers. Waits for the work that produces them. */
    toArray() {
        return unpack(this.dataType, this.read());
    }

    /** Returns the only element. */
    item() {
        return this.toArray()[0];
    }
}

/** Returns a text that is padded with zeros, such as an item of a text field. */
export function unpadded(bytes) {
    const end = bytes.indexOf(0);
    return new TextDecoder().decode(end < 0 ? bytes : bytes.slice(0, end));
}

/** Returns the host's tensors by their names. */
export function tensorsByName(tensors) {
    return Object.fromEntries(tensors.map(({ name, tensor }) => [name, new Tensor(tensor)]));
}
