/** Layers: variables and the operators that use them, with PyTorch's initial values. */

import { HostError } from './errors.js';
import { constant, fanInUniform, normal, zeros } from './variables.js';

class Layer {
    constructor(v) {
        this.name = v.scopeName;
    }

    /** Applies the layer. */
    forward(x) {
        try {
            const y = this.apply(x);
            return this.name ? y.label(this.name) : y;
        } catch (error) {
            if (error instanceof HostError) error.layer ??= this.name;
            throw error;
        }
    }
}

/** `x @ weight + bias`. Shape: `[..., inputs]` -> `[..., outputs]`. */
export class Linear extends Layer {
    constructor(v, inputs, outputs, { bias = true } = {}) {
        super(v);
        const initial = fanInUniform(inputs);
        this.weight = v.parameter('weight', [inputs, outputs], initial);
        this.bias = bias ? v.parameter('bias', [outputs], initial) : undefined;
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
        const [height, width] = typeof kernelSize === 'number' ? [kernelSize, kernelSize] : kernelSize;
        const channels = Math.trunc(inputs / groups);
        const initial = fanInUniform(channels * height * width);
        this.weight = v.parameter('weight', [outputs, channels, height, width], initial);
        this.bias = bias ? v.parameter('bias', [outputs], initial) : undefined;
        this.options = { stride, padding, dilation, groups };
    }

    apply(x) {
        return x.conv2d(x.graph.variable(this.weight), this.bias && x.graph.variable(this.bias), this.options);
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
}

/** Normalizes over the last dimension, then scales and shifts. */
export class LayerNorm extends Layer {
    constructor(v, features, epsilon = 1e-5) {
        super(v);
        this.scale = v.parameter('scale', [features], constant(1));
        this.bias = v.parameter('bias', [features], zeros());
        this.epsilon = epsilon;
    }

    apply(x) {
        return x.layerNorm(-1, x.graph.variable(this.scale), x.graph.variable(this.bias), this.epsilon);
    }
}

/** Sets a share of the elements to zero in training, and scales the others by `1 / (1 - rate)`. */
export class Dropout {
    constructor(v, rate = 0.5) {
        Object.assign(this, { variables: v, rate });
    }

    forward(x) {
        if (!x.graph.training || this.rate <= 0) return x;
        const [key, stream] = x.graph.randomStream(this.variables);
        const dropped = x.graph.randomUniform(x.shape, key, stream).lesser(this.rate);
        return dropped.where(x.scalarLike(0), x.mul(1 / Math.max(1 - this.rate, Number.EPSILON)));
    }
}
