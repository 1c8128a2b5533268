/** Graph building and execution. */

import { GraphBuilder } from 'saggar:plugin/graphs@0.1.0';
import { call } from './errors.js';
import { Operand } from './operand.js';
import { pack, tensorsByName } from './tensor.js';

/** Returns the inputs by name. An unknown name throws. */
function namedInputs(operands) {
    return new Proxy(operands, {
        get(target, name) {
            if (typeof name === 'symbol' || name in target) return target[name];
            throw new RangeError(`no input \`${name}\`; available: ${Object.keys(target).join(', ') || 'none'}`);
        },
    });
}

/** A graph being built. Every operand refers to its graph. */
export class Graph {
    /**
     * `training`: whether the graph is a training step, in which some layers behave differently. `half`: whether models
     * compute in `float16`. `instead`: variables that are read in the place of others, by name.
     */
    constructor({ training = false, half = false, instead = new Map() } = {}) {
        Object.assign(this, { training, half, instead });
        this.raw = new GraphBuilder();
        this.variables = new Map();
        this.halves = new Map();
        this.assigned = new Map();
        this.ranges = new Map();
        this.statistics = [];
        this.guard = undefined;
        this.sound = undefined;
        this.key = undefined;
        this.streams = 0;
    }

    /** The type that a model computes in: `float16` in a training step with mixed precision, else `float32`. */
    get floatType() {
        return this.half ? 'float16' : 'float32';
    }

    get builder() {
        return this.builderFor('an operand');
    }

    /** Returns the host's builder, for adding this operator. */
    builderFor(operator) {
        if (!this.raw) throw new TypeError(`the graph is already built: ${operator} cannot be added to it`);
        return this.raw;
    }

    add(make) {
        return new Operand(this, call(() => make(this.builder)));
    }

    /** Returns an input: a tensor that is given by name at each dispatch. */
    input(name, dataType, shape) {
        return this.add((builder) => builder.input(name, { dataType, shape }));
    }

    /** Returns an input for each item, with `size` items stacked along a new first dimension. */
    inputs(items, size) {
        const made = items.map(([name, item]) => [name, this.input(name, item.dataType, [size, ...item.shape])]);
        return namedInputs(Object.fromEntries(made));
    }

    /** Returns a constant tensor of these numbers in row-major order. */
    constant(values, shape, dataType = 'float32') {
        return this.add((builder) => builder.constant({ dataType, shape }, pack(dataType, values)));
    }

    /** Returns a constant scalar; the number is rounded to the data type. */
    scalar(value, dataType = 'float32') {
        return this.add((builder) => builder.scalar(dataType, value));
    }

    /** Returns a constant tensor with the same number in every element. */
    full(shape, value, dataType = 'float32') {
        return this.add((builder) => builder.fill({ dataType, shape }, value));
    }

    /** Returns a tensor with the numbers 0, 1, 2, ... along `axis`. */
    iota(shape, axis, dataType) {
        return this.add((builder) => builder.iota({ dataType, shape }, axis));
    }

    /**
     * Returns the variable's value at the start of the dispatch, the same operand in each call. A parameter is read in
     * the data type of `floatType`.
     */
    variable(variable) {
        const value = this.stored(variable);
        if (!this.half || variable.kind !== 'parameter') return value;
        if (!this.halves.has(variable.name)) this.halves.set(variable.name, value.to('float16'));
        return this.halves.get(variable.name);
    }

    /** Returns the variable's value at the start of the dispatch, in the variable's data type. */
    stored(variable) {
        if (!this.variables.has(variable.name)) {
            const read = this.instead.get(variable.name) ?? variable;
            this.variables.set(variable.name, this.add((builder) => builder.variable(read.raw)));
        }
        return this.variables.get(variable.name);
    }

    /** Returns a key that changes with every dispatch and a stream that changes with every call. */
    randomStream(variables) {
        if (!this.key) {
            const variable = variables.randomKey();
            this.key = this.stored(variable);
            this.assignGuarded(undefined, variable, this.key.add(this.constant([0, 0, 1, 0], [4], 'uint32')));
        }
        return [this.key, this.streams++];
    }

    /** Returns `float32` numbers, uniform in `[0, 1)`, that depend only on `key` (`uint32[4]`) and `stream`. */
    randomUniform(shape, key, stream) {
        return this.add((builder) => builder.randomUniform(shape, key.raw, stream));
    }

    /** Returns `float32` numbers with mean 0 and standard deviation 1 that depend only on `key` and `stream`. */
    randomNormal(shape, key, stream) {
        return this.add((builder) => builder.randomNormal(shape, key.raw, stream));
    }

    /** Returns the gradient of `loss`, which has one element, with respect to each operand in `wrt`. */
    gradients(loss, wrt) {
        const made = call(() => this.builder.gradients(loss.raw, wrt.map(({ raw }) => raw)));
        return made.map((raw) => new Operand(this, raw));
    }

    /** Assigns `value` to `variable` at the end of the dispatch. Reads in the same graph see the old value. */
    assign(variable, value) {
        this.assignGuarded(this.guard, variable, value);
    }

    /** Clamps the values of all later assignments to the variable, including those of an optimizer. */
    constrainRange(variable, low, high) {
        this.ranges.set(variable.name, [low, high]);
    }

    /** Assigns a value that is learnt without gradients, when the graph is built. */
    assignStatistic(variable, value) {
        this.statistics.push([variable, value.stopGradient()]);
    }

    /** Makes later calls of `assign` keep the old value if `guard`, a `uint8` scalar, is 0. */
    setAssignmentGuard(guard) {
        this.guard = guard;
    }

    /** Makes statistics keep the old value if `sound`, a `uint8` scalar, is 0. */
    setStatisticsGuard(sound) {
        this.sound = sound;
    }

    assignGuarded(guard, variable, value) {
        const range = this.ranges.get(variable.name);
        const limited = range ? value.clamp(...range) : value;
        const assigned = guard ? guard.where(limited, this.stored(variable)) : limited;
        call(() => this.builder.assign(variable.raw, assigned.raw));
        this.assigned.set(variable.name, assigned);
    }

    /** Verifies and compiles the graph. A dispatch returns only the outputs named here. */
    build(outputs) {
        this.statistics.forEach(([variable, value]) => this.assignGuarded(this.sound, variable, value));
        const builder = this.builder;
        this.raw = undefined;
        const named = Object.entries(outputs).map(([name, operand]) => [name, operand.raw]);
        return new Executable(call(() => GraphBuilder.build(builder, named)));
    }
}

/** A compiled graph. */
export class Executable {
    constructor(raw) {
        this.raw = raw;
    }

    /** Runs the graph once. Every input must be given exactly once, by name. */
    dispatch(inputs) {
        const given = Object.entries(inputs).map(([name, tensor]) => [name, tensor.raw]);
        return tensorsByName(call(() => this.raw.dispatch(given)));
    }
}
