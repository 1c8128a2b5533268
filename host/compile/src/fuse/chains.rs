//! Which products are stored nowhere: every reader computes their elements anew, a piece at a time, and folds or multiplies
//! what becomes of them.
//!
//! That pays where the product is larger than what it is made of, as attention's scores are: what it costs to compute them
//! again is less than what it costs to write them, and what follows from them, and to read them back.

use std::collections::{BTreeMap, BTreeSet};

use saggar_tensor::op::{Binary, Contract, Movement, Op, Reduce, ReduceKind, Unary};
use saggar_tensor::{DType, Graph, Interrupt, Interrupted, NodeId};

use super::kind::{Kind, base, kind};
use super::matmul::matrix;
use crate::limits::{
    CHAIN_COLUMNS_MAX, CHAIN_ONCE_COLUMNS_MAX, CHAIN_ONCE_DEPTH_MAX, CHAIN_ONCE_ROWS_MIN, CHAIN_PRODUCTS_MAX,
    CHAIN_VISITS_MAX,
};
use crate::target::Target;

/// All chains of a graph.
#[derive(Default)]
pub(crate) struct Chains {
    /// Products that are stored nowhere.
    pub(crate) products: BTreeSet<NodeId>,
    /// What is computed of their elements, element by element, and stored nowhere either.
    pub(crate) between: BTreeSet<NodeId>,
    /// Folds and products of that, each with a kernel of its own.
    pub(crate) ends: BTreeMap<NodeId, Ends>,
    /// Folds that a softmax computes on its way.
    pub(crate) absorbed: BTreeSet<NodeId>,
}

/// How a fold or a product reads what is stored nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    /// The node whose elements it reads.
    pub(crate) matrix: NodeId,
    /// For a product, which operand that is.
    pub(crate) operand: usize,
    /// Whether it takes rows of that for columns.
    pub(crate) flipped: bool,
    /// Where the matrix is a softmax over its rows, its parts.
    pub(crate) softmax: Option<Rows>,
}

/// The parts of a softmax over rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rows {
    /// What it is of.
    pub(crate) scores: NodeId,
    /// The largest of each row.
    pub(crate) largest: NodeId,
    /// The sum of each row's exponentials.
    pub(crate) sum: NodeId,
}

impl Chains {
    /// Whether the node is part of a chain.
    pub(super) fn has(&self, node: NodeId) -> bool {
        self.products.contains(&node) || self.between.contains(&node) || self.ends.contains_key(&node)
    }

    /// What else the kernel of `node` computes, row by row.
    pub(super) fn rows(&self, node: NodeId) -> impl Iterator<Item = NodeId> + use<> {
        let softmax = self.ends.get(&node).and_then(|end| end.softmax);
        softmax.into_iter().flat_map(|rows| [rows.largest, rows.sum])
    }
}

/// The chains of a graph for `target`. Nodes that are `claimed` or `forced` lie in memory.
///
/// # Errors
/// `Interrupted`.
pub(super) fn chains(
    graph: &Graph,
    claimed: &BTreeSet<NodeId>,
    forced: &BTreeSet<NodeId>,
    target: &Target,
    interrupt: &Interrupt<'_>,
) -> Result<Chains, Interrupted> {
    if target.chain_values_max == 0 {
        return Ok(Chains::default());
    }
    let mut users = vec![Vec::new(); graph.nodes.len()];
    for (at, node) in graph.nodes.iter().enumerate() {
        node.inputs.iter().enumerate().for_each(|(operand, input)| users[input.index()].push((at, operand)));
    }
    let in_memory = claimed.union(forced).copied().collect();
    let search = Search { graph, users, in_memory, rows_min: target.chain_rows_min };
    let candidates = (0..graph.nodes.len()).map(|at| NodeId(at as u32)).filter(|&node| search.is_candidate(node));
    let mut reached: BTreeMap<NodeId, Reached> = BTreeMap::new();
    for product in candidates {
        interrupt.check()?;
        let found = search.reached(product).filter(|found| search.is_worth(product, found));
        reached.extend(found.map(|found| (product, found)));
    }
    // Fewer products leave fewer chains, which may be too few for others that share a reader with them.
    while let Some(refused) = search.refused(&reached) {
        reached.retain(|product, _| !refused.contains(product));
    }
    let mut chains = Chains::default();
    for (product, Reached { between, ends }) in reached {
        chains.products.insert(product);
        chains.between.extend(between);
        chains.ends.extend(ends);
    }
    interrupt.check()?;
    search.absorb(&mut chains);
    Ok(chains)
}

/// What a product's elements go to.
#[derive(Default)]
struct Reached {
    between: BTreeSet<NodeId>,
    ends: BTreeMap<NodeId, Ends>,
}

struct Search<'a> {
    graph: &'a Graph,
    /// Who reads each node, as which operand.
    users: Vec<Vec<(usize, usize)>>,
    in_memory: BTreeSet<NodeId>,
    /// Of all matrices together.
    rows_min: usize,
}

/// A reader of a node, by way of movements.
enum Reader {
    /// Element by element.
    Element(NodeId),
    /// As the matrix of a chain.
    End(NodeId, Ends),
}

impl Search<'_> {
    /// Whether `node` is a product of 32-bit floats that need not lie in memory. 16-bit ones are left to small matrices, which
    /// chains do not use.
    fn is_candidate(&self, node: NodeId) -> bool {
        let descriptor = self.graph.descriptor(node);
        is_product(self.graph, node)
            && descriptor.dtype == DType::F32
            && descriptor.shape.elements() > 0
            && !self.in_memory.contains(&node)
    }

    /// Whether it is better computed where it is used. If that is in several kernels, each computes it anew: that pays where it
    /// is at least as large as its factors, and there are rows and columns enough to keep the device busy. If one kernel is all
    /// that uses it, nothing is computed twice, and that pays for few rows too, if each has few columns, since a workgroup goes
    /// through them one piece after the other.
    fn is_worth(&self, product: NodeId, reached: &Reached) -> bool {
        let Op::Contract(Contract::MatMul { transpose_a, .. }) = &self.graph.node(product).op else { return false };
        let shape = &self.graph.descriptor(product).shape;
        let [rows, columns] = last_two(shape.dims());
        let factor = last_two(self.graph.descriptor(self.graph.node(product).inputs[0]).shape.dims());
        let depth = factor[if *transpose_a { 0 } else { 1 }];
        let is_large =
            rows * columns >= depth * (rows + columns) && shape.elements() / rows.max(columns) >= self.rows_min;
        let is_short =
            columns <= CHAIN_ONCE_COLUMNS_MAX && depth <= CHAIN_ONCE_DEPTH_MAX && rows >= CHAIN_ONCE_ROWS_MIN;
        is_large || (is_short && self.is_used_once(reached))
    }

    /// Whether a softmax and one product of it are all that the product goes to.
    fn is_used_once(&self, reached: &Reached) -> bool {
        let products = reached.ends.iter().filter(|(end, _)| is_product(self.graph, **end));
        let mut softmaxes = products.filter_map(|(_, end)| self.softmax(end.matrix).filter(|_| !end.flipped));
        let parts = softmaxes.next().map(|rows| [rows.largest, rows.sum]);
        reached.ends.len() == 3 && parts.is_some_and(|parts| parts.iter().all(|part| reached.ends.contains_key(part)))
    }

    /// Everything that reads the product's elements; none where something needs them in memory, or where too much reads them.
    fn reached(&self, product: NodeId) -> Option<Reached> {
        let mut reached = Reached::default();
        let mut open = vec![product];
        let mut visits = 0;
        while let Some(node) = open.pop() {
            if self.in_memory.contains(&node) {
                return None;
            }
            for reader in self.readers(product, node, &mut visits)? {
                match reader {
                    Reader::Element(user) if reached.between.insert(user) => open.push(user),
                    Reader::Element(_) => {}
                    Reader::End(user, end) => match reached.ends.insert(user, end) {
                        None => {}
                        Some(other) if other == end => {}
                        Some(_) => return None,
                    },
                }
            }
        }
        Some(reached)
    }

    /// Who reads `node`; none where it is read in a way that no chain has.
    fn readers(&self, product: NodeId, node: NodeId, visits: &mut usize) -> Option<Vec<Reader>> {
        let mut readers = Vec::new();
        // Movements on the way, and whether they are all reshapes.
        let mut open = vec![(node, true)];
        while let Some((at, is_plain)) = open.pop() {
            if at != node && self.in_memory.contains(&at) {
                return None;
            }
            *visits += 1 + self.users[at.index()].len();
            if *visits > CHAIN_VISITS_MAX {
                return None;
            }
            for &(user, operand) in &self.users[at.index()] {
                let user = NodeId(user as u32);
                match kind(&self.graph.node(user).op) {
                    Kind::Movement => {
                        let is_reshape = matches!(self.graph.node(user).op, Op::Movement(Movement::Reshape(_)));
                        open.push((user, is_plain && is_reshape));
                    }
                    Kind::Elementwise(_) if is_plain => readers.push(Reader::Element(user)),
                    Kind::Anchor => readers.push(Reader::End(user, self.end(product, node, user, operand, is_plain)?)),
                    Kind::Elementwise(_) | Kind::Given | Kind::Alone => return None,
                }
            }
        }
        Some(readers)
    }

    /// How the anchor `user` reads `node`, whose elements are those of `product`, as its `operand`.
    fn end(&self, product: NodeId, node: NodeId, user: NodeId, operand: usize, is_plain: bool) -> Option<Ends> {
        let matrix_dims = last_two(self.graph.descriptor(product).shape.dims());
        let input = self.graph.node(user).inputs[operand];
        let dims = self.graph.descriptor(input).shape.dims();
        match &self.graph.node(user).op {
            Op::Reduce(Reduce::Fold { axes, .. }) => {
                let folds_rows = is_plain && axes[..] == [dims.len() - 1] && dims.last() == Some(&matrix_dims[1]);
                let own = last_two(self.graph.descriptor(base(self.graph, input)).shape.dims());
                (folds_rows && own == matrix_dims).then_some(Ends {
                    matrix: base(self.graph, input),
                    operand,
                    flipped: false,
                    softmax: None,
                })
            }
            Op::Contract(Contract::MatMul { transpose_a, transpose_b }) => {
                let read = matrix(self.graph, input);
                let size = matrix_dims[0] * matrix_dims[1];
                let batches = self.graph.descriptor(product).shape.elements() / size;
                let is_whole = read.node == node && (batches == 1 || read.batch_stride == size);
                let transposed = read.transposed != [*transpose_a, *transpose_b][operand];
                let own = last_two(self.graph.descriptor(node).shape.dims());
                let columns = last_two(self.graph.descriptor(user).shape.dims())[1 - operand];
                let suits = is_whole && own == matrix_dims && columns <= CHAIN_COLUMNS_MAX;
                let as_read =
                    if read.transposed { [dims[dims.len() - 1], dims[dims.len() - 2]] } else { last_two(dims) };
                (suits && as_read == matrix_dims && self.graph.descriptor(user).dtype == DType::F32).then_some(Ends {
                    matrix: node,
                    operand,
                    // The result's rows are the matrix's where it stands on the left, and its columns are on the right.
                    flipped: transposed != (operand == 1),
                    softmax: None,
                })
            }
            Op::Source(_)
            | Op::Unary(_)
            | Op::Binary(_)
            | Op::Select
            | Op::Reduce(_)
            | Op::Movement(_)
            | Op::Convolution(_)
            | Op::Index(_) => None,
        }
    }

    /// Products that have a reader which no chain can be; none where all are well.
    fn refused(&self, reached: &BTreeMap<NodeId, Reached>) -> Option<BTreeSet<NodeId>> {
        let mut of_end: BTreeMap<NodeId, BTreeSet<NodeId>> = BTreeMap::new();
        let mut ways: BTreeMap<NodeId, Ends> = BTreeMap::new();
        let mut refused = BTreeSet::new();
        for (&product, Reached { ends, .. }) in reached {
            for (&end, &way) in ends {
                of_end.entry(end).or_default().insert(product);
                // Two operands that are both computed, or one that is read in two ways.
                if *ways.entry(end).or_insert(way) != way || reached.contains_key(&end) {
                    refused.insert(product);
                }
            }
        }
        let shape = |product: &NodeId| {
            let dims = self.graph.descriptor(*product).shape.dims();
            (dims.iter().product::<usize>(), last_two(dims))
        };
        for products in of_end.values() {
            let first = products.first().map(shape);
            if products.len() > CHAIN_PRODUCTS_MAX || products.iter().any(|product| Some(shape(product)) != first) {
                refused.extend(products);
            }
        }
        (!refused.is_empty()).then_some(refused)
    }

    /// Lets products of a softmax compute its parts.
    fn absorb(&self, chains: &mut Chains) {
        let ends: Vec<(NodeId, Ends)> = chains.ends.iter().map(|(&node, &end)| (node, end)).collect();
        for (node, end) in ends {
            let suits = is_product(self.graph, node) && !end.flipped;
            let Some(rows) = self.softmax(end.matrix).filter(|_| suits) else { continue };
            let parts = [rows.largest, rows.sum];
            let other = self.graph.node(node).inputs[1 - end.operand];
            let is_free = parts.iter().all(|part| chains.ends.contains_key(part) && !chains.absorbed.contains(part))
                && chains.has(rows.scores)
                && self.sides(rows.scores) == self.sides(end.matrix);
            if is_free && !self.depends(other, parts) {
                chains.absorbed.extend(parts);
                chains.ends.insert(node, Ends { softmax: Some(rows), ..end });
            }
        }
    }

    /// Rows and columns.
    fn sides(&self, node: NodeId) -> [usize; 2] {
        last_two(self.graph.descriptor(node).shape.dims())
    }

    /// The parts of `exp(x - largest) / sum(exp(x - largest))` over the last axis.
    fn softmax(&self, node: NodeId) -> Option<Rows> {
        let graph = self.graph;
        let inputs = |node: NodeId| &graph.node(node).inputs;
        let is = |node: NodeId, binary: Binary| matches!(&graph.node(node).op, Op::Binary(op) if *op == binary);
        let folded = |node: NodeId, over: ReduceKind| match &graph.node(node).op {
            Op::Reduce(Reduce::Fold { kind, .. }) if *kind == over => Some(base(graph, inputs(node)[0])),
            Op::Source(_)
            | Op::Unary(_)
            | Op::Binary(_)
            | Op::Select
            | Op::Reduce(_)
            | Op::Movement(_)
            | Op::Contract(_)
            | Op::Convolution(_)
            | Op::Index(_) => None,
        };
        if !is(node, Binary::Div) {
            return None;
        }
        let (power, sum) = (base(graph, inputs(node)[0]), self.of_row(inputs(node)[1])?);
        let Op::Unary(Unary::Exp) = &graph.node(power).op else { return None };
        let less = base(graph, inputs(power)[0]);
        if !is(less, Binary::Sub) || folded(sum, ReduceKind::Sum) != Some(power) {
            return None;
        }
        let (scores, largest) = (base(graph, inputs(less)[0]), self.of_row(inputs(less)[1])?);
        (folded(largest, ReduceKind::Max) == Some(scores)).then_some(Rows { scores, largest, sum })
    }

    /// The node with an element for each row that `node` has for all of the row's.
    fn of_row(&self, mut node: NodeId) -> Option<NodeId> {
        let whole = self.graph.descriptor(node).shape.dims();
        let mut is_spread = false;
        loop {
            let at = self.graph.node(node);
            node = match &at.op {
                Op::Movement(Movement::Reshape(_)) | Op::Unary(Unary::StopGradient) => at.inputs[0],
                Op::Movement(Movement::Broadcast(_)) if !is_spread => {
                    let dims = self.graph.descriptor(at.inputs[0]).shape.dims();
                    let (last, rest) = dims.split_last()?;
                    if *last != 1 || *rest != whole[..whole.len() - 1] {
                        return None;
                    }
                    is_spread = true;
                    at.inputs[0]
                }
                Op::Source(_)
                | Op::Unary(_)
                | Op::Binary(_)
                | Op::Select
                | Op::Reduce(_)
                | Op::Movement(_)
                | Op::Contract(_)
                | Op::Convolution(_)
                | Op::Index(_) => return is_spread.then_some(node),
            };
        }
    }

    /// Whether `node` is computed from one of `parts`; also if finding out takes too long.
    fn depends(&self, node: NodeId, parts: [NodeId; 2]) -> bool {
        let mut seen = BTreeSet::from([node]);
        let mut open = vec![node];
        while let Some(node) = open.pop() {
            if parts.contains(&node) || seen.len() > CHAIN_VISITS_MAX {
                return true;
            }
            let first = parts.iter().min();
            // Operands have smaller numbers than what they are operands of.
            let inputs = self.graph.node(node).inputs.iter().filter(|input| Some(*input) >= first);
            open.extend(inputs.filter(|input| seen.insert(**input)));
        }
        false
    }
}

fn is_product(graph: &Graph, node: NodeId) -> bool {
    match graph.node(node).op {
        Op::Contract(Contract::MatMul { .. }) => true,
        Op::Source(_)
        | Op::Unary(_)
        | Op::Binary(_)
        | Op::Select
        | Op::Reduce(_)
        | Op::Movement(_)
        | Op::Convolution(_)
        | Op::Index(_) => false,
    }
}

fn last_two(dims: &[usize]) -> [usize; 2] {
    match dims {
        [.., rows, columns] => [*rows, *columns],
        [columns] => [1, *columns],
        [] => [1, 1],
    }
}
