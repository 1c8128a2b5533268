/**
 * Write saggar plugins in JavaScript.
 *
 * A plugin describes tensor graphs; the host holds the data, executes the graphs and stores the state. Its code runs in a
 * sandbox without files, network and environment, in which clocks stand still and random numbers depend only on the job's
 * seed.
 */

export { Batches, Dataset } from './dataset.js';
export { HostError, Stopped } from './errors.js';
export { exportPlugin } from './exports.js';
export { Feed, Fit } from './fit.js';
export { Executable, Graph } from './graph.js';
export { Job } from './job.js';
export { Histogram } from './logged.js';
export {
    BatchNorm2d, Conv2d, ConvTranspose2d, Dropout, Embedding, LayerNorm, Linear, MultiHeadAttention, PositionEmbedding,
    paddingMask, scaledDotProductAttention,
} from './layers.js';
export {
    CrossEntropy, accuracy, binaryCrossEntropyWithLogits, classification, crossEntropy, meanSquaredError,
} from './losses.js';
export { Operand, concat } from './operand.js';
export { Adam, Cosine, InverseSquareRoot, Muon, Sgd, Warmup, clipGradNorm } from './optimizers.js';
export { Params } from './params.js';
export { Model, Predictor, classPorts, classOutputs, classesOf, emit, portOf, textPort } from './predict.js';
export { HttpResponse } from './responses.js';
export { Tensor, unpadded } from './tensor.js';
export {
    Variable, Variables, constant, fanInUniform, normal, uniform, xavierUniform, zeros,
} from './variables.js';
