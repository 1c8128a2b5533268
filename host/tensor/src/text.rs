//! Graphs as text, for golden tests and for people: [`print()`] writes any graph, [`parse`] reads it back.
//!
//! ```text
//! input "x": float32[2, 3]
//! variable "w": float32[3, 4]
//! constant #0: 0000803f
//! %0: float32[2, 3] = input "x"
//! %1: float32[3, 4] = variable "w"
//! %2: float32[2, 4] = matmul %0, %1 {transpose-a=false, transpose-b=false}
//! %3 "activation": float32[2, 4] = tanh %2
//! output "y" = %3
//! assign "w" = %1
//! ```
//!
//! Ports and constants are numbered in order; a source names its port, or gives its number (`input #0`) where the name
//! does not say which. Attributes carry the names of the operator's fields. What follows `;` is a comment. Floats are
//! written so that they read back exactly; constants are bytes in base 16, and those past [`CONSTANT_TEXT_BYTES_MAX`]
//! are left out, so that such a text cannot be read back.
//!
//! Reading makes no promise about the graph: it is as hostile as any until [`crate::verify()`] has returned it.

mod attributes;
mod lexer;
mod parse;
mod print;

use std::fmt;

use thiserror::Error;

use crate::error::GraphError;
use crate::graph::Graph;

pub use parse::parse;
pub use print::print;

/// Bytes of the largest constant that is written out.
pub const CONSTANT_TEXT_BYTES_MAX: usize = 4096;

/// Why a text is not a graph.
#[derive(Clone, Debug, Error, PartialEq)]
#[error("line {line}: {fault}")]
pub struct TextError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub fault: TextFault,
}

/// What is wrong with a line.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum TextFault {
    /// Something else must stand here.
    #[error("expected {expected}, found {found:?}")]
    Expected {
        /// What would do.
        expected: &'static str,
        /// What stands there; empty at the end of the line.
        found: String,
    },
    /// A string that does not end, or an escape that does not exist.
    #[error("a string is not closed or has an unknown escape")]
    String,
    /// No operator has this name.
    #[error("there is no operator {name:?}")]
    UnknownOperator {
        /// The name.
        name: String,
    },
    /// The operator needs this attribute.
    #[error("{op} needs the attribute {attribute}")]
    MissingAttribute {
        /// The operator.
        op: String,
        /// The attribute.
        attribute: &'static str,
    },
    /// The operator has no such attribute, or it stands twice.
    #[error("{op} takes no attribute {attribute}, or takes it once")]
    ExtraAttribute {
        /// The operator.
        op: String,
        /// The attribute.
        attribute: String,
    },
    /// Nodes and constants are numbered in order, from 0.
    #[error("expected number {expected} here, found {found}")]
    OutOfOrder {
        /// The next number.
        expected: usize,
        /// The number that stands there.
        found: u32,
    },
    /// No input or variable has this name.
    #[error("there is no {kind} {name:?}")]
    UnknownPort {
        /// `input` or `variable`.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// A constant that was too large to be written.
    #[error("the bytes of this constant were left out")]
    Omitted,
    /// A shape past the limits.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&print(self))
    }
}

#[cfg(test)]
mod tests;
