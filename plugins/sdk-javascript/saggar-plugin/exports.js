/** The exports of a plugin, in the form that the component needs. */

import { Stopped, exported } from './errors.js';
import { Job } from './job.js';
import { Params } from './params.js';
import { GraphPredictor, Model, rawSignature } from './predict.js';
import { tensorsByName } from './tensor.js';
import { Variables } from './variables.js';

const plugin = {};

/** Exports a plugin: `model`, the class that predicts, and `train`, the function that trains. Call it once. */
export function exportPlugin({ model, train }) {
    Object.assign(plugin, { model, train });
}

/** Checks, when the component is built, that the plugin exports what its world requires. */
export function check(handles = false) {
    if (!plugin.model || !plugin.train) throw new TypeError('the plugin must call `exportPlugin({ model, train })`');
    const { handlers } = plugin.model.prototype;
    const inherited = [Model.prototype.handlers, undefined];
    if (!handles && Object.hasOwn(plugin.model.prototype, 'handlers') && !inherited.includes(handlers)) {
        const world = '"world": "model-http-plugin"';
        throw new TypeError(`${plugin.model.name} has handlers(): set \`${world}\` under \`saggar\` in package.json`);
    }
}

/** Returns the model that this instance has loaded. An instance loads one. */
export function loadedModel() {
    return plugin.loaded;
}

/** The host's interface `trainer`. */
export const trainer = {
    train() {
        exported(() => {
            try {
                plugin.train(new Job());
            } catch (error) {
                if (!(error instanceof Stopped)) throw error;
            }
        });
    },
};

class LoadedModel {
    static load(variables, config) {
        return exported(() => {
            const params = Params.parse(config);
            const loaded = new LoadedModel();
            const model = new plugin.model(new Variables(variables), params);
            loaded.predictor = model instanceof Model ? new GraphPredictor(model) : model;
            if (model instanceof Model) model.predictor = loaded.predictor;
            params.check();
            plugin.loaded = model;
            return loaded;
        });
    }

    signature() {
        return exported(() => rawSignature(this.predictor.signature()));
    }

    predict(inputs) {
        return exported(() => {
            const outputs = this.predictor.predict(tensorsByName(inputs));
            return Object.entries(outputs).map(([name, tensor]) => ({ name, tensor: tensor.raw }));
        });
    }
}

/** The host's interface `predictor`. */
export const predictor = { Model: LoadedModel };
