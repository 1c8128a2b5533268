//! The body of one kernel: its iteration space, expressions and stores, still over nodes.
//!
//! A `ValueId` here is the number of a node; the memory plan gives it a place.

use std::collections::BTreeSet;
use std::rc::Rc;

use saggar_tensor::op::{Combine, Contract, Convolution, Index, Op, Reduce};
use saggar_tensor::{Graph, NodeId};

use super::chain::chain;
use super::chains::Chains;
use super::coalesce::{Groups, coarsest, regroup, sizes};
use super::emit::{Emitter, Failure, Local};
use super::kind::base;
use super::matmul::matrix;
use super::space::{Access, Space};
use crate::expr::Expr;
use crate::limits::{EXPR_INSTRUCTIONS_MAX, SPLITS_MAX};
use crate::program::{Body, Epilogue, Layout, Store, ValueId};

/// What a kernel is built from.
#[derive(Clone, Copy)]
pub(super) struct Plan<'a> {
    pub(super) graph: &'a Graph,
    /// For each node, whether it lies in memory.
    pub(super) stored: &'a [bool],
    /// The node with a kernel of its own, if the kernel is more than a map.
    pub(super) anchor: Option<NodeId>,
    /// Nodes computed at the kernel's own position, once, in registers.
    pub(super) local: &'a BTreeSet<NodeId>,
    /// Which of them are stored.
    pub(super) roots: &'a BTreeSet<NodeId>,
    /// Products that are computed where they are used.
    pub(super) chains: &'a Chains,
    /// Windowed operators whose operands have their channels last.
    pub(super) channels_last: &'a BTreeSet<NodeId>,
}

impl Plan<'_> {
    fn layout(&self, anchor: NodeId) -> Layout {
        if self.channels_last.contains(&anchor) { Layout::ChannelsLast } else { Layout::ChannelsFirst }
    }
}

/// The body of a kernel.
pub(super) fn body(plan: Plan<'_>) -> Result<Body, Failure> {
    let Some(anchor) = plan.anchor else { return map(plan) };
    if let Some(end) = plan.chains.ends.get(&anchor) {
        return chain(plan, anchor, end);
    }
    let node = plan.graph.node(anchor);
    match &node.op {
        Op::Reduce(Reduce::Fold { axes, .. }) => fold(plan, anchor, axes),
        Op::Contract(contract) => product(plan, anchor, *contract),
        Op::Convolution(Convolution::Conv2d(conv)) => {
            let dims = plan.graph.descriptor(anchor).shape.to_vec();
            let targets: Groups = (0..dims.len()).map(|axis| vec![axis]).collect();
            Ok(Body::Conv2d {
                conv: *conv,
                layout: plan.layout(anchor),
                input: ValueId(node.inputs[0].0),
                filter: ValueId(node.inputs[1].0),
                result: [dims[0], dims[1], dims[2], dims[3]],
                epilogue: fixed_epilogue(plan, &dims, &targets)?,
            })
        }
        Op::Reduce(Reduce::ArgMax { .. } | Reduce::ArgMin { .. }) | Op::Convolution(_) | Op::Index(_) => {
            Ok(alone(plan, anchor))
        }
        Op::Source(_) | Op::Unary(_) | Op::Binary(_) | Op::Select | Op::Movement(_) => Err(Failure::Refused),
    }
}

/// Tries `attempt` in `space`, split as it asks for.
pub(super) fn in_space<T>(
    mut space: Vec<Space>,
    mut attempt: impl FnMut(&[Space]) -> Result<T, Failure>,
) -> Result<(T, Vec<Space>), Failure> {
    for _ in 0..SPLITS_MAX {
        match attempt(&space) {
            Ok(built) => return Ok((built, space)),
            Err(Failure::Split { mut dim, inner }) => {
                let part = space.iter_mut().find(|part| {
                    let found = dim < part.dims.len();
                    dim -= if found { 0 } else { part.dims.len() };
                    found
                });
                part.ok_or(Failure::Refused)?.split(dim, inner);
            }
            Err(failure) => return Err(failure),
        }
    }
    Err(Failure::Refused)
}

/// One expression for all roots over `space`.
fn roots(plan: Plan<'_>, space: &Space) -> Result<(Expr, Vec<Store>), Failure> {
    let local = Local { anchor: plan.anchor, roots: plan.local };
    let mut emitter = Emitter::new(plan.graph, plan.stored, local, space);
    let mut registers = Vec::new();
    for &root in plan.roots {
        registers.push(emitter.root(root)?);
        if emitter.builder.len() > EXPR_INSTRUCTIONS_MAX {
            return Err(Failure::Refused);
        }
    }
    let expr = emitter.builder.finish(&mut registers);
    let stores = plan.roots.iter().zip(registers);
    Ok((expr, stores.map(|(root, register)| Store { value: ValueId(root.0), register }).collect()))
}

fn map(plan: Plan<'_>) -> Result<Body, Failure> {
    let first = *plan.roots.first().ok_or(Failure::Refused)?;
    let space = Space::new(&plan.graph.descriptor(first).shape);
    let ((mut expr, stores), space) = in_space(vec![space], |space| roots(plan, &space[0]))?;
    let dims = &space[0].dims;
    let groups = coarsest(&[&expr], dims, 0, dims.len());
    if !regroup(&mut expr, dims, &groups) {
        return Err(Failure::Refused);
    }
    Ok(Body::Map { dims: sizes(dims, &groups), expr, stores })
}

fn fold(plan: Plan<'_>, anchor: NodeId, axes: &[usize]) -> Result<Body, Failure> {
    let Op::Reduce(Reduce::Fold { kind, .. }) = &plan.graph.node(anchor).op else { return Err(Failure::Refused) };
    let input = plan.graph.node(anchor).inputs[0];
    let shape = &plan.graph.descriptor(input).shape;
    let kept: Vec<usize> = (0..shape.rank()).filter(|axis| !axes.contains(axis)).collect();
    let pick = |axes: &[usize]| Space::new(&axes.iter().map(|&axis| shape[axis]).collect::<Vec<_>>());
    let attempt = |parts: &[Space]| {
        let space = parts[0].joined(&parts[1], kept.len());
        let place = |axis: usize| match kept.iter().position(|&other| other == axis) {
            Some(at) => at,
            None => kept.len() + axes.iter().position(|&other| other == axis).unwrap_or(0),
        };
        let coordinates = (0..shape.rank()).map(|axis| space.axis(place(axis))).collect();
        let prologue = prologue(plan, input, Access { coordinates, bounds: Vec::new() }, &space)?;
        Ok((prologue, roots(plan, &parts[0])?))
    };
    let ((mut prologue, (mut expr, stores)), parts) = in_space(vec![pick(&kept), pick(axes)], attempt)?;
    let (outer, both) = (&parts[0].dims, parts[0].joined(&parts[1], kept.len()).dims);
    let outer_groups = {
        let shared = coarsest(&[&prologue], &both, 0, outer.len());
        let allowed = coarsest(&[&expr], outer, 0, outer.len());
        common_groups(&shared, &allowed)
    };
    let inner_groups = coarsest(&[&prologue], &both, outer.len(), both.len());
    let all: Groups = outer_groups.iter().chain(&inner_groups).cloned().collect();
    let regrouped = regroup(&mut prologue, &both, &all) && regroup(&mut expr, outer, &outer_groups);
    if !regrouped {
        return Err(Failure::Refused);
    }
    Ok(Body::Fold {
        kind: *kind,
        outer: sizes(outer, &outer_groups),
        inner: sizes(&both, &inner_groups),
        prologue,
        epilogue: Epilogue { expr, stores },
    })
}

fn prologue(plan: Plan<'_>, input: NodeId, access: Access, space: &Space) -> Result<Expr, Failure> {
    let nothing = BTreeSet::new();
    let local = Local { anchor: None, roots: &nothing };
    let mut emitter = Emitter::new(plan.graph, plan.stored, local, space);
    let folded = emitter.element(input, &Rc::new(access))?;
    let expr = emitter.builder.finish(&mut [folded]);
    if expr.instructions.len() > EXPR_INSTRUCTIONS_MAX {
        return Err(Failure::Store(base(plan.graph, input)));
    }
    Ok(expr)
}

/// Groups whose members are together in both.
fn common_groups(a: &Groups, b: &Groups) -> Groups {
    let together = |first: usize, second: usize| {
        let joined = |groups: &Groups| groups.iter().any(|group| group.contains(&first) && group.contains(&second));
        joined(a) && joined(b)
    };
    let mut groups: Groups = Vec::new();
    for &dim in a.iter().flatten() {
        match groups.last_mut() {
            Some(group) if together(group[group.len() - 1], dim) => group.push(dim),
            Some(_) | None => groups.push(vec![dim]),
        }
    }
    groups
}

/// An epilogue whose views have exactly the dimensions that `targets` makes of `axes`.
pub(super) fn fixed_epilogue(plan: Plan<'_>, axes: &[usize], targets: &Groups) -> Result<Epilogue, Failure> {
    let ((mut expr, stores), space) = in_space(vec![Space::new(axes)], |space| roots(plan, &space[0]))?;
    let space = &space[0];
    let groups: Groups = targets
        .iter()
        .map(|target| (0..space.dims.len()).filter(|&dim| target.contains(&space.origin[dim])).collect())
        .collect();
    if regroup(&mut expr, &space.dims, &groups) { Ok(Epilogue { expr, stores }) } else { Err(Failure::Refused) }
}

fn product(plan: Plan<'_>, anchor: NodeId, contract: Contract) -> Result<Body, Failure> {
    let Contract::MatMul { transpose_a, transpose_b } = contract;
    let node = plan.graph.node(anchor);
    let dims = plan.graph.descriptor(anchor).shape.to_vec();
    let rank = dims.len();
    let (left, right) = (matrix(plan.graph, node.inputs[0]), matrix(plan.graph, node.inputs[1]));
    let shape = &plan.graph.descriptor(node.inputs[0]).shape;
    let (m, n, k) = (dims[rank - 2], dims[rank - 1], shape[if transpose_a { rank - 2 } else { rank - 1 }]);
    let batch: usize = dims[..rank - 2].iter().product();
    let body = |batch, m, batch_stride_a, epilogue| Body::MatMul {
        sizes: [batch, m, n, k],
        a: ValueId(left.node.0),
        b: ValueId(right.node.0),
        transpose_a: transpose_a != left.transposed,
        transpose_b: transpose_b != right.transposed,
        batch_stride_a,
        batch_stride_b: right.batch_stride,
        epilogue,
    };
    let batches: Vec<usize> = (0..rank - 2).collect();
    if batch > 1 && right.batch_stride == 0 && transpose_a == left.transposed && left.batch_stride == m * k {
        let rows: Vec<usize> = (0..rank - 1).collect();
        if let Ok(epilogue) = fixed_epilogue(plan, &dims, &vec![Vec::new(), rows, vec![rank - 1]]) {
            return Ok(body(1, batch * m, 0, epilogue));
        }
    }
    let epilogue = fixed_epilogue(plan, &dims, &vec![batches, vec![rank - 2], vec![rank - 1]])?;
    Ok(body(batch, m, left.batch_stride, epilogue))
}

/// Kernels without expressions.
fn alone(plan: Plan<'_>, anchor: NodeId) -> Body {
    let (graph, layout) = (plan.graph, plan.layout(anchor));
    let node = graph.node(anchor);
    let output = ValueId(anchor.0);
    let operand = |at: usize| ValueId(node.inputs[at].0);
    let around = |dims: &[usize], axis: usize, length: usize| {
        [dims[..axis].iter().product(), dims[axis], dims[axis + length..].iter().product()]
    };
    match &node.op {
        Op::Reduce(Reduce::ArgMax { axis }) => {
            let dims = around(&graph.descriptor(node.inputs[0]).shape, *axis, 1);
            Body::ArgFold { largest: true, dims, input: operand(0), output }
        }
        Op::Reduce(Reduce::ArgMin { axis }) => {
            let dims = around(&graph.descriptor(node.inputs[0]).shape, *axis, 1);
            Body::ArgFold { largest: false, dims, input: operand(0), output }
        }
        Op::Index(Index::Gather { axis }) => {
            let dims = around(&graph.descriptor(node.inputs[0]).shape, *axis, 1);
            Body::Gather { dims, input: operand(0), indices: operand(1), output }
        }
        Op::Index(Index::ScatterAdd { axis, .. }) => {
            let dims = around(&node.descriptor.shape, *axis, 1);
            let (indices, updates) = (operand(0), operand(1));
            Body::Scatter { dims, combine: Combine::Add, base: None, indices, updates, output }
        }
        Op::Index(Index::Scatter { axis, combine }) => {
            let dims = around(&node.descriptor.shape, *axis, 1);
            let (base, indices, updates) = (Some(operand(0)), operand(1), operand(2));
            Body::Scatter { dims, combine: *combine, base, indices, updates, output }
        }
        Op::Convolution(convolution) => match convolution {
            Convolution::Conv2dInputGrad { conv, .. } => {
                Body::Conv2dInputGrad { conv: *conv, layout, gradient: operand(0), filter: operand(1), output }
            }
            Convolution::Conv2dFilterGrad { conv, .. } => {
                Body::Conv2dFilterGrad { conv: *conv, layout, input: operand(0), gradient: operand(1), output }
            }
            Convolution::Pool2d { kind, pool } => {
                Body::Pool2d { kind: *kind, pool: *pool, layout, input: operand(0), output }
            }
            Convolution::MaxPool2dGrad(pool) => {
                Body::MaxPool2dGrad { pool: *pool, layout, input: operand(0), gradient: operand(1), output }
            }
            Convolution::SumPool2dGrad { pool, .. } => {
                Body::SumPool2dGrad { pool: *pool, layout, gradient: operand(0), output }
            }
            Convolution::Conv2d(_) => unreachable!("convolutions have an epilogue"),
        },
        Op::Source(_)
        | Op::Unary(_)
        | Op::Binary(_)
        | Op::Select
        | Op::Movement(_)
        | Op::Reduce(Reduce::Fold { .. })
        | Op::Contract(_) => unreachable!("{anchor:?} has no kernel of its own"),
    }
}
