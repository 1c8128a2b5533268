//! Element-wise operators of one to three operands.

use saggar_tensor::nn;
use saggar_tensor::{DType, GraphBuilder as G};

use super::{OperatorEntry, constant, floats};

pub(super) const ENTRIES: &[OperatorEntry] = &[
    ("add", &[&[2, 1, 4], &[3, 1]], |g, x| g.add(x[0], x[1])),
    ("sub", &[&[3, 4], &[4]], |g, x| g.sub(x[0], x[1])),
    ("mul", &[&[3, 1], &[4]], |g, x| g.mul(x[0], x[1])),
    ("mul, of one operand", &[&[3]], |g, x| g.mul(x[0], x[0])),
    ("div", &[&[3, 4], &[3, 1]], |g, x| {
        let below = g.exp(x[1])?;
        g.div(x[0], below)
    }),
    ("pow", &[&[3, 4], &[4]], |g, x| {
        let base = g.exp(x[0])?;
        g.pow(base, x[1])
    }),
    ("pow, of negative numbers", &[&[4]], |g, x| {
        let exponents = floats(g, &[4], &[0.0, 1.0, 2.0, 3.0], x[0])?;
        g.pow(x[0], exponents)
    }),
    ("max", &[&[3, 4], &[4]], |g, x| g.max(x[0], x[1])),
    ("min", &[&[3, 4], &[3, 1]], |g, x| g.min(x[0], x[1])),
    ("where", &[&[3, 4], &[4], &[3, 1]], |g, x| {
        let condition = g.less(x[0], x[1])?;
        g.select(condition, x[2], x[1])
    }),
    ("abs", &[&[6]], |g, x| g.abs(x[0])),
    ("neg", &[&[6]], |g, x| g.neg(x[0])),
    // Piecewise constant functions: zero wherever there is a slope.
    ("sign", &[&[6]], |g, x| g.sign(x[0])),
    ("ceil", &[&[6]], |g, x| g.ceil(x[0])),
    ("floor", &[&[6]], |g, x| g.floor(x[0])),
    ("round-even", &[&[6]], |g, x| g.round_even(x[0])),
    ("exp", &[&[6]], |g, x| g.exp(x[0])),
    ("log", &[&[6]], |g, x| {
        let squares = positive(g, x[0])?;
        g.log(squares)
    }),
    ("sqrt", &[&[6]], |g, x| {
        let squares = positive(g, x[0])?;
        g.sqrt(squares)
    }),
    ("reciprocal", &[&[6]], |g, x| {
        let squares = positive(g, x[0])?;
        g.reciprocal(squares)
    }),
    ("sin", &[&[6]], |g, x| g.sin(x[0])),
    ("cos", &[&[6]], |g, x| g.cos(x[0])),
    // Within (-pi / 2, pi / 2) on both sides of 0.
    ("tan", &[&[6]], |g, x| {
        let half = nn::linear_function(g, x[0], 0.5, 0.1)?;
        nn::tan(g, half)
    }),
    ("tanh", &[&[6]], |g, x| g.tanh(x[0])),
    ("erf", &[&[6]], |g, x| g.erf(x[0])),
    ("identity", &[&[6]], |_, x| Ok(x[0])),
    ("relu", &[&[3, 4]], |g, x| nn::relu(g, x[0])),
    ("sigmoid", &[&[3, 4]], |g, x| nn::sigmoid(g, x[0])),
    ("log-sigmoid", &[&[3, 4]], |g, x| nn::log_sigmoid(g, x[0])),
    ("gelu", &[&[3, 4]], |g, x| nn::gelu(g, x[0])),
    ("silu", &[&[3, 4]], |g, x| nn::silu(g, x[0])),
    ("hard-swish", &[&[3, 4]], |g, x| {
        // Also beyond -3 and 3.
        let wide = nn::linear_function(g, x[0], 2.0, 0.0)?;
        nn::hard_swish(g, wide)
    }),
    ("softplus", &[&[3, 4]], |g, x| nn::softplus(g, x[0])),
    ("softsign", &[&[3, 4]], |g, x| nn::softsign(g, x[0])),
    ("cast", &[&[6]], |g, x| {
        let half = g.cast(x[0], DType::F16)?;
        let square = g.mul(half, half)?;
        g.cast(square, DType::F32)
    }),
    ("clamp", &[&[3, 4]], |g, x| nn::clamp(g, x[0], Some(-1.0), Some(0.5))),
    ("clamp, from below", &[&[3, 4]], |g, x| nn::clamp(g, x[0], Some(-1.0), None)),
    ("clamp, from above", &[&[3, 4]], |g, x| nn::clamp(g, x[0], None, Some(0.5))),
    ("elu", &[&[3, 4]], |g, x| nn::elu(g, x[0], 1.3)),
    ("leaky-relu", &[&[3, 4]], |g, x| nn::leaky_relu(g, x[0], 0.1)),
    ("hard-sigmoid", &[&[3, 4]], |g, x| nn::hard_sigmoid(g, x[0], 0.7, 0.4)),
    ("linear", &[&[3, 4]], |g, x| nn::linear_function(g, x[0], -0.7, 0.4)),
    ("prelu", &[&[2, 3, 4], &[3, 1]], |g, x| nn::prelu(g, x[0], x[1])),
    ("softmax", &[&[3, 4, 2]], |g, x| nn::softmax(g, x[0], 1)),
    ("softmax, of attention", &[&[2, 3, 4], &[2, 5, 4], &[2, 5, 3]], |g, x| {
        let keys = g.transpose(x[1], &[0, 2, 1])?;
        let scores = g.matmul(x[0], keys)?;
        let masked = nn::triangular(g, scores, false, 1)?;
        let shares = nn::softmax(g, masked, 2)?;
        g.matmul(shares, x[2])
    }),
    ("log-softmax", &[&[3, 4]], |g, x| nn::log_softmax(g, x[0], 0)),
    // The input is an integer; the scale is differentiable.
    ("dequantize-linear", &[&[2, 1]], |g, x| {
        let steps =
            constant(g, DType::I8, &[4, 3], &[3.0, -7.0, 100.0, 0.0, 1.0, 2.0, -128.0, 9.0, 4.0, 5.0, 6.0, 7.0])?;
        let zero_point = constant(g, DType::I8, &[3], &[1.0, -2.0, 0.0])?;
        nn::dequantize_linear(g, steps, x[0], zero_point)
    }),
    ("stop-gradient", &[&[4], &[4]], |g, x| {
        // Applied to a value that does not depend on the differentiated operand.
        let fixed = floats(g, &[4], &[1.0, -2.0, 0.5, 3.0], x[0])?;
        let fixed = g.stop_gradient(fixed)?;
        let product = g.mul(fixed, x[0])?;
        g.mul(product, x[1])
    }),
    ("dropout", &[&[3, 4]], |g, x| {
        let key = constant(g, DType::U32, &[4], &[7.0, 0.0, 1.0, 0.0])?;
        nn::dropout(g, x[0], 0.3, key, 2)
    }),
];

/// Returns the square plus a small constant.
fn positive(g: &mut G, x: saggar_tensor::NodeId) -> saggar_tensor::NodeResult {
    let squares = g.mul(x, x)?;
    nn::linear_function(g, squares, 1.0, 0.3)
}
