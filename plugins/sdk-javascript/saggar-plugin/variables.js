/** Variables: named state that outlives a dispatch. */

import { Variables as RawVariables } from 'saggar:plugin/variables@0.1.0';
import { call } from './errors.js';
import { pack } from './tensor.js';

export const zeros = () => ({ tag: 'zeros' });
export const constant = (value) => ({ tag: 'constant', val: value });
export const uniform = (low, high) => ({ tag: 'uniform', val: [low, high] });
export const normal = (mean, std) => ({ tag: 'normal', val: [mean, std] });

/** Uniform in plus or minus `1 / sqrt(fan in)`, the initial weights of PyTorch's layers. */
export function fanInUniform(fanIn) {
    const bound = 1 / Math.sqrt(Math.max(fanIn, 1));
    return uniform(-bound, bound);
}

/** Uniform in plus or minus `sqrt(6 / (inputs + outputs))`. Source: Glorot and Bengio, AISTATS 2010. */
export function xavierUniform(inputs, outputs) {
    const bound = Math.sqrt(6 / Math.max(inputs + outputs, 1));
    return uniform(-bound, bound);
}

/** One tensor of state. */
export class Variable {
    constructor(raw, name, descriptor, kind) {
        Object.assign(this, { raw, name, descriptor, kind });
    }

    get shape() {
        return this.descriptor.shape;
    }

    read() {
        return call(() => this.raw.read());
    }

    write(bytes) {
        call(() => this.raw.write(bytes));
    }
}

/** A namespace of variables: what a checkpoint stores and a model version contains. */
export class Variables {
    constructor(raw, seed = 0n, prefix = '', made = new Map()) {
        Object.assign(this, { raw, seed, prefix, made });
    }

    /** Creates an empty namespace, whose random initial values depend on `seed`. */
    static seeded(seed) {
        return new Variables(new RawVariables(seed), seed);
    }

    /** Returns the same namespace, in which all names begin with `name` and a slash. */
    scope(name) {
        return new Variables(this.raw, this.seed, `${this.prefix}${name}/`, this.made);
    }

    get root() {
        return new Variables(this.raw, this.seed, '', this.made);
    }

    get scopeName() {
        return this.prefix.replace(/\/$/, '');
    }

    /** Returns the variable with this name, which the first call creates. */
    get(name, descriptor, initial, kind) {
        const full = this.prefix + name;
        const raw = call(() => this.raw.get(full, descriptor, initial, kind));
        // Graphs cache operands by variable, so every call returns the same object.
        if (!this.made.has(full)) this.made.set(full, new Variable(raw, full, descriptor, kind));
        return this.made.get(full);
    }

    parameter(name, shape, initial) {
        return this.get(name, { dataType: 'float32', shape }, initial, 'parameter');
    }

    statistic(name, shape, initial) {
        return this.get(name, { dataType: 'float32', shape }, initial, 'statistic');
    }

    training(name, shape, dataType = 'float32') {
        return this.get(name, { dataType, shape }, zeros(), 'training');
    }

    /** Returns the key of random numbers in graphs. */
    randomKey() {
        const first = pack('uint32', [this.seed & 0xffffffffn, this.seed >> 32n, 0, 0]);
        return this.root.get('random/key', { dataType: 'uint32', shape: [4] }, { tag: 'bytes', val: first }, 'training');
    }

    /** Returns the trained variables that were requested so far, by name. */
    parameters() {
        const found = [...this.made.values()].filter(({ kind }) => kind === 'parameter');
        return found.sort((a, b) => (a.name < b.name ? -1 : 1));
    }
}
