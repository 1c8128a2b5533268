//! Instructions for a node's element at each point of an iteration space, down to the elements that lie in memory.

use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use saggar_tensor::op::{Binary, Movement, Op, Scalar, Source, Unary};
use saggar_tensor::{DType, Graph, NodeId, Shape};

use super::builder::Builder;
use super::kind::base;
use super::space::{Access, Affine, Obstacle, Restricted, Space, restrict};
use crate::expr::{Instruction, Register, View};
use crate::limits::EXPR_VISITS_MAX;
use crate::program::ValueId;

/// Why a kernel cannot be built as asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// It can, in a space with this dimension split.
    Split { dim: usize, inner: usize },
    /// It can, once this node is materialised; or, where it is the node being materialised, its operands.
    Store(NodeId),
    /// It cannot.
    Refused,
}

/// Nodes that a kernel has in registers and not in memory.
pub(super) struct Local<'a> {
    /// The node whose element is `Accumulated`.
    pub(super) anchor: Option<NodeId>,
    /// Nodes that the kernel computes at each point of its own space, anchor included where it is stored.
    pub(super) roots: &'a BTreeSet<NodeId>,
}

/// Where a chain's expression may use elements of products that are stored nowhere.
pub(super) struct Pieces<'a> {
    /// The products.
    pub(super) products: &'a BTreeSet<NodeId>,
    /// Where the elements that it uses are in each, as a position in dense memory.
    pub(super) position: Affine,
    /// Those used so far, by their numbers.
    pub(super) used: Vec<NodeId>,
}

/// Writes one expression.
pub(super) struct Emitter<'a> {
    pub(super) graph: &'a Graph,
    pub(super) stored: &'a [bool],
    pub(super) local: Local<'a>,
    pub(super) space: &'a Space,
    pub(super) builder: Builder,
    /// The space's own position.
    position: Affine,
    /// The access in order that was asked for last, and the shape that it is to.
    in_order: Option<(&'a Shape, Rc<Access>)>,
    /// What each node became at each of its positions.
    memo: HashMap<NodeId, Vec<(Rc<Access>, Register)>>,
    pub(super) pieces: Option<Pieces<'a>>,
    /// Nodes that were computed, each once for each of its positions.
    visits: usize,
}

impl<'a> Emitter<'a> {
    pub(super) fn new(graph: &'a Graph, stored: &'a [bool], local: Local<'a>, space: &'a Space) -> Emitter<'a> {
        Emitter {
            graph,
            stored,
            local,
            space,
            builder: Builder::default(),
            position: space.position(),
            in_order: None,
            memo: HashMap::new(),
            pieces: None,
            visits: 0,
        }
    }

    /// A root at the space's own position.
    pub(super) fn root(&mut self, node: NodeId) -> Result<Register, Failure> {
        if self.local.anchor == Some(node) {
            return Ok(self.builder.push(Instruction::Accumulated, self.graph.descriptor(node).dtype));
        }
        let access = self.in_order(node).map_err(|obstacle| failure(obstacle, Failure::Refused))?;
        self.computed(node, &access)
    }

    /// `node` in the order of the space.
    fn in_order(&mut self, node: NodeId) -> Result<Rc<Access>, Obstacle> {
        let shape = &self.graph.descriptor(node).shape;
        if let Some((known, access)) = &self.in_order
            && *known == shape
        {
            return Ok(Rc::clone(access));
        }
        let access = Rc::new(Access::in_order(self.space, shape)?);
        self.in_order = Some((shape, Rc::clone(&access)));
        Ok(access)
    }

    /// `node` at `access`.
    pub(super) fn element(&mut self, node: NodeId, access: &Rc<Access>) -> Result<Register, Failure> {
        let rank = self.space.dims.len();
        let descriptor = self.graph.descriptor(node);
        let whole = base(self.graph, node);
        if self.local.anchor == Some(whole) || self.local.roots.contains(&whole) {
            let in_place = access.bounds.is_empty() && access.position(&descriptor.shape, rank) == self.position;
            return if in_place { self.root(whole) } else { Err(Failure::Refused) };
        }
        if self.stored[whole.index()] {
            let view = access.view(&descriptor.shape, rank);
            // Where bounds fail, an outer select drops what this load gives.
            let fill = (!view.bounds.is_empty()).then(|| zero(descriptor.dtype));
            let load = Instruction::Load { value: ValueId(whole.0), view, fill };
            return Ok(self.builder.push(load, descriptor.dtype));
        }
        self.computed(node, access)
    }

    /// `node` at `access`, from its operands.
    fn computed(&mut self, node: NodeId, access: &Rc<Access>) -> Result<Register, Failure> {
        let known = self.memo.get(&node).into_iter().flatten().find(|(other, _)| other == access);
        if let Some(&(_, register)) = known {
            return Ok(register);
        }
        self.visits += 1;
        if self.visits > EXPR_VISITS_MAX {
            return Err(Failure::Refused);
        }
        let register = self.instruction(node, access)?;
        self.memo.entry(node).or_default().push((Rc::clone(access), register));
        Ok(register)
    }

    fn instruction(&mut self, node: NodeId, access: &Rc<Access>) -> Result<Register, Failure> {
        let dtype = self.graph.descriptor(node).dtype;
        let inputs = &self.graph.node(node).inputs;
        let register = match &self.graph.node(node).op {
            Op::Source(source) => self.source(node, source, access)?,
            Op::Unary(Unary::StopGradient) => self.element(inputs[0], access)?,
            Op::Unary(unary) => {
                let a = self.element(inputs[0], access)?;
                self.builder.push(Instruction::Unary(*unary, a), dtype)
            }
            Op::Binary(binary) => {
                let a = self.element(inputs[0], access)?;
                let b = self.element(inputs[1], access)?;
                self.builder.push(Instruction::Binary(*binary, a, b), dtype)
            }
            Op::Select => {
                let condition = self.element(inputs[0], access)?;
                let a = self.element(inputs[1], access)?;
                let b = self.element(inputs[2], access)?;
                self.builder.push(Instruction::Select(condition, a, b), dtype)
            }
            Op::Movement(movement) => self.movement(node, movement, access)?,
            Op::Contract(_) => self.piece(node, access)?,
            Op::Reduce(_) | Op::Convolution(_) | Op::Index(_) => return Err(Failure::Store(node)),
        };
        Ok(register)
    }

    /// The element of a product that is stored nowhere.
    fn piece(&mut self, node: NodeId, access: &Rc<Access>) -> Result<Register, Failure> {
        let descriptor = self.graph.descriptor(node);
        let position = access.position(&descriptor.shape, self.space.dims.len());
        let pieces = self.pieces.as_mut().filter(|pieces| pieces.products.contains(&node));
        let Some(pieces) = pieces.filter(|pieces| access.bounds.is_empty() && pieces.position == position) else {
            return Err(Failure::Store(node));
        };
        let number = pieces.used.iter().position(|&used| used == node).unwrap_or_else(|| {
            pieces.used.push(node);
            pieces.used.len() - 1
        });
        Ok(self.builder.push(Instruction::Product(number as u32), descriptor.dtype))
    }

    fn source(&mut self, node: NodeId, source: &Source, access: &Rc<Access>) -> Result<Register, Failure> {
        let descriptor = self.graph.descriptor(node);
        let instruction = match source {
            Source::Input(_) | Source::Constant(_) | Source::Variable(_) => return Err(Failure::Store(node)),
            Source::Fill(scalar) => Instruction::Immediate(*scalar),
            Source::Iota { axis } => Instruction::Index(unbounded(&access.coordinates[*axis])),
            Source::Random { stream, distribution } => {
                // A generator has no bounds, and its element must not be negative.
                if !access.bounds.is_empty() {
                    return Err(Failure::Store(node));
                }
                let key = base(self.graph, self.graph.node(node).inputs[0]);
                if self.local.roots.contains(&key) || self.local.anchor == Some(key) {
                    return Err(Failure::Refused);
                }
                let view = access.view(&descriptor.shape, self.space.dims.len());
                Instruction::Random { key: ValueId(key.0), stream: *stream, distribution: *distribution, view }
            }
        };
        Ok(self.builder.push(instruction, descriptor.dtype))
    }

    fn movement(&mut self, node: NodeId, movement: &Movement, access: &Rc<Access>) -> Result<Register, Failure> {
        let input = self.graph.node(node).inputs[0];
        match movement {
            Movement::Reshape(_) => {
                let coordinates = through_reshape(self.graph, node, access, self.space)
                    .map_err(|obstacle| failure(obstacle, Failure::Store(base(self.graph, input))))?;
                self.element(input, &Rc::new(Access { coordinates, bounds: access.bounds.clone() }))
            }
            Movement::Broadcast(_) | Movement::Transpose(_) | Movement::Slice { .. } | Movement::Reverse(_) => {
                let coordinates = through(self.graph, node, access, self.space.dims.len());
                self.element(input, &Rc::new(Access { coordinates, bounds: access.bounds.clone() }))
            }
            Movement::Pad { low, value, .. } => self.pad(node, low, *value, access),
            Movement::Concat { axis } => self.concat(node, *axis, access),
        }
    }

    fn pad(&mut self, node: NodeId, low: &[usize], value: Scalar, access: &Rc<Access>) -> Result<Register, Failure> {
        let dtype = self.graph.descriptor(node).dtype;
        let input = self.graph.node(node).inputs[0];
        let mut inner = Access::clone(access);
        let mut conditions = Vec::new();
        for (axis, &size) in self.graph.descriptor(input).shape.iter().enumerate() {
            let coordinate = access.coordinates[axis].clone().scaled(1, -(low[axis] as i64));
            let restricted = restrict(&coordinate, 0, size as i64, &self.space.dims);
            let bounded = match restricted.map_err(|obstacle| failure(obstacle, Failure::Store(node)))? {
                Restricted::Everywhere => Some(inner),
                Restricted::Nowhere => None,
                Restricted::Within(bound) => {
                    conditions.push((coordinate.clone(), size as i64));
                    inner.bounded(bound)
                }
            };
            let Some(bounded) = bounded else { return Ok(self.builder.push(Instruction::Immediate(value), dtype)) };
            inner = bounded;
            inner.coordinates[axis] = coordinate;
        }
        let inner = Rc::new(inner);
        let element = self.element(input, &inner)?;
        if conditions.is_empty() {
            return Ok(element);
        }
        // A bare load brings its own fill; it needs no select where this padding is all that bounds it.
        if access.bounds.is_empty()
            && let Instruction::Load { value: loaded, view, .. } = self.builder.instruction(element)
            && view.bounds == inner.bounds
        {
            let load = Instruction::Load { value: *loaded, view: view.clone(), fill: Some(value) };
            return Ok(self.builder.push(load, dtype));
        }
        let mut inside = None;
        for (coordinate, size) in conditions {
            let at_least = self.compare(&coordinate, Compare::AtLeast(0));
            let below = self.compare(&coordinate, Compare::Below(size));
            let both = self.builder.push(Instruction::Binary(Binary::LogicalAnd, at_least, below), DType::U8);
            inside = Some(match inside {
                None => both,
                Some(others) => self.builder.push(Instruction::Binary(Binary::LogicalAnd, others, both), DType::U8),
            });
        }
        let Some(inside) = inside else { return Ok(element) };
        let fill = self.builder.push(Instruction::Immediate(value), dtype);
        Ok(self.builder.push(Instruction::Select(inside, element, fill), dtype))
    }

    fn compare(&mut self, coordinate: &Affine, compare: Compare) -> Register {
        let index = self.builder.push(Instruction::Index(unbounded(coordinate)), DType::I32);
        let limit = match compare {
            Compare::AtLeast(limit) | Compare::Below(limit) => Instruction::Immediate(Scalar::Int(i128::from(limit))),
        };
        let limit = self.builder.push(limit, DType::I32);
        let instruction = match compare {
            Compare::AtLeast(_) => Instruction::Binary(Binary::LessOrEqual, limit, index),
            Compare::Below(_) => Instruction::Binary(Binary::Less, index, limit),
        };
        self.builder.push(instruction, DType::U8)
    }

    fn concat(&mut self, node: NodeId, axis: usize, access: &Rc<Access>) -> Result<Register, Failure> {
        let dtype = self.graph.descriptor(node).dtype;
        let mut start = 0;
        let mut parts = Vec::new();
        for &input in &self.graph.node(node).inputs {
            let size = self.graph.descriptor(input).shape[axis] as i64;
            let coordinate = access.coordinates[axis].clone().scaled(1, -start);
            start += size;
            let restricted = restrict(&coordinate, 0, size, &self.space.dims);
            let inner = match restricted.map_err(|obstacle| failure(obstacle, Failure::Store(node)))? {
                Restricted::Everywhere => Some(Access::clone(access)),
                Restricted::Nowhere => None,
                Restricted::Within(bound) => Access::clone(access).bounded(bound),
            };
            let Some(mut inner) = inner else { continue };
            inner.coordinates[axis] = coordinate;
            parts.push((self.element(input, &Rc::new(inner))?, start));
        }
        // Only points outside the access's own bounds have no part, and their value is dropped.
        let Some((mut chosen, _)) = parts.pop() else {
            return Ok(self.builder.push(Instruction::Immediate(zero(dtype)), dtype));
        };
        for (element, end) in parts.into_iter().rev() {
            let before = self.compare(&access.coordinates[axis], Compare::Below(end));
            chosen = self.builder.push(Instruction::Select(before, element, chosen), dtype);
        }
        Ok(chosen)
    }
}

#[derive(Clone, Copy)]
enum Compare {
    AtLeast(i64),
    Below(i64),
}

pub(super) fn failure(obstacle: Obstacle, otherwise: Failure) -> Failure {
    match obstacle {
        Obstacle::Split { dim, inner } => Failure::Split { dim, inner },
        Obstacle::NotAffine => otherwise,
    }
}

fn unbounded(affine: &Affine) -> View {
    View { offset: affine.offset, strides: affine.strides.clone(), bounds: Vec::new() }
}

/// 0 of this type.
fn zero(dtype: DType) -> Scalar {
    if dtype.is_float() { Scalar::Float(0.0) } else { Scalar::Int(0) }
}

/// Coordinates in the operand of a reshape.
pub(super) fn through_reshape(
    graph: &Graph,
    node: NodeId,
    access: &Access,
    space: &Space,
) -> Result<Vec<Affine>, Obstacle> {
    let input = graph.node(node).inputs[0];
    let position = access.position(&graph.descriptor(node).shape, space.dims.len());
    super::space::delinearise(&position, &space.dims, &graph.descriptor(input).shape)
}

/// Coordinates in the first operand of a movement whose every result element is one operand element, axis by axis.
/// Paddings, concatenations and reshapes are not such, and come back unchanged.
pub(super) fn through(graph: &Graph, node: NodeId, access: &Access, rank: usize) -> Vec<Affine> {
    let input = graph.descriptor(graph.node(node).inputs.first().copied().unwrap_or(node));
    let mut coordinates = access.coordinates.clone();
    let Op::Movement(movement) = &graph.node(node).op else { return coordinates };
    match movement {
        Movement::Broadcast(_) => {
            for (coordinate, &dim) in coordinates.iter_mut().zip(input.shape.iter()) {
                if dim == 1 {
                    *coordinate = Affine::constant(rank, 0);
                }
            }
        }
        Movement::Transpose(order) => {
            for (axis, &from) in order.iter().enumerate() {
                coordinates[from] = access.coordinates[axis].clone();
            }
        }
        Movement::Slice { starts, strides, .. } => {
            for (axis, coordinate) in coordinates.iter_mut().enumerate() {
                *coordinate = coordinate.clone().scaled(strides[axis] as i64, starts[axis] as i64);
            }
        }
        Movement::Reverse(axes) => {
            for &axis in axes {
                coordinates[axis] = coordinates[axis].clone().scaled(-1, input.shape[axis] as i64 - 1);
            }
        }
        Movement::Reshape(_) | Movement::Pad { .. } | Movement::Concat { .. } => {}
    }
    coordinates
}
