//! Macros for the methods of `graph-builder` that differ only in the operator they add, and the types of those methods.

use wasmtime::component::Resource;

use super::pending_graph::{BuilderHandle, GraphOperand};
use crate::host_error::HostError;

pub(super) type Builder = Resource<BuilderHandle>;
pub(super) type Operand = Resource<GraphOperand>;
pub(super) type NewOperand = Result<Resource<GraphOperand>, HostError>;

/// Operators with one operand and no options.
macro_rules! unary {
    ($($method:ident => $build:expr;)*) => {
        $(fn $method(&mut self, graph: Builder, input: Operand) -> NewOperand {
            self.add_operator(&graph, [&input], |g, [x]| Ok($build(g, x)?))
        })*
    };
}

/// Operators with one operand and options.
macro_rules! unary_with {
    ($($method:ident($($name:ident: $type:ty),*) => |$g:ident, $x:ident| $build:expr;)*) => {
        $(fn $method(&mut self, graph: Builder, input: Operand, $($name: $type),*) -> NewOperand {
            self.add_operator(&graph, [&input], |$g, [$x]| Ok($build?))
        })*
    };
}

/// Operators with two operands and no options.
macro_rules! binary {
    ($($method:ident => $build:expr;)*) => {
        $(fn $method(&mut self, graph: Builder, a: Operand, b: Operand) -> NewOperand {
            self.add_operator(&graph, [&a, &b], |g, [a, b]| Ok($build(g, a, b)?))
        })*
    };
}

/// Reductions over axes, which are removed or kept with size 1.
macro_rules! reduce {
    ($($method:ident => $build:expr;)*) => {
        $(fn $method(&mut self, graph: Builder, input: Operand, options: ReduceOptions) -> NewOperand {
            self.add_operator(&graph, [&input], |g, [x]| {
                let (axes, keep) = options::reduce_axes(&options, g.descriptor_of(x)?.shape.rank());
                Ok($build(g, x, &axes, keep)?)
            })
        })*
    };
}

pub(super) use {binary, reduce, unary, unary_with};
