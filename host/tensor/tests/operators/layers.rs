//! Matrix products, normalizations, losses and optimizer steps.

use saggar_tensor::nn::{self, AdamOptions, GemmOptions, InputLayout, SgdOptions};

use super::{OperatorEntry, concat_flat, floats, ints};

pub(super) const ENTRIES: &[OperatorEntry] = &[
    ("matmul", &[&[2, 3, 4], &[4, 2]], |g, x| g.matmul(x[0], x[1])),
    ("matmul, of batches", &[&[2, 1, 3, 4], &[3, 4, 2]], |g, x| g.matmul(x[0], x[1])),
    ("matmul, over nothing", &[&[3, 0], &[0, 2]], |g, x| g.matmul(x[0], x[1])),
    ("gemm", &[&[4, 3], &[5, 4], &[5]], |g, x| {
        let options = GemmOptions { alpha: 0.5, beta: -2.0, transpose_a: true, transpose_b: true };
        nn::gemm(g, x[0], x[1], Some(x[2]), options)
    }),
    ("gemm, first transposed", &[&[4, 3], &[4, 5]], |g, x| {
        nn::gemm(g, x[0], x[1], None, GemmOptions { transpose_a: true, ..GemmOptions::default() })
    }),
    ("gemm, second transposed", &[&[3, 4], &[5, 4]], |g, x| {
        nn::gemm(g, x[0], x[1], None, GemmOptions { transpose_b: true, ..GemmOptions::default() })
    }),
    ("linear, a layer", &[&[2, 3, 4], &[4, 5], &[5]], |g, x| nn::linear(g, x[0], x[1], Some(x[2]))),
    ("layer-normalization", &[&[2, 3, 4], &[4, 3], &[4, 3]], |g, x| {
        nn::layer_normalization(g, x[0], Some(x[1]), Some(x[2]), &[2, 1], 0.1)
    }),
    ("batch-normalization", &[&[2, 3, 4], &[3], &[3], &[3], &[3]], |g, x| {
        let variance = g.exp(x[2])?;
        nn::batch_normalization(g, x[0], [x[1], variance], Some(x[3]), Some(x[4]), 1, 1e-3)
    }),
    ("instance-normalization", &[&[2, 3, 2, 2], &[3], &[3]], |g, x| {
        nn::instance_normalization(g, x[0], Some(x[1]), Some(x[2]), 0.1, InputLayout::Nchw)
    }),
    ("instance-normalization, nhwc", &[&[2, 2, 3, 2], &[2]], |g, x| {
        nn::instance_normalization(g, x[0], Some(x[1]), None, 0.1, InputLayout::Nhwc)
    }),
    ("per-image-standardization", &[&[2, 3, 4]], |g, x| nn::per_image_standardization(g, x[0])),
    ("per-image-standardization, of small deviations", &[&[2, 3, 4]], |g, x| {
        let small = floats(g, &[1, 1, 1], &[0.01], x[0])?;
        let x = g.mul(x[0], small)?;
        nn::per_image_standardization(g, x)
    }),
    ("softmax-cross-entropy", &[&[3, 5]], |g, x| {
        let labels = ints(g, &[3], &[4.0, 0.0, 9.0])?;
        nn::cross_entropy(g, x[0], labels)
    }),
    ("binary-cross-entropy", &[&[3, 5], &[3, 5]], |g, x| {
        let targets = nn::sigmoid(g, x[1])?;
        nn::binary_cross_entropy(g, x[0], targets)
    }),
    ("mean-squared-error", &[&[3, 5], &[5]], |g, x| nn::mean_squared_error(g, x[0], x[1])),
    ("clip-by-global-norm", &[&[2, 3], &[4]], |g, x| {
        let clipped = nn::clip_by_global_norm(g, x, 1.5)?;
        concat_flat(g, &clipped)
    }),
    ("clip-by-global-norm, not reached", &[&[2, 3], &[4]], |g, x| {
        let clipped = nn::clip_by_global_norm(g, x, 100.0)?;
        concat_flat(g, &clipped)
    }),
    ("sgd", &[&[3], &[3], &[3], &[]], |g, x| {
        let options = SgdOptions { momentum: 0.9, nesterov: true, weight_decay: 0.1 };
        let update = nn::sgd(g, &options, x[0], x[1], x[2], x[3])?;
        concat_flat(g, &[update.parameter, update.velocity])
    }),
    ("adam", &[&[3], &[3], &[3], &[3], &[], &[]], |g, x| {
        let (second, step) = (g.exp(x[3])?, g.exp(x[4])?);
        let update = nn::adam(g, &AdamOptions::default(), x[0], x[1], [x[2], second], step, x[5])?;
        concat_flat(g, &[update.parameter, update.first, update.second])
    }),
];
