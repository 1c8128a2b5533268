/** Models that answer requests. */

import { Graph } from './graph.js';
import { tensorsByName } from './tensor.js';

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
        const port = ({ name, item, semantics, classes = [], default: byDefault }) =>
            ({ name, item, semantics, classes, default: byDefault });
        const { model } = this;
        return {
            inputs: model.inputs().map(port),
            outputs: model.outputs().map(port),
            batchSizes: model.batchSizes,
            routes: [],
        };
    }

    predict(inputs) {
        const given = tensorsByName(inputs);
        const [batch] = Object.values(given)[0].shape;
        const outputs = this.graph(batch).dispatch(given);
        return Object.entries(outputs).map(([name, tensor]) => ({ name, tensor: tensor.raw }));
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
    const probabilities = logits.softmax(1);
    return { label: probabilities.argMax(1), probability: probabilities.amax(1), probabilities };
}
