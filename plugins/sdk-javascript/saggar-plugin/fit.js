/** The training loop: its options and its graphs. */

import { log } from 'saggar:plugin/logging@0.1.0';
import { averagesByParameter, copyToParameters, updateAverages } from './averages.js';
import { Graph } from './graph.js';
import { clipGradNorm, sumOfSquares } from './optimizers.js';
import { TrainingRun } from './training-run.js';
import { constant } from './variables.js';

const LOSS_SCALE_FIRST = 65536;
const LOSS_SCALE_RANGE = [1 / 65536, 16777216];
const LOSS_SCALE_GROWTH_INTERVAL = 2000;
const FLOAT32_MAX = 3.4028234663852886e38;

/** Batches of the split `train`; `validation`, or `test`, is held out. Without `train`, all items are trained on. */
export class Feed {
    constructor(dataset, fields, batchSize = 32) {
        if (!Number.isInteger(batchSize) || batchSize < 1) {
            throw new RangeError(`parameter \`batch\` must be an integer of at least 1, not ${batchSize}`);
        }
        const { splits } = dataset;
        this.dataset = dataset;
        this.fields = fields.map((name) => dataset.field(name));
        this.training = splits.includes('train') ? 'train' : undefined;
        this.heldOut = this.training && ['validation', 'test'].find((split) => splits.includes(split));
        const items = dataset.count(this.training);
        if (items === 0) throw new RangeError('the dataset has no items to train on');
        this.batchSize = Math.min(batchSize, items);
        /** The number of full batches in the split that is trained on. */
        this.stepsPerEpoch = Math.trunc(items / this.batchSize);
    }

    /** Returns an input of the graph for each field. */
    inputs(graph, size) {
        return graph.inputs(this.fields.map(({ name, item }) => [name, item]), size);
    }

    /** Returns the batches of a split. */
    batches(split, shuffleSeed) {
        const names = this.fields.map(({ name }) => name);
        const options = { size: this.batchSize, shuffleSeed, dropLast: shuffleSeed !== undefined, split };
        return this.dataset.batches(names, options);
    }
}

const scalars = (outputs) => Object.fromEntries(
    Object.entries(outputs).map(([name, operand]) => [name, operand.to('float32').reshape()]),
);

/**
 * A training loop: minimizes an objective with an optimizer. It resumes, takes checkpoints, validates and reports. A
 * training that was interrupted ends with the same result as one that was not.
 *
 * `objective(graph, inputs)` returns `loss` and metrics, means over the batch. It is called once for each graph.
 *
 * Options: `clipGradNorm` scales all gradients so that their total L2 norm is at most this;
 * `gradientAccumulationSteps` is the number of batches whose gradients are averaged for each step of the optimizer;
 * `mixedPrecision` computes in `float16`, with a loss scale, if the model casts its inputs to `Graph.floatType`;
 * `exponentialMovingAverage` is the decay of the parameters' averages, which are validated and published;
 * `earlyStopping` stops when the validation loss has reached no new minimum for this number of epochs;
 * `logHistograms` logs a histogram of each parameter after every epoch, `weights/NAME`.
 */
export class Fit {
    constructor(job, variables, optimizer, objective, options = {}) {
        Object.assign(this, { job, variables, optimizer, objective });
        const known = {
            clipGradNorm: undefined, gradientAccumulationSteps: 1, mixedPrecision: false,
            exponentialMovingAverage: undefined, earlyStopping: undefined, logHistograms: false,
        };
        const unknown = Object.keys(options).find((name) => !(name in known));
        if (unknown !== undefined) {
            throw new RangeError(`no option \`${unknown}\` of Fit; available: ${Object.keys(known).join(', ')}`);
        }
        this.options = { ...known, ...options };
        this.names = [];
    }

    /**
     * Trains until `epochs` epochs are complete, including those before an interruption. Several feeds can have
     * different shapes. An epoch passes once over all of them, in a shuffled order.
     */
    epochs(given, epochs) {
        this.job.params.check();
        const feeds = Array.isArray(given) ? given : [given];
        if (feeds.length === 0) throw new RangeError('the dataset has no items to train on');
        const active = feeds.map((feed) => ({
            batches: feed.batches(feed.training, this.job.seed),
            graph: this.trainingGraph(feed),
            steps: feed.stepsPerEpoch,
        }));
        const heldOut = feeds.filter((feed) => feed.heldOut).map((feed) => this.heldOut(feed));
        if (heldOut.length === 0) {
            log('warn', 'the dataset has no splits `train` and `validation` or `test`: validation is skipped');
        }
        new TrainingRun(this, active, heldOut, epochs).train();
        if (this.options.exponentialMovingAverage !== undefined) copyToParameters(this.variables);
    }

    heldOut(feed) {
        const [items, size] = [feed.dataset.count(feed.heldOut), feed.batchSize];
        const full = items >= size ? this.evaluationGraph(feed, size) : undefined;
        const rest = items % size;
        const last = rest ? this.evaluationGraph(feed, rest) : undefined;
        return { open: () => feed.batches(feed.heldOut, undefined), size, full, rest, last };
    }

    evaluationGraph(feed, size) {
        const isAveraged = this.options.exponentialMovingAverage !== undefined;
        const graph = new Graph({ instead: isAveraged ? averagesByParameter(this.variables) : new Map() });
        return graph.build(scalars(this.objective(graph, feed.inputs(graph, size))));
    }

    trainingGraph(feed) {
        const { clipGradNorm: norm, gradientAccumulationSteps, mixedPrecision, exponentialMovingAverage } = this.options;
        const graph = new Graph({ training: true, half: mixedPrecision });
        const { shards } = this.job;
        if (feed.batchSize % shards) {
            throw new RangeError(`a batch of ${feed.batchSize} items cannot be divided into ${shards} equal shards`);
        }
        const outputs = { ...this.objective(graph, feed.inputs(graph, feed.batchSize / shards)) };
        const scaler = mixedPrecision ? new LossScaler(graph, this.variables) : undefined;
        const updates = this.updates(graph, outputs.loss.to('float32'), scaler);
        let guard;
        if (scaler) {
            guard = areFinite(graph, updates);
            graph.setStatisticsGuard(guard);
            scaler.update(graph, guard);
            outputs.scale = scaler.value;
        }
        if (gradientAccumulationSteps > 1) guard = this.accumulate(graph, updates, guard);
        if (norm !== undefined) clipGradNorm(updates, norm);
        graph.setAssignmentGuard(guard);
        this.optimizer.step(graph, this.variables, updates);
        if (exponentialMovingAverage !== undefined) updateAverages(graph, this.variables, exponentialMovingAverage);
        graph.setAssignmentGuard(undefined);
        this.names = Object.keys(outputs);
        return graph.build(scalars(outputs));
    }

    updates(graph, loss, scaler) {
        const parameters = this.variables.parameters();
        const values = parameters.map((variable) => graph.stored(variable));
        let gradients;
        if (scaler) {
            const inverse = scaler.value.reciprocal();
            gradients = graph.gradients(loss.mul(scaler.value), values).map((gradient) => gradient.mul(inverse));
        } else {
            gradients = graph.gradients(loss, values);
        }
        return parameters.map((variable, i) => ({ variable, value: values[i], gradient: gradients[i] }));
    }

    /**
     * Adds the gradients to those of the previous batches, and replaces them by the mean. Returns 1 if enough batches
     * were accumulated for an update, else 0.
     */
    accumulate(graph, updates, sound) {
        const steps = this.options.gradientAccumulationSteps;
        const counted = (before, after) => (sound ? sound.where(after, before) : after);
        const counter = this.variables.training('accumulated/batches', []);
        const batches = graph.stored(counter);
        const count = counted(batches, batches.add(1));
        const enough = count.greaterOrEqual(steps);
        const zero = count.scalarLike(0);
        graph.assign(counter, enough.where(zero, count));
        for (const update of updates) {
            const { name, shape } = update.variable;
            const total = this.variables.training(`accumulated/${name}`, shape);
            const before = graph.stored(total);
            const after = counted(before, before.add(update.gradient));
            graph.assign(total, enough.where(zero, after));
            update.gradient = after.mul(1 / steps);
        }
        return enough;
    }
}

/** Returns a `uint8` scalar: 1 if all gradients are finite, else 0. */
function areFinite(graph, updates) {
    // This comparison is false for infinity and for NaN.
    return (sumOfSquares(updates) ?? graph.scalar(0)).lesserOrEqual(FLOAT32_MAX);
}

/** The loss scale of mixed precision. Source: Micikevicius et al., arXiv:1710.03740. */
class LossScaler {
    constructor(graph, variables) {
        const scalar = { dataType: 'float32', shape: [] };
        this.variable = variables.get('mixed-precision/scale', scalar, constant(LOSS_SCALE_FIRST), 'training');
        this.good = variables.training('mixed-precision/good', []);
        this.value = graph.stored(this.variable);
    }

    /** Halves the scale after a step whose gradients are not finite, doubles it after many that are. */
    update(graph, sound) {
        const good = graph.stored(this.good).add(1);
        const many = good.greaterOrEqual(LOSS_SCALE_GROWTH_INTERVAL);
        const zero = good.scalarLike(0);
        const grown = many.where(this.value.mul(2), this.value);
        const following = sound.where(grown, this.value.mul(0.5));
        graph.assign(this.variable, following.clamp(...LOSS_SCALE_RANGE));
        graph.assign(this.good, sound.where(many.where(zero, good), zero));
    }
}
