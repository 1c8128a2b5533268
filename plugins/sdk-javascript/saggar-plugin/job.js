/** The job that a training runs in: parameters, metrics, checkpoints, publishing and output files. */

import * as raw from 'saggar:plugin/job@0.1.0';
import { Stopped, call } from './errors.js';
import { columnValues } from './logged.js';
import { Params } from './params.js';
import { Variables } from './variables.js';

/** The job that a training runs in. */
export class Job {
    constructor() {
        this.params = Params.parse(raw.parameters());
        /** The job's seed, a `bigint`. */
        this.seed = raw.seed();
        /** The number of equal shards of every batch. */
        this.shards = Math.max(raw.shards(), 1);
        /** The number of this attempt, from 1. */
        this.attempt = raw.attempt();
    }

    /** Returns a parameter, which must have the type of its default. */
    param(name, byDefault) {
        return this.params.param(name, byDefault);
    }

    /** Returns a parameter that is a number, which can be whole or not. */
    number(name, byDefault) {
        return this.params.number(name, byDefault);
    }

    /** Returns an empty namespace, whose random initial values depend on the job's seed. */
    variables() {
        return Variables.seeded(this.seed);
    }

    /** Records a value of a named series at a step. */
    metric(step, name, value) {
        raw.metric(BigInt(step), name, value);
    }

    /**
     * Records an image at a step, replacing one of the same name and step: `[height, width, channels]`, or with the layout
     * `chw` `[channels, height, width]`, with 1 channel, grey, or 3, RGB. Its elements are `uint8`, or `float32` from 0 to
     * 1, where other numbers are clamped.
     */
    logImage(step, name, image, layout = 'hwc') {
        call(() => raw.logImage(BigInt(step), name, image.raw, layout));
    }

    /**
     * Records a table at a step, replacing one of the same name and step: an object with an array of values for each
     * column, all numbers, whole numbers, texts or truth values.
     */
    logTable(step, name, columns) {
        const rows = Object.entries(columns).map(([column, values]) => ({ name: column, values: columnValues(values) }));
        call(() => raw.logTable(BigInt(step), name, rows));
    }

    /** Records a histogram at a step, replacing one of the same name and step. */
    logHistogram(step, name, { edges, counts }) {
        call(() => raw.logHistogram(BigInt(step), name, Float64Array.from(edges), BigUint64Array.from(counts, BigInt)));
    }

    /**
     * Declares the preprocessing of an image input, before the dataset's fields and batches are used. From then on fields
     * of this name are `float32` in the declared size and layout, and published versions have the declaration: the input
     * of their model has the same data type and shape, and clients send images.
     *
     * With `mean` and `scale`, one number for each channel, a pixel (0 to 255) becomes `(pixel - mean) * scale`. Without
     * them, each image is standardized: `(pixel - mean) / max(std, 1 / sqrt(N))` over its N elements.
     */
    declareImageInput(name, { height, width, fit = 'stretch', colors = 'rgb', layout = 'nchw', mean, scale }) {
        if ((mean === undefined) !== (scale === undefined)) {
            throw new TypeError('declare both `mean` and `scale`, or neither');
        }
        const normalization = mean
            ? { tag: 'mean-and-scale', val: { mean: Float32Array.from(mean), scale: Float32Array.from(scale) } }
            : { tag: 'per-image-standardization' };
        call(() => raw.declareImageInput(name, { height, width, fit, colors, normalization, layout }));
    }

    /** Reports that `step` of `of` steps are done. */
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

    /** Starts a phase of the job, such as `post`, which can fail without undoing what was published. */
    phase(name) {
        call(() => raw.phase(name));
    }

    /** Opens a published version, the newest without a number: its number, variables and configuration. */
    openModel(model, version) {
        const opened = call(() => raw.openModel(model, version === undefined ? undefined : BigInt(version)));
        return {
            version: Number(opened.version),
            variables: new Variables(opened.variables),
            config: Params.parse(opened.config),
        };
    }

    /** Returns the value of a secret that was granted to the job. */
    secret(name) {
        return call(() => raw.secret(name));
    }

    /** Stores a file with the job. */
    writeOutput(path, bytes) {
        call(() => raw.writeOutput(path, bytes));
    }
}
