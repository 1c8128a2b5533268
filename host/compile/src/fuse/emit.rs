//! Emits the instructions for a node's element at each point of an iteration space, down to elements in memory.

use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use saggar_tensor::op::{BinaryOp, MovementOp, Op, Scalar, SourceOp, UnaryOp};
use saggar_tensor::{DType, Graph, NodeId, Shape};

use super::builder::ExprBuilder;
use super::fusion_kind::reshape_base;
use super::iteration_space::{AccessObstacle, AffineExpr, ElementAccess, IterationSpace, RestrictedAccess, restrict};
use crate::limits::EXPR_VISITS_MAX;
use crate::program::ValueId;
use crate::program::expr::{AffineView, Instruction, Register};

/// Reasons why a kernel cannot be built as requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FusionFailure {
    /// It can be built in a space with this dimension split.
    Split { dim: usize, inner: usize },
    /// It can be built once this node is materialized, or its operands if it is the node being materialized.
    Store(NodeId),
    /// It cannot be built.
    Refused,
}

/// Nodes that a kernel has in registers instead of memory.
pub(super) struct LocalNodes<'a> {
    /// The node whose element is `Accumulated`.
    pub(super) anchor: Option<NodeId>,
    /// Nodes that the kernel computes at each point of its iteration space, including the anchor if it is stored.
    pub(super) roots: &'a BTreeSet<NodeId>,
}

/// Elements of products that are not materialized, for the score expression of a fused matmul.
pub(super) struct ProductElements<'a> {
    /// The products.
    pub(super) products: &'a BTreeSet<NodeId>,
    /// The position, in each dense product, of the elements that the expression uses.
    pub(super) position: AffineExpr,
    /// Products used so far; the index in this list is the product's number.
    pub(super) used: Vec<NodeId>,
}

/// Emits one expression.
pub(super) struct ExprEmitter<'a> {
    pub(super) graph: &'a Graph,
    pub(super) stored: &'a [bool],
    pub(super) local: LocalNodes<'a>,
    pub(super) space: &'a IterationSpace,
    pub(super) builder: ExprBuilder,
    /// The position of the current point in the space.
    position: AffineExpr,
    /// The last requested in-order access, and its shape.
    in_order: Option<(&'a Shape, Rc<ElementAccess>)>,
    /// The register of each node at each of its accesses.
    memo: HashMap<NodeId, Vec<(Rc<ElementAccess>, Register)>>,
    pub(super) product_elements: Option<ProductElements<'a>>,
    /// Number of nodes computed, each counted once per access.
    visits: usize,
}

impl<'a> ExprEmitter<'a> {
    pub(super) fn new(
        graph: &'a Graph,
        stored: &'a [bool],
        local: LocalNodes<'a>,
        space: &'a IterationSpace,
    ) -> ExprEmitter<'a> {
        ExprEmitter {
            graph,
            stored,
            local,
            space,
            builder: ExprBuilder::default(),
            position: space.position(),
            in_order: None,
            memo: HashMap::new(),
            product_elements: None,
            visits: 0,
        }
    }

    /// Emits a root at the space's current position.
    pub(super) fn emit_root(&mut self, node: NodeId) -> Result<Register, FusionFailure> {
        if self.local.anchor == Some(node) {
            return Ok(self.builder.push(Instruction::Accumulated, self.graph.descriptor(node).dtype));
        }
        let access =
            self.in_order_access(node).map_err(|obstacle| obstacle_to_failure(obstacle, FusionFailure::Refused))?;
        self.emit_computed(node, &access)
    }

    /// Returns the access to `node` in the order of the space.
    fn in_order_access(&mut self, node: NodeId) -> Result<Rc<ElementAccess>, AccessObstacle> {
        let shape = &self.graph.descriptor(node).shape;
        if let Some((known, access)) = &self.in_order
            && *known == shape
        {
            return Ok(Rc::clone(access));
        }
        let access = Rc::new(ElementAccess::in_order(self.space, shape)?);
        self.in_order = Some((shape, Rc::clone(&access)));
        Ok(access)
    }

    /// Emits `node` at `access`.
    pub(super) fn emit_element(&mut self, node: NodeId, access: &Rc<ElementAccess>) -> Result<Register, FusionFailure> {
        let rank = self.space.dims.len();
        let descriptor = self.graph.descriptor(node);
        let whole = reshape_base(self.graph, node);
        if self.local.anchor == Some(whole) || self.local.roots.contains(&whole) {
            let in_place = access.bounds.is_empty() && access.position(&descriptor.shape, rank) == self.position;
            return if in_place { self.emit_root(whole) } else { Err(FusionFailure::Refused) };
        }
        if self.stored[whole.index()] {
            let view = access.view(&descriptor.shape, rank);
            // If the bounds do not hold, an outer select drops the result of this load.
            let fill = (!view.bounds.is_empty()).then(|| zero_scalar(descriptor.dtype));
            let load = Instruction::Load { value: ValueId(whole.0), view, fill };
            return Ok(self.builder.push(load, descriptor.dtype));
        }
        self.emit_computed(node, access)
    }

    /// Emits `node` at `access`, computed from its operands.
    fn emit_computed(&mut self, node: NodeId, access: &Rc<ElementAccess>) -> Result<Register, FusionFailure> {
        let known = self.memo.get(&node).into_iter().flatten().find(|(other, _)| other == access);
        if let Some(&(_, register)) = known {
            return Ok(register);
        }
        self.visits += 1;
        if self.visits > EXPR_VISITS_MAX {
            return Err(FusionFailure::Refused);
        }
        let register = self.emit_instruction(node, access)?;
        self.memo.entry(node).or_default().push((Rc::clone(access), register));
        Ok(register)
    }

    fn emit_instruction(&mut self, node: NodeId, access: &Rc<ElementAccess>) -> Result<Register, FusionFailure> {
        let dtype = self.graph.descriptor(node).dtype;
        let inputs = &self.graph.node(node).inputs;
        let register = match &self.graph.node(node).op {
            Op::Source(source) => self.emit_source(node, source, access)?,
            Op::Unary(UnaryOp::StopGradient) => self.emit_element(inputs[0], access)?,
            Op::Unary(unary) => {
                let a = self.emit_element(inputs[0], access)?;
                self.builder.push(Instruction::Unary(*unary, a), dtype)
            }
            Op::Binary(binary) => {
                let a = self.emit_element(inputs[0], access)?;
                let b = self.emit_element(inputs[1], access)?;
                self.builder.push(Instruction::Binary(*binary, a, b), dtype)
            }
            Op::Select => {
                let condition = self.emit_element(inputs[0], access)?;
                let a = self.emit_element(inputs[1], access)?;
                let b = self.emit_element(inputs[2], access)?;
                self.builder.push(Instruction::Select(condition, a, b), dtype)
            }
            Op::Movement(movement) => self.emit_movement(node, movement, access)?,
            Op::Contract(_) => self.emit_product(node, access)?,
            Op::Reduce(_) | Op::Convolution(_) | Op::Index(_) => return Err(FusionFailure::Store(node)),
        };
        Ok(register)
    }

    /// Emits the element of a product that is not materialized.
    fn emit_product(&mut self, node: NodeId, access: &Rc<ElementAccess>) -> Result<Register, FusionFailure> {
        let descriptor = self.graph.descriptor(node);
        let position = access.position(&descriptor.shape, self.space.dims.len());
        let pieces = self.product_elements.as_mut().filter(|pieces| pieces.products.contains(&node));
        let Some(pieces) = pieces.filter(|pieces| access.bounds.is_empty() && pieces.position == position) else {
            return Err(FusionFailure::Store(node));
        };
        let number = pieces.used.iter().position(|&used| used == node).unwrap_or_else(|| {
            pieces.used.push(node);
            pieces.used.len() - 1
        });
        Ok(self.builder.push(Instruction::Product(number as u32), descriptor.dtype))
    }

    fn emit_source(
        &mut self,
        node: NodeId,
        source: &SourceOp,
        access: &Rc<ElementAccess>,
    ) -> Result<Register, FusionFailure> {
        let descriptor = self.graph.descriptor(node);
        let instruction = match source {
            SourceOp::Input(_) | SourceOp::Constant(_) | SourceOp::Variable(_) => {
                return Err(FusionFailure::Store(node));
            }
            SourceOp::Fill(scalar) => Instruction::Immediate(*scalar),
            SourceOp::Iota { axis } => Instruction::Index(unbounded_view(&access.coordinates[*axis])),
            SourceOp::Random { stream, distribution } => {
                // A generator has no bounds, and its element index must not be negative.
                if !access.bounds.is_empty() {
                    return Err(FusionFailure::Store(node));
                }
                let key = reshape_base(self.graph, self.graph.node(node).inputs[0]);
                if self.local.roots.contains(&key) || self.local.anchor == Some(key) {
                    return Err(FusionFailure::Refused);
                }
                let view = access.view(&descriptor.shape, self.space.dims.len());
                Instruction::Random { key: ValueId(key.0), stream: *stream, distribution: *distribution, view }
            }
        };
        Ok(self.builder.push(instruction, descriptor.dtype))
    }

    fn emit_movement(
        &mut self,
        node: NodeId,
        movement: &MovementOp,
        access: &Rc<ElementAccess>,
    ) -> Result<Register, FusionFailure> {
        let input = self.graph.node(node).inputs[0];
        match movement {
            MovementOp::Reshape(_) => {
                let coordinates =
                    reshape_source_coordinates(self.graph, node, access, self.space).map_err(|obstacle| {
                        obstacle_to_failure(obstacle, FusionFailure::Store(reshape_base(self.graph, input)))
                    })?;
                self.emit_element(input, &Rc::new(ElementAccess { coordinates, bounds: access.bounds.clone() }))
            }
            MovementOp::Broadcast(_) | MovementOp::Transpose(_) | MovementOp::Slice { .. } | MovementOp::Reverse(_) => {
                let coordinates = movement_source_coordinates(self.graph, node, access, self.space.dims.len());
                self.emit_element(input, &Rc::new(ElementAccess { coordinates, bounds: access.bounds.clone() }))
            }
            MovementOp::Pad { low, value, .. } => self.emit_pad(node, low, *value, access),
            MovementOp::Concat { axis } => self.emit_concat(node, *axis, access),
        }
    }

    fn emit_pad(
        &mut self,
        node: NodeId,
        low: &[usize],
        value: Scalar,
        access: &Rc<ElementAccess>,
    ) -> Result<Register, FusionFailure> {
        let dtype = self.graph.descriptor(node).dtype;
        let input = self.graph.node(node).inputs[0];
        let mut inner = ElementAccess::clone(access);
        let mut conditions = Vec::new();
        for (axis, &size) in self.graph.descriptor(input).shape.iter().enumerate() {
            let coordinate = access.coordinates[axis].clone().scaled(1, -(low[axis] as i64));
            let restricted = restrict(&coordinate, 0, size as i64, &self.space.dims);
            let bounded =
                match restricted.map_err(|obstacle| obstacle_to_failure(obstacle, FusionFailure::Store(node)))? {
                    RestrictedAccess::Everywhere => Some(inner),
                    RestrictedAccess::Nowhere => None,
                    RestrictedAccess::Within(bound) => {
                        conditions.push((coordinate.clone(), size as i64));
                        inner.with_bound(bound)
                    }
                };
            let Some(bounded) = bounded else { return Ok(self.builder.push(Instruction::Immediate(value), dtype)) };
            inner = bounded;
            inner.coordinates[axis] = coordinate;
        }
        let inner = Rc::new(inner);
        let element = self.emit_element(input, &inner)?;
        if conditions.is_empty() {
            return Ok(element);
        }
        // A load has a fill, so it needs no select if this padding is the only bound.
        if access.bounds.is_empty()
            && let Instruction::Load { value: loaded, view, .. } = self.builder.instruction(element)
            && view.bounds == inner.bounds
        {
            let load = Instruction::Load { value: *loaded, view: view.clone(), fill: Some(value) };
            return Ok(self.builder.push(load, dtype));
        }
        let mut inside = None;
        for (coordinate, size) in conditions {
            let at_least = self.emit_comparison(&coordinate, CoordinateComparison::AtLeast(0));
            let below = self.emit_comparison(&coordinate, CoordinateComparison::Below(size));
            let both = self.builder.push(Instruction::Binary(BinaryOp::LogicalAnd, at_least, below), DType::U8);
            inside = Some(match inside {
                None => both,
                Some(others) => self.builder.push(Instruction::Binary(BinaryOp::LogicalAnd, others, both), DType::U8),
            });
        }
        let Some(inside) = inside else { return Ok(element) };
        let fill = self.builder.push(Instruction::Immediate(value), dtype);
        Ok(self.builder.push(Instruction::Select(inside, element, fill), dtype))
    }

    fn emit_comparison(&mut self, coordinate: &AffineExpr, compare: CoordinateComparison) -> Register {
        let index = self.builder.push(Instruction::Index(unbounded_view(coordinate)), DType::I32);
        let limit = match compare {
            CoordinateComparison::AtLeast(limit) | CoordinateComparison::Below(limit) => {
                Instruction::Immediate(Scalar::Int(i128::from(limit)))
            }
        };
        let limit = self.builder.push(limit, DType::I32);
        let instruction = match compare {
            CoordinateComparison::AtLeast(_) => Instruction::Binary(BinaryOp::LessOrEqual, limit, index),
            CoordinateComparison::Below(_) => Instruction::Binary(BinaryOp::Less, index, limit),
        };
        self.builder.push(instruction, DType::U8)
    }

    fn emit_concat(
        &mut self,
        node: NodeId,
        axis: usize,
        access: &Rc<ElementAccess>,
    ) -> Result<Register, FusionFailure> {
        let dtype = self.graph.descriptor(node).dtype;
        let mut start = 0;
        let mut parts = Vec::new();
        for &input in &self.graph.node(node).inputs {
            let size = self.graph.descriptor(input).shape[axis] as i64;
            let coordinate = access.coordinates[axis].clone().scaled(1, -start);
            start += size;
            let restricted = restrict(&coordinate, 0, size, &self.space.dims);
            let inner =
                match restricted.map_err(|obstacle| obstacle_to_failure(obstacle, FusionFailure::Store(node)))? {
                    RestrictedAccess::Everywhere => Some(ElementAccess::clone(access)),
                    RestrictedAccess::Nowhere => None,
                    RestrictedAccess::Within(bound) => ElementAccess::clone(access).with_bound(bound),
                };
            let Some(mut inner) = inner else { continue };
            inner.coordinates[axis] = coordinate;
            parts.push((self.emit_element(input, &Rc::new(inner))?, start));
        }
        // Only points outside the access's bounds belong to no part, and their value is dropped.
        let Some((mut chosen, _)) = parts.pop() else {
            return Ok(self.builder.push(Instruction::Immediate(zero_scalar(dtype)), dtype));
        };
        for (element, end) in parts.into_iter().rev() {
            let before = self.emit_comparison(&access.coordinates[axis], CoordinateComparison::Below(end));
            chosen = self.builder.push(Instruction::Select(before, element, chosen), dtype);
        }
        Ok(chosen)
    }
}

#[derive(Clone, Copy)]
enum CoordinateComparison {
    AtLeast(i64),
    Below(i64),
}

pub(super) fn obstacle_to_failure(obstacle: AccessObstacle, otherwise: FusionFailure) -> FusionFailure {
    match obstacle {
        AccessObstacle::Split { dim, inner } => FusionFailure::Split { dim, inner },
        AccessObstacle::NotAffine => otherwise,
    }
}

fn unbounded_view(affine: &AffineExpr) -> AffineView {
    AffineView { offset: affine.offset, strides: affine.strides.clone(), bounds: Vec::new() }
}

/// Returns 0 of this data type.
fn zero_scalar(dtype: DType) -> Scalar {
    if dtype.is_float() { Scalar::Float(0.0) } else { Scalar::Int(0) }
}

/// Returns the coordinates in the operand of a reshape.
pub(super) fn reshape_source_coordinates(
    graph: &Graph,
    node: NodeId,
    access: &ElementAccess,
    space: &IterationSpace,
) -> Result<Vec<AffineExpr>, AccessObstacle> {
    let input = graph.node(node).inputs[0];
    let position = access.position(&graph.descriptor(node).shape, space.dims.len());
    super::iteration_space::delinearise(&position, &space.dims, &graph.descriptor(input).shape)
}

/// Returns the coordinates in the first operand of a movement that maps every result element to one operand element,
/// axis by axis. Paddings, concatenations and reshapes do not; for these it returns the coordinates unchanged.
pub(super) fn movement_source_coordinates(
    graph: &Graph,
    node: NodeId,
    access: &ElementAccess,
    rank: usize,
) -> Vec<AffineExpr> {
    let input = graph.descriptor(graph.node(node).inputs.first().copied().unwrap_or(node));
    let mut coordinates = access.coordinates.clone();
    let Op::Movement(movement) = &graph.node(node).op else { return coordinates };
    match movement {
        MovementOp::Broadcast(_) => {
            for (coordinate, &dim) in coordinates.iter_mut().zip(input.shape.iter()) {
                if dim == 1 {
                    *coordinate = AffineExpr::constant(rank, 0);
                }
            }
        }
        MovementOp::Transpose(order) => {
            for (axis, &from) in order.iter().enumerate() {
                coordinates[from] = access.coordinates[axis].clone();
            }
        }
        MovementOp::Slice { starts, strides, .. } => {
            for (axis, coordinate) in coordinates.iter_mut().enumerate() {
                *coordinate = coordinate.clone().scaled(strides[axis] as i64, starts[axis] as i64);
            }
        }
        MovementOp::Reverse(axes) => {
            for &axis in axes {
                coordinates[axis] = coordinates[axis].clone().scaled(-1, input.shape[axis] as i64 - 1);
            }
        }
        MovementOp::Reshape(_) | MovementOp::Pad { .. } | MovementOp::Concat { .. } => {}
    }
    coordinates
}
