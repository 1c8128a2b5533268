//! Builds the body of one kernel: its iteration space, expressions and stores, still over nodes.
//!
//! A `ValueId` here is the number of a node; buffer assignment gives it a memory location.

mod fused_matmul;

use std::collections::BTreeSet;
use std::rc::Rc;

use saggar_tensor::op::{ContractOp, ConvolutionOp, IndexOp, Op, ReduceOp, ScatterCombine};
use saggar_tensor::{Graph, NodeId};

use super::coalesce::{DimensionGroups, coarsest_groups, grouped_sizes, regroup};
use super::emit::{ExprEmitter, FusionFailure, LocalNodes};
use super::fused_matmul_search::FusedMatMulSet;
use super::fusion_kind::reshape_base;
use super::iteration_space::{ElementAccess, IterationSpace};
use super::matmul_operands::matrix_view;
use crate::limits::{EXPR_INSTRUCTIONS_MAX, SPLITS_MAX};
use crate::program::expr::ScalarExpr;
use crate::program::{ChannelLayout, Epilogue, KernelBody, ResultStore, ValueId};
use fused_matmul::fused_matmul_body;

/// The inputs for building a kernel.
#[derive(Clone, Copy)]
pub(super) struct BodyContext<'a> {
    pub(super) graph: &'a Graph,
    /// For each node, whether it is in memory.
    pub(super) stored: &'a [bool],
    /// The kernel's main node; `None` if the kernel is a map.
    pub(super) anchor: Option<NodeId>,
    /// Nodes computed once per point at the kernel's current position, in registers.
    pub(super) local: &'a BTreeSet<NodeId>,
    /// The nodes of `local` that are stored.
    pub(super) roots: &'a BTreeSet<NodeId>,
    /// Products that are computed where they are used, not stored.
    pub(super) chains: &'a FusedMatMulSet,
    /// Windowed operators whose operands have channels last.
    pub(super) channels_last: &'a BTreeSet<NodeId>,
}

impl BodyContext<'_> {
    fn layout(&self, anchor: NodeId) -> ChannelLayout {
        if self.channels_last.contains(&anchor) { ChannelLayout::ChannelsLast } else { ChannelLayout::ChannelsFirst }
    }
}

/// Builds the body of a kernel.
pub(super) fn kernel_body(plan: BodyContext<'_>) -> Result<KernelBody, FusionFailure> {
    let Some(anchor) = plan.anchor else { return map_body(plan) };
    if let Some(end) = plan.chains.consumers.get(&anchor) {
        return fused_matmul_body(plan, anchor, end);
    }
    let node = plan.graph.node(anchor);
    match &node.op {
        Op::Reduce(ReduceOp::Fold { axes, .. }) => fold_body(plan, anchor, axes),
        Op::Contract(contract) => matmul_body(plan, anchor, *contract),
        Op::Convolution(ConvolutionOp::Conv2d(conv)) => {
            let dims = plan.graph.descriptor(anchor).shape.to_vec();
            let targets: DimensionGroups = (0..dims.len()).map(|axis| vec![axis]).collect();
            Ok(KernelBody::Conv2d {
                conv: *conv,
                layout: plan.layout(anchor),
                input: ValueId(node.inputs[0].0),
                filter: ValueId(node.inputs[1].0),
                result: [dims[0], dims[1], dims[2], dims[3]],
                epilogue: fixed_epilogue(plan, &dims, &targets)?,
            })
        }
        Op::Reduce(ReduceOp::ArgMax { .. } | ReduceOp::ArgMin { .. }) | Op::Convolution(_) | Op::Index(_) => {
            Ok(standalone_body(plan, anchor))
        }
        Op::Source(_) | Op::Unary(_) | Op::Binary(_) | Op::Select | Op::Movement(_) => Err(FusionFailure::Refused),
    }
}

/// Calls `attempt` with `space`, and repeats with split dimensions as `attempt` requests.
fn with_splits<T>(
    mut space: Vec<IterationSpace>,
    mut attempt: impl FnMut(&[IterationSpace]) -> Result<T, FusionFailure>,
) -> Result<(T, Vec<IterationSpace>), FusionFailure> {
    for _ in 0..SPLITS_MAX {
        match attempt(&space) {
            Ok(built) => return Ok((built, space)),
            Err(FusionFailure::Split { mut dim, inner }) => {
                let part = space.iter_mut().find(|part| {
                    let found = dim < part.dims.len();
                    dim -= if found { 0 } else { part.dims.len() };
                    found
                });
                part.ok_or(FusionFailure::Refused)?.split(dim, inner);
            }
            Err(failure) => return Err(failure),
        }
    }
    Err(FusionFailure::Refused)
}

/// Builds one expression for all roots over `space`.
fn root_expr(plan: BodyContext<'_>, space: &IterationSpace) -> Result<(ScalarExpr, Vec<ResultStore>), FusionFailure> {
    let local = LocalNodes { anchor: plan.anchor, roots: plan.local };
    let mut emitter = ExprEmitter::new(plan.graph, plan.stored, local, space);
    let mut registers = Vec::new();
    for &root in plan.roots {
        registers.push(emitter.emit_root(root)?);
        if emitter.builder.len() > EXPR_INSTRUCTIONS_MAX {
            return Err(FusionFailure::Refused);
        }
    }
    let expr = emitter.builder.finish(&mut registers);
    let stores = plan.roots.iter().zip(registers);
    Ok((expr, stores.map(|(root, register)| ResultStore { value: ValueId(root.0), register }).collect()))
}

fn map_body(plan: BodyContext<'_>) -> Result<KernelBody, FusionFailure> {
    let first = *plan.roots.first().ok_or(FusionFailure::Refused)?;
    let space = IterationSpace::new(&plan.graph.descriptor(first).shape);
    let ((mut expr, stores), space) = with_splits(vec![space], |space| root_expr(plan, &space[0]))?;
    let dims = &space[0].dims;
    let groups = coarsest_groups(&[&expr], dims, 0, dims.len());
    if !regroup(&mut expr, dims, &groups) {
        return Err(FusionFailure::Refused);
    }
    Ok(KernelBody::Map { dims: grouped_sizes(dims, &groups), expr, stores })
}

fn fold_body(plan: BodyContext<'_>, anchor: NodeId, axes: &[usize]) -> Result<KernelBody, FusionFailure> {
    let Op::Reduce(ReduceOp::Fold { kind, .. }) = &plan.graph.node(anchor).op else {
        return Err(FusionFailure::Refused);
    };
    let input = plan.graph.node(anchor).inputs[0];
    let shape = &plan.graph.descriptor(input).shape;
    let outer_axes: Vec<usize> = (0..shape.rank()).filter(|axis| !axes.contains(axis)).collect();
    let pick = |axes: &[usize]| IterationSpace::new(&axes.iter().map(|&axis| shape[axis]).collect::<Vec<_>>());
    let attempt = |parts: &[IterationSpace]| {
        let space = parts[0].nested(&parts[1], outer_axes.len());
        let place = |axis: usize| match outer_axes.iter().position(|&other| other == axis) {
            Some(at) => at,
            None => outer_axes.len() + axes.iter().position(|&other| other == axis).unwrap_or(0),
        };
        let coordinates = (0..shape.rank()).map(|axis| space.axis(place(axis))).collect();
        let prologue = prologue_expr(plan, input, ElementAccess { coordinates, bounds: Vec::new() }, &space)?;
        Ok((prologue, root_expr(plan, &parts[0])?))
    };
    let ((mut prologue, (mut expr, stores)), parts) = with_splits(vec![pick(&outer_axes), pick(axes)], attempt)?;
    let (outer, both) = (&parts[0].dims, parts[0].nested(&parts[1], outer_axes.len()).dims);
    let outer_groups = {
        let shared = coarsest_groups(&[&prologue], &both, 0, outer.len());
        let allowed = coarsest_groups(&[&expr], outer, 0, outer.len());
        common_groups(&shared, &allowed)
    };
    let inner_groups = coarsest_groups(&[&prologue], &both, outer.len(), both.len());
    let all: DimensionGroups = outer_groups.iter().chain(&inner_groups).cloned().collect();
    let regrouped = regroup(&mut prologue, &both, &all) && regroup(&mut expr, outer, &outer_groups);
    if !regrouped {
        return Err(FusionFailure::Refused);
    }
    Ok(KernelBody::Fold {
        kind: *kind,
        outer: grouped_sizes(outer, &outer_groups),
        inner: grouped_sizes(&both, &inner_groups),
        prologue,
        epilogue: Epilogue { expr, stores },
    })
}

fn prologue_expr(
    plan: BodyContext<'_>,
    input: NodeId,
    access: ElementAccess,
    space: &IterationSpace,
) -> Result<ScalarExpr, FusionFailure> {
    let nothing = BTreeSet::new();
    let local = LocalNodes { anchor: None, roots: &nothing };
    let mut emitter = ExprEmitter::new(plan.graph, plan.stored, local, space);
    let folded = emitter.emit_element(input, &Rc::new(access))?;
    let expr = emitter.builder.finish(&mut [folded]);
    if expr.instructions.len() > EXPR_INSTRUCTIONS_MAX {
        return Err(FusionFailure::Store(reshape_base(plan.graph, input)));
    }
    Ok(expr)
}

/// Returns the groups of dimensions that are together in both `a` and `b`.
fn common_groups(a: &DimensionGroups, b: &DimensionGroups) -> DimensionGroups {
    let together = |first: usize, second: usize| {
        let joined =
            |groups: &DimensionGroups| groups.iter().any(|group| group.contains(&first) && group.contains(&second));
        joined(a) && joined(b)
    };
    let mut groups: DimensionGroups = Vec::new();
    for &dim in a.iter().flatten() {
        match groups.last_mut() {
            Some(group) if together(group[group.len() - 1], dim) => group.push(dim),
            Some(_) | None => groups.push(vec![dim]),
        }
    }
    groups
}

/// Builds an epilogue whose views have exactly the dimensions that `targets` makes of `axes`.
fn fixed_epilogue(plan: BodyContext<'_>, axes: &[usize], targets: &DimensionGroups) -> Result<Epilogue, FusionFailure> {
    let ((mut expr, stores), space) = with_splits(vec![IterationSpace::new(axes)], |space| root_expr(plan, &space[0]))?;
    let space = &space[0];
    let groups: DimensionGroups = targets
        .iter()
        .map(|target| (0..space.dims.len()).filter(|&dim| target.contains(&space.origin[dim])).collect())
        .collect();
    if regroup(&mut expr, &space.dims, &groups) { Ok(Epilogue { expr, stores }) } else { Err(FusionFailure::Refused) }
}

fn matmul_body(plan: BodyContext<'_>, anchor: NodeId, contract: ContractOp) -> Result<KernelBody, FusionFailure> {
    let ContractOp::MatMul { transpose_a, transpose_b } = contract;
    let node = plan.graph.node(anchor);
    let dims = plan.graph.descriptor(anchor).shape.to_vec();
    let rank = dims.len();
    let (left, right) = (matrix_view(plan.graph, node.inputs[0]), matrix_view(plan.graph, node.inputs[1]));
    let shape = &plan.graph.descriptor(node.inputs[0]).shape;
    let (m, n, k) = (dims[rank - 2], dims[rank - 1], shape[if transpose_a { rank - 2 } else { rank - 1 }]);
    let batch: usize = dims[..rank - 2].iter().product();
    let body = |batch, m, batch_stride_a, epilogue| KernelBody::MatMul {
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

/// Builds a kernel without expressions.
fn standalone_body(plan: BodyContext<'_>, anchor: NodeId) -> KernelBody {
    let (graph, layout) = (plan.graph, plan.layout(anchor));
    let node = graph.node(anchor);
    let output = ValueId(anchor.0);
    let operand = |at: usize| ValueId(node.inputs[at].0);
    let around = |dims: &[usize], axis: usize, length: usize| {
        [dims[..axis].iter().product(), dims[axis], dims[axis + length..].iter().product()]
    };
    match &node.op {
        Op::Reduce(ReduceOp::ArgMax { axis }) => {
            let dims = around(&graph.descriptor(node.inputs[0]).shape, *axis, 1);
            KernelBody::ArgFold { largest: true, dims, input: operand(0), output }
        }
        Op::Reduce(ReduceOp::ArgMin { axis }) => {
            let dims = around(&graph.descriptor(node.inputs[0]).shape, *axis, 1);
            KernelBody::ArgFold { largest: false, dims, input: operand(0), output }
        }
        Op::Index(IndexOp::Gather { axis }) => {
            let dims = around(&graph.descriptor(node.inputs[0]).shape, *axis, 1);
            KernelBody::Gather { dims, input: operand(0), indices: operand(1), output }
        }
        Op::Index(IndexOp::ScatterAdd { axis, .. }) => {
            let dims = around(&node.descriptor.shape, *axis, 1);
            let (indices, updates) = (operand(0), operand(1));
            KernelBody::Scatter { dims, combine: ScatterCombine::Add, base: None, indices, updates, output }
        }
        Op::Index(IndexOp::Scatter { axis, combine }) => {
            let dims = around(&node.descriptor.shape, *axis, 1);
            let (base, indices, updates) = (Some(operand(0)), operand(1), operand(2));
            KernelBody::Scatter { dims, combine: *combine, base, indices, updates, output }
        }
        Op::Convolution(convolution) => match convolution {
            ConvolutionOp::Conv2dInputGrad { conv, .. } => {
                KernelBody::Conv2dInputGrad { conv: *conv, layout, gradient: operand(0), filter: operand(1), output }
            }
            ConvolutionOp::Conv2dFilterGrad { conv, .. } => {
                KernelBody::Conv2dFilterGrad { conv: *conv, layout, input: operand(0), gradient: operand(1), output }
            }
            ConvolutionOp::Pool2d { kind, pool } => {
                KernelBody::Pool2d { kind: *kind, pool: *pool, layout, input: operand(0), output }
            }
            ConvolutionOp::MaxPool2dGrad(pool) => {
                KernelBody::MaxPool2dGrad { pool: *pool, layout, input: operand(0), gradient: operand(1), output }
            }
            ConvolutionOp::SumPool2dGrad { pool, .. } => {
                KernelBody::SumPool2dGrad { pool: *pool, layout, gradient: operand(0), output }
            }
            ConvolutionOp::Conv2d(_) => unreachable!("convolutions have an epilogue"),
        },
        Op::Source(_)
        | Op::Unary(_)
        | Op::Binary(_)
        | Op::Select
        | Op::Movement(_)
        | Op::Reduce(ReduceOp::Fold { .. })
        | Op::Contract(_) => unreachable!("{anchor:?} needs no separate kernel"),
    }
}
