/** Operands: the values of a graph, and the operators on them. */

import { call } from './errors.js';

const pair = (value) => (typeof value === 'number' ? [value, value] : value);

/** A value in a graph. It holds no data. A number as the second operand becomes a scalar of the same data type. */
export class Operand {
    constructor(graph, raw, operator = 'operand') {
        this.graph = graph;
        this.raw = raw;
        this.operator = operator;
    }

    /** Called where JavaScript needs a number or a text, as in `a + b`, which would otherwise silently become a text. */
    [Symbol.toPrimitive]() {
        throw new TypeError(
            `\`${this.operator}\` ${this.dataType}[${this.shape.join(', ')}] has no value while the graph is built: use its ` +
                'methods to compute with it, or name it as an output of `build`, dispatch the graph, and read the result',
        );
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
        return new Operand(this.graph, call(() => this.graph.builderFor(`\`${name}\``)[name](this.raw, ...rest)), name);
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

    /** The larger value; NaN if either is NaN. */
    maximum(other) {
        return this.max(other);
    }

    /** The smaller value; NaN if either is NaN. */
    minimum(other) {
        return this.min(other);
    }

    elu(alpha = 1) {
        return this.make('elu', alpha);
    }

    /** `clamp(alpha * x + beta, 0, 1)`. */
    hardSigmoid(alpha = 1 / 6, beta = 0.5) {
        return this.make('hardSigmoid', alpha, beta);
    }

    leakyRelu(slope = 0.01) {
        return this.make('leakyRelu', slope);
    }

    softmax(axis) {
        return this.make('softmax', this.axis(axis));
    }

    /** The index of the largest element along `axis`, the first one of equal elements. `int32`. */
    argMax(axis, keep = false) {
        return this.make('argMax', this.axis(axis), keep);
    }

    /** The index of the smallest element along `axis`, the first one of equal elements. `int32`. */
    argMin(axis, keep = false) {
        return this.make('argMin', this.axis(axis), keep);
    }

    /** The sum of each element and all elements before it along `axis`. */
    cumSum(axis, { exclusive = false, reversed = false } = {}) {
        return this.make('cumulativeSum', this.axis(axis), exclusive, reversed);
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

    /** Exchanges two axes. */
    transpose(first, second) {
        const axes = this.shape.map((_, i) => i);
        [first, second] = [this.axis(first), this.axis(second)];
        [axes[first], axes[second]] = [axes[second], axes[first]];
        return this.permute(...axes);
    }

    /** Broadcasts to a shape: dimensions of size 1 are repeated, aligned at the last dimension. */
    expand(...shape) {
        return this.make('expand', shape);
    }

    /** Splits along `axis` into parts of these sizes. */
    split(sizes, axis) {
        const parts = call(() => this.graph.builder.split(this.raw, sizes, this.axis(axis)));
        return parts.map((raw) => new Operand(this.graph, raw));
    }

    /** Adds elements before and after along each axis, zeros by default. */
    pad(before, after, mode = { tag: 'constant', val: 0 }) {
        return this.make('pad', before, after, mode);
    }

    /** Reverses the order along these axes. */
    flip(axes) {
        return this.make('reverse', this.axes(axes));
    }

    /** Repeats the tensor along each axis. */
    tile(...repetitions) {
        return this.make('tile', repetitions);
    }

    /** Keeps the elements on and above a diagonal of the last two dimensions, and sets the others to zero. */
    triu(diagonal = 0) {
        return this.make('triangular', true, diagonal);
    }

    /** Keeps the elements on and below a diagonal of the last two dimensions, and sets the others to zero. */
    tril(diagonal = 0) {
        return this.make('triangular', false, diagonal);
    }

    slice(starts, sizes, strides) {
        return this.make('slice', starts, sizes, strides);
    }

    gather(indices, axis) {
        return this.make('gather', indices.raw, this.axis(axis));
    }

    /** Selects elements along `axis` by the index at the same position. */
    gatherElements(indices, axis) {
        return this.make('gatherElements', indices.raw, this.axis(axis));
    }

    /** The operand with each update combined into the position that `gatherElements` would read. */
    scatterElements(indices, updates, axis, reduction = 'none') {
        return this.make('scatterElements', indices.raw, updates.raw, this.axis(axis), reduction);
    }

    oneHot(depth, dataType = 'float32') {
        return this.make('oneHot', depth, dataType);
    }

    conv2d(weight, bias, { stride = 1, padding = 0, dilation = 1, groups = 1 } = {}) {
        const [height, width] = pair(padding);
        const options = { padding: [height, height, width, width], strides: pair(stride), dilations: pair(dilation), groups };
        return this.make('conv2d', weight.raw, bias?.raw, options);
    }

    /** Transposed convolution. `weight` is `[in, out, height, width]`, `bias` `[out]`. */
    convTranspose2d(weight, bias, { stride = 1, padding = 0, outputPadding = 0 } = {}) {
        const [height, width] = pair(padding);
        const options = {
            padding: [height, height, width, width], strides: pair(stride), outputPadding: pair(outputPadding),
        };
        return this.make('convTranspose2d', weight.raw, bias?.raw, options);
    }

    /** Resizes the height and width of images: `nearest-neighbor` or `linear`. */
    interpolate(size, mode = 'nearest-neighbor') {
        return this.make('resample2d', { mode, sizes: pair(size) });
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

    /** Normalizes with one mean and variance per channel, which is axis 1, then scales and shifts. */
    batchNorm(mean, variance, scale, bias, epsilon = 1e-5) {
        return this.make('batchNormalization', mean.raw, variance.raw, scale.raw, bias.raw, 1, epsilon);
    }
}

/** Concatenates operands along `axis`. */
export function concat(operands, axis) {
    if (operands.length === 0) throw new RangeError('there is no operand to concatenate');
    const [first] = operands;
    return new Operand(
        first.graph,
        call(() => first.graph.builder.concat(operands.map(({ raw }) => raw), first.axis(axis))),
    );
}

const UNARY = [
    'abs', 'neg', 'sign', 'ceil', 'floor', 'roundEven', 'exp', 'log', 'sqrt', 'reciprocal', 'sin', 'cos', 'tan', 'tanh',
    'erf', 'identity', 'relu', 'sigmoid', 'gelu', 'hardSwish', 'softplus', 'softsign', 'logicalNot', 'stopGradient',
    'perImageStandardization',
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
