/** The job that a training runs in, and its datasets. */

import * as raw from 'saggar:plugin/job@0.1.0';
import { Dataset as RawDataset } from 'saggar:plugin/datasets@0.1.0';
import { Stopped, call } from './errors.js';
import { Params } from './params.js';
import { tensorsByName } from './tensor.js';
import { Variables } from './variables.js';

/** A dataset version that is mounted into the job. */
export class Dataset {
    constructor(handle) {
        this.raw = handle;
    }

    /** Opens the dataset that is mounted at `mount`. */
    static open(mount = '/data') {
        return new Dataset(call(() => RawDataset.open(mount)));
    }

    get splits() {
        return this.raw.splits();
    }

    /** Returns a column: its name, the data type and shape of an item, and the names of its classes. */
    field(name) {
        const fields = this.raw.fields();
        const found = fields.find((field) => field.name === name);
        if (!found) {
            throw new RangeError(`no field \`${name}\`; available: ${fields.map((field) => field.name).join(', ')}`);
        }
        const { dataType, shape } = found.item;
        return { name, item: { dataType, shape: Array.from(shape) }, classes: found.classes };
    }

    /** Returns the number of items in a split, or in the whole dataset. */
    count(split) {
        return Number(call(() => this.raw.len(split)));
    }

    batches(fields, options) {
        return new Batches(call(() => this.raw.batches(fields, options)));
    }
}

/** An iterator over batches, epoch after epoch. Its position is part of a checkpoint. */
export class Batches {
    constructor(handle) {
        this.raw = handle;
    }

    /** Returns the next batch, or `undefined` at the end of an epoch; the next epoch starts after that. */
    next() {
        const batch = call(() => this.raw.next());
        return batch && tensorsByName(batch);
    }

    /** Dispatches `graph` up to `steps` times. Returns the number of dispatches and the mean of each output. */
    run(graph, steps) {
        const done = call(() => this.raw.run(graph.raw, steps));
        const means = Object.entries(tensorsByName(done.outputs)).map(([name, tensor]) => [name, tensor.item()]);
        return [done.steps, Object.fromEntries(means)];
    }

    get fullBatches() {
        return Number(this.raw.fullBatches());
    }
}

/** The job that a training runs in. */
export class Job {
    constructor() {
        this.params = Params.parse(raw.parameters());
        /** The job's seed, a `bigint`. */
        this.seed = raw.seed();
        /** The number of equal shards of every batch. */
        this.shards = Math.max(raw.shards(), 1);
    }

    /** Returns a parameter, which must have the type of its default. */
    param(name, byDefault) {
        return this.params.param(name, byDefault);
    }

    /** Returns an empty namespace, whose random initial values depend on the job's seed. */
    variables() {
        return Variables.seeded(this.seed);
    }

    metric(step, name, value) {
        raw.metric(BigInt(step), name, value);
    }

    progress(step, of) {
        raw.progress(BigInt(step), BigInt(of));
    }

    /** Restores the newest checkpoint. Returns its step and state, or `undefined` at the beginning. */
    resume(variables, batches) {
        const found = call(() => raw.resume(variables.raw, batches.map((it) => it.raw)));
        return found && [Number(found[0]), found[1]];
    }

    /** Marks a step boundary, where the host saves checkpoints. Throws `Stopped` if the job is stopping. */
    boundary(step, variables, batches, state) {
        const handles = batches.map((it) => it.raw);
        const continues = call(() => raw.boundary(BigInt(step), variables.raw, handles, state));
        if (!continues) throw new Stopped('the training was stopped at a step boundary');
    }

    /** Publishes the variables as a new version of `model`, with `config` for the model's constructor. */
    publish(model, variables, config = {}) {
        return Number(call(() => raw.publish(model, variables.raw, JSON.stringify(config))));
    }

    secret(name) {
        return call(() => raw.secret(name));
    }

    /** Stores a file with the job. */
    writeOutput(path, bytes) {
        call(() => raw.writeOutput(path, bytes));
    }
}
