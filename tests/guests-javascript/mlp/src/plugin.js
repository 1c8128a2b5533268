/**
 * The reference plugin `mlp`, in JavaScript. Options of the training that `mlp` lacks are parameters, and handlers of
 * HTTP requests show what one can return and do wrong.
 */

import {
    Adam, Cosine, Dataset, Dropout, Feed, Fit, Histogram, HttpResponse, Linear, Model, Muon, Params, Sgd, Tensor,
    classOutputs, classPorts, classesOf, classification, exportPlugin,
} from '../vendor/javascript/saggar-plugin/index.js';

class Mlp extends Model {
    constructor(v, config) {
        super();
        this.image = config.get('image');
        this.classes = config.get('classes');
        const unit = config.get('unit');
        const pixels = this.image.reduce((a, b) => a * b, 1);
        this.layers = [
            new Linear(v.scope('l1'), pixels, unit),
            new Linear(v.scope('l2'), unit, unit),
            new Linear(v.scope('l3'), unit, this.classes.length),
        ];
        this.dropout = new Dropout(v, config.number('dropout', 0));
        this.declared = config.param('declared', false);
        this.standardizes = config.param('standardizes', false);
    }

    logits(image) {
        const [first, second, last] = this.layers;
        let x = image.flatten().to(image.graph.floatType);
        if (!this.declared) x = x.div(255);
        if (this.standardizes) x = x.perImageStandardization();
        return last.forward(this.dropout.forward(second.forward(first.forward(x).relu()).relu()));
    }

    inputs() {
        if (this.declared) return [{ name: 'image', item: { dataType: 'float32', shape: this.image } }];
        return [{ name: 'image', item: { dataType: 'uint8', shape: this.image }, semantics: 'image' }];
    }

    outputs() {
        return classPorts(this.classes);
    }

    predict(graph, inputs) {
        return classOutputs(this.logits(inputs.image));
    }

    handlers() {
        return [
            { method: 'GET', path: '/hello/{name}', handler: 'hello', description: 'Greets somebody' },
            { method: 'POST', path: '/classify', handler: 'classify' },
            { method: 'GET', path: '/count/{last}', handler: 'count' },
            { method: 'GET', path: '/missing', handler: () => HttpResponse.json({ error: 'no such thing' }, 404) },
            { method: 'GET', path: '/page', handler: () => HttpResponse.html('<h1>page</h1>') },
            { method: 'PUT', path: '/items/{key}', handler: ({ method, path, text }) => `${method} ${path}` },
            { method: 'GET', path: '/endless', handler: 'endless' },
            { method: 'GET', path: '/fail', handler: () => { throw new RangeError('a mistake'); } },
            { method: 'GET', path: '/nothing', handler: () => undefined },
        ];
    }

    hello({ parameters, query }) {
        return `Hello, ${parameters.name}!`.repeat(Number(query.times ?? 1));
    }

    /** Classifies the pixels of one image: `{ "image": [0, 16, ...] }`. */
    classify(request) {
        const { image } = request.json();
        const { label } = this.run({ image: Tensor.of(image, [1, ...this.image], 'uint8') });
        return { label: label.item() };
    }

    * count({ parameters }) {
        for (let number = 0; number <= Number(parameters.last); number++) yield `${number}\n`;
    }

    * endless() {
        for (;;) yield 'more\n';
    }
}

/** Logs an item of each kind. */
function logItems(job, step) {
    job.logImage(step, 'pictures/grey', Tensor.of([0, 0.5, 1, 2], [1, 2, 2]), 'chw');
    job.logImage(step, 'pictures/red', Tensor.of([255, 0, 0], [1, 1, 3], 'uint8'));
    job.logTable(step, 'table', { name: ['a', 'b'], share: [0.5, NaN], count: [1, 2], known: [true, false] });
    job.logHistogram(step, 'numbers', Histogram.of([0, 1, 2, Infinity], 2));
}

function train(job) {
    const data = Dataset.open('/data');
    const [unit, batch, epochs] = [job.param('unit', 1000), job.param('batch', 100), job.param('epochs', 20)];
    const declared = job.param('declared', false);
    if (declared) {
        const normalization = { mean: [0], scale: [1 / 256] };
        job.declareImageInput('image', { height: 8, width: 8, colors: 'grey', layout: 'nhwc', ...normalization });
    }
    const feed = new Feed(data, ['image', 'label'], batch);
    const lr = job.number('lr', 0.001);
    const name = job.param('model', 'mlp-javascript');
    const config = {
        image: data.field('image').item.shape,
        unit,
        classes: classesOf(data.field('label'), job.param('classes', 10)),
    };
    const everything = job.param('everything', false);
    if (everything) Object.assign(config, { dropout: 0.1, standardizes: true });
    if (declared) config.declared = true;
    const optimizers = {
        adam: new Adam(lr),
        sgd: new Sgd(new Cosine(0.1, feed.stepsPerEpoch * epochs, { warmup: 5 }), {
            momentum: 0.9, nesterov: true, weightDecay: 1e-4,
        }),
        muon: new Muon(0.02, new Adam(lr, { weightDecay: 0.01 })),
    };
    const optimizer = optimizers[job.param('optimizer', 'adam')];
    const variables = job.variables();
    const mlp = new Mlp(variables, new Params(config));
    const objective = (graph, inputs) => classification(mlp.logits(inputs.image), inputs.label);
    const options = {
        clipGradNorm: 1, gradientAccumulationSteps: 2, mixedPrecision: true, exponentialMovingAverage: 0.99,
        earlyStopping: 100,
    };
    const logHistograms = job.param('log', false);
    new Fit(job, variables, optimizer, objective, { ...(everything ? options : {}), logHistograms }).epochs(feed, epochs);
    if (logHistograms) logItems(job, feed.stepsPerEpoch * epochs);
    job.publish(name, variables, config);
}

exportPlugin({ model: Mlp, train });
