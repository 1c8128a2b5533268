//! Builds operators by their WebNN names, with the builder and the composites that plugins' graphs also use.

use std::collections::HashMap;

use saggar_tensor::op::{Scalar, ScatterCombine};
use saggar_tensor::{DType, GraphBuilder, GraphError, NodeId, Shape, nn};
use serde_json::Value as Json;

use super::options::StepArguments;

type WebnnNodeResult = Result<NodeId, String>;

/// Adds a step's operator, and its results under their names.
pub(super) fn build_step(g: &mut GraphBuilder, nodes: &mut HashMap<String, NodeId>, step: &Json) -> Result<(), String> {
    let op = step["op"].as_str().unwrap_or("nothing");
    let arguments = StepArguments { step, nodes };
    let results = build_multi_output(g, op, &arguments)?;
    let names = match &step["outputs"] {
        Json::Array(names) => names.iter().filter_map(Json::as_str).map(str::to_owned).collect(),
        name => vec![name.as_str().unwrap_or("?").to_owned()],
    };
    nodes.extend(names.into_iter().zip(results));
    Ok(())
}

fn error_text(error: GraphError) -> String {
    error.to_string()
}

/// Builds operators with several results; all others have one.
fn build_multi_output(g: &mut GraphBuilder, op: &str, a: &StepArguments<'_>) -> Result<Vec<NodeId>, String> {
    let rank = |g: &GraphBuilder, node: NodeId| g.descriptor_of(node).map(|found| found.shape.rank()).unwrap_or(0);
    match op {
        "split" => {
            let (x, axis) = (a.operand(0)?, a.size("axis")?.unwrap_or(0));
            let sizes = match a.sizes("splits")? {
                Some(sizes) => sizes,
                None => {
                    let count = a.size("splits")?.unwrap_or(1).max(1);
                    let whole = if axis < rank(g, x) { g.descriptor(x).shape[axis] } else { 0 };
                    vec![whole / count; count]
                }
            };
            nn::split(g, x, &sizes, axis).map_err(error_text)
        }
        "gru" => {
            let weights = [a.operand(1)?, a.operand(2)?];
            let (initial, sequence) = (a.optional("initialHiddenState")?, a.flag("returnSequence", false));
            let [last, all] =
                nn::gru(g, a.operand(0)?, weights, initial, a.direction()?, &a.gru()?).map_err(error_text)?;
            Ok(if sequence { vec![last, all] } else { vec![last] })
        }
        "lstm" => {
            let weights = [a.operand(1)?, a.operand(2)?];
            let initial = [a.optional("initialHiddenState")?, a.optional("initialCellState")?];
            let results =
                nn::lstm(g, a.operand(0)?, weights, initial, a.direction()?, &a.lstm()?).map_err(error_text)?;
            Ok(results[..if a.flag("returnSequence", false) { 3 } else { 2 }].to_vec())
        }
        "lstmCell" => {
            let (weights, states) = ([a.operand(1)?, a.operand(2)?], [a.operand(3)?, a.operand(4)?]);
            Ok(nn::lstm_cell(g, a.operand(0)?, weights, states, &a.lstm()?).map_err(error_text)?.to_vec())
        }
        _ => build_single_output(g, op, a).map(|node| vec![node]),
    }
}

fn build_single_output(g: &mut GraphBuilder, op: &str, a: &StepArguments<'_>) -> WebnnNodeResult {
    if let Some(built) = build_unary(g, op, a) {
        return built;
    }
    if let Some(built) = build_binary(g, op, a) {
        return built;
    }
    if let Some(built) = build_reduction(g, op, a) {
        return built;
    }
    if let Some(built) = build_movement(g, op, a) {
        return built;
    }
    if let Some(built) = build_indexed(g, op, a) {
        return built;
    }
    build_network_operator(g, op, a).unwrap_or_else(|| Err(format!("there is no operator {op}")))
}

fn build_unary(g: &mut GraphBuilder, op: &str, a: &StepArguments<'_>) -> Option<WebnnNodeResult> {
    type UnaryBuilder = fn(&mut GraphBuilder, NodeId) -> Result<NodeId, GraphError>;
    let build: UnaryBuilder = match op {
        "abs" => GraphBuilder::abs,
        "ceil" => GraphBuilder::ceil,
        "cos" => GraphBuilder::cos,
        "erf" => GraphBuilder::erf,
        "exp" => GraphBuilder::exp,
        "floor" => GraphBuilder::floor,
        "identity" => |_, x| Ok(x),
        "log" => GraphBuilder::log,
        "logicalNot" => GraphBuilder::logical_not,
        "neg" => GraphBuilder::neg,
        "reciprocal" => GraphBuilder::reciprocal,
        "roundEven" => GraphBuilder::round_even,
        "sign" => GraphBuilder::sign,
        "sin" => GraphBuilder::sin,
        "sqrt" => GraphBuilder::sqrt,
        "tan" => nn::tan,
        "tanh" => GraphBuilder::tanh,
        "gelu" => nn::gelu,
        "hardSwish" => nn::hard_swish,
        "relu" => nn::relu,
        "sigmoid" => nn::sigmoid,
        "softplus" => nn::softplus,
        "softsign" => nn::softsign,
        _ => return build_activation(g, op, a),
    };
    Some(a.operand(0).and_then(|x| build(g, x).map_err(error_text)))
}

fn build_activation(g: &mut GraphBuilder, op: &str, a: &StepArguments<'_>) -> Option<WebnnNodeResult> {
    let number = |name: &str, default: f64| a.number(name).map(|number| number.unwrap_or(default));
    let built = || -> Option<WebnnNodeResult> {
        let x = match a.operand(0) {
            Ok(x) => x,
            Err(error) => return Some(Err(error)),
        };
        let attribute = |name: &str, default: f64| number(name, default).unwrap_or(default);
        let built = match op {
            "elu" => nn::elu(g, x, attribute("alpha", 1.0)),
            "leakyRelu" => nn::leaky_relu(g, x, attribute("alpha", 0.01)),
            "hardSigmoid" => nn::hard_sigmoid(g, x, attribute("alpha", 0.2), attribute("beta", 0.5)),
            "linear" => nn::linear_function(g, x, attribute("alpha", 1.0), attribute("beta", 0.0)),
            "clamp" => {
                // A limit of NaN means no limit.
                let limit = |name| a.number(name).ok().flatten().filter(|limit: &f64| !limit.is_nan());
                nn::clamp(g, x, limit("minValue"), limit("maxValue"))
            }
            "softmax" => {
                let last = g.descriptor_of(x).map_or(0, |found| found.shape.rank().saturating_sub(1));
                nn::softmax(g, x, a.size("axis").ok().flatten().unwrap_or(last))
            }
            "cast" => match a.dtype("type") {
                Ok(Some(dtype)) => g.cast(x, dtype),
                Ok(None) => return Some(Err("cast to nothing".to_owned())),
                Err(error) => return Some(Err(error)),
            },
            _ => return None,
        };
        Some(built.map_err(error_text))
    };
    matches!(op, "elu" | "leakyRelu" | "hardSigmoid" | "linear" | "clamp" | "softmax" | "cast").then(built).flatten()
}

fn build_binary(g: &mut GraphBuilder, op: &str, a: &StepArguments<'_>) -> Option<WebnnNodeResult> {
    type BinaryBuilder = fn(&mut GraphBuilder, NodeId, NodeId) -> Result<NodeId, GraphError>;
    let build: BinaryBuilder = match op {
        "add" => GraphBuilder::add,
        "sub" => GraphBuilder::sub,
        "mul" => GraphBuilder::mul,
        "div" => GraphBuilder::div,
        "max" => GraphBuilder::max,
        "min" => GraphBuilder::min,
        "pow" => GraphBuilder::pow,
        "equal" => GraphBuilder::equal,
        "notEqual" => GraphBuilder::not_equal,
        "greater" => GraphBuilder::greater,
        "greaterOrEqual" => GraphBuilder::greater_or_equal,
        "lesser" => GraphBuilder::less,
        "lesserOrEqual" => GraphBuilder::less_or_equal,
        "logicalAnd" => GraphBuilder::logical_and,
        "logicalOr" => GraphBuilder::logical_or,
        "logicalXor" => GraphBuilder::logical_xor,
        "matmul" => GraphBuilder::matmul,
        "prelu" => nn::prelu,
        "gatherND" => nn::gather_nd,
        _ => return None,
    };
    Some(a.operand(0).and_then(|x| build(g, x, a.operand(1)?).map_err(error_text)))
}

fn build_reduction(g: &mut GraphBuilder, op: &str, a: &StepArguments<'_>) -> Option<WebnnNodeResult> {
    type ReductionBuilder = fn(&mut GraphBuilder, NodeId, &[usize], bool) -> Result<NodeId, GraphError>;
    let build: ReductionBuilder = match op {
        "reduceL1" => nn::reduce_l1,
        "reduceL2" => nn::reduce_l2,
        "reduceLogSum" => nn::reduce_log_sum,
        "reduceLogSumExp" => nn::reduce_log_sum_exp,
        "reduceMax" => GraphBuilder::reduce_max,
        "reduceMean" => nn::reduce_mean,
        "reduceMin" => GraphBuilder::reduce_min,
        "reduceProduct" => GraphBuilder::reduce_product,
        "reduceSum" => GraphBuilder::reduce_sum,
        "reduceSumSquare" => nn::reduce_sum_square,
        "argMax" | "argMin" => return Some(build_extreme(g, op, a)),
        "cumulativeSum" => {
            let (exclusive, reversed) = (a.flag("exclusive", false), a.flag("reversed", false));
            return Some(a.operand(0).and_then(|x| {
                nn::cumulative_sum(g, x, a.size("axis")?.unwrap_or(0), exclusive, reversed).map_err(error_text)
            }));
        }
        _ => return None,
    };
    Some(a.operand(0).and_then(|x| {
        let rank = g.descriptor_of(x).map_err(error_text)?.shape.rank();
        let axes = a.sizes("axes")?.unwrap_or_else(|| (0..rank).collect());
        build(g, x, &axes, a.flag("keepDimensions", false)).map_err(error_text)
    }))
}

fn build_extreme(g: &mut GraphBuilder, op: &str, a: &StepArguments<'_>) -> WebnnNodeResult {
    let (x, axis) = (a.operand(0)?, a.size("axis")?.unwrap_or(0));
    let keep = a.flag("keepDimensions", false);
    let place = if op == "argMax" { g.arg_max(x, axis, keep) } else { g.arg_min(x, axis, keep) };
    let dtype = a.dtype("outputDataType")?.unwrap_or(DType::I32);
    g.cast(place.map_err(error_text)?, dtype).map_err(error_text)
}

fn build_movement(g: &mut GraphBuilder, op: &str, a: &StepArguments<'_>) -> Option<WebnnNodeResult> {
    let mut built = || -> Result<Option<Result<NodeId, GraphError>>, String> {
        let sizes = |name: &str| a.sizes(name).map(|sizes| sizes.unwrap_or_default());
        if op == "concat" {
            return Ok(Some(g.concat(&a.operands(0)?, a.size("axis")?.unwrap_or(0))));
        }
        if !matches!(op, "expand" | "pad" | "reshape" | "reverse" | "slice" | "tile" | "transpose" | "triangular") {
            return Ok(None);
        }
        let x = a.operand(0)?;
        let shape = g.descriptor_of(x).map_err(error_text)?.shape.clone();
        Ok(Some(match op {
            "expand" => g.broadcast_to(x, Shape::new(sizes("newShape")?).map_err(|error| error.to_string())?),
            "reshape" => g.reshape(x, &sizes("newShape")?),
            "reverse" => g.reverse(x, &a.sizes("axes")?.unwrap_or_else(|| (0..shape.rank()).collect())),
            "transpose" => {
                g.transpose(x, &a.sizes("permutation")?.unwrap_or_else(|| (0..shape.rank()).rev().collect()))
            }
            "tile" => nn::tile(g, x, &sizes("repetitions")?),
            "triangular" => {
                let diagonal = a.number("diagonal")?.unwrap_or(0.0) as i64;
                nn::triangular(g, x, a.flag("upper", true), diagonal)
            }
            "slice" => {
                let strides = a.sizes("strides")?.unwrap_or_else(|| vec![1; shape.rank()]);
                let counts: Vec<usize> =
                    sizes("sizes")?.iter().zip(&strides).map(|(size, &stride)| size.div_ceil(stride.max(1))).collect();
                g.slice(x, &sizes("starts")?, &counts, &strides)
            }
            _ => {
                let (low, high) = (sizes("beginningPadding")?, sizes("endingPadding")?);
                let value = a.number("value")?.unwrap_or(0.0);
                match a.word("mode") {
                    None | Some("constant") => g.pad(x, &low, &high, Scalar::Float(value)),
                    Some("edge") => nn::pad_edge(g, x, &low, &high),
                    Some("reflection") => nn::pad_reflection(g, x, &low, &high),
                    Some("symmetric") => nn::pad_symmetric(g, x, &low, &high),
                    Some(other) => return Err(format!("{other} is no way to pad")),
                }
            }
        }))
    };
    match built() {
        Ok(None) => None,
        Ok(Some(built)) => Some(built.map_err(error_text)),
        Err(error) => Some(Err(error)),
    }
}

fn build_indexed(g: &mut GraphBuilder, op: &str, a: &StepArguments<'_>) -> Option<WebnnNodeResult> {
    let mut built = || -> WebnnNodeResult {
        let (x, second, axis) = (a.operand(0)?, a.operand(1)?, a.size("axis")?.unwrap_or(0));
        let result = match op {
            "gather" => g.gather(x, second, axis),
            "gatherElements" => nn::gather_elements(g, x, second, axis),
            "scatterElements" => nn::scatter_elements(g, x, second, a.operand(2)?, axis, ScatterCombine::Replace),
            "scatterND" => nn::scatter_nd(g, x, second, a.operand(2)?, ScatterCombine::Replace),
            "where" => g.select(x, second, a.operand(2)?),
            "dequantizeLinear" => nn::dequantize_linear(g, x, second, a.operand(2)?),
            _ => nn::quantize_linear(g, x, second, a.operand(2)?),
        };
        result.map_err(error_text)
    };
    let known =
        ["gather", "gatherElements", "scatterElements", "scatterND", "where", "dequantizeLinear", "quantizeLinear"];
    known.contains(&op).then(&mut built)
}

fn build_network_operator(g: &mut GraphBuilder, op: &str, a: &StepArguments<'_>) -> Option<WebnnNodeResult> {
    let mut built = || -> Result<Option<Result<NodeId, GraphError>>, String> {
        let x = a.operand(0)?;
        let (scale, bias) = (a.optional("scale")?, a.optional("bias")?);
        let epsilon = a.number("epsilon")?.unwrap_or(1e-5);
        let rank = g.descriptor_of(x).map_err(error_text)?.shape.rank();
        Ok(Some(match op {
            "conv2d" => nn::conv2d(g, x, a.operand(1)?, bias, a.conv2d()?),
            "convTranspose2d" => nn::conv_transpose2d(g, x, a.operand(1)?, bias, a.conv_transpose2d()?),
            "averagePool2d" => nn::average_pool2d(g, x, a.pool2d()?),
            "l2Pool2d" => nn::l2_pool2d(g, x, a.pool2d()?),
            "maxPool2d" => nn::max_pool2d(g, x, a.pool2d()?),
            "gemm" => nn::gemm(g, x, a.operand(1)?, a.optional("c")?, a.gemm()?),
            "resample2d" => nn::resample2d(g, x, &a.resample2d()?),
            "batchNormalization" => {
                let (statistics, axis) = ([a.operand(1)?, a.operand(2)?], a.size("axis")?.unwrap_or(1));
                nn::batch_normalization(g, x, statistics, scale, bias, axis, epsilon)
            }
            "instanceNormalization" => nn::instance_normalization(g, x, scale, bias, epsilon, a.layout("layout")?),
            "layerNormalization" => {
                let axes = a.sizes("axes")?.unwrap_or_else(|| (1..rank).collect());
                nn::layer_normalization(g, x, scale, bias, &axes, epsilon)
            }
            "gruCell" => nn::gru_cell(g, x, [a.operand(1)?, a.operand(2)?], a.operand(3)?, &a.gru()?),
            _ => return Ok(None),
        }))
    };
    match built() {
        Ok(None) => None,
        Ok(Some(built)) => Some(built.map_err(error_text)),
        Err(error) => Some(Err(error)),
    }
}
