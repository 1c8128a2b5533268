//! Inputs, variables, constants and generated values.

use std::sync::Arc;

use super::{GraphBuilder, check_name};
use crate::error::{GraphError, NameKind};
use crate::graph::{GraphPort, NodeId};
use crate::infer::coerce_scalar;
use crate::limits::{GRAPH_CONSTANT_BYTES_MAX, GRAPH_NODES_MAX};
use crate::op::{Op, RandomDistribution, Scalar, SourceOp};
use crate::{DType, Descriptor, Shape};

impl GraphBuilder {
    /// Adds an input: a tensor that the caller of every dispatch provides under `name`.
    ///
    /// # Errors
    /// Returns `NameLength`, `NameTaken` or `TooManyNodes`.
    pub fn input(&mut self, name: &str, descriptor: Descriptor) -> Result<NodeId, GraphError> {
        check_name(NameKind::Input, name)?;
        if self.input_names.contains(name) {
            return Err(GraphError::NameTaken { kind: NameKind::Input, name: name.to_owned() });
        }
        let number = self.graph.inputs.len() as u32;
        let id = self.push(Op::Source(SourceOp::Input(number)), &[], Some(descriptor.clone()))?;
        self.graph.inputs.push(GraphPort { name: name.to_owned(), descriptor });
        self.input_names.insert(name.to_owned());
        Ok(id)
    }

    /// Returns the variable called `name`, with its value at the start of the dispatch; adds it if it is new. The same
    /// name gives the same node.
    ///
    /// # Errors
    /// Returns `NameLength` or `TooManyNodes`; `VariableRedeclared` if it exists with another descriptor.
    ///
    /// # Errors
    /// Returns `NameLength` or `TooManyNodes`; `VariableRedeclared` with another descriptor than before.
    pub fn variable(&mut self, name: &str, descriptor: Descriptor) -> Result<NodeId, GraphError> {
        check_name(NameKind::Variable, name)?;
        if let Some(&id) = self.variables.get(name) {
            let declared = self.descriptor(id);
            if *declared == descriptor {
                return Ok(id);
            }
            let (name, declared) = (name.to_owned(), declared.clone());
            return Err(GraphError::VariableRedeclared { name, declared, got: descriptor });
        }
        let number = self.graph.variables.len() as u32;
        let id = self.push(Op::Source(SourceOp::Variable(number)), &[], Some(descriptor.clone()))?;
        self.graph.variables.push(GraphPort { name: name.to_owned(), descriptor });
        self.variables.insert(name.to_owned(), id);
        Ok(id)
    }

    /// Adds a constant of these dense little-endian bytes.
    ///
    /// # Errors
    /// Returns `TooManyConstantBytes` or `TooManyNodes`; `ConstantBytes` if the descriptor needs a different number of
    /// bytes.
    pub fn constant(&mut self, descriptor: Descriptor, bytes: impl Into<Arc<[u8]>>) -> Result<NodeId, GraphError> {
        let bytes = bytes.into();
        if bytes.len() != descriptor.bytes() {
            return Err(GraphError::ConstantBytes { descriptor, got: bytes.len() });
        }
        let total = self.constant_bytes + bytes.len();
        if total > GRAPH_CONSTANT_BYTES_MAX {
            return Err(GraphError::TooManyConstantBytes { bytes: total });
        }
        let number = self.graph.constants.len() as u32;
        let id = self.push(Op::Source(SourceOp::Constant(number)), &[], Some(descriptor))?;
        self.graph.constants.push(bytes);
        self.constant_bytes = total;
        Ok(id)
    }

    /// Returns a tensor filled with `value`. An integer value is valid for float and integer types.
    ///
    /// # Errors
    /// Returns `TooManyNodes`; `ScalarRange` if an integer type cannot hold it.
    pub fn fill(&mut self, descriptor: Descriptor, value: Scalar) -> Result<NodeId, GraphError> {
        let value = coerce_scalar("fill", value, descriptor.dtype)?;
        self.push(Op::Source(SourceOp::Fill(value)), &[], Some(descriptor))
    }

    /// Returns `value` as a tensor without dimensions; binary operators broadcast it.
    ///
    /// # Errors
    /// As [`GraphBuilder::fill`].
    pub fn scalar(&mut self, dtype: DType, value: Scalar) -> Result<NodeId, GraphError> {
        self.fill(Descriptor::new(dtype, Shape::scalar()), value)
    }

    /// Returns the coordinate along `axis`: `[0, 1, 2 ...]`, repeated along the other axes.
    ///
    /// # Errors
    /// Returns `AxisOutOfRange` or `TooManyNodes`; `ScalarRange` if an integer type cannot hold the last coordinate.
    pub fn iota(&mut self, descriptor: Descriptor, axis: usize) -> Result<NodeId, GraphError> {
        self.push(Op::Source(SourceOp::Iota { axis }), &[], Some(descriptor))
    }

    /// Returns random numbers that depend only on `key` (`uint32[4]`), `stream` and the element's position; see
    /// [`SourceOp::Random`].
    ///
    /// DType: `uint32` for bits, `float32` in `[0, 1)` for uniform numbers.
    ///
    /// # Errors
    /// Returns `TooManyNodes`; `DType`, `Rank`, `Dimension` of the key.
    pub fn random(
        &mut self,
        shape: Shape,
        key: NodeId,
        stream: u32,
        distribution: RandomDistribution,
    ) -> Result<NodeId, GraphError> {
        let op = Op::Source(SourceOp::Random { stream, distribution });
        self.push(op, &[key], Some(Descriptor::new(distribution.dtype(), shape)))
    }
}

const _: () = assert!(GRAPH_NODES_MAX <= u32::MAX as usize, "every port has a node, so port numbers fit 32 bits");
