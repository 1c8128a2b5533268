/** Losses, optimizers and the training loop. */

import { log } from 'saggar:plugin/logging@0.1.0';
import { Graph } from './graph.js';

const STEPS_PER_BOUNDARY = 10;
const STEPS_PER_LINE = 100;

/** The share of labels whose logit is the largest. */
export function accuracy(logits, labels) {
    return logits.argMax(-1).equal(labels.to('int32')).to('float32').mean();
}

/** The mean of the squared differences. */
export function meanSquaredError(prediction, target) {
    const miss = prediction.to('float32').sub(target.to('float32'));
    return miss.mul(miss).mean();
}

/** The outputs of a training step: `loss`, which is minimized, and metrics. */
export function classification(logits, labels) {
    return { loss: logits.softmaxCrossEntropy(labels), accuracy: accuracy(logits, labels) };
}

function countStep(graph, variables) {
    const counter = variables.training('optimizer/step', [], 'int32');
    const step = graph.variable(counter).add(1);
    if (!graph.assigned.has(counter.name)) graph.assign(counter, step);
    return step.to('float32');
}

const moment = (variables, name, variable) => variables.training(`optimizer/${name}/${variable.name}`, variable.shape);

/** Stochastic gradient descent, with momentum if it is not 0. */
export class Sgd {
    constructor(lr, { momentum = 0 } = {}) {
        Object.assign(this, { lr, momentum });
    }

    step(graph, variables, updates) {
        countStep(graph, variables);
        for (const { variable, value, gradient } of updates) {
            let direction = gradient;
            if (this.momentum !== 0) {
                const velocity = moment(variables, 'momentum', variable);
                direction = graph.variable(velocity).mul(this.momentum).add(gradient);
                graph.assign(velocity, direction);
            }
            graph.assign(variable, value.sub(direction.mul(this.lr)));
        }
    }
}

/** Adam, or AdamW with a weight decay. */
export class Adam {
    constructor(lr = 0.001, { betas = [0.9, 0.999], epsilon = 1e-8, weightDecay = 0 } = {}) {
        Object.assign(this, { lr, betas, epsilon, weightDecay });
    }

    step(graph, variables, updates) {
        const step = countStep(graph, variables);
        // 1 / (1 - beta^t), the correction for moments that begin with 0.
        const corrections = this.betas.map((beta) => graph.scalar(beta).pow(step).neg().add(1).reciprocal());
        const average = (old, beta, now) => old.mul(beta).add(now.mul(1 - beta));
        for (const { variable, value, gradient } of updates) {
            const [first, second] = ['first', 'second'].map((name) => moment(variables, name, variable));
            const mean = average(graph.variable(first), this.betas[0], gradient);
            const square = average(graph.variable(second), this.betas[1], gradient.mul(gradient));
            graph.assign(first, mean);
            graph.assign(second, square);
            let direction = mean.mul(corrections[0]).div(square.mul(corrections[1]).sqrt().add(this.epsilon));
            if (this.weightDecay !== 0) direction = direction.add(value.mul(this.weightDecay));
            graph.assign(variable, value.sub(direction.mul(this.lr)));
        }
    }
}

/** Batches of the split `train`; `validation`, or `test`, is held out. Without `train`, all items are trained on. */
export class Feed {
    constructor(dataset, fields, batchSize = 32) {
        const splits = dataset.splits;
        this.dataset = dataset;
        this.fields = fields.map((name) => dataset.field(name));
        this.training = splits.includes('train') ? 'train' : undefined;
        this.heldOut = this.training && ['validation', 'test'].find((split) => splits.includes(split));
        const items = dataset.count(this.training);
        if (items === 0) throw new RangeError('the dataset has no items to train on');
        this.batchSize = Math.min(batchSize, items);
        this.stepsPerEpoch = Math.trunc(items / this.batchSize);
    }

    inputs(graph, size) {
        return graph.inputs(this.fields.map(({ name, item }) => [name, item]), size);
    }

    batches(split, shuffleSeed) {
        const names = this.fields.map(({ name }) => name);
        const options = { size: this.batchSize, shuffleSeed, dropLast: shuffleSeed !== undefined, split };
        return this.dataset.batches(names, options);
    }
}

const scalars = (outputs) => Object.fromEntries(
    Object.entries(outputs).map(([name, operand]) => [name, operand.to('float32').reshape()]),
);

/** A training loop: it resumes, takes checkpoints, validates and reports. */
export class Fit {
    /** `objective(graph, inputs)` returns `loss` and metrics, scalars. It is called once for each graph. */
    constructor(job, variables, optimizer, objective, { clipGradNorm } = {}) {
        Object.assign(this, { job, variables, optimizer, objective, clipGradNorm });
    }

    /** Trains until `epochs` epochs are complete, including those before an interruption. */
    epochs(feed, epochs) {
        this.job.params.check();
        const batches = feed.batches(feed.training, this.job.seed);
        const graph = this.trainingGraph(feed);
        const heldOut = feed.heldOut && this.heldOut(feed);
        let at = { epoch: 0, batch: 0, reported: 0, steps: 0, sums: {} };
        const resumed = this.job.resume(this.variables, [batches]);
        if (resumed) {
            log('info', `resuming from step ${resumed[0]}`);
            at = JSON.parse(new TextDecoder().decode(resumed[1]));
        }
        const step = () => at.epoch * feed.stepsPerEpoch + at.batch;
        const boundary = () => {
            const state = new TextEncoder().encode(JSON.stringify(at));
            this.job.boundary(step(), this.variables, [batches], state);
        };
        for (;;) {
            if (at.reported < at.epoch) this.endEpoch(at, step(), heldOut, boundary);
            if (at.epoch >= epochs) return;
            const toLine = STEPS_PER_LINE - (at.batch % STEPS_PER_LINE);
            const wanted = Math.min(STEPS_PER_BOUNDARY, toLine, feed.stepsPerEpoch - at.batch);
            const [done, outputs] = batches.run(graph, wanted);
            at.batch += done;
            at.steps += done;
            for (const [name, mean] of Object.entries(outputs)) {
                at.sums[name] = (at.sums[name] ?? 0) + mean * done;
                this.job.metric(step(), name, mean);
            }
            this.job.progress(step(), epochs * feed.stepsPerEpoch);
            if (done < wanted || at.batch >= feed.stepsPerEpoch) {
                // The host starts the next epoch when the batch after the last one is requested.
                while (batches.next());
                at.epoch += 1;
                at.batch = 0;
            }
            boundary();
        }
    }

    trainingGraph(feed) {
        const graph = new Graph({ training: true });
        const { shards } = this.job;
        if (feed.batchSize % shards) {
            throw new RangeError(`a batch of ${feed.batchSize} items cannot be divided into ${shards} equal shards`);
        }
        const outputs = this.objective(graph, feed.inputs(graph, feed.batchSize / shards));
        const parameters = this.variables.parameters();
        const values = parameters.map((variable) => graph.variable(variable));
        let gradients = graph.gradients(outputs.loss.to('float32'), values);
        if (this.clipGradNorm !== undefined) gradients = clip(gradients, this.clipGradNorm);
        const updates = parameters.map((variable, i) => ({ variable, value: values[i], gradient: gradients[i] }));
        this.optimizer.step(graph, this.variables, updates);
        return graph.build(scalars(outputs));
    }

    heldOut(feed) {
        const items = feed.dataset.count(feed.heldOut);
        const evaluation = (size) => {
            const graph = new Graph();
            return graph.build(scalars(this.objective(graph, feed.inputs(graph, size))));
        };
        const rest = items % feed.batchSize;
        const full = items >= feed.batchSize ? evaluation(feed.batchSize) : undefined;
        return { feed, items, rest, full, last: rest ? evaluation(rest) : undefined };
    }

    endEpoch(at, step, heldOut, boundary) {
        const means = Object.fromEntries(Object.entries(at.sums).map(([name, sum]) => [name, sum / at.steps]));
        for (const [name, mean] of Object.entries(heldOut ? this.validate(heldOut, boundary) : {})) {
            means[`validation/${name}`] = mean;
        }
        for (const [name, mean] of Object.entries(means)) {
            this.job.metric(step, name.startsWith('validation/') ? name : `epoch/${name}`, mean);
        }
        const columns = Object.entries(means).map(([name, mean]) => `${name} ${mean.toFixed(5)}`);
        log('info', `epoch ${at.epoch}: ${columns.join(', ')}, {seconds} s, checkpoint {checkpoint}`);
        Object.assign(at, { reported: at.epoch, steps: 0, sums: {} });
    }

    validate({ feed, items, rest, full, last }, boundary) {
        const batches = feed.batches(feed.heldOut, undefined);
        const sums = {};
        const add = (weight, outputs) => {
            for (const [name, mean] of Object.entries(outputs)) sums[name] = (sums[name] ?? 0) + mean * weight;
        };
        for (let left = full ? batches.fullBatches : 0; left > 0; left -= STEPS_PER_BOUNDARY) {
            const [done, outputs] = batches.run(full, Math.min(left, STEPS_PER_BOUNDARY));
            add(done * feed.batchSize, outputs);
            boundary();
        }
        const batch = last && batches.next();
        if (batch) {
            const outputs = Object.entries(last.dispatch(batch)).map(([name, tensor]) => [name, tensor.item()]);
            add(rest, Object.fromEntries(outputs));
        }
        return Object.fromEntries(Object.entries(sums).map(([name, sum]) => [name, sum / items]));
    }
}

/** Scales all gradients by one factor so that their total L2 norm is at most `norm`. */
function clip(gradients, norm) {
    const total = gradients.map((gradient) => gradient.sumSquare()).reduce((a, b) => a.add(b));
    const scale = total.sqrt().clamp(norm, undefined).reciprocal().mul(norm);
    return gradients.map((gradient) => gradient.mul(scale));
}
