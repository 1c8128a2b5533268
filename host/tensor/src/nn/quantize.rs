//! Linear quantization and dequantization. Scales and zero points are repeated in blocks: each of their dimensions
//! divides the input's, and the quotient is the block size; missing leading dimensions are 1.

use super::f32_compute::to_f32;
use super::{check_float, clamp};
use crate::builder::GraphBuilder;
use crate::error::GraphError;
use crate::error::NodeResult;
use crate::graph::NodeId;
use crate::{DType, Shape};

/// Returns `(x - zero_point) * scale`, in the scale's data type.
///
/// Shape: unchanged; scale and zero point in blocks. `x` and the zero point of one integer type, the scale float.
/// Source: WebNN `dequantizeLinear`.
///
/// # Errors
/// Returns `DTypesDiffer`, `Blocks`, `UnknownNode` or `TooManyNodes`; `DType` of the scale.
pub fn dequantize_linear(g: &mut GraphBuilder, x: NodeId, scale: NodeId, zero_point: NodeId) -> NodeResult {
    let op = "dequantize-linear";
    check_float(g, op, "scale", scale)?;
    let dtype = g.descriptor(scale).dtype;
    let (lhs, rhs) = (g.descriptor_of(x)?.clone(), g.descriptor_of(zero_point)?.clone());
    if lhs.dtype != rhs.dtype {
        return Err(GraphError::DTypesDiffer { op, lhs, rhs });
    }
    let (scale, zero_point) =
        (broadcast_blocks(g, op, "scale", scale, x)?, broadcast_blocks(g, op, "zero-point", zero_point, x)?);
    // The difference of 8-bit integers needs 9 bits; wider types wrap in their own type.
    let wide = if lhs.dtype.bytes() == 1 { DType::I32 } else { lhs.dtype };
    let (x, zero_point) = (g.cast(x, wide)?, g.cast(zero_point, wide)?);
    let difference = g.sub(x, zero_point)?;
    let difference = g.cast(difference, DType::F32)?;
    let scale = to_f32(g, scale)?;
    let y = g.mul(difference, scale)?;
    g.cast(y, dtype)
}

/// Returns `x / scale`, rounded to the nearest integer, ties to even, plus `zero_point`, saturated to the zero point's
/// data type.
///
/// Shape: unchanged; scale and zero point in blocks. `x` and the scale of one float type, the zero point an integer.
/// Source: WebNN `quantizeLinear`.
///
/// # Errors
/// Returns `DType`, `DTypesDiffer`, `Blocks`, `UnknownNode` or `TooManyNodes`.
pub fn quantize_linear(g: &mut GraphBuilder, x: NodeId, scale: NodeId, zero_point: NodeId) -> NodeResult {
    let op = "quantize-linear";
    check_float(g, op, "input", x)?;
    let (lhs, rhs) = (g.descriptor(x).clone(), g.descriptor_of(scale)?.clone());
    if lhs.dtype != rhs.dtype {
        return Err(GraphError::DTypesDiffer { op, lhs, rhs });
    }
    let got = g.descriptor_of(zero_point)?.dtype;
    let (least, most) = match got {
        DType::I8 => (-128.0, 127.0),
        DType::U8 => (0.0, 255.0),
        // The conversion itself saturates for these types.
        DType::I32 | DType::U32 => (f64::NEG_INFINITY, f64::INFINITY),
        DType::F32 | DType::F16 | DType::I64 | DType::U64 => {
            let expected = "int8, uint8, int32 or uint32";
            return Err(GraphError::DType { op, operand: "zero-point", expected, got });
        }
    };
    let (scale, zero_point) =
        (broadcast_blocks(g, op, "scale", scale, x)?, broadcast_blocks(g, op, "zero-point", zero_point, x)?);
    let (x, scale) = (to_f32(g, x)?, to_f32(g, scale)?);
    let scaled = g.div(x, scale)?;
    let rounded = g.round_even(scaled)?;
    let zero_point = g.cast(zero_point, DType::F32)?;
    let shifted = g.add(rounded, zero_point)?;
    let limited = clamp(g, shifted, Some(least), Some(most))?;
    g.cast(limited, got)
}

/// Returns `part` repeated in blocks to the shape of `x`, or to a shape that broadcasts to it.
fn broadcast_blocks(
    g: &mut GraphBuilder,
    op: &'static str,
    operand: &'static str,
    part: NodeId,
    x: NodeId,
) -> NodeResult {
    let (of, got) = (g.descriptor_of(x)?.clone(), g.descriptor_of(part)?.clone());
    let fits = |got: &Shape| {
        let missing = of.shape.rank().checked_sub(got.rank())?;
        let divides = got.iter().zip(&of.shape[missing..]).all(|(&part, &whole)| part != 0 && whole % part == 0);
        divides.then_some(missing)
    };
    let Some(missing) = fits(&got.shape) else {
        return Err(GraphError::Blocks { op, operand, whole: of, got });
    };
    let mut dims = [vec![1; missing], got.shape.to_vec()].concat();
    let mut repeated = g.reshape(part, &dims)?;
    for axis in missing..of.shape.rank() {
        let times = of.shape[axis] / dims[axis];
        if times == 1 || dims[axis] == 1 {
            continue;
        }
        let before: usize = dims[..=axis].iter().product();
        let after: usize = dims[axis + 1..].iter().product();
        let once = g.reshape(repeated, &[before, 1, after])?;
        let block = g.broadcast_to(once, Shape::new([before, times, after])?)?;
        dims[axis] = of.shape[axis];
        repeated = g.reshape(block, &dims)?;
    }
    Ok(repeated)
}
