//! Text form of graphs, for golden tests and for users: [`print()`] writes any graph, [`parse()`] reads it back.
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
//! Ports and constants are numbered in order. A source names its port, or gives its number (`input #0`) if the name is
//! ambiguous. Attributes have the names of the operator's fields. Text after `;` is a comment. Floats are written so
//! that they read back exactly. Constants are bytes in base 16. Constants larger than [`CONSTANT_TEXT_BYTES_MAX`] are
//! omitted, and such a text cannot be read back.
//!
//! Parsing does not verify the graph: it is untrusted until [`crate::verify()`] has returned it.

mod attributes;
mod lexer;
mod parse;
mod print;

use std::fmt;

use thiserror::Error;

use crate::graph::Graph;
use crate::shape::ShapeError;

pub use parse::parse;
pub use print::print;

/// Size of the largest constant that is written, in bytes.
pub const CONSTANT_TEXT_BYTES_MAX: usize = 4096;

/// The reason why a text is not a graph.
#[derive(Clone, Debug, Error, PartialEq)]
#[error("line {line}: {fault}")]
pub struct TextError {
    /// The line, from 1.
    pub line: usize,
    /// The error in this line.
    pub fault: TextFault,
}

/// An error in a line.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum TextFault {
    /// Another token is required here.
    #[error("expected {expected}, found {found:?}")]
    Expected {
        /// The required token.
        expected: &'static str,
        /// The token found; empty at the end of the line.
        found: String,
    },
    /// A string without an end, or an unknown escape.
    #[error("a string is not closed or has an unknown escape")]
    String,
    /// No operator has this name.
    #[error("there is no operator {name:?}")]
    UnknownOperator {
        /// The name.
        name: String,
    },
    /// The operator requires this attribute.
    #[error("{op} needs the attribute {attribute}")]
    MissingAttribute {
        /// The operator.
        op: String,
        /// The attribute.
        attribute: &'static str,
    },
    /// The operator has no such attribute, or it occurs twice.
    #[error("{op}: attribute {attribute} is unknown or repeated")]
    ExtraAttribute {
        /// The operator.
        op: String,
        /// The attribute.
        attribute: String,
    },
    /// A number out of order: nodes and constants are numbered in order, from 0.
    #[error("expected number {expected} here, found {found}")]
    OutOfOrder {
        /// The next number.
        expected: usize,
        /// The number found.
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
    #[error("the bytes of this constant were omitted")]
    Omitted,
    /// A shape that exceeds the limits.
    #[error(transparent)]
    InvalidShape(#[from] ShapeError),
}

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&print(self))
    }
}

#[cfg(test)]
mod tests;
