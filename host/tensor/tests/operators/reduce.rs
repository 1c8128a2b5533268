//! Reductions and cumulative sums.

use saggar_tensor::nn;

use super::{OperatorEntry, floats};

pub(super) const ENTRIES: &[OperatorEntry] = &[
    ("reduce-sum", &[&[3, 4, 2]], |g, x| g.reduce_sum(x[0], &[2, 0], false)),
    ("reduce-sum, of nothing", &[&[3, 0]], |g, x| g.reduce_sum(x[0], &[1], true)),
    ("reduce-mean", &[&[3, 4, 2]], |g, x| nn::reduce_mean(g, x[0], &[2, 0], false)),
    ("reduce-max", &[&[3, 4, 2]], |g, x| g.reduce_max(x[0], &[0, 1], true)),
    ("reduce-min", &[&[3, 4, 2]], |g, x| g.reduce_min(x[0], &[2], false)),
    ("reduce-product", &[&[3, 4, 2]], |g, x| g.reduce_product(x[0], &[0, 1], false)),
    ("reduce-product, with zeros", &[&[3, 4]], |g, x| {
        let holes = [1.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0];
        let holes = floats(g, &[3, 4], &holes, x[0])?;
        let holed = g.mul(x[0], holes)?;
        g.reduce_product(holed, &[1], false)
    }),
    ("reduce-l1", &[&[3, 4]], |g, x| nn::reduce_l1(g, x[0], &[1], true)),
    ("reduce-l2", &[&[3, 4]], |g, x| nn::reduce_l2(g, x[0], &[0], false)),
    ("reduce-log-sum", &[&[3, 4]], |g, x| {
        let positive = g.exp(x[0])?;
        nn::reduce_log_sum(g, positive, &[1], false)
    }),
    ("reduce-log-sum-exp", &[&[3, 4]], |g, x| nn::reduce_log_sum_exp(g, x[0], &[0, 1], true)),
    ("reduce-sum-square", &[&[3, 4]], |g, x| nn::reduce_sum_square(g, x[0], &[], false)),
    ("reduce-sum-square, of all", &[&[3, 4]], |g, x| nn::reduce_sum_square(g, x[0], &[0, 1], false)),
    ("cumulative-sum", &[&[2, 5, 2]], |g, x| nn::cumulative_sum(g, x[0], 1, false, false)),
    ("cumulative-sum, exclusive", &[&[2, 5]], |g, x| nn::cumulative_sum(g, x[0], 1, true, false)),
    ("cumulative-sum, reversed", &[&[5, 2]], |g, x| nn::cumulative_sum(g, x[0], 0, false, true)),
    ("cumulative-sum, exclusive and reversed", &[&[5, 2]], |g, x| nn::cumulative_sum(g, x[0], 0, true, true)),
];
