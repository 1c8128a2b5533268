//! A guard of a graph's assignments: an update that would put numbers that are none into variables is left out.

use super::GraphBuilder;
use crate::DType;
use crate::error::GraphError;
use crate::graph::NodeId;
use crate::op::Scalar;

/// The largest number of `float16`.
const F16_MAX: f64 = 65504.0;

impl GraphBuilder {
    /// Guards the assignments that there are so far. In a dispatch in which a new value of a floating-point variable has an
    /// element that is infinite or not a number, all these variables keep what they hold; those for which `alone` is true,
    /// by their number, are looked at one by one. Integers are assigned all the same: they count steps and draws.
    ///
    /// # Errors
    /// `TooManyNodes`.
    pub fn guard_assignments(&mut self, alone: &dyn Fn(u32) -> bool) -> Result<(), GraphError> {
        let is_float =
            |(at, (_, value)): (usize, &(u32, NodeId))| self.graph.descriptor(*value).dtype.is_float().then_some(at);
        let guarded: Vec<usize> = self.graph.assignments.iter().enumerate().filter_map(is_float).collect();
        let mut flags = Vec::with_capacity(guarded.len());
        let mut together: Option<NodeId> = None;
        for &at in &guarded {
            let (variable, value) = self.graph.assignments[at];
            let finite = self.all_finite(value)?;
            if !alone(variable) {
                together = Some(match together {
                    Some(all) => self.logical_and(all, finite)?,
                    None => finite,
                });
            }
            flags.push(finite);
        }
        for (at, own) in guarded.into_iter().zip(flags) {
            let (variable, value) = self.graph.assignments[at];
            let flag = together.filter(|_| !alone(variable)).unwrap_or(own);
            let held = self.variables[&self.graph.variables[variable as usize].name];
            self.graph.assignments[at].1 = self.select(flag, value, held)?;
        }
        Ok(())
    }

    /// Has the floating-point variables that are assigned so far keep what they hold in a dispatch in which `sound` is 0.
    /// Integers are assigned all the same: they count steps and draws.
    ///
    /// Dtype and shape of `sound`: `uint8`, without dimensions.
    ///
    /// # Errors
    /// `DType` of `sound`; `Broadcast` where it has dimensions; `UnknownNode`; `TooManyNodes`.
    pub fn assign_only_where(&mut self, sound: NodeId) -> Result<(), GraphError> {
        for at in 0..self.graph.assignments.len() {
            let (variable, value) = self.graph.assignments[at];
            if self.graph.descriptor(value).dtype.is_float() {
                let held = self.variables[&self.graph.variables[variable as usize].name];
                self.graph.assignments[at].1 = self.select(sound, value, held)?;
            }
        }
        Ok(())
    }

    /// 1 where every element is finite; a `uint8` scalar.
    pub(crate) fn all_finite(&mut self, x: NodeId) -> Result<NodeId, GraphError> {
        let descriptor = self.descriptor_of(x)?.clone();
        let largest = if descriptor.dtype == DType::F16 { F16_MAX } else { f64::from(f32::MAX) };
        let largest = self.scalar(descriptor.dtype, Scalar::Float(largest))?;
        let magnitude = self.abs(x)?;
        // Neither infinity nor NaN is at most the largest number.
        let finite = self.less_or_equal(magnitude, largest)?;
        let other = self.logical_not(finite)?;
        let axes: Vec<usize> = (0..descriptor.shape.rank()).collect();
        let any = self.reduce_max(other, &axes, false)?;
        self.logical_not(any)
    }
}
