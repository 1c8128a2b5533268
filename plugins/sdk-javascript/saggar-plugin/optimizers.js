/**
 * Optimizers: update rules that become part of the training graph. Their moments and step counters are variables that a
 * checkpoint contains and a model version does not.
 */

const warmup = (step, steps) => step.mul(1 / Math.max(steps, 1)).clamp(0, 1);

/** A learning rate that rises linearly to `peak` over `warmup` steps and stays there. */
export class Warmup {
    constructor(peak, steps) {
        Object.assign(this, { peak, warmup: steps });
    }

    /** Returns the learning rate of a step, a `float32` scalar from 1. */
    at(step) {
        return warmup(step, this.warmup).mul(this.peak);
    }
}

/** Rises linearly to `peak` over `warmup` steps, then falls to 0 along a cosine until `steps`. */
export class Cosine {
    constructor(peak, steps, { warmup: rising = 0 } = {}) {
        Object.assign(this, { peak, steps, warmup: rising });
    }

    /** Returns the learning rate of a step, a `float32` scalar from 1. */
    at(step) {
        // Without a warmup, step 1 has the peak rate; the rate of the last step is above 0.
        const falling = Math.max(this.steps - this.warmup, 1);
        const done = step.add(-1 - this.warmup).mul(1 / falling).clamp(0, 1);
        return warmup(step, this.warmup).mul(done.mul(Math.PI).cos().add(1).mul(this.peak / 2));
    }
}

/** Rises linearly to `peak` over `warmup` steps, then falls with the square root of the step. */
export class InverseSquareRoot {
    constructor(peak, steps) {
        Object.assign(this, { peak, warmup: steps });
    }

    /** Returns the learning rate of a step, a `float32` scalar from 1. */
    at(step) {
        const fall = step.mul(1 / Math.max(this.warmup, 1)).clamp(1, undefined).sqrt().reciprocal();
        return warmup(step, this.warmup).mul(fall).mul(this.peak);
    }
}

const rateOf = (lr, step) => (typeof lr === 'number' ? step.scalarLike(lr) : lr.at(step));

function countStep(graph, variables) {
    const counter = variables.training('optimizer/step', [], 'int32');
    const step = graph.stored(counter).add(1);
    // An optimizer that contains another one requests the counter twice.
    if (!graph.assigned.has(counter.name)) graph.assign(counter, step);
    return step.to('float32');
}

const moment = (variables, name, { name: of, descriptor: { dataType, shape } }) =>
    variables.training(`optimizer/${name}/${of}`, shape, dataType);

/** Stochastic gradient descent, with momentum if it is not 0. */
export class Sgd {
    constructor(lr, { momentum = 0, nesterov = false, weightDecay = 0 } = {}) {
        Object.assign(this, { lr, momentum, nesterov, weightDecay });
    }

    /** Adds the assignments of the new values to the graph. `updates` are `{ variable, value, gradient }`. */
    step(graph, variables, updates) {
        const rate = rateOf(this.lr, countStep(graph, variables));
        for (const { variable, value, gradient } of updates) {
            let direction = gradient;
            if (this.weightDecay !== 0) direction = direction.add(value.mul(this.weightDecay));
            if (this.momentum !== 0) {
                const velocity = moment(variables, 'momentum', variable);
                const following = graph.stored(velocity).mul(this.momentum).add(direction);
                graph.assign(velocity, following);
                direction = this.nesterov ? direction.add(following.mul(this.momentum)) : following;
            }
            graph.assign(variable, value.sub(direction.mul(rate)));
        }
    }
}

/** Adam, or AdamW with a weight decay, which does not pass through the moments. */
export class Adam {
    constructor(lr = 0.001, { betas = [0.9, 0.999], epsilon = 1e-8, weightDecay = 0 } = {}) {
        Object.assign(this, { lr, betas, epsilon, weightDecay });
    }

    /** Adds the assignments of the new values to the graph. */
    step(graph, variables, updates) {
        const step = countStep(graph, variables);
        const rate = rateOf(this.lr, step);
        // 1 / (1 - beta^t), the correction for moments that begin with 0.
        const corrections = this.betas.map((beta) => graph.scalar(beta).pow(step).neg().add(1).reciprocal());
        const average = (old, beta, now) => old.mul(beta).add(now.mul(1 - beta));
        for (const { variable, value, gradient } of updates) {
            const [first, second] = ['first', 'second'].map((name) => moment(variables, name, variable));
            const mean = average(graph.stored(first), this.betas[0], gradient);
            const square = average(graph.stored(second), this.betas[1], gradient.mul(gradient));
            graph.assign(first, mean);
            graph.assign(second, square);
            let direction = mean.mul(corrections[0]).div(square.mul(corrections[1]).sqrt().add(this.epsilon));
            if (this.weightDecay !== 0) direction = direction.add(value.mul(this.weightDecay));
            graph.assign(variable, value.sub(direction.mul(rate)));
        }
    }
}

/**
 * Muon for matrices and filters, and `adam` for all other parameters and those whose names begin with one of `adamFor`.
 * Source: Jordan et al., https://kellerjordan.github.io/posts/muon.
 */
export class Muon {
    constructor(lr, adam, { momentum = 0.95, weightDecay = 0, adamFor = [] } = {}) {
        Object.assign(this, { lr, adam, momentum, weightDecay, adamFor });
    }

    /** Adds the assignments of the new values to the graph. */
    step(graph, variables, updates) {
        const rate = rateOf(this.lr, countStep(graph, variables));
        this.adam.step(graph, variables, updates.filter(({ variable }) => !this.applies(variable)));
        for (const { variable, value, gradient } of updates.filter((update) => this.applies(update.variable))) {
            const velocity = moment(variables, 'momentum', variable);
            const following = graph.stored(velocity).mul(this.momentum).add(gradient);
            graph.assign(velocity, following);
            let direction = orthogonalize(gradient.add(following.mul(this.momentum)));
            if (this.weightDecay !== 0) direction = direction.add(value.mul(this.weightDecay));
            graph.assign(variable, value.sub(direction.mul(rate)));
        }
    }

    applies({ name, shape }) {
        return [2, 4].includes(shape.length) && !this.adamFor.some((begin) => name.startsWith(begin));
    }
}

function orthogonalize(gradient) {
    const { shape } = gradient;
    const matrix = gradient.flatten(1);
    const [rows, columns] = matrix.shape;
    const wide = rows > columns ? matrix.transpose(0, 1) : matrix;
    // With a norm of at most 1, no singular value is above 1; the iteration diverges for larger ones.
    let x = wide.div(wide.norm().add(1e-7));
    for (let i = 0; i < 5; i++) {
        const square = x.matmul(x.transpose(0, 1));
        const weights = square.mul(-4.7750).add(square.matmul(square).mul(2.0315));
        x = x.mul(3.4445).add(weights.matmul(x));
    }
    x = rows > columns ? x.transpose(0, 1) : x;
    const [inputs, outputs] = shape.length === 2 ? [rows, columns] : [columns, rows];
    return x.mul(Math.sqrt(Math.max(outputs / Math.max(inputs, 1), 1))).reshape(...shape);
}

/** Returns the sum of the squares of all gradients, or `undefined` without any. */
export function sumOfSquares(updates) {
    const squares = updates.map(({ gradient }) => gradient.sumSquare());
    return squares.length === 0 ? undefined : squares.reduce((a, b) => a.add(b));
}

/** Scales all gradients by one factor so that their total L2 norm is at most `norm`. */
export function clipGradNorm(updates, norm) {
    const total = sumOfSquares(updates);
    if (total === undefined) return;
    // The maximum of the norm and its limit, which is not 0.
    const scale = total.sqrt().clamp(norm, undefined).reciprocal().mul(norm);
    for (const update of updates) update.gradient = update.gradient.mul(scale);
}
