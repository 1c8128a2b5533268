//! The operators: one table from name to rule, and the rules grouped by family.

mod activation;
mod attention;
mod contract;
mod convolution;
mod elementwise;
mod index;
mod loss;
mod movement;
mod normalization;
mod pool;
mod quantize;
mod recurrent;
mod reduce;
mod resize;
mod sample;
mod signal;
mod source;

pub use source::constant;

use crate::call::OperatorCall;
use crate::error::Result;
use crate::graph::{FoldingGraph, ValueResult};
use crate::value::GraphValue;

/// The result of a rule: the node's results in order. Trailing results that the rule does not support are missing.
pub type RuleResult = Result<Vec<GraphValue>>;

/// A function that builds one node.
pub type OperatorRule = fn(&mut FoldingGraph, &OperatorCall) -> RuleResult;

/// Converts a single result to the result of a rule.
fn single_result(built: ValueResult) -> RuleResult {
    built.map(|value| vec![value])
}

/// Returns the rule of an operator of the standard set.
///
/// The builder handles `Constant`, `If`, `Loop` and `Scan` itself, because they need more than their operands.
pub fn rule_for(op: &str) -> Option<OperatorRule> {
    RULES.iter().find(|(names, _)| names.split_whitespace().any(|name| name == op)).map(|(_, rule)| *rule)
}

/// Returns the names of the operators that have a rule.
pub fn operator_names() -> impl Iterator<Item = &'static str> {
    RULES.iter().flat_map(|(names, _)| names.split_whitespace())
}

/// Operators, separated by spaces, and the rule that builds them, grouped by family.
const RULES: &[(&str, OperatorRule)] = &[
    (
        "Abs Neg Sign Ceil Floor Round Exp Log Sqrt Reciprocal Sin Cos Tan Tanh Erf Not Relu Sigmoid Softplus \
         Softsign",
        elementwise::unary,
    ),
    ("Add Sub Mul Div And Or Xor Equal Greater GreaterOrEqual Less LessOrEqual", elementwise::binary),
    ("Max Min Sum Mean", elementwise::variadic),
    ("Where", elementwise::select),
    ("Cast CastLike", elementwise::cast),
    ("Pow", elementwise::pow),
    ("Mod", elementwise::modulo),
    ("Clip", elementwise::clip),
    ("IsNaN", elementwise::is_nan),
    ("IsInf", elementwise::is_inf),
    ("BitwiseAnd BitwiseOr BitwiseXor BitwiseNot BitShift", elementwise::bitwise),
    ("Elu Celu Selu", activation::elu),
    ("LeakyRelu ThresholdedRelu", activation::leaky_relu),
    ("PRelu", activation::prelu),
    ("HardSigmoid HardSwish", activation::hard_sigmoid_or_swish),
    ("Mish Swish SwiGLU", activation::swish),
    ("Gelu", activation::gelu),
    ("Shrink", activation::shrink),
    ("Softmax LogSoftmax Hardmax", activation::softmax),
    ("Asin Acos Atan Sinh Cosh Asinh Acosh Atanh", activation::inverse_function),
    (
        "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceSumSquare ReduceLogSum \
         ReduceLogSumExp",
        reduce::reduce,
    ),
    ("ArgMax ArgMin", reduce::arg_extremum),
    ("CumSum", reduce::cumulative_sum),
    ("CumProd", reduce::cumulative_product),
    ("TopK", reduce::top_k),
    ("NonZero", reduce::non_zero),
    ("Compress", reduce::compress),
    ("Reshape", movement::reshape),
    ("Flatten", movement::flatten),
    ("Squeeze", movement::squeeze),
    ("Unsqueeze", movement::unsqueeze),
    ("Transpose", movement::transpose),
    ("Expand", movement::expand),
    ("Tile", movement::tile),
    ("Concat", movement::concat),
    ("Split", movement::split),
    ("Slice", movement::slice),
    ("Pad", movement::pad),
    ("Identity Dropout", movement::identity),
    ("DepthToSpace SpaceToDepth", movement::depth_to_space),
    ("Trilu", movement::trilu),
    ("CenterCropPad", movement::center_crop_pad),
    ("ReverseSequence", movement::reverse_sequence),
    ("ConstantOfShape", source::constant_of_shape),
    ("Shape", source::shape),
    ("Size", source::size_operator),
    ("Range", source::range),
    ("EyeLike", source::eye_like),
    ("OneHot", source::one_hot),
    ("BlackmanWindow HannWindow HammingWindow", source::window),
    ("MatMul", contract::mat_mul),
    ("Gemm", contract::gemm),
    ("Einsum", contract::einsum),
    ("MatMulInteger", contract::mat_mul_integer),
    ("QLinearMatMul", contract::q_linear_mat_mul),
    ("Conv", convolution::conv),
    ("ConvTranspose", convolution::conv_transpose),
    ("ConvInteger", convolution::conv_integer),
    ("QLinearConv", convolution::q_linear_conv),
    ("MaxPool", pool::max_pool),
    ("AveragePool", pool::average_pool),
    ("LpPool", pool::lp_pool),
    ("GlobalMaxPool GlobalAveragePool GlobalLpPool", pool::global_pool),
    ("LpNormalization", pool::lp_normalization),
    ("MaxUnpool", pool::max_unpool),
    ("BatchNormalization", normalization::batch_normalization),
    ("InstanceNormalization", normalization::instance_normalization),
    ("GroupNormalization", normalization::group_normalization),
    ("LayerNormalization", normalization::layer_normalization),
    ("RMSNormalization", normalization::rms_normalization),
    ("MeanVarianceNormalization", normalization::mean_variance_normalization),
    ("LRN", normalization::local_response_normalization),
    ("Gather", index::gather),
    ("GatherElements", index::gather_elements),
    ("GatherND", index::gather_nd),
    ("ScatterElements Scatter", index::scatter_elements),
    ("ScatterND", index::scatter_nd),
    ("TensorScatter", index::tensor_scatter),
    ("QuantizeLinear", quantize::quantize),
    ("DequantizeLinear", quantize::dequantize),
    ("DynamicQuantizeLinear", quantize::dynamic_quantize),
    ("Resize", resize::resize),
    ("Upsample", resize::upsample),
    ("GridSample", sample::grid_sample),
    ("AffineGrid", sample::affine_grid),
    ("RoiAlign", sample::roi_align),
    ("Col2Im", signal::col2im),
    ("RNN", recurrent::rnn),
    ("GRU", recurrent::gru),
    ("LSTM", recurrent::lstm),
    ("Attention", attention::attention),
    ("RotaryEmbedding", attention::rotary_embedding),
    ("NegativeLogLikelihoodLoss", loss::negative_log_likelihood),
    ("SoftmaxCrossEntropyLoss", loss::softmax_cross_entropy),
];
