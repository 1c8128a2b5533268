/** Models that answer requests. */

import { emit as rawEmit } from 'saggar:plugin/replies@0.1.0';
import { call } from './errors.js';
import { Graph } from './graph.js';
import { Tensor } from './tensor.js';

const BATCH_SIZES = [1, 2, 4, 8, 16, 32];

/**
 * A model: inputs, outputs and the graph between them. There is one graph for each batch size.
 *
 * A subclass creates its layers in `constructor(v, config)`, and has `inputs()` and `outputs()`, arrays of ports
 * `{ name, item: { dataType, shape }, semantics?, classes?, default? }`, and `predict(graph, inputs)`, which returns the
 * outputs by name.
 */
export class Model {
    get batchSizes() {
        return BATCH_SIZES;
    }

    /** Returns additional paths that predict: `{ path, inputs? }`, with the numbers that the path sets. */
    routes() {
        return [];
    }

    /**
     * Returns the paths that the plugin answers with its own code: `{ method, path, handler, description? }`, with the
     * name of a method or a function. The world must be `model-http-plugin`.
     */
    handlers() {
        return [];
    }

    /** Predicts one batch of a size in `batchSizes`, for handlers of HTTP requests. */
    run(inputs) {
        if (!this.predictor) throw new TypeError('the model is not loaded: a training builds its own graphs');
        return this.predictor.predict(inputs);
    }
}

/**
 * A predictor that computes with tensors, for what a `Model` cannot express: several graphs, loops, texts.
 *
 * A subclass has `constructor(v, config)`, `signature()`, which returns `{ inputs, outputs, batchSizes?, routes? }`, and
 * `predict(inputs)`, which gets and returns tensors by name. It can have `handlers()`, as a `Model`.
 */
export class Predictor {
    handlers() {
        return [];
    }
}

/** Returns a port for texts of up to `size` bytes. */
export function textPort(name, size) {
    return { name, item: { dataType: 'uint8', shape: [size] }, semantics: 'text' };
}

/** Sends a piece of an output, a tensor or bytes, to the client before the rest of the answer is known. */
export function emit(output, item, piece) {
    const made = piece instanceof Tensor ? { tag: 'tensor', val: piece.raw } : { tag: 'bytes', val: piece };
    call(() => rawEmit(output, item, made));
}

/** Returns a signature in the host's form. */
export function rawSignature({ inputs, outputs, batchSizes = [], routes = [] }) {
    const port = ({ name, item, semantics, classes = [], default: byDefault }) =>
        ({ name, item, semantics, classes, default: byDefault });
    const route = ({ path, inputs: given = {} }) => ({ path, inputs: Object.entries(given) });
    return { inputs: inputs.map(port), outputs: outputs.map(port), batchSizes, routes: routes.map(route) };
}

/** Runs a model. */
export class GraphPredictor {
    constructor(model) {
        this.model = model;
        this.graphs = new Map();
        this.graph(model.batchSizes[0]);
    }

    graph(size) {
        if (!this.graphs.has(size)) {
            const graph = new Graph();
            const inputs = graph.inputs(this.model.inputs().map(({ name, item }) => [name, item]), size);
            this.graphs.set(size, graph.build(this.model.predict(graph, inputs)));
        }
        return this.graphs.get(size);
    }

    signature() {
        const { model } = this;
        return {
            inputs: model.inputs(), outputs: model.outputs(), batchSizes: model.batchSizes, routes: model.routes(),
        };
    }

    predict(inputs) {
        const [batch] = Object.values(inputs)[0].shape;
        return this.graph(batch).dispatch(inputs);
    }
}

/** Returns a port for the items of a dataset's field. Bytes in the shape of an image are an image. */
export function portOf({ name, item, classes }) {
    const { dataType, shape } = item;
    const isImage = dataType === 'uint8' && (shape.length === 2 || (shape.length === 3 && [1, 3].includes(shape[2])));
    return { name, item, classes, semantics: isImage ? 'image' : undefined };
}

/** Returns the names of the classes of a field, or `count` numbers if it names none. */
export function classesOf(field, count) {
    return field.classes.length ? field.classes : Array.from({ length: count }, (_, i) => String(i));
}

/** Returns the outputs of a classifier: `label`, `probability` and `probabilities`. */
export function classPorts(classes) {
    const port = (name, dataType, shape, semantics) => ({ name, item: { dataType, shape }, semantics, classes: semantics ? classes : [] });
    return [
        port('label', 'int32', [], 'class'),
        port('probability', 'float32', []),
        port('probabilities', 'float32', [classes.length], 'probabilities'),
    ];
}

/** Returns these outputs for logits `[batch, classes]`. */
export function classOutputs(logits) {
    const probabilities = logits.to('float32').softmax(1);
    return { label: probabilities.argMax(1), probability: probabilities.amax(1), probabilities };
}
