/**
 * Layers: variables and the operators that use them, with PyTorch's initial values. Parameters are stored as `float32`.
 * In mixed precision, layers compute in `float16` and normalizations in `float32`; the inputs must then be cast to
 * `Graph.floatType`.
 */

import { HostError } from './errors.js';
import { constant, fanInUniform, normal, xavierUniform, zeros } from './variables.js';

const pair = (value) => (typeof value === 'number' ? [value, value] : value);
const wide = (x) => (x.dataType === 'float32' ? x : x.to('float32'));
const like = (y, x) => (x.dataType === 'float32' ? y : y.to(x.dataType));

/** Names the innermost layer in errors, and labels the result with it. */
class Layer {
    constructor(v) {
        this.name = v.scopeName;
    }

    /** Applies the layer. */
    forward(...inputs) {
        return this.named(() => this.apply(...inputs));
    }

    named(run) {
        try {
            const y = run();
            return this.name ? y.label(this.name) : y;
        } catch (error) {
            if (error instanceof HostError) error.layer ??= this.name;
            throw error;
        }
    }
}

/** `x @ weight + bias`. Shape: `[..., inputs]` -> `[..., outputs]`. */
export class Linear extends Layer {
    constructor(v, inputs, outputs, { bias = true, initial } = {}) {
        super(v);
        const fanIn = fanInUniform(inputs);
        this.weight = v.parameter('weight', [inputs, outputs], initial ?? fanIn);
        this.bias = bias ? v.parameter('bias', [outputs], initial ? zeros() : fanIn) : undefined;
    }

    apply(x) {
        const y = x.matmul(x.graph.variable(this.weight));
        return this.bias ? y.add(x.graph.variable(this.bias)) : y;
    }
}

/** Two-dimensional convolution. Shape: `[batch, in, height, width]` -> `[batch, out, height', width']`. */
export class Conv2d extends Layer {
    constructor(v, inputs, outputs, kernelSize, { stride = 1, padding = 0, dilation = 1, groups = 1, bias = true } = {}) {
        super(v);
        const [height, width] = pair(kernelSize);
        const channels = Math.trunc(inputs / Math.max(groups, 1));
        const initial = fanInUniform(channels * height * width);
        this.weight = v.parameter('weight', [outputs, channels, height, width], initial);
        this.bias = bias ? v.parameter('bias', [outputs], initial) : undefined;
        this.options = { stride, padding, dilation, groups };
    }

    apply(x) {
        return x.conv2d(x.graph.variable(this.weight), this.bias && x.graph.variable(this.bias), this.options);
    }
}

/** Transposed convolution. Shape: `[batch, in, height, width]` -> `[batch, out, height', width']`. */
export class ConvTranspose2d extends Layer {
    constructor(v, inputs, outputs, kernelSize, { stride = 1, padding = 0, outputPadding = 0 } = {}) {
        super(v);
        const [height, width] = pair(kernelSize);
        // As in PyTorch, which computes the fan in from the weight's second dimension.
        const initial = fanInUniform(outputs * height * width);
        this.weight = v.parameter('weight', [inputs, outputs, height, width], initial);
        this.bias = v.parameter('bias', [outputs], initial);
        this.options = { stride, padding, outputPadding };
    }

    apply(x) {
        return x.convTranspose2d(x.graph.variable(this.weight), x.graph.variable(this.bias), this.options);
    }
}

/** A vector for each index. Shape: `[...]` of an integer type -> `[..., features]`. */
export class Embedding extends Layer {
    constructor(v, count, features, std = 1) {
        super(v);
        this.weight = v.parameter('weight', [count, features], normal(0, std));
    }

    apply(indices) {
        return indices.graph.variable(this.weight).gather(indices, 0);
    }

    /** Scores every index by the product with its vector. Shape: `[..., features]` -> `[..., count]`. */
    logits(x) {
        return this.named(() => x.matmul(x.graph.variable(this.weight).transpose(0, 1)));
    }
}

/** Adds a learnt vector for each place. Shape: `[..., length, features]`, unchanged. */
export class PositionEmbedding extends Layer {
    constructor(v, length, features) {
        super(v);
        this.weight = v.parameter('weight', [length, features], normal(0, 0.02));
    }

    apply(x) {
        const [length, features] = x.shape.slice(-2);
        return x.add(x.graph.variable(this.weight).slice([0, 0], [length, features]));
    }
}

/** Sets a share of the elements to zero in training, and scales the others by `1 / (1 - rate)`. */
export class Dropout {
    constructor(v, rate = 0.5) {
        Object.assign(this, { variables: v, rate });
    }

    /** Applies the layer. */
    forward(x) {
        if (!x.graph.training || this.rate <= 0) return x;
        const [key, stream] = x.graph.randomStream(this.variables);
        const dropped = x.graph.randomUniform(x.shape, key, stream).lesser(this.rate);
        // With a rate of 1 no element is kept; the limit avoids a division by zero.
        return dropped.where(x.scalarLike(0), x.mul(1 / Math.max(1 - this.rate, Number.EPSILON)));
    }
}

/** Normalizes over the last dimension, then scales and shifts. Shape: `[..., features]`, unchanged. */
export class LayerNorm extends Layer {
    constructor(v, features, epsilon = 1e-5) {
        super(v);
        this.scale = v.parameter('scale', [features], constant(1));
        this.bias = v.parameter('bias', [features], zeros());
        this.epsilon = epsilon;
    }

    apply(x) {
        const [scale, bias] = [this.scale, this.bias].map((variable) => wide(x.graph.variable(variable)));
        return like(wide(x).layerNorm(-1, scale, bias, this.epsilon), x);
    }
}

/** Normalizes each channel, which is axis 1: over the batch in training, by running statistics otherwise. */
export class BatchNorm2d extends Layer {
    constructor(v, channels, { momentum = 0.1, epsilon = 1e-5 } = {}) {
        super(v);
        this.scale = v.parameter('scale', [channels], constant(1));
        this.bias = v.parameter('bias', [channels], zeros());
        this.mean = v.statistic('mean', [channels], zeros());
        this.variance = v.statistic('variance', [channels], constant(1));
        Object.assign(this, { momentum, epsilon });
    }

    apply(x) {
        const { graph } = x;
        const floats = wide(x);
        const [mean, variance] = graph.training
            ? this.update(floats)
            : [graph.variable(this.mean), graph.variable(this.variance)];
        const [scale, bias] = [this.scale, this.bias].map((variable) => wide(graph.variable(variable)));
        return like(floats.batchNorm(mean, variance, scale, bias, this.epsilon), x);
    }

    update(x) {
        const { shape } = x;
        const axes = shape.map((_, axis) => axis).filter((axis) => axis !== 1);
        const centre = x.mean(axes, true);
        const centred = x.sub(centre);
        const variance = centred.mul(centred).mean(axes);
        const mean = centre.reshape(...variance.shape);
        const count = axes.reduce((product, axis) => product * shape[axis], 1);
        // The running variance is the unbiased estimate.
        const drawn = variance.mul(count / Math.max(count - 1, 1));
        for (const [variable, now] of [[this.mean, mean], [this.variance, drawn]]) {
            const old = x.graph.variable(variable).mul(1 - this.momentum);
            x.graph.assignStatistic(variable, old.add(now.mul(this.momentum)));
        }
        return [mean, variance];
    }
}

/** Attention of `x` to `memory`. Shape: `[batch, length, features]`, unchanged. */
export class MultiHeadAttention extends Layer {
    constructor(v, features, heads) {
        super(v);
        if (heads < 1 || features % heads) {
            throw new RangeError(`${features} features cannot be divided into ${heads} heads`);
        }
        const initial = xavierUniform(features, features);
        for (const name of ['query', 'key', 'value', 'output']) {
            this[name] = new Linear(v.scope(name), features, features, { initial });
        }
        this.heads = heads;
    }

    apply(x, { memory = x, causal = false, padding } = {}) {
        const [q, k, v] = [[this.query, x], [this.key, memory], [this.value, memory]]
            .map(([layer, of]) => this.split(layer.forward(of)));
        const found = scaledDotProductAttention(q, k, v, { causal, padding });
        return this.output.forward(found.permute(0, 2, 1, 3).reshape(...x.shape));
    }

    split(x) {
        const [batch, length, features] = x.shape;
        return x.reshape(batch, length, this.heads, features / this.heads).permute(0, 2, 1, 3);
    }
}

/**
 * `softmax(q k' / sqrt(features)) v`, in which masked keys have no weight.
 *
 * Shapes: `q` `[batch, heads, queries, features]`, `k` and `v` `[batch, heads, keys, features]`, `padding`
 * `[batch, keys]` (`uint8`, 1 for keys to ignore). `causal` ignores the keys after a query, aligned at the ends.
 */
export function scaledDotProductAttention(q, k, v, { causal = false, padding } = {}) {
    const [, , queries, width] = q.shape;
    const [batch, , keys] = k.shape;
    // Scaling before the product keeps the scores within the range of float16.
    let scores = wide(q.mul(1 / Math.sqrt(Math.max(width, 1))).matmul(k.permute(0, 1, 3, 2)));
    let hidden = padding?.reshape(batch, 1, 1, keys);
    if (causal) {
        const [query, key] = [0, 1].map((axis) => q.graph.iota([queries, keys], axis, 'int32'));
        const later = key.greater(query.add(keys - queries));
        hidden = hidden ? hidden.logicalOr(later) : later;
    }
    if (hidden) scores = hidden.where(scores.scalarLike(-1e9), scores);
    return like(scores.softmax(3), v).matmul(v);
}

/** Returns 1 where a token is `padding`, else 0. */
export function paddingMask(tokens, padding) {
    return tokens.to('int32').equal(padding);
}
