//! Attention and rotary embeddings. Source: ONNX 23 and 24.

use super::{Outcome, one};
use crate::call::Call;
use crate::elem::Elem;
use crate::error::{Error, Result};
use crate::graph::{Built, Graph};
use crate::value::{Value, size};

/// `[batch, steps, heads * d]` as `[batch, heads, steps, d]`; four dimensions stay.
fn with_heads(g: &mut Graph, x: &Value, heads: Option<i64>) -> Built {
    match *x.shape() {
        [_, _, _, _] => Ok(x.clone()),
        [batch, steps, width] => {
            let heads = size(heads.unwrap_or(0), "the number of heads")?;
            if heads == 0 || width % heads != 0 {
                return Err(Error::invalid(format!("{width} features in {heads} heads")));
            }
            let apart = g.reshape(x, &[batch, steps, heads, width / heads])?;
            g.transpose(&apart, &[0, 2, 1, 3])
        }
        _ => Err(Error::invalid(format!("attention over {:?}", x.shape()))),
    }
}

/// Attention: its result, keys and values with the past's, and the scores at the stage that is asked for.
pub(super) fn attention(g: &mut Graph, call: &Call) -> Outcome {
    let flat = call.input(0)?.rank() == 3;
    let q = with_heads(g, call.input(0)?, call.maybe_int("q_num_heads"))?;
    let k = with_heads(g, call.input(1)?, call.maybe_int("kv_num_heads"))?;
    let v = with_heads(g, call.input(2)?, call.maybe_int("kv_num_heads"))?;
    let past = call.optional(4).map_or(Ok(0), |past| past.dim(2))?;
    let k = match call.optional(4) {
        Some(past) => g.concat(&[past.clone(), k], 2)?,
        None => k,
    };
    let v = match call.optional(5) {
        Some(past) => g.concat(&[past.clone(), v], 2)?,
        None => v,
    };
    let (keys, values) = (repeated(g, &k, q.dim(1)?)?, repeated(g, &v, q.dim(1)?)?);
    let scale = call.attribute("scale").map_or(1.0 / (q.dim(3)? as f64).sqrt(), |scale| f64::from(scale.f));
    // Half of the factor on each side, so that neither product overflows.
    let (left, right) = (g.times(&q, scale.sqrt())?, g.times(&keys, scale.sqrt())?);
    let right = g.swap(&right, 2, 3)?;
    let raw = g.matmul(&left, &right)?;
    let softcap = call.float("softcap", 0.0);
    let capped = if softcap > 0.0 {
        let scaled = g.times(&raw, 1.0 / softcap)?;
        let curve = g.tanh(&scaled)?;
        g.times(&curve, softcap)?
    } else {
        raw.clone()
    };
    let masked = masked(g, call, &capped, past)?;
    let weights = if call.elem("softmax_precision")? == Some(Elem::Float32) && masked.elem() == Elem::Float16 {
        let wide = g.cast(&masked, Elem::Float32)?;
        let weights = g.softmax(&wide, 3)?;
        g.cast(&weights, q.elem())?
    } else {
        g.softmax(&masked, 3)?
    };
    let mut y = g.matmul(&weights, &values)?;
    if flat {
        y = g.transpose(&y, &[0, 2, 1, 3])?;
        y = g.reshape(&y, &[y.dim(0)?, y.dim(1)?, y.dim(2)? * y.dim(3)?])?;
    }
    let shown = match call.int("qk_matmul_output_mode", 0) {
        0 => raw,
        1 => capped,
        2 => masked,
        _ => weights,
    };
    Ok(vec![y, k, v, shown])
}

/// Each head as often as several query heads share it.
fn repeated(g: &mut Graph, x: &Value, heads: usize) -> Built {
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

/// The scores with minus infinity where nothing may be seen, or with the mask's numbers added.
fn masked(g: &mut Graph, call: &Call, scores: &Value, past: usize) -> Built {
    let (steps, all) = (scores.dim(2)?, scores.dim(3)?);
    let mut result = scores.clone();
    let hidden = g.like(scores, f64::NEG_INFINITY);
    if let Some(mask) = call.optional(3) {
        let last = mask.rank() - 1;
        let missing = all.saturating_sub(mask.dim(last)?);
        let mut high = vec![0; mask.rank()];
        high[last] = missing;
        let low = vec![0; mask.rank()];
        if mask.elem() == Elem::Bool {
            let mask = g.pad(mask, &low, &high, 0.0)?;
            result = g.select(&mask, &result, &hidden)?;
        } else {
            let mask = g.pad(mask, &low, &high, f64::NEG_INFINITY)?;
            let mask = g.cast(&mask, scores.elem())?;
            result = g.add(&result, &mask)?;
        }
    }
    if call.flag("is_causal", false) {
        let (row, column) = (g.iota(Elem::Int32, &[steps, 1], 0)?, g.iota(Elem::Int32, &[1, all], 1)?);
        let last_seen = g.plus(&row, past as f64)?;
        let seen = g.lesser_or_equal(&column, &last_seen)?;
        result = g.select(&seen, &result, &hidden)?;
    }
    if let Some(lengths) = call.optional(6) {
        let lengths = g.cast(lengths, Elem::Int64)?;
        let lengths = g.reshape(&lengths, &[lengths.len(), 1, 1, 1])?;
        let column = g.iota(Elem::Int64, &[1, 1, 1, all], 3)?;
        let seen = g.lesser(&column, &lengths)?;
        result = g.select(&seen, &result, &hidden)?;
    }
    Ok(result)
}

/// RotaryEmbedding: pairs of features turned by angles whose cosines and sines are given.
pub(super) fn rotary(g: &mut Graph, call: &Call) -> Outcome {
    let x = call.input(0)?;
    // As [batch, steps, heads, d].
    let apart = match *x.shape() {
        [_, _, _, _] => g.transpose(x, &[0, 2, 1, 3])?,
        [batch, steps, width] => {
            let heads = size(call.int("num_heads", 0), "num_heads")?.max(1);
            g.reshape(x, &[batch, steps, heads, width / heads])?
        }
        _ => return Err(Error::invalid(format!("a rotary embedding of {:?}", x.shape()))),
    };
    let &[batch, steps, heads, width] = apart.shape() else { return Err(Error::invalid("not of four dimensions")) };
    let turned = match size(call.int("rotary_embedding_dim", 0), "rotary_embedding_dim")? {
        0 => width,
        turned => turned.min(width),
    };
    let half = turned / 2;
    let mut angle = |position: usize| -> Result<Value> {
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
        (g.at(&pairs, 4, 0)?, g.at(&pairs, 4, 1)?)
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
    one(if x.rank() == 4 { g.transpose(&y, &[0, 2, 1, 3]) } else { g.reshape(&y, x.shape()) })
}
