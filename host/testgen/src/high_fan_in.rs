//! Random graphs with high fan-in: long concatenations, many inputs, repeated operands, and variables that are assigned
//! each other's old values.

use super::values::{CaseRng, ValueDistribution, random_value};
use super::{CaseBuilder, GraphCase};
use saggar_tensor::op::{BinaryOp, ContractOp, MovementOp, Op, ReduceKind, ReduceOp, UnaryOp};
use saggar_tensor::{DType, NodeId, Shape};

/// Largest number of elements of a node that other nodes are built on.
const ELEMENTS_MAX: usize = 1500;

/// Returns a random graph whose kernels would read more values than one kernel can, and read the same ones in several
/// ways.
pub fn high_fan_in_graph(seed: u64) -> GraphCase {
    let mut random = CaseRng::new(seed ^ 0x7A16_1E00);
    let dtype = if random.once_in(5) { DType::I32 } else { DType::F32 };
    let rank = random.between(1, 3);
    let home = (0..rank).map(|_| random.between(1, 4)).collect();
    let mut tangle = HighFanInGraph {
        random,
        draft: CaseBuilder::default(),
        dtype,
        leaf_dims: home,
        nodes: Vec::new(),
        variables: Vec::new(),
    };
    tangle.sources();
    for _ in 0..tangle.random.between(2, 24) {
        tangle.grow_by_one();
    }
    tangle.finish(seed)
}

struct HighFanInGraph {
    random: CaseRng,
    draft: CaseBuilder,
    dtype: DType,
    /// Dimensions of inputs and variables.
    leaf_dims: Vec<usize>,
    nodes: Vec<NodeId>,
    variables: Vec<NodeId>,
}

impl HighFanInGraph {
    fn sources(&mut self) {
        let inputs = if self.random.once_in(3) { self.random.between(8, 40) } else { self.random.between(1, 8) };
        let variables = if self.random.once_in(2) { self.random.between(1, 9) } else { 0 };
        let HighFanInGraph { random, draft, dtype, leaf_dims: home, .. } = self;
        self.nodes.extend((0..inputs).map(|_| draft.input(random, *dtype, home, ValueDistribution::Any)));
        self.variables
            .extend((0..variables).map(|_| draft.variable(random_value(random, *dtype, home, ValueDistribution::Any))));
        self.nodes.extend(&self.variables);
    }

    fn dims(&self, node: NodeId) -> Vec<usize> {
        self.draft.builder.descriptor(node).shape.to_vec()
    }

    fn node(&mut self, op: Op, inputs: &[NodeId]) -> NodeId {
        let node = self.draft.node(op, inputs);
        self.nodes.push(node);
        node
    }

    /// Chooses a node, recent ones more often.
    fn choose_recent_node(&mut self) -> NodeId {
        let count = self.nodes.len();
        let from = if self.random.once_in(2) { count.saturating_sub(4) } else { 0 };
        self.nodes[self.random.between(from, count - 1)]
    }

    /// Returns a node of the same dimensions, which can be `node` itself.
    fn same_shape_node(&mut self, node: NodeId) -> NodeId {
        let dims = self.dims(node);
        let alike: Vec<NodeId> = self.nodes.iter().copied().filter(|&other| self.dims(other) == dims).collect();
        if self.random.once_in(4) { node } else { self.random.pick(&alike) }
    }

    fn grow_by_one(&mut self) {
        let x = self.choose_recent_node();
        match self.random.below(14) {
            0..5 => {
                let other = self.same_shape_node(x);
                self.binary(x, other);
            }
            5..8 => self.concat(x),
            8 => {
                let op = self.random.pick(&[UnaryOp::Neg, UnaryOp::Abs, UnaryOp::Sign]);
                self.node(Op::Unary(op), &[x]);
            }
            9 => {
                let (a, b) = (self.same_shape_node(x), self.same_shape_node(x));
                let less = self.draft.node(Op::Binary(BinaryOp::Less), &[a, b]);
                self.node(Op::Select, &[less, x, b]);
            }
            10 => self.fold(x),
            11 => self.product(x),
            _ => self.movement(x),
        }
    }

    fn binary(&mut self, a: NodeId, b: NodeId) -> NodeId {
        let op = self.random.pick(&[BinaryOp::Add, BinaryOp::Sub, BinaryOp::Min, BinaryOp::Max, BinaryOp::Min]);
        self.node(Op::Binary(op), &[a, b])
    }

    /// Concatenates many nodes, and sometimes uses the whole result before slicing it.
    fn concat(&mut self, x: NodeId) {
        let dims = self.dims(x);
        let axis = self.random.below(dims.len());
        let most = if self.random.once_in(4) { 34 } else { 12 };
        let count = self.random.between(2, most).min(ELEMENTS_MAX / dims.iter().product::<usize>().max(1));
        let mut parts = vec![x];
        for _ in 1..count {
            parts.push(self.same_shape_node(x));
        }
        let mut whole = self.node(Op::Movement(MovementOp::Concat { axis }), &parts);
        for _ in 0..self.random.below(4) {
            let other = self.same_shape_node(whole);
            whole = self.binary(whole, other);
        }
        if self.random.once_in(2) {
            let (mut starts, mut strides) = (vec![0; dims.len()], vec![1; dims.len()]);
            starts[axis] = self.random.below(parts.len());
            let room = (dims[axis] * parts.len() - starts[axis] - 1) / dims[axis].max(2).saturating_sub(1);
            strides[axis] = self.random.between(1, room.clamp(1, 5));
            if starts[axis] + (dims[axis] - 1) * strides[axis] < dims[axis] * parts.len() {
                self.node(Op::Movement(MovementOp::Slice { starts, sizes: dims, strides }), &[whole]);
            }
        }
    }

    /// Reduces along one axis and broadcasts the result along it again.
    fn fold(&mut self, x: NodeId) {
        let dims = self.dims(x);
        let axes = vec![self.random.below(dims.len())];
        let kind = self.random.pick(&[ReduceKind::Sum, ReduceKind::Max, ReduceKind::Min]);
        let folded = self.draft.node(Op::Reduce(ReduceOp::Fold { kind, axes }), &[x]);
        let shape = Shape::new(dims).expect("it is a shape already");
        let spread = self.draft.node(Op::Movement(MovementOp::Broadcast(shape)), &[folded]);
        self.binary(x, spread);
    }

    /// Multiplies two float matrices whose values are bounded by `tanh`.
    fn product(&mut self, x: NodeId) {
        let other = self.same_shape_node(x);
        let dims = self.dims(x);
        let elements = dims.iter().rev().skip(1).product::<usize>() * dims.iter().rev().nth(1).unwrap_or(&1);
        if self.dtype.is_float() && dims.len() >= 2 && elements <= ELEMENTS_MAX {
            let op = ContractOp::MatMul { transpose_a: false, transpose_b: true };
            let product = self.draft.node(Op::Contract(op), &[x, other]);
            self.node(Op::Unary(UnaryOp::Tanh), &[product]);
        } else {
            self.binary(x, other);
        }
    }

    fn movement(&mut self, x: NodeId) {
        let dims = self.dims(x);
        let rank = dims.len();
        let op = match self.random.below(4) {
            0 => MovementOp::Transpose(self.random.permutation(rank)),
            1 => MovementOp::Reverse(self.random.random_axes(rank)),
            2 => MovementOp::Reshape(Shape::new([dims.iter().product::<usize>()]).expect("as many elements as before")),
            _ => {
                let mut starts = vec![0; rank];
                let axis = self.random.below(rank);
                starts[axis] = self.random.below(dims[axis]);
                let mut sizes = dims.clone();
                sizes[axis] -= starts[axis];
                MovementOp::Slice { starts, sizes, strides: vec![1; rank] }
            }
        };
        self.node(Op::Movement(op), &[x]);
    }

    fn finish(mut self, seed: u64) -> GraphCase {
        for variable in self.variables.clone() {
            if !self.random.once_in(4) {
                let next = self.same_shape_node(variable);
                self.draft.builder.assign_to(variable, next).expect("one data type and shape");
            }
        }
        let graph = self.draft.builder.graph();
        let mut read = vec![false; graph.nodes.len()];
        graph.nodes.iter().flat_map(|node| &node.inputs).for_each(|input| read[input.index()] = true);
        let mut outputs: Vec<NodeId> =
            (0..read.len()).filter(|&node| !read[node]).map(|node| NodeId(node as u32)).collect();
        for _ in 0..self.random.below(3) {
            outputs.push(self.choose_recent_node());
        }
        self.draft.finish(format!("tangle {seed}"), &outputs, false)
    }
}
