/**
 * Classifies small pictures, grey or RGB: two convolutions and two linear layers.
 *
 * It trains on any dataset with the fields `image` (`uint8`, `[height, width]` or `[height, width, 3]`) and `label`, and
 * publishes the result.
 */

import {
    Adam, Conv2d, Dataset, Feed, Fit, Linear, Model, Params, classOutputs, classPorts, classesOf, classification,
    exportPlugin, portOf,
} from '../vendor/javascript/saggar-plugin/index.js';

/** The network, and its inputs and outputs. */
class Classifier extends Model {
    constructor(v, config) {
        super();
        this.input = config.get('input');
        this.classes = config.get('classes');
        const [height, width, channels = 1] = this.input.item.shape;
        this.channels = channels;
        this.conv1 = new Conv2d(v.scope('conv1'), channels, 16, 3, { padding: 1 });
        this.conv2 = new Conv2d(v.scope('conv2'), 16, 32, 3, { padding: 1 });
        const features = 32 * Math.trunc(height / 4) * Math.trunc(width / 4);
        this.hidden = new Linear(v.scope('hidden'), features, config.get('units'));
        this.output = new Linear(v.scope('output'), config.get('units'), this.classes.length);
    }

    /** Returns the logits: `[batch, height, width]` -> `[batch, classes]`. */
    logits(image) {
        const [batch, height, width] = image.shape;
        const pixels = image.to('float32').div(255).reshape(batch, height, width, this.channels);
        let x = pixels.permute(0, 3, 1, 2);
        x = this.conv1.forward(x).relu().maxPool2d(2);
        x = this.conv2.forward(x).relu().maxPool2d(2);
        return this.output.forward(this.hidden.forward(x.flatten()).relu());
    }

    inputs() {
        return [this.input];
    }

    outputs() {
        return classPorts(this.classes);
    }

    predict(graph, inputs) {
        return classOutputs(this.logits(inputs.image));
    }
}

/** Trains with cross-entropy and Adam. `Fit` takes checkpoints, resumes from them, validates and reports. */
function train(job) {
    const data = Dataset.open('/data');
    const config = {
        input: portOf(data.field('image')),
        classes: classesOf(data.field('label'), job.param('classes', 10)),
        units: job.param('units', 64),
    };
    const [epochs, model] = [job.param('epochs', 30), job.param('model', 'NAME')];
    const feed = new Feed(data, ['image', 'label'], job.param('batch', 16));
    const variables = job.variables();
    const network = new Classifier(variables, new Params(config));
    const objective = (graph, batch) => classification(network.logits(batch.image), batch.label);
    new Fit(job, variables, new Adam(job.param('lr', 0.002)), objective).epochs(feed, epochs);
    const version = job.publish(model, variables, config);
    console.log(`published version ${version} of ${model}`);
}

exportPlugin({ model: Classifier, train });
