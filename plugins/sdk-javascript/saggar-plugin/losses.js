/** Losses, composed of differentiable operators. They compute in `float32` for any float input. */

/** Cross-entropy over the last axis. Shapes: `logits` `[..., classes]`, `labels` `[...]`. Result: a scalar. */
export class CrossEntropy {
    constructor({ labelSmoothing = 0, ignoreIndex } = {}) {
        Object.assign(this, { labelSmoothing, ignoreIndex });
    }

    /** Returns the mean loss. */
    loss(givenLogits, givenLabels) {
        const [logits, labels] = [givenLogits.to('float32'), givenLabels.to('int32')];
        // A selection, not a product, because the logit of another class can be infinite.
        const here = labels.oneHot(logits.shape.at(-1), 'uint8');
        const chosen = here.where(logits, logits.scalarLike(0)).sum(-1);
        const total = logits.logSumExp(-1);
        if (this.labelSmoothing === 0) return this.maskedMean(total.sub(chosen), labels);
        const spread = logits.mean(-1).mul(this.labelSmoothing);
        return this.maskedMean(total.sub(chosen.mul(1 - this.labelSmoothing)).sub(spread), labels);
    }

    /** Returns the share of labels whose logit is the largest. */
    accuracy(logits, givenLabels) {
        const labels = givenLabels.to('int32');
        return this.maskedMean(logits.argMax(-1).equal(labels).to('float32'), labels);
    }

    maskedMean(values, labels) {
        if (this.ignoreIndex === undefined) return values.mean();
        const counted = labels.notEqual(this.ignoreIndex);
        const total = counted.where(values, values.scalarLike(0)).sum();
        return total.div(counted.to('float32').sum().clamp(1, undefined));
    }
}

/** Cross-entropy over the last axis. Shapes: `logits` `[..., classes]`, `labels` `[...]`. Result: a scalar. */
export function crossEntropy(logits, labels, options) {
    return new CrossEntropy(options).loss(logits, labels);
}

/** The share of labels whose logit is the largest. */
export function accuracy(logits, labels) {
    return new CrossEntropy().accuracy(logits, labels);
}

/** The mean of the squared differences. */
export function meanSquaredError(prediction, target) {
    const miss = prediction.to('float32').sub(target.to('float32'));
    return miss.mul(miss).mean();
}

/** The mean binary cross-entropy of targets between 0 and 1. */
export function binaryCrossEntropyWithLogits(givenLogits, givenTargets) {
    const [logits, targets] = [givenLogits.to('float32'), givenTargets.to('float32')];
    // Equal to ln(1 + e^x) - t x, which does not overflow for large logits.
    return logits.softplus().sub(targets.mul(logits)).mean();
}

/** The outputs of a training step: `loss`, which is minimized, and the metric `accuracy`. */
export function classification(logits, labels) {
    return { loss: logits.softmaxCrossEntropy(labels), accuracy: accuracy(logits, labels) };
}
