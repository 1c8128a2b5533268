//! The values of a graph and what can be done with them.
//!
//! Names and meaning are those of W3C WebNN's `MLGraphBuilder`. Where two operands are combined element by element,
//! dimensions of size 1 are repeated, aligned at the last dimension. Every method answers `Host` where the host refuses
//! the operands' shapes or data types, and `Built` after the graph was built.

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident;)*) => { $(
        $(#[$doc])*
        ///
        /// # Errors
        /// `Host`; `Built`.
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
        /// `Host`; `Built`.
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

use std::rc::Rc;

use crate::bindings::graphs as raw;
use crate::bindings::tensors::Descriptor;
use crate::graph::Graph;

/// A value in a graph. It holds no data. Clones are the same value.
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

    /// The graph it belongs to.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Its data type and shape.
    pub fn descriptor(&self) -> Descriptor {
        self.raw.descriptor()
    }

    /// Its shape.
    pub fn shape(&self) -> Vec<u32> {
        self.descriptor().shape
    }

    /// The operand, with a name for error messages and profiles.
    #[must_use]
    pub fn label(self, label: &str) -> Self {
        self.raw.label(label);
        self
    }
}
