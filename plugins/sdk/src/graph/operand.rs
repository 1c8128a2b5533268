//! Operands: the values of a graph, and the operators on them.

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident;)*) => { $(
        $(#[$doc])*
        ///
        /// # Errors
        /// Returns `Host` if the host refuses an operand, and `Built` after the graph was built.
        #[track_caller]
        pub fn $name(&self) -> crate::error::Result<Self> {
            self.graph.add_operand(|builder| builder.$name(&self.raw))
        }
    )* };
}

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident;)*) => { $(
        $(#[$doc])*
        ///
        /// # Errors
        /// Returns `Host` if the host refuses an operand, and `Built` after the graph was built.
        #[track_caller]
        pub fn $name(&self, other: &Self) -> crate::error::Result<Self> {
            self.graph.add_operand(|builder| builder.$name(&self.raw, &other.raw))
        }
    )* };
}

mod contract;
mod convolution;
mod elementwise;
mod index;
mod movement;
mod normalization;
mod options;
mod pooling;
mod recurrent;
mod reduce;

pub use movement::concat;
pub use recurrent::{GruOptions, GruStates, LstmOptions, LstmStates, gru, gru_cell, lstm, lstm_cell};

use std::panic::Location;
use std::rc::Rc;

use crate::bindings::graphs as raw;
use crate::bindings::tensors::Descriptor;
use crate::graph::Graph;

/// A value in a graph. It holds no data. Clones refer to the same value.
///
/// The names and semantics of operators are those of W3C WebNN's `MLGraphBuilder`. Elementwise operators broadcast:
/// dimensions are aligned at the last one, and those of size 1 are repeated. Unless stated otherwise, the operands of
/// an operator have the same data type, which is that of the result. "Float" means `float32` or `float16`. Every
/// operator returns `Host` if the host refuses the operands' shapes or data types, and `Built` after the graph was
/// built.
///
/// ```no_run
/// # use saggar_plugin::*;
/// # fn f(image: &Operand) -> Result<()> {
/// let x = image.cast(DataType::Float32)?.div_scalar(255.0)?; // uint8[batch, 28, 28]
/// let x = x.flatten(1)?; // [batch, 784]
/// let centred = x.sub(&x.reduce_mean(&[1], true)?)?; // [batch, 784] - [batch, 1]
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Operand {
    graph: Graph,
    raw: Rc<raw::Operand>,
}

impl Operand {
    pub(crate) fn new(graph: &Graph, raw: Rc<raw::Operand>) -> Self {
        Self { graph: graph.clone(), raw }
    }

    pub(crate) fn raw(&self) -> &raw::Operand {
        &self.raw
    }

    pub(crate) fn shared(&self) -> &Rc<raw::Operand> {
        &self.raw
    }

    /// Returns the graph of the operand.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Returns the data type and shape.
    pub fn descriptor(&self) -> Descriptor {
        self.raw.descriptor()
    }

    /// Returns the shape.
    pub fn shape(&self) -> Vec<u32> {
        self.descriptor().shape
    }

    /// Sets a label for error messages and profiles. The label of a layer's result is the scope of its variables, unless
    /// it is set here.
    #[must_use]
    #[track_caller]
    pub fn label(self, label: &str) -> Self {
        self.raw.label(label);
        self.graph.record_label(label, Location::caller());
        self
    }
}
