/**
 * Write saggar plugins in JavaScript.
 *
 * A plugin describes tensor graphs; the host holds the data, executes the graphs and stores the state. Its code runs in a
 * sandbox without files, network and environment, in which clocks stand still and random numbers depend only on the job's
 * seed.
 */

export { HostError, Stopped } from './errors.js';
export { exportPlugin } from './exports.js';
export { Executable, Graph } from './graph.js';
export { Batches, Dataset, Job } from './job.js';
export { Conv2d, Dropout, Embedding, LayerNorm, Linear } from './layers.js';
export { Operand } from './operand.js';
export { Params } from './params.js';
export { Model, classPorts, classOutputs, classesOf, portOf } from './predict.js';
export { Tensor } from './tensor.js';
export { Adam, Feed, Fit, Sgd, accuracy, classification, meanSquaredError } from './training.js';
export { Variable, Variables, constant, normal, uniform, zeros } from './variables.js';
