//! Rules of attention and rotary embeddings. Source: ONNX 23 to 25.

use super::{RuleResult, single_result};
use crate::backend::ReductionOperator;
use crate::call::OperatorCall;
use crate::elem::ElementType;
use crate::error::{Error, Result};
use crate::graph::{FoldingGraph, ValueResult};
use crate::value::{ConstantTensor, GraphValue, checked_size};

/// The maximum window size to one side, in positions. No tensor has more, and positions fit in 32-bit integers.
const WINDOW_MAX: i64 = 1 << 30;

/// Reshapes `[batch, steps, heads * d]` to `[batch, heads, steps, d]`. A 4-D operand is unchanged.
fn split_heads(g: &mut FoldingGraph, x: &GraphValue, heads: Option<i64>) -> ValueResult {
    match *x.shape() {
        [_, _, _, _] => Ok(x.clone()),
        [batch, steps, width] => {
            let heads = checked_size(heads.unwrap_or(0), "the number of heads")?;
            if heads == 0 || width % heads != 0 {
                return Err(Error::invalid(format!("{width} features in {heads} heads")));
            }
            let apart = g.reshape(x, &[batch, steps, heads, width / heads])?;
            g.transpose(&apart, &[0, 2, 1, 3])
        }
        _ => Err(Error::invalid(format!("attention over {:?}", x.shape()))),
    }
}

/// Builds Attention. Results: the output, the keys and values including the past ones, and the scores of the requested
/// stage.
///
/// A query that is allowed no key gives zeros. Source: ONNX Attention-25, whose text also holds for versions 23 and 24.
pub(super) fn attention(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let flat = call.input(0)?.rank() == 3;
    let q = split_heads(g, call.input(0)?, call.optional_int("q_num_heads"))?;
    let k = split_heads(g, call.input(1)?, call.optional_int("kv_num_heads"))?;
    let v = split_heads(g, call.input(2)?, call.optional_int("kv_num_heads"))?;
    let past = past_length(call)?;
    let k = match call.optional(4) {
        Some(past) => g.concat(&[past.clone(), k], 2)?,
        None => k,
    };
    let v = match call.optional(5) {
        Some(past) => g.concat(&[past.clone(), v], 2)?,
        None => v,
    };
    let (keys, values) = (repeat_heads(g, &k, q.dim(1)?)?, repeat_heads(g, &v, q.dim(1)?)?);
    let scale = call.attribute("scale").map_or(1.0 / (q.dim(3)? as f64).sqrt(), |scale| f64::from(scale.f));
    // Each side is multiplied by the root of the scale, so that neither product overflows.
    let (left, right) = (g.mul_scalar(&q, scale.sqrt())?, g.mul_scalar(&keys, scale.sqrt())?);
    let right = g.swap_axes(&right, 2, 3)?;
    let raw = g.matmul(&left, &right)?;
    let softcap = call.float("softcap", 0.0);
    let capped = if softcap > 0.0 {
        let scaled = g.mul_scalar(&raw, 1.0 / softcap)?;
        let curve = g.tanh(&scaled)?;
        g.mul_scalar(&curve, softcap)?
    } else {
        raw.clone()
    };
    let mask = AttentionMask::new(g, call, q.elem(), [q.dim(2)?, k.dim(2)?], past)?;
    let masked = mask.apply(g, &capped)?;
    let weights = match call.element_type("softmax_precision")? {
        None | Some(ElementType::Float16) => g.softmax(&masked, 3)?,
        // The host has no wider float than single precision.
        Some(ElementType::Float32 | ElementType::Float64) => {
            let wide = g.cast(&masked, ElementType::Float32)?;
            let weights = g.softmax(&wide, 3)?;
            g.cast(&weights, q.elem())?
        }
        Some(other) => return Err(Error::unsupported(format!("softmax_precision {other:?}"))),
    };
    // Queries without a key give NaN here. The product does not mix rows, so zeros replace them after it.
    let y = g.matmul(&weights, &values)?;
    let mut y = mask.zero_empty_rows(g, &y)?;
    if flat {
        y = g.transpose(&y, &[0, 2, 1, 3])?;
        y = g.reshape(&y, &[y.dim(0)?, y.dim(1)?, y.dim(2)? * y.dim(3)?])?;
    }
    let qk_output = match call.int("qk_matmul_output_mode", 0) {
        0 => raw,
        1 => capped,
        2 => masked,
        3 => mask.zero_empty_rows(g, &weights)?,
        other => return Err(Error::invalid(format!("qk_matmul_output_mode must be 0 to 3, not {other}"))),
    };
    Ok(vec![y, k, v, qk_output])
}

/// Returns the number of keys in the cache that is given as operands.
///
/// # Errors
/// Returns `Invalid` if only one half of the cache is given, or `nonpad_kv_seqlen` is given too.
fn past_length(call: &OperatorCall) -> Result<usize> {
    match (call.optional(4), call.optional(5), call.optional(6)) {
        (Some(_), None, _) | (None, Some(_), _) => Err(Error::invalid("past_key and past_value go together")),
        (Some(_), Some(_), Some(_)) => Err(Error::invalid("nonpad_kv_seqlen excludes past_key and past_value")),
        (Some(past), Some(_), None) => past.dim(2),
        (None, None, _) => Ok(0),
    }
}

/// Repeats each key or value head for the query heads that share it.
fn repeat_heads(g: &mut FoldingGraph, x: &GraphValue, heads: usize) -> ValueResult {
    let &[batch, own, steps, width] = x.shape() else { return Err(Error::invalid("not of four dimensions")) };
    if own == heads {
        return Ok(x.clone());
    }
    if own == 0 || !heads.is_multiple_of(own) {
        return Err(Error::invalid(format!("{heads} heads share {own}")));
    }
    let apart = g.unsqueeze(x, 2)?;
    let spread = g.expand(&apart, &[batch, own, heads / own, steps, width])?;
    g.reshape(&spread, &[batch, heads, steps, width])
}

/// The attention mask: numbers added to the scores, and the keys that each query is allowed.
struct AttentionMask {
    /// The numbers added to the scores.
    added: Option<GraphValue>,
    /// The score becomes minus infinity where this is 0.
    allowed: Option<GraphValue>,
    /// 1 for queries that are allowed no key; the last dimension is 1. `None` if no such query is possible.
    empty: Option<GraphValue>,
}

impl AttentionMask {
    /// Combines the mask operand, the causal bound, the window bounds and the key lengths, for scores of type `elem`
    /// between `[steps, all]` queries and keys.
    fn new(
        g: &mut FoldingGraph,
        call: &OperatorCall,
        elem: ElementType,
        sizes: [usize; 2],
        past: usize,
    ) -> Result<Self> {
        let mut mask = Self { added: None, allowed: None, empty: None };
        if let Some(given) = call.optional(3) {
            let given = pad_mask(g, given, sizes[1])?;
            if given.elem() == ElementType::Bool {
                mask.allowed = Some(given);
            } else {
                mask.added = Some(g.cast(&given, elem)?);
            }
        }
        for bound in allowed_key_masks(g, call, sizes, past)? {
            mask.allowed = Some(match mask.allowed {
                Some(allowed) => g.and(&allowed, &bound)?,
                None => bound,
            });
        }
        mask.empty = mask.empty_rows(g, elem)?;
        Ok(mask)
    }

    /// Adds the mask's numbers to the scores and sets the scores of keys that are not allowed to minus infinity.
    fn apply(&self, g: &mut FoldingGraph, scores: &GraphValue) -> ValueResult {
        let mut result = scores.clone();
        if let Some(added) = &self.added {
            result = g.add(&result, added)?;
        }
        if let Some(allowed) = &self.allowed {
            let hidden = g.scalar_like(scores, f64::NEG_INFINITY);
            result = g.select(allowed, &result, &hidden)?;
        }
        Ok(result)
    }

    /// Sets the rows of queries that are allowed no key to zero.
    fn zero_empty_rows(&self, g: &mut FoldingGraph, x: &GraphValue) -> ValueResult {
        match &self.empty {
            Some(empty) => g.select(empty, &g.scalar_like(x, 0.0), x),
            None => Ok(x.clone()),
        }
    }

    /// Returns the rows of the mask that are minus infinity throughout.
    fn empty_rows(&self, g: &mut FoldingGraph, elem: ElementType) -> Result<Option<GraphValue>> {
        let mut bias = match (&self.added, &self.allowed) {
            (None, None) => return Ok(None),
            (Some(added), _) => added.clone(),
            (None, Some(_)) => ConstantTensor::scalar(elem, 0.0).into(),
        };
        let hidden: GraphValue = ConstantTensor::scalar(elem, f64::NEG_INFINITY).into();
        if let Some(allowed) = &self.allowed {
            bias = g.select(allowed, &bias, &hidden)?;
        }
        let largest = g.reduce(ReductionOperator::Max, &bias, &[bias.rank() - 1])?;
        let mut shape = bias.shape().to_vec();
        shape[bias.rank() - 1] = 1;
        let largest = g.reshape(&largest, &shape)?;
        let empty = g.equal(&largest, &hidden)?;
        let never = empty.constant().is_some_and(|constant| constant.floats().iter().all(|&empty| empty == 0.0));
        Ok(if never { None } else { Some(empty) })
    }
}

/// Pads the mask operand to all keys. It can end before the last key; the missing keys are not allowed.
fn pad_mask(g: &mut FoldingGraph, mask: &GraphValue, all: usize) -> ValueResult {
    let Some(last) = mask.rank().checked_sub(1) else {
        return Err(Error::invalid("attn_mask has no dimensions"));
    };
    let missing = all.saturating_sub(mask.dim(last)?);
    let mut high = vec![0; mask.rank()];
    high[last] = missing;
    let hidden = if mask.elem() == ElementType::Bool { 0.0 } else { f64::NEG_INFINITY };
    g.pad(mask, &vec![0; mask.rank()], &high, hidden)
}

/// Returns the masks of allowed keys from `is_causal`, from each side of the window, and from the key lengths.
///
/// Query `i` has position `i + offset`. The offset is the number of keys before this block of queries: the cached keys,
/// or `nonpad_kv_seqlen` minus the block, which can be negative.
fn allowed_key_masks(
    g: &mut FoldingGraph,
    call: &OperatorCall,
    [steps, all]: [usize; 2],
    past: usize,
) -> Result<Vec<GraphValue>> {
    let lengths = match call.optional(6) {
        Some(lengths) => {
            let lengths = g.cast(lengths, ElementType::Int32)?;
            Some(g.reshape(&lengths, &[lengths.len(), 1, 1, 1])?)
        }
        None => None,
    };
    let (row, column) = (g.iota(ElementType::Int32, &[steps, 1], 0)?, g.iota(ElementType::Int32, &[1, all], 1)?);
    let position = match &lengths {
        Some(lengths) => {
            let before = g.add_scalar(lengths, -(steps as f64))?;
            g.add(&row, &before)?
        }
        None => g.add_scalar(&row, past as f64)?,
    };
    let mut bounds = Vec::new();
    if call.flag("is_causal", false) {
        bounds.push(g.lesser_or_equal(&column, &position)?);
    }
    let window = |name: &str| match call.int(name, -1) {
        -1 => Ok(None),
        // A window larger than the number of positions has no effect.
        size @ 0.. => Ok(Some(size.min(WINDOW_MAX) as f64)),
        other => Err(Error::invalid(format!("{name} must be -1 or a number of positions, not {other}"))),
    };
    if let Some(left) = window("left_window_size")? {
        let first = g.add_scalar(&position, -left)?;
        bounds.push(g.greater_or_equal(&column, &first)?);
    }
    if let Some(right) = window("right_window_size")? {
        let last = g.add_scalar(&position, right)?;
        bounds.push(g.lesser_or_equal(&column, &last)?);
    }
    if let Some(lengths) = lengths {
        bounds.push(g.lesser(&column, &lengths)?);
    }
    Ok(bounds)
}

/// Builds RotaryEmbedding: rotates pairs of features by angles whose cosines and sines are operands.
pub(super) fn rotary_embedding(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let x = call.input(0)?;
    // Shape: [batch, steps, heads, d].
    let apart = match *x.shape() {
        [_, _, _, _] => g.transpose(x, &[0, 2, 1, 3])?,
        [batch, steps, width] => {
            let heads = checked_size(call.int("num_heads", 0), "num_heads")?.max(1);
            g.reshape(x, &[batch, steps, heads, width / heads])?
        }
        _ => return Err(Error::invalid(format!("a rotary embedding of {:?}", x.shape()))),
    };
    let &[batch, steps, heads, width] = apart.shape() else { return Err(Error::invalid("not of four dimensions")) };
    let turned = match checked_size(call.int("rotary_embedding_dim", 0), "rotary_embedding_dim")? {
        0 => width,
        turned => turned.min(width),
    };
    let half = turned / 2;
    let mut angle = |position: usize| -> Result<GraphValue> {
        let cache = match call.optional(3) {
            Some(places) => g.gather(call.input(position)?, places, 0)?,
            None => call.input(position)?.clone(),
        };
        g.reshape(&cache, &[batch, steps, 1, half])
    };
    let (cos, sin) = (angle(1)?, angle(2)?);
    let rotated = g.narrow(&apart, 3, 0, turned)?;
    let rest = g.narrow(&apart, 3, turned, width - turned)?;
    let interleaved = call.flag("interleaved", false);
    let (a, b) = if interleaved {
        let pairs = g.reshape(&rotated, &[batch, steps, heads, half, 2])?;
        (g.index_axis(&pairs, 4, 0)?, g.index_axis(&pairs, 4, 1)?)
    } else {
        (g.narrow(&rotated, 3, 0, half)?, g.narrow(&rotated, 3, half, half)?)
    };
    let (ca, sb) = (g.mul(&cos, &a)?, g.mul(&sin, &b)?);
    let (sa, cb) = (g.mul(&sin, &a)?, g.mul(&cos, &b)?);
    let (real, imaginary) = (g.sub(&ca, &sb)?, g.add(&sa, &cb)?);
    let rotated = if interleaved {
        let (real, imaginary) = (g.unsqueeze(&real, 4)?, g.unsqueeze(&imaginary, 4)?);
        let pairs = g.concat(&[real, imaginary], 4)?;
        g.reshape(&pairs, &[batch, steps, heads, turned])?
    } else {
        g.concat(&[real, imaginary], 3)?
    };
    let y = if width > turned { g.concat(&[rotated, rest], 3)? } else { rotated };
    single_result(if x.rank() == 4 { g.transpose(&y, &[0, 2, 1, 3]) } else { g.reshape(&y, x.shape()) })
}
