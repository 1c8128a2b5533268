/** Graph building and execution. */

import { GraphBuilder } from 'saggar:plugin/graphs@0.1.0';
import { call } from './errors.js';
import { Operand } from './operand.js';
import { pack, tensorsByName } from './tensor.js';

/** A graph being built. Every operand refers to its graph. */
export class Graph {
    /** `training`: whether the graph is a training step, in which some layers behave differently. */
    constructor({ training = false } = {}) {
        this.training = training;
        this.raw = new GraphBuilder();
        this.variables = new Map();
        this.assigned = new Map();
        this.statistics = [];
        this.key = undefined;
        this.streams = 0;
    }

    get builder() {
        if (!this.raw) throw new TypeError('the graph is already built: operands cannot be added to it');
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
        return Object.fromEntries(made);
    }

    constant(values, shape, dataType = 'float32') {
        return this.add((builder) => builder.constant({ dataType, shape }, pack(dataType, values)));
    }

    scalar(value, dataType = 'float32') {
        return this.add((builder) => builder.scalar(dataType, value));
    }

    /** Returns the variable's value at the start of the dispatch, the same operand in each call. */
    variable(variable) {
        if (!this.variables.has(variable.name)) {
            this.variables.set(variable.name, this.add((builder) => builder.variable(variable.raw)));
        }
        return this.variables.get(variable.name);
    }

    /** Returns a key that changes with every dispatch and a stream that changes with every call. */
    randomStream(variables) {
        if (!this.key) {
            const variable = variables.randomKey();
            this.key = this.variable(variable);
            this.assign(variable, this.key.add(this.constant([0, 0, 1, 0], [4], 'uint32')));
        }
        return [this.key, this.streams++];
    }

    randomUniform(shape, key, stream) {
        return this.add((builder) => builder.randomUniform(shape, key.raw, stream));
    }

    /** Returns the gradient of `loss`, which has one element, with respect to each operand in `wrt`. */
    gradients(loss, wrt) {
        const made = call(() => this.builder.gradients(loss.raw, wrt.map(({ raw }) => raw)));
        return made.map((raw) => new Operand(this, raw));
    }

    /** Assigns `value` to `variable` at the end of the dispatch. Reads in the same graph see the old value. */
    assign(variable, value) {
        call(() => this.builder.assign(variable.raw, value.raw));
        this.assigned.set(variable.name, value);
    }

    /** Assigns a value that is learnt without gradients, when the graph is built. */
    assignStatistic(variable, value) {
        this.statistics.push([variable, value.stopGradient()]);
    }

    /** Verifies and compiles the graph. A dispatch returns only the outputs named here. */
    build(outputs) {
        this.statistics.forEach(([variable, value]) => this.assign(variable, value));
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
