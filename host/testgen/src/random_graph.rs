//! Random graphs of several primitives.

use super::convolution::pooled_size;
use super::values::{CaseRng, ValueDistribution, random_value};
use super::{CaseBuilder, GraphCase};
use saggar_tensor::interp::InterpTensor;
use saggar_tensor::op::{
    BinaryOp, ContractOp, Conv2d, ConvolutionOp, IndexOp, MovementOp, Op, OperandTypes, OperatorSmoothness, Pool2d,
    PoolKind, RandomDistribution, RealDomain, ReduceKind, ReduceOp, Scalar, ScatterCombine, UnaryOp,
};
use saggar_tensor::{DType, NodeId, Shape};

/// Largest number of elements of a node that other nodes are built on.
const ELEMENTS_MAX: usize = 2000;
/// Largest magnitude of a value; larger ones are bounded by `tanh`, so that chains neither overflow nor lose all
/// precision.
const BOUND_MAX: f64 = 64.0;

/// Returns a random graph of `float32` and integers: 3 to 20 primitives in chains and diamonds, with broadcasting,
/// rarely an empty dimension, sometimes an assigned variable. Every node that no other node reads is an output.
pub fn random_graph(seed: u64) -> GraphCase {
    let mut network = RandomGraph { random: CaseRng::new(seed), draft: CaseBuilder::default(), places: Vec::new() };
    for _ in 0..network.random.between(1, 3) {
        network.source();
    }
    for _ in 0..network.random.between(3, 20) {
        network.grow_by_one();
    }
    network.finish(seed)
}

/// A node that other nodes can be built on.
#[derive(Clone, Copy)]
struct RandomGraphNode {
    node: NodeId,
    /// Largest magnitude that its floats can have.
    bound: f64,
    /// Whether the value has the same bits on every device: only then can a discontinuous operator follow.
    deterministic: bool,
}

struct RandomGraph {
    random: CaseRng,
    draft: CaseBuilder,
    places: Vec<RandomGraphNode>,
}

impl RandomGraph {
    fn source(&mut self) -> RandomGraphNode {
        let rank = self.random.below(5);
        let dims = self.random.random_dims(rank);
        self.source_of(DType::F32, &dims)
    }

    fn source_of(&mut self, dtype: DType, dims: &[usize]) -> RandomGraphNode {
        let RandomGraph { random, draft, .. } = self;
        let node = if random.once_in(4) {
            draft.variable(random_value(random, dtype, dims, ValueDistribution::Any))
        } else {
            draft.input(random, dtype, dims, ValueDistribution::Any)
        };
        self.add_node(node, if dtype.is_float() { 2.0 } else { 10.0 }, true)
    }

    fn add_node(&mut self, node: NodeId, bound: f64, exact: bool) -> RandomGraphNode {
        let place = if bound > BOUND_MAX && self.dtype(node).is_float() {
            let squeezed = self.draft.node(Op::Unary(UnaryOp::Tanh), &[node]);
            RandomGraphNode { node: squeezed, bound: 1.0, deterministic: false }
        } else {
            RandomGraphNode { node, bound, deterministic: exact }
        };
        self.places.push(place);
        place
    }

    fn dims(&self, node: NodeId) -> Vec<usize> {
        self.draft.builder.descriptor(node).shape.to_vec()
    }

    fn dtype(&self, node: NodeId) -> DType {
        self.draft.builder.descriptor(node).dtype
    }

    fn choose_node(&mut self) -> RandomGraphNode {
        // Recent nodes more often, so that chains grow as well as trees.
        let count = self.places.len();
        let from = if self.random.once_in(2) { count.saturating_sub(2) } else { 0 };
        self.places[self.random.between(from, count - 1)]
    }

    fn grow_by_one(&mut self) {
        let x = self.choose_node();
        match (self.random.below(16), self.dtype(x.node).is_float()) {
            (0..3, true) => self.unary(x),
            (0..3, false) => self.add_float_cast(x),
            (3..6, _) => self.binary(x),
            (6..10, _) => self.movement(x),
            (10..12, _) => self.reduce(x),
            (12, true) => self.matmul(x),
            (13, true) => self.convolution(x),
            (14, true) => self.discontinuous(x),
            (15, _) => self.index(x),
            _ => self.add_generator(),
        }
    }

    fn unary(&mut self, x: RandomGraphNode) {
        let continuous = |domain: fn(RealDomain) -> bool, is_exponential: bool| {
            let is_chosen = |op: &&UnaryOp| {
                let facts = op.facts();
                facts.operands.contains(DType::F32)
                    && facts.smoothness != OperatorSmoothness::Stepped
                    && facts.is_exponential == is_exponential
                    && domain(facts.domain)
            };
            UnaryOp::WITHOUT_ATTRIBUTES.iter().filter(is_chosen).copied().collect::<Vec<_>>()
        };
        match self.random.below(10) {
            0 if x.bound <= 4.0 => {
                let op = self.random.pick(&continuous(|_| true, true));
                self.apply(Op::Unary(op), &[x.node], x.bound.exp());
            }
            1 | 2 => {
                // Functions such as the logarithm, of 1 + |x|, where they have moderate slopes.
                let magnitude = self.draft.node(Op::Unary(UnaryOp::Abs), &[x.node]);
                let one = self.add_fill_like(x.node, 1.0);
                let sum = self.draft.node(Op::Binary(BinaryOp::Add), &[magnitude, one]);
                let op = self.random.pick(&continuous(|domain| domain != RealDomain::All, false));
                self.apply(Op::Unary(op), &[sum], x.bound + 1.0);
            }
            _ => {
                let op = self.random.pick(&continuous(|domain| domain == RealDomain::All, false));
                self.apply(Op::Unary(op), &[x.node], x.bound.max(1.0));
            }
        }
    }

    fn apply(&mut self, op: Op, inputs: &[NodeId], bound: f64) {
        let node = self.draft.node(op, inputs);
        let exact = !self.dtype(node).is_float();
        self.add_node(node, bound, exact);
    }

    fn add_fill_like(&mut self, node: NodeId, value: f64) -> NodeId {
        let descriptor = self.draft.builder.descriptor(node).clone();
        self.draft.builder.fill(descriptor, Scalar::Float(value)).expect("a float fits a float type")
    }

    /// Adds a conversion of an integer to a float.
    fn add_float_cast(&mut self, x: RandomGraphNode) {
        let node = self.draft.node(Op::Unary(UnaryOp::Cast(DType::F32)), &[x.node]);
        self.add_node(node, f64::INFINITY, false);
    }

    fn binary(&mut self, x: RandomGraphNode) {
        let dtype = self.dtype(x.node);
        let other = self.broadcast_partner(x.node);
        let is_total = |op: &&BinaryOp| {
            let facts = op.facts();
            facts.operands == OperandTypes::Any && !facts.is_boolean && facts.domains == [RealDomain::All; 2]
        };
        let ops: Vec<BinaryOp> = BinaryOp::ALL.iter().filter(is_total).copied().collect();
        let op = self.random.pick(&ops);
        let node = self.draft.builder.binary(op, x.node, other.node).expect("the partner broadcasts");
        let bound = if op == BinaryOp::Mul { x.bound * other.bound } else { x.bound + other.bound };
        self.add_node(node, bound, !dtype.is_float());
    }

    /// Returns a value of `x`'s data type that broadcasts with it: an earlier node of its shape, or a new one with some
    /// axes of size 1 or omitted.
    fn broadcast_partner(&mut self, x: NodeId) -> RandomGraphNode {
        let descriptor = self.draft.builder.descriptor(x).clone();
        let alike: Vec<RandomGraphNode> = self
            .places
            .iter()
            .filter(|place| *self.draft.builder.descriptor(place.node) == descriptor)
            .copied()
            .collect();
        if self.random.once_in(2) && !alike.is_empty() {
            return self.random.pick(&alike);
        }
        let skip = self.random.between(0, descriptor.shape.rank());
        let mut dims = descriptor.shape[if self.random.once_in(2) { skip } else { 0 }..].to_vec();
        for dim in &mut dims {
            if self.random.once_in(3) {
                *dim = 1;
            }
        }
        self.source_of(descriptor.dtype, &dims)
    }

    fn movement(&mut self, x: RandomGraphNode) {
        let dims = self.dims(x.node);
        let rank = dims.len();
        let random = &mut self.random;
        let shape = |dims: Vec<usize>| Shape::new(dims).expect("a small shape");
        let op = match random.below(7) {
            0 => MovementOp::Reshape(shape(regroup_dims(random, &dims))),
            1 => MovementOp::Transpose(random.permutation(rank)),
            2 => {
                let (mut starts, mut sizes, mut strides) = (vec![0; rank], dims.clone(), vec![1; rank]);
                for axis in (0..rank).filter(|&axis| dims[axis] > 0) {
                    starts[axis] = random.below(dims[axis]);
                    strides[axis] = random.between(1, 3);
                    sizes[axis] = random.between(1, (dims[axis] - starts[axis]).div_ceil(strides[axis]));
                }
                MovementOp::Slice { starts, sizes, strides }
            }
            3 => MovementOp::Reverse(random.random_axes(rank)),
            4 => {
                let mut around = || (0..rank).map(|_| random.below(3)).collect();
                let (low, high) = (around(), around());
                let float = self.draft.builder.descriptor(x.node).dtype.is_float();
                let value = if float { Scalar::Float(0.5) } else { Scalar::Int(1) };
                MovementOp::Pad { low, high, value }
            }
            5 if rank > 0 => {
                let node = self.draft.node(Op::Movement(MovementOp::Concat { axis: rank - 1 }), &[x.node, x.node]);
                self.keep_unless_large(node, x);
                return;
            }
            _ => {
                let wider = dims.iter().map(|&dim| if dim == 1 { random.between(1, 4) } else { dim }).collect();
                MovementOp::Broadcast(shape(wider))
            }
        };
        let node = self.draft.node(Op::Movement(op), &[x.node]);
        self.keep_unless_large(node, x);
    }

    /// Keeps a movement of `x` unless it is too large.
    fn keep_unless_large(&mut self, node: NodeId, x: RandomGraphNode) {
        if self.draft.builder.descriptor(node).shape.elements() <= ELEMENTS_MAX {
            self.add_node(node, x.bound.max(1.0), x.deterministic);
        }
    }

    fn reduce(&mut self, x: RandomGraphNode) {
        let dims = self.dims(x.node);
        let axes = self.random.random_axes(dims.len());
        let count: usize = axes.iter().map(|&axis| dims[axis]).product();
        let kind = match self.random.below(5) {
            // The maximum or minimum of zero elements is infinite.
            0 if count > 0 => ReduceKind::Max,
            1 if count > 0 => ReduceKind::Min,
            2 if count <= 4 && x.bound <= 3.0 => ReduceKind::Product,
            _ => ReduceKind::Sum,
        };
        let bound = match kind {
            ReduceKind::Sum => x.bound * count as f64,
            ReduceKind::Product => x.bound.max(1.0).powi(count as i32),
            ReduceKind::Max | ReduceKind::Min => x.bound,
        };
        self.apply(Op::Reduce(ReduceOp::Fold { kind, axes }), &[x.node], bound);
    }

    fn matmul(&mut self, x: RandomGraphNode) {
        let mut dims = self.dims(x.node);
        let rank = dims.len();
        if rank < 2 {
            return self.unary(x);
        }
        let [transpose_a, transpose_b] = [self.random.once_in(2), self.random.once_in(2)];
        let k = if transpose_a { dims[rank - 2] } else { dims[rank - 1] };
        let n = self.random.between(1, 6);
        (dims[rank - 2], dims[rank - 1]) = if transpose_b { (n, k) } else { (k, n) };
        let other = self.source_of(DType::F32, &dims);
        let op = Op::Contract(ContractOp::MatMul { transpose_a, transpose_b });
        self.apply(op, &[x.node, other.node], x.bound * other.bound * k as f64);
    }

    fn convolution(&mut self, x: RandomGraphNode) {
        let dims = self.dims(x.node);
        if dims.len() != 4 || dims.contains(&0) {
            return self.unary(x);
        }
        let window = [self.random.between(1, dims[2].min(3)), self.random.between(1, dims[3].min(3))];
        let low = self.random.below(window[0]);
        let padding = [low, self.random.below(window[0]), self.random.below(window[1]), 0];
        let strides = [self.random.between(1, 2), self.random.between(1, 2)];
        let pool = Pool2d { window, padding, strides, dilations: [1, 1] };
        let taps = (window[0] * window[1]) as f64;
        match self.random.below(3) {
            0 => {
                let groups = if dims[1].is_multiple_of(2) { self.random.between(1, 2) } else { 1 };
                let filters = groups * self.random.between(1, 3);
                let filter = self.source_of(DType::F32, &[filters, dims[1] / groups, window[0], window[1]]);
                let conv = Conv2d { padding, strides, dilations: [1, 1], groups };
                let bound = x.bound * filter.bound * taps * dims[1] as f64;
                self.apply(Op::Convolution(ConvolutionOp::Conv2d(conv)), &[x.node, filter.node], bound);
            }
            1 => {
                debug_assert!(pooled_size([dims[2], dims[3]], &pool).iter().all(|&size| size > 0));
                self.apply(Op::Convolution(ConvolutionOp::Pool2d { kind: PoolKind::Max, pool }), &[x.node], x.bound);
            }
            _ => {
                let op = Op::Convolution(ConvolutionOp::Pool2d { kind: PoolKind::Sum, pool });
                self.apply(op, &[x.node], x.bound * taps);
            }
        }
    }

    /// Adds comparisons, rounding, conversions to integers and searches of values without rounding differences, and a
    /// selection by the result.
    fn discontinuous(&mut self, x: RandomGraphNode) {
        if !x.deterministic {
            return self.binary(x);
        }
        let descriptor = self.draft.builder.descriptor(x.node).clone();
        match self.random.below(4) {
            0 => {
                let is_stepped = |op: &&UnaryOp| {
                    op.facts().operands.contains(DType::F32) && op.facts().smoothness == OperatorSmoothness::Stepped
                };
                let ops: Vec<UnaryOp> = UnaryOp::WITHOUT_ATTRIBUTES.iter().filter(is_stepped).copied().collect();
                let op = self.random.pick(&ops);
                let node = self.draft.node(Op::Unary(op), &[x.node]);
                self.add_node(node, x.bound.max(1.0), true);
            }
            1 => self.apply(Op::Unary(UnaryOp::Cast(DType::I32)), &[x.node], f64::INFINITY),
            2 if descriptor.shape.rank() > 0 => {
                let axis = self.random.below(descriptor.shape.rank());
                if descriptor.shape[axis] > 0 {
                    self.apply(Op::Reduce(ReduceOp::ArgMax { axis }), &[x.node], f64::INFINITY);
                }
            }
            _ => {
                let zero = self.add_fill_like(x.node, 0.0);
                let is_comparison = |op: &&BinaryOp| op.facts().is_boolean && op.facts().operands == OperandTypes::Any;
                let ops: Vec<BinaryOp> = BinaryOp::ALL.iter().filter(is_comparison).copied().collect();
                let op = self.random.pick(&ops);
                let condition = self.draft.node(Op::Binary(op), &[x.node, zero]);
                let other = self.source_of(DType::F32, &descriptor.shape);
                self.apply(Op::Select, &[condition, x.node, other.node], x.bound.max(other.bound));
            }
        }
    }

    fn index(&mut self, x: RandomGraphNode) {
        let dims = self.dims(x.node);
        let Some(axis) = (0..dims.len()).find(|&axis| dims[axis] > 0) else { return };
        let RandomGraph { random, draft, .. } = self;
        let count = random.between(1, 6);
        let float = draft.builder.descriptor(x.node).dtype == DType::F32;
        let way = random.below(if float { 3 } else { 2 });
        if way == 0 {
            let indices = draft.input(random, DType::I32, &[count], ValueDistribution::Index(dims[axis]));
            let node = draft.node(Op::Index(IndexOp::Gather { axis }), &[x.node, indices]);
            self.add_node(node, x.bound, x.deterministic);
        } else if way == 2 {
            let combine = random.pick(&[ScatterCombine::Replace, ScatterCombine::Add]);
            let indices = draft.input(random, DType::I32, &[count], ValueDistribution::Index(dims[axis]));
            let mut updates = dims.clone();
            updates[axis] = count;
            let updates = draft.input(random, DType::F32, &updates, ValueDistribution::Any);
            let op = Op::Index(IndexOp::Scatter { axis, combine });
            self.apply(op, &[x.node, indices, updates], x.bound + 2.0 * count as f64);
        } else {
            let size = random.between(1, 5);
            let indices = draft.input(random, DType::I32, &[dims[axis]], ValueDistribution::Index(size));
            let op = Op::Index(IndexOp::ScatterAdd { axis, size });
            self.apply(op, &[indices, x.node], x.bound * dims[axis] as f64);
        }
    }

    fn add_generator(&mut self) {
        let rank = self.random.below(4);
        let shape = Shape::new(self.random.random_dims(rank)).expect("a small shape");
        let words: Vec<f64> = (0..4).map(|_| (self.random.bits() >> 32) as f64).collect();
        let key = InterpTensor::from_numbers(DType::U32, Shape::new([4]).expect("a small shape"), &words);
        let key = self.draft.input_with_value(key.expect("four words"));
        let stream = self.random.below(1000) as u32;
        let distribution = self.random.pick(&RandomDistribution::ALL);
        let node = self.draft.builder.random(shape, key, stream, distribution).expect("a key");
        self.add_node(node, 1.0, true);
    }

    fn finish(mut self, seed: u64) -> GraphCase {
        if self.random.once_in(3) {
            let place = self.choose_node();
            let descriptor = self.draft.builder.descriptor(place.node).clone();
            let held = random_value(&mut self.random, descriptor.dtype, &descriptor.shape, ValueDistribution::Any);
            let variable = self.draft.variable(held);
            self.draft.builder.assign_to(variable, place.node).expect("one data type and shape");
        }
        let graph = self.draft.builder.graph();
        let mut read = vec![false; graph.nodes.len()];
        graph.nodes.iter().flat_map(|node| &node.inputs).for_each(|input| read[input.index()] = true);
        let outputs: Vec<NodeId> =
            (0..read.len()).filter(|&node| !read[node]).map(|node| NodeId(node as u32)).collect();
        self.draft.finish(format!("random graph {seed}"), &outputs, false)
    }
}

/// Returns other dimensions with the same number of elements: neighbours merged, or dimensions of size 1 inserted.
fn regroup_dims(random: &mut CaseRng, dims: &[usize]) -> Vec<usize> {
    if dims.len() < 2 || random.once_in(3) && dims.len() < 6 {
        let mut dims = dims.to_vec();
        dims.insert(random.between(0, dims.len()), 1);
        return dims;
    }
    let axis = random.below(dims.len() - 1);
    let mut merged = dims.to_vec();
    merged[axis] *= merged.remove(axis + 1);
    merged
}
