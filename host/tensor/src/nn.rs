//! Composites: functions that build primitives, so they need neither kernels nor gradient rules.
//!
//! Names and meanings are WebNN's if WebNN has the operator. Operands broadcast as in the builder's methods. Attributes
//! are f64 and rounded to the operand's data type where they are used.

mod activation;
mod conv;
mod conv_transpose;
mod f32_compute;
mod index;
mod linear;
mod loss;
mod movement;
mod norm;
mod optimizer;
mod pool;
mod quantize;
mod random;
mod recurrent;
mod reduce;
mod resample;
mod scan;

use crate::builder::GraphBuilder;
use crate::error::GraphError;
use crate::graph::NodeId;
use crate::op::Scalar;

pub use activation::{
    clamp, elu, gelu, hard_sigmoid, hard_swish, leaky_relu, linear_function, log_sigmoid, log_softmax, prelu, relu,
    sigmoid, silu, softmax, softplus, softsign, tan,
};
pub use conv::{Conv2dOptions, FilterLayout, InputLayout, conv2d};
pub use conv_transpose::{ConvTranspose2dOptions, TransposeFilterLayout, conv_transpose2d};
pub use index::{gather_elements, gather_nd, scatter_elements, scatter_nd};
pub use linear::{GemmOptions, gemm, linear};
pub use loss::{accuracy, binary_cross_entropy, cross_entropy, mean_squared_error, one_hot};
pub use movement::{pad_edge, pad_reflection, pad_symmetric, split, tile, triangular};
pub use norm::{batch_normalization, instance_normalization, layer_normalization, per_image_standardization};
pub use optimizer::{AdamOptions, AdamUpdate, SgdOptions, SgdUpdate, WeightDecay, adam, clip_by_global_norm, sgd};
pub use pool::{Pool2dOptions, PoolRounding, average_pool2d, l2_pool2d, max_pool2d};
pub use quantize::{dequantize_linear, quantize_linear};
pub use random::{dropout, normal, uniform};
pub use recurrent::{
    GruLayout, GruOptions, LstmLayout, LstmOptions, RecurrentActivation, RecurrentDirection, gru, gru_cell, lstm,
    lstm_cell,
};
pub use reduce::{reduce_l1, reduce_l2, reduce_log_sum, reduce_log_sum_exp, reduce_mean, reduce_sum_square};
pub use resample::{Resample2dOptions, ResampleInterpolation, resample2d};
pub use scan::cumulative_sum;

/// Returns a fill of `value` in `node`'s data type and shape.
fn fill_like(g: &mut GraphBuilder, node: NodeId, value: f64) -> Result<NodeId, GraphError> {
    let descriptor = g.descriptor_of(node)?.clone();
    g.fill(descriptor, Scalar::Float(value))
}

/// Returns `x * value`.
fn scale_by(g: &mut GraphBuilder, x: NodeId, value: f64) -> Result<NodeId, GraphError> {
    let factor = fill_like(g, x, value)?;
    g.mul(x, factor)
}

/// Returns `x + value`.
fn shift_by(g: &mut GraphBuilder, x: NodeId, value: f64) -> Result<NodeId, GraphError> {
    let term = fill_like(g, x, value)?;
    g.add(x, term)
}

/// Returns `DType` if the node is not a float.
fn check_float(g: &GraphBuilder, op: &'static str, operand: &'static str, node: NodeId) -> Result<(), GraphError> {
    let got = g.descriptor_of(node)?.dtype;
    if got.is_float() { Ok(()) } else { Err(GraphError::DType { op, operand, expected: "float32 or float16", got }) }
}

/// Returns `Rank` if the node does not have `rank` dimensions.
fn check_rank(
    g: &GraphBuilder,
    op: &'static str,
    operand: &'static str,
    node: NodeId,
    rank: usize,
) -> Result<(), GraphError> {
    let got = g.descriptor_of(node)?;
    if got.shape.rank() == rank {
        return Ok(());
    }
    Err(GraphError::Rank { op, operand, least: rank, most: rank, got: got.clone() })
}
