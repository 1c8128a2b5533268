//! Cumulative sums.

use super::f32_compute::in_f32;
use crate::builder::GraphBuilder;
use crate::error::GraphError;
use crate::error::NodeResult;
use crate::graph::NodeId;
use crate::op::Scalar;

/// Returns the cumulative sum along `axis`: each element plus all elements before it. `exclusive`: without the element
/// itself; `reversed`: all elements after it instead.
///
/// Shape and data type: unchanged; integers wrap. Computed in as many rounds as the dimension has binary digits; each
/// adds elements at twice the distance of the previous round. So the order of the additions depends only on the
/// dimension. Source: WebNN `cumulativeSum`; Hillis and Steele, "Data parallel algorithms", CACM 1986.
///
/// # Errors
/// Returns `AxisOutOfRange`, `UnknownNode` or `TooManyNodes`.
pub fn cumulative_sum(g: &mut GraphBuilder, x: NodeId, axis: usize, exclusive: bool, reversed: bool) -> NodeResult {
    let got = g.descriptor_of(x)?;
    let Some(&size) = got.shape.get(axis) else {
        return Err(GraphError::AxisOutOfRange { op: "cumulative-sum", axis, got: got.clone() });
    };
    in_f32(g, x, |g, x| {
        let mut sum = if exclusive { shift_along_axis(g, x, axis, 1, reversed)? } else { x };
        let mut distance = 1;
        while distance < size {
            let other = shift_along_axis(g, sum, axis, distance, reversed)?;
            sum = g.add(sum, other)?;
            distance *= 2;
        }
        Ok(sum)
    })
}

/// Returns `x` shifted by `distance` toward higher indices along `axis` (`back`: lower ones), filled with zeros.
fn shift_along_axis(g: &mut GraphBuilder, x: NodeId, axis: usize, distance: usize, back: bool) -> NodeResult {
    let shape = g.descriptor_of(x)?.shape.clone();
    let size = shape[axis];
    let distance = distance.min(size);
    let slice = g.narrow(x, axis, if back { distance } else { 0 }, size - distance)?;
    let (mut low, mut high) = (vec![0; shape.rank()], vec![0; shape.rank()]);
    let side = if back { &mut high } else { &mut low };
    side[axis] = distance;
    g.pad(slice, &low, &high, Scalar::Int(0))
}
