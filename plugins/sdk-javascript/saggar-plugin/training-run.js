/** A running training: steps, step boundaries and ends of epochs. */

import { log } from 'saggar:plugin/logging@0.1.0';
import { Histogram } from './logged.js';

// Small enough for a training to stop soon.
const STEPS_PER_BOUNDARY = 10;
const STEPS_PER_LINE = 100;
// Consecutive steps of one feed, which are shuffled as a unit, so that the device is busy between calls.
const CONSECUTIVE_STEPS = 4;
const COLUMN_WIDTH_MIN = 9;
const HOST_HEADS = '  elapsed_time    checkpoint';
// The host fills these columns, because a plugin has no clock and does not store checkpoints.
const HOST_COLUMNS = '     {seconds}  {checkpoint}';
const HEAD_NUMBERS = 6;

/** Means of named values, weighted by items or steps. */
class WeightedMeans {
    constructor() {
        this.weight = 0;
        this.sums = new Map();
    }

    /** Adds values that are means over `weight` items or steps. */
    add(weight, means) {
        this.weight += weight;
        for (const [name, mean] of Object.entries(means)) {
            this.sums.set(name, (this.sums.get(name) ?? 0) + mean * weight);
        }
    }

    finish() {
        const means = [...this.sums].map(([name, sum]) => [name, sum / this.weight]);
        return this.weight ? Object.fromEntries(means) : {};
    }
}

/** The position of a training: the state of a checkpoint that the host does not store already. */
class TrainingPosition {
    constructor() {
        Object.assign(this, { epoch: 0, batch: 0, reported: 0, stale: 0, lowest: Infinity, steps: 0, sums: [] });
    }

    /** Counts `steps` whose outputs have these means. */
    add(steps, means) {
        this.steps += steps;
        Object.values(means).forEach((mean, i) => {
            this.sums[i] = (this.sums[i] ?? 0) + mean * steps;
        });
    }

    /** Returns the means of the outputs over the epoch so far. */
    means(names) {
        return Object.fromEntries(names.slice(0, this.sums.length).map((name, i) => [name, this.sums[i] / this.steps]));
    }

    /** Records that the epoch was reported, with this validation loss. */
    finishReport(heldOut) {
        Object.assign(this, { reported: this.epoch, steps: 0, sums: [] });
        if (heldOut === undefined) return;
        if (heldOut < this.lowest) {
            Object.assign(this, { lowest: heldOut, stale: 0 });
        } else {
            this.stale += 1;
        }
    }

    /** Returns the position as the state of a checkpoint, the same as that of the guest library for Rust. */
    toBytes() {
        const view = new DataView(new ArrayBuffer(8 * (HEAD_NUMBERS + this.sums.length)));
        [this.epoch, this.batch, this.reported, this.stale].forEach((count, i) => {
            view.setBigUint64(8 * i, BigInt(count), true);
        });
        view.setFloat64(32, this.lowest, true);
        view.setBigUint64(40, BigInt(this.steps), true);
        this.sums.forEach((sum, i) => view.setFloat64(8 * (HEAD_NUMBERS + i), sum, true));
        return new Uint8Array(view.buffer);
    }

    /** Returns the position in the state of a checkpoint. */
    static fromBytes(state) {
        if (state.length < 8 * HEAD_NUMBERS || state.length % 8) {
            throw new RangeError(`the checkpoint's state (${state.length} bytes) is not that of a training with \`Fit\``);
        }
        const view = new DataView(state.slice().buffer);
        const count = (i) => Number(view.getBigUint64(8 * i, true));
        const [epoch, batch, reported, stale] = [0, 1, 2, 3].map(count);
        const sums = [];
        for (let at = 8 * HEAD_NUMBERS; at < state.length; at += 8) sums.push(view.getFloat64(at, true));
        const lowest = view.getFloat64(32, true);
        return Object.assign(new TrainingPosition(), { epoch, batch, reported, stale, lowest, steps: count(5), sums });
    }
}

/** A training in progress. `feeds` are `{ batches, graph, steps }`, `heldOut` `{ open, size, full, rest, last }`. */
export class TrainingRun {
    constructor({ job, variables, names, options }, feeds, heldOut, epochs) {
        Object.assign(this, { job, variables, names, feeds, heldOut, epochs, patience: options.earlyStopping });
        this.logHistograms = options.logHistograms;
        this.position = new TrainingPosition();
        this.hasHeads = false;
        this.stepsPerEpoch = feeds.reduce((sum, { steps }) => sum + steps, 0);
    }

    /** Trains to the end. */
    train() {
        const resumed = this.job.resume(this.variables, this.batches);
        if (resumed) {
            log('info', `resuming from step ${resumed[0]}`);
            this.position = TrainingPosition.fromBytes(resumed[1]);
        }
        const at = this.position;
        let order = [];
        for (;;) {
            if (at.reported < at.epoch) this.endEpoch();
            const isStale = this.patience !== undefined && at.stale >= Math.max(this.patience, 1);
            if (at.epoch >= this.epochs || isStale) return;
            if (order.length === 0) order = stepsOfEpoch(this.feeds.map(({ steps }) => steps), this.job.seed, at.epoch);
            this.trainToBoundary(order);
            if (at.batch === 0) order = [];
            this.reachBoundary();
        }
    }

    get batches() {
        return this.feeds.map(({ batches }) => batches);
    }

    get step() {
        return this.position.epoch * this.stepsPerEpoch + this.position.batch;
    }

    reachBoundary() {
        this.job.boundary(this.step, this.variables, this.batches, this.position.toBytes());
    }

    trainToBoundary(order) {
        const at = this.position;
        const toLine = STEPS_PER_LINE - (at.batch % STEPS_PER_LINE);
        const wanted = Math.min(STEPS_PER_BOUNDARY, toLine, order.length - at.batch);
        const end = at.batch + wanted;
        const means = new WeightedMeans();
        while (at.batch < end) {
            const lane = order[at.batch];
            let steps = 1;
            while (at.batch + steps < end && order[at.batch + steps] === lane) steps += 1;
            const { batches, graph } = this.feeds[lane];
            const [done, outputs] = batches.run(graph, steps);
            at.add(done, outputs);
            at.batch += done;
            means.add(done, outputs);
            if (done < steps) break;
        }
        this.report(means.finish());
        if (means.weight < wanted || at.batch >= order.length) {
            // The host starts the next epoch when the batch after the last one is requested.
            for (const batches of this.batches) while (batches.next());
            at.epoch += 1;
            at.batch = 0;
        }
    }

    report(outputs) {
        const [at, { step }] = [this.position, this];
        // By default, a loss that is not finite ends the attempt at the next step boundary.
        for (const [name, value] of Object.entries(outputs)) this.job.metric(step, name, value);
        this.job.progress(step, this.epochs * this.stepsPerEpoch);
        if (at.batch % STEPS_PER_LINE !== 0) return;
        const means = Object.entries(at.means(this.names)).map(([name, value]) => `${name} ${value.toFixed(4)}`);
        const place = `epoch ${at.epoch + 1}/${this.epochs}, batch ${at.batch}/${this.stepsPerEpoch}`;
        log('info', `${place}: {samples/s} samples/s, ${means.join(', ')}`);
    }

    endEpoch() {
        const [at, { step }] = [this.position, this];
        const found = new WeightedMeans();
        for (const split of this.heldOut) this.evaluate(split, found);
        const [means, heldOut] = [at.means(this.names), found.finish()];
        const columns = { ...means };
        for (const [name, value] of Object.entries(means)) this.job.metric(step, `epoch/${name}`, value);
        for (const [name, value] of Object.entries(heldOut)) {
            columns[`validation/${name}`] = value;
            this.job.metric(step, `validation/${name}`, value);
        }
        for (const parameter of this.logHistograms ? this.variables.parameters() : []) {
            this.job.logHistogram(step, `weights/${parameter.name}`, Histogram.of(parameter));
        }
        const width = (name) => Math.max(name.length, COLUMN_WIDTH_MIN);
        if (!this.hasHeads) {
            this.hasHeads = true;
            const heads = Object.keys(columns).map((name) => `  ${name.padStart(width(name))}`);
            log('info', `epoch${heads.join('')}${HOST_HEADS}`);
        }
        const row = Object.entries(columns).map(([name, value]) => `  ${value.toFixed(5).padStart(width(name))}`);
        log('info', `${String(at.epoch).padStart(5)}${row.join('')}${HOST_COLUMNS}`);
        at.finishReport(heldOut.loss);
        // A job that pauses for a value of the epoch pauses with the weights that have this value.
        this.reachBoundary();
    }

    /** Adds the outputs of every item of a held-out split, each counted once. */
    evaluate({ open, size, full, rest, last }, means) {
        const batches = open();
        for (let left = full ? batches.fullBatches : 0; left > 0; left -= STEPS_PER_BOUNDARY) {
            const [done, outputs] = batches.run(full, Math.min(left, STEPS_PER_BOUNDARY));
            means.add(done * size, outputs);
            this.reachBoundary();
        }
        const batch = last && batches.next();
        if (!batch) return;
        const outputs = Object.entries(last.dispatch(batch)).map(([name, tensor]) => [name, tensor.item()]);
        means.add(rest, Object.fromEntries(outputs));
    }
}

const GOLDEN = 0x9e3779b97f4a7c15n;
const word = (number) => BigInt.asUintN(64, number);

/** Returns the feed of each step of an epoch; feed `i` has `steps[i]` steps. Depends only on seed and epoch. */
export function stepsOfEpoch(steps, seed, epoch) {
    const rows = [];
    steps.forEach((count, feed) => {
        for (let i = 0; i < Math.trunc(count / CONSECUTIVE_STEPS); i++) rows.push([feed, CONSECUTIVE_STEPS]);
        if (count % CONSECUTIVE_STEPS) rows.push([feed, count % CONSECUTIVE_STEPS]);
    });
    let state = seed ^ word(BigInt(epoch) * GOLDEN);
    // Fisher-Yates shuffle. The modulo bias is below 2^-32 for any possible number of rows.
    for (let end = rows.length - 1; end > 0; end--) {
        state = word(state + GOLDEN);
        const other = Number(splitMix(state) % BigInt(end + 1));
        [rows[end], rows[other]] = [rows[other], rows[end]];
    }
    return rows.flatMap(([feed, count]) => Array(count).fill(feed));
}

/** SplitMix64. Source: Steele et al., "Fast splittable pseudorandom number generators", OOPSLA 2014. */
function splitMix(state) {
    let z = state;
    z = word((z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n);
    z = word((z ^ (z >> 27n)) * 0x94d049bb133111ebn);
    return z ^ (z >> 31n);
}
