/** The exports of a plugin, in the form that the component needs. */

import { Stopped, exported } from './errors.js';
import { Job } from './job.js';
import { Params } from './params.js';
import { GraphPredictor } from './predict.js';
import { Variables } from './variables.js';

const plugin = {};

/** Exports a plugin: `model`, the class that predicts, and `train`, the function that trains. Call it once. */
export function exportPlugin({ model, train }) {
    Object.assign(plugin, { model, train });
}

/** Checks, when the component is built, that the plugin exports what its world requires. */
export function check() {
    if (!plugin.model || !plugin.train) throw new TypeError('the plugin must call `exportPlugin({ model, train })`');
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
            loaded.predictor = new GraphPredictor(new plugin.model(new Variables(variables), params));
            params.check();
            return loaded;
        });
    }

    signature() {
        return this.predictor.signature();
    }

    predict(inputs) {
        return exported(() => this.predictor.predict(inputs));
    }
}

/** The host's interface `predictor`. */
export const predictor = { Model: LoadedModel };
