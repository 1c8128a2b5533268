//! NaN guard: skips updates that would assign non-finite numbers to variables.

use super::GraphBuilder;
use crate::DType;
use crate::error::GraphError;
use crate::graph::NodeId;
use crate::op::Scalar;

/// The largest finite `float16`.
const F16_MAX: f64 = 65504.0;

impl GraphBuilder {
    /// Guards all assignments made so far. If, in a dispatch, the new value of a floating-point variable has an
    /// infinite or NaN element, all floating-point variables keep their old values. Variables for which `alone` is
    /// true, by their number, are instead checked and kept individually. Integer variables are always assigned, because
    /// they count steps and draws.
    ///
    /// # Errors
    /// Returns `TooManyNodes`.
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

    /// Makes all floating-point variables assigned so far keep their old values in a dispatch in which `sound` is 0.
    /// Integer variables are always assigned, because they count steps and draws.
    ///
    /// Dtype and shape of `sound`: `uint8`, without dimensions.
    ///
    /// # Errors
    /// Returns `UnknownNode` or `TooManyNodes`; `DType` if `sound` is not `uint8`; `Broadcast` if it has dimensions.
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

    /// Returns 1 if every element is finite, else 0; a `uint8` scalar.
    pub(crate) fn all_finite(&mut self, x: NodeId) -> Result<NodeId, GraphError> {
        let descriptor = self.descriptor_of(x)?.clone();
        let largest = if descriptor.dtype == DType::F16 { F16_MAX } else { f64::from(f32::MAX) };
        let largest = self.scalar(descriptor.dtype, Scalar::Float(largest))?;
        let magnitude = self.abs(x)?;
        // Infinity and NaN both fail the comparison with the largest finite number.
        let finite = self.less_or_equal(magnitude, largest)?;
        let other = self.logical_not(finite)?;
        let axes: Vec<usize> = (0..descriptor.shape.rank()).collect();
        let any = self.reduce_max(other, &axes, false)?;
        self.logical_not(any)
    }
}
