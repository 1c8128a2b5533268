/** Datasets: mounted into a job, or created by a training. */

import { Dataset as RawDataset } from 'saggar:plugin/datasets@0.1.0';
import { call } from './errors.js';
import { tensorsByName, unpadded } from './tensor.js';

const TEXTS_PER_READ = 4096;

/** A dataset version that is mounted into the job, or a dataset that the training created. */
export class Dataset {
    constructor(handle) {
        this.raw = handle;
    }

    /** Opens the dataset that is mounted at `mount`. */
    static open(mount = '/data') {
        return new Dataset(call(() => RawDataset.open(mount)));
    }

    /**
     * Creates a dataset in the host's memory from columns `{ name, item, data }`, with all items as little-endian
     * elements. `splits` are names with numbers of items, which follow each other in order and cover all items.
     */
    static fromColumns(columns, splits) {
        const made = columns.map(({ name, item, data }) => ({ field: { name, item, classes: [] }, data }));
        const parts = splits.map(([name, items]) => [name, BigInt(items)]);
        return new Dataset(call(() => RawDataset.fromColumns(made, parts)));
    }

    /** The names of the splits. */
    get splits() {
        return this.raw.splits();
    }

    /** The columns: the name, the data type and shape of an item, and the names of the classes. */
    get fields() {
        return this.raw.fields().map(({ name, item: { dataType, shape }, classes }) =>
            ({ name, item: { dataType, shape: Array.from(shape) }, classes }));
    }

    /** Returns a column. */
    field(name) {
        const { fields } = this;
        const found = fields.find((field) => field.name === name);
        if (found) return found;
        throw new RangeError(`no field \`${name}\`; available: ${fields.map((field) => field.name).join(', ') || 'none'}`);
    }

    /** Returns the number of items in a split, or in the whole dataset. */
    count(split) {
        return Number(call(() => this.raw.len(split)));
    }

    /** Returns an iterator over batches of these fields, in stored order without a `shuffleSeed`. */
    batches(fields, { size, shuffleSeed, dropLast = false, split }) {
        return new Batches(call(() => this.raw.batches(fields, { size, shuffleSeed, dropLast, split })));
    }

    /** Returns the items of a text field, `uint8[n]` padded with zeros. */
    texts(name, split) {
        const { item: { dataType, shape } } = this.field(name);
        if (dataType !== 'uint8' || shape.length !== 1) throw new RangeError(`the field \`${name}\` is no text field, uint8[n]`);
        const width = Math.max(shape[0], 1);
        const found = [];
        for (const batch of this.batches([name], { size: TEXTS_PER_READ, split })) {
            const data = batch[name].read();
            for (let start = 0; start < data.length; start += width) found.push(unpadded(data.slice(start, start + width)));
        }
        return found;
    }
}

/** An iterator over the batches of an epoch; the next iteration begins the next epoch. */
export class Batches {
    constructor(handle) {
        this.raw = handle;
    }

    * [Symbol.iterator]() {
        for (let batch = this.next(); batch; batch = this.next()) yield batch;
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

    /** The number of full batches in an epoch. */
    get fullBatches() {
        return Number(this.raw.fullBatches());
    }

    /** The epoch, from 0, and the index in it of the next item. */
    get position() {
        return this.raw.position().map(Number);
    }
}
