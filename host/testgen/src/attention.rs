//! Attention: graphs of several primitives that devices can compute in one kernel.

use super::GraphCase;
use super::case_builder::CaseBuilder;
use super::values::{CaseRng, ValueDistribution};
use saggar_tensor::error::GraphError;
use saggar_tensor::grad::gradients;
use saggar_tensor::interp::InterpTensor;
use saggar_tensor::op::{ContractOp, Op, Scalar};
use saggar_tensor::{DType, Descriptor, NodeId, Shape, nn};

/// Attention over `[batch, heads, queries or keys, width]`, `float32`.
#[derive(Clone, Copy, Debug)]
pub struct AttentionConfig {
    /// Number of sequences.
    pub batch: usize,
    /// Heads of each sequence.
    pub heads: usize,
    /// Queries of each sequence.
    pub queries: usize,
    /// Keys of each sequence.
    pub keys: usize,
    /// Elements of a query and of a key.
    pub width: usize,
    /// Elements of a value.
    pub value_width: usize,
    /// The mask.
    pub mask: MaskKind,
    /// Whether the result is transposed: `[batch, heads, width, queries]`.
    pub transposed: bool,
    /// Whether the gradients of queries, keys and values are outputs too.
    pub gradients: bool,
}

/// Sizes that no tile divides, without a mask.
pub const ATTENTION_SIZES: AttentionConfig = AttentionConfig {
    batch: 2,
    heads: 2,
    queries: 18,
    keys: 20,
    width: 4,
    value_width: 5,
    mask: MaskKind::None,
    transposed: false,
    gradients: false,
};

/// The keys that a query does not attend to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaskKind {
    /// No masked keys.
    None,
    /// Keys after the query's position.
    Causal,
    /// Some keys of a sequence, for all of its queries.
    Padding,
    /// Keys to whose scores minus infinity is added; finite numbers are added to the other scores.
    Added,
}

/// Every mask.
pub const MASKS: [MaskKind; 4] = [MaskKind::None, MaskKind::Causal, MaskKind::Padding, MaskKind::Added];

/// Returns scaled dot-product attention, with values that follow from the seed. Source: Vaswani et al.,
/// arXiv:1706.03762.
///
/// # Panics
/// Panics if a size is 0.
pub fn attention_case(sizes: AttentionConfig, seed: u64) -> GraphCase {
    let (mut draft, random) = (CaseBuilder::default(), &mut CaseRng::new(seed));
    let AttentionConfig { batch, heads, queries, keys, width, value_width: wide, .. } = sizes;
    let dims = [[batch, heads, queries, width], [batch, heads, keys, width], [batch, heads, keys, wide]];
    let given = dims.map(|dims| draft.input(random, DType::F32, &dims, ValueDistribution::Any));
    let outputs = outputs(&mut draft, sizes, given).expect("attention of these sizes is a graph");
    draft.finish(format!("{sizes:?}"), &outputs, true)
}

fn outputs(draft: &mut CaseBuilder, sizes: AttentionConfig, [q, k, v]: [NodeId; 3]) -> Result<Vec<NodeId>, GraphError> {
    let g = &mut draft.builder;
    let turned = g.transpose(k, &[0, 1, 3, 2])?;
    let scores = g.matmul(q, turned)?;
    let scale = g.scalar(DType::F32, Scalar::Float(1.0 / (sizes.width as f64).sqrt()))?;
    let scores = g.mul(scores, scale)?;
    let scores = mask_scores(draft, scores, sizes)?;
    let g = &mut draft.builder;
    let weights = nn::softmax(g, scores, 3)?;
    let found = if sizes.transposed {
        g.add_node(Op::Contract(ContractOp::MatMul { transpose_a: true, transpose_b: true }), &[v, weights])?
    } else {
        g.matmul(weights, v)?
    };
    let mut outputs = vec![found];
    if sizes.gradients {
        // A loss whose gradient differs for each element.
        let waves = g.sin(found)?;
        let loss = g.reduce_sum(waves, &[0, 1, 2, 3], false)?;
        outputs.extend(gradients(g, loss, &[q, k, v])?);
    }
    Ok(outputs)
}

fn mask_scores(draft: &mut CaseBuilder, scores: NodeId, sizes: AttentionConfig) -> Result<NodeId, GraphError> {
    let AttentionConfig { batch, queries, keys, .. } = sizes;
    let given = |draft: &mut CaseBuilder, dims: &[usize], number: fn(usize) -> f64| -> Result<NodeId, GraphError> {
        let shape = Shape::new(dims)?;
        let numbers: Vec<f64> = (0..shape.elements()).map(number).collect();
        let value = InterpTensor::from_numbers(DType::F32, shape, &numbers).expect("one number an element");
        Ok(draft.input_with_value(value))
    };
    match sizes.mask {
        MaskKind::None => Ok(scores),
        MaskKind::Causal => {
            let g = &mut draft.builder;
            let hidden = g.scalar(DType::F32, Scalar::Float(-1e9))?;
            let places = Descriptor::new(DType::I32, Shape::new([queries, keys])?);
            let (query, key) = (g.iota(places.clone(), 0)?, g.iota(places, 1)?);
            let later = g.less(query, key)?;
            g.select(later, hidden, scores)
        }
        MaskKind::Padding => {
            let flags = given(draft, &[batch, 1, 1, keys], |at| f64::from(u8::from(at % 5 == 3)))?;
            let g = &mut draft.builder;
            let (hidden, zero) =
                (g.scalar(DType::F32, Scalar::Float(-1e9))?, g.scalar(DType::F32, Scalar::Float(0.0))?);
            let is_padding = g.less(zero, flags)?;
            g.select(is_padding, hidden, scores)
        }
        MaskKind::Added => {
            let number = |at| if at % 7 == 2 { f64::NEG_INFINITY } else { (at % 3) as f64 / 4.0 };
            let mask = given(draft, &[batch, 1, queries, keys], number)?;
            draft.builder.add(scores, mask)
        }
    }
}
