/** Operands: the values of a graph, and the operators on them. */

import { call } from './errors.js';

const pair = (value) => (typeof value === 'number' ? [value, value] : value);

/** A value in a graph. It holds no data. A number as the second operand becomes a scalar of the same data type. */
export class Operand {
    constructor(graph, raw) {
        this.graph = graph;
        this.raw = raw;
    }

    get shape() {
        return Array.from(this.raw.descriptor().shape);
    }

    get dataType() {
        return this.raw.descriptor().dataType;
    }

    /** Sets the label for error messages and profiles. Returns the operand. */
    label(label) {
        this.raw.label(label);
        return this;
    }

    make(name, ...rest) {
        return new Operand(this.graph, call(() => this.graph.builder[name](this.raw, ...rest)));
    }

    other(value) {
        return value instanceof Operand ? value.raw : this.scalarLike(value).raw;
    }

    axis(axis) {
        return axis < 0 ? axis + this.shape.length : axis;
    }

    axes(axes) {
        return axes === undefined ? undefined : [axes].flat().map((axis) => this.axis(axis));
    }

    scalarLike(value) {
        return this.graph.scalar(value, this.dataType);
    }

    /** Selects `yes` where this operand (`uint8`) is not 0, else `no`. */
    where(yes, no) {
        return this.make('where', yes.raw, no.raw);
    }

    clamp(low, high) {
        return this.make('clamp', low, high);
    }

    /** Converts to another data type. */
    to(dataType) {
        return this.make('cast', dataType);
    }

    leakyRelu(slope = 0.01) {
        return this.make('leakyRelu', slope);
    }

    softmax(axis) {
        return this.make('softmax', this.axis(axis));
    }

    argMax(axis) {
        return this.make('argMax', this.axis(axis), false);
    }

    reshape(...shape) {
        return this.make('reshape', shape);
    }

    /** Joins all dimensions from `axis` on. */
    flatten(axis = 1) {
        const shape = this.shape;
        return this.reshape(...shape.slice(0, axis), shape.slice(axis).reduce((a, b) => a * b, 1));
    }

    /** Reorders the axes: axis `i` of the result is axis `axes[i]`. */
    permute(...axes) {
        return this.make('transpose', axes);
    }

    slice(starts, sizes, strides) {
        return this.make('slice', starts, sizes, strides);
    }

    gather(indices, axis) {
        return this.make('gather', indices.raw, this.axis(axis));
    }

    oneHot(depth, dataType = 'float32') {
        return this.make('oneHot', depth, dataType);
    }

    conv2d(weight, bias, { stride = 1, padding = 0, dilation = 1, groups = 1 } = {}) {
        const [height, width] = pair(padding);
        const options = { padding: [height, height, width, width], strides: pair(stride), dilations: pair(dilation), groups };
        return this.make('conv2d', weight.raw, bias?.raw, options);
    }

    pool(name, kernelSize, { stride = kernelSize, padding = 0 } = {}) {
        const [height, width] = pair(padding);
        const windows = { windowDimensions: pair(kernelSize), strides: pair(stride) };
        return this.make(name, { ...windows, padding: [height, height, width, width] });
    }

    /** The largest element of each window. The windows do not overlap by default. */
    maxPool2d(kernelSize, options) {
        return this.pool('maxPool2d', kernelSize, options);
    }

    /** The mean of each window. The windows do not overlap by default. */
    avgPool2d(kernelSize, options) {
        return this.pool('averagePool2d', kernelSize, options);
    }

    layerNorm(axes, scale, bias, epsilon = 1e-5) {
        return this.make('layerNormalization', scale.raw, bias.raw, this.axes(axes), epsilon);
    }
}

const UNARY = [
    'abs', 'neg', 'sign', 'ceil', 'floor', 'roundEven', 'exp', 'log', 'sqrt', 'reciprocal', 'sin', 'cos', 'tan', 'tanh',
    'erf', 'relu', 'sigmoid', 'gelu', 'hardSwish', 'softplus', 'softsign', 'logicalNot', 'stopGradient',
];
const BINARY = [
    'add', 'sub', 'mul', 'div', 'pow', 'max', 'min', 'equal', 'notEqual', 'greater', 'greaterOrEqual', 'lesser',
    'lesserOrEqual', 'logicalAnd', 'logicalOr', 'logicalXor', 'prelu', 'matmul', 'softmaxCrossEntropy',
];
const REDUCE = { sum: 'reduceSum', mean: 'reduceMean', amax: 'reduceMax', amin: 'reduceMin', prod: 'reduceProduct',
    norm: 'reduceL2', sumSquare: 'reduceSumSquare', logSumExp: 'reduceLogSumExp' };

for (const name of UNARY) {
    Operand.prototype[name] = function unary() {
        return this.make(name);
    };
}
for (const name of BINARY) {
    Operand.prototype[name] = function binary(other) {
        return this.make(name, this.other(other));
    };
}
for (const [name, operator] of Object.entries(REDUCE)) {
    // Over all axes without an axis.
    Operand.prototype[name] = function reduce(axes, keep = false) {
        return this.make(operator, { axes: this.axes(axes), keepDimensions: keep });
    };
}
