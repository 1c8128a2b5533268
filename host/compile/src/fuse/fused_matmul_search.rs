//! Fused matmul search: finds matrix products that are not materialized. Every reader recomputes their elements tile by
//! tile, and reduces or multiplies the result at once.
//!
//! This pays if the product is larger than its factors, as attention scores are: recomputing costs less than writing
//! the product and the values derived from it, and reading them back.

use std::collections::{BTreeMap, BTreeSet};

use saggar_tensor::op::{BinaryOp, ContractOp, MovementOp, ReduceKind, ReduceOp, UnaryOp};
use saggar_tensor::{DType, Graph, InterruptCheck, InterruptedError, NodeId};

use super::fusion_kind::{FusionKind, fusion_kind, reshape_base};
use super::matmul_operands::matrix_view;
use crate::limits::{
    FUSED_MATMUL_COLUMNS_MAX, FUSED_MATMUL_PRODUCTS_MAX, FUSED_MATMUL_SINGLE_USE_COLUMNS_MAX,
    FUSED_MATMUL_SINGLE_USE_DEPTH_MAX, FUSED_MATMUL_SINGLE_USE_ROWS_MIN, FUSED_MATMUL_VISITS_MAX,
};
use crate::target::CompileTarget;

/// All fused matmuls of a graph.
#[derive(Default)]
pub(crate) struct FusedMatMulSet {
    /// Products that are not materialized.
    pub(crate) products: BTreeSet<NodeId>,
    /// Element-wise nodes computed from these products, also not materialized.
    pub(crate) elementwise: BTreeSet<NodeId>,
    /// Reductions and products of these nodes, each with a separate kernel.
    pub(crate) consumers: BTreeMap<NodeId, MatrixConsumer>,
    /// Reductions that a fused softmax computes as a by-product.
    pub(crate) absorbed_folds: BTreeSet<NodeId>,
}

/// How a reduction or a product reads a matrix that is not materialized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MatrixConsumer {
    /// The node whose elements it reads.
    pub(crate) matrix: NodeId,
    /// For a product, the index of the operand that is the matrix.
    pub(crate) operand: usize,
    /// Whether it reads the matrix transposed.
    pub(crate) transposed: bool,
    /// The nodes of the softmax, if the matrix is a softmax over its rows.
    pub(crate) softmax: Option<SoftmaxNodes>,
}

/// The nodes of a softmax over rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SoftmaxNodes {
    /// The operand of the softmax.
    pub(crate) scores: NodeId,
    /// The largest element of each row.
    pub(crate) largest: NodeId,
    /// The sum of each row's exponentials.
    pub(crate) sum: NodeId,
}

impl FusedMatMulSet {
    /// Returns whether the node is part of a fused matmul.
    pub(super) fn contains(&self, node: NodeId) -> bool {
        self.products.contains(&node) || self.elementwise.contains(&node) || self.consumers.contains_key(&node)
    }

    /// Returns the row statistics that the kernel of `node` also computes.
    pub(super) fn softmax_rows(&self, node: NodeId) -> impl Iterator<Item = NodeId> + use<> {
        let softmax = self.consumers.get(&node).and_then(|end| end.softmax);
        softmax.into_iter().flat_map(|rows| [rows.largest, rows.sum])
    }
}

/// Finds the fused matmuls of a graph for `target`. Nodes in `claimed` or `forced` stay in memory.
///
/// # Errors
/// Returns `InterruptedError` if interrupted.
pub(super) fn find_fused_matmuls(
    graph: &Graph,
    claimed: &BTreeSet<NodeId>,
    forced: &BTreeSet<NodeId>,
    target: &CompileTarget,
    interrupt: &InterruptCheck<'_>,
) -> Result<FusedMatMulSet, InterruptedError> {
    if target.chain_values_max == 0 {
        return Ok(FusedMatMulSet::default());
    }
    let mut users = vec![Vec::new(); graph.nodes.len()];
    for (at, node) in graph.nodes.iter().enumerate() {
        node.inputs.iter().enumerate().for_each(|(operand, input)| users[input.index()].push((at, operand)));
    }
    let in_memory = claimed.union(forced).copied().collect();
    let search = FusedMatMulSearch { graph, users, in_memory, rows_min: target.chain_rows_min };
    let candidates = (0..graph.nodes.len()).map(|at| NodeId(at as u32)).filter(|&node| search.is_candidate(node));
    let mut reached: BTreeMap<NodeId, ProductUses> = BTreeMap::new();
    for product in candidates {
        interrupt.check()?;
        let found = search.product_uses(product).filter(|found| search.is_profitable(product, found));
        reached.extend(found.map(|found| (product, found)));
    }
    // Removing a product removes its fused matmuls, which can invalidate other products that share a reader with it. So
    // repeat until nothing changes.
    while let Some(refused) = search.unfusable_products(&reached) {
        reached.retain(|product, _| !refused.contains(product));
    }
    let mut chains = FusedMatMulSet::default();
    for (product, ProductUses { elementwise: between, consumers: ends }) in reached {
        chains.products.insert(product);
        chains.elementwise.extend(between);
        chains.consumers.extend(ends);
    }
    interrupt.check()?;
    search.absorb_softmax(&mut chains);
    Ok(chains)
}

/// The uses of a product's elements.
#[derive(Default)]
struct ProductUses {
    elementwise: BTreeSet<NodeId>,
    consumers: BTreeMap<NodeId, MatrixConsumer>,
}

struct FusedMatMulSearch<'a> {
    graph: &'a Graph,
    /// For each node, its readers and the operand index of each.
    users: Vec<Vec<(usize, usize)>>,
    in_memory: BTreeSet<NodeId>,
    /// Fewest rows of all matrices of a fused matmul together.
    rows_min: usize,
}

/// A reader of a node, possibly through movements.
enum ProductReader {
    /// Reads the node element by element.
    Element(NodeId),
    /// Reads the node as the matrix of a fused matmul.
    Consumer(NodeId, MatrixConsumer),
}

impl FusedMatMulSearch<'_> {
    /// Returns whether `node` is a `float32` product that does not have to be in memory. `float16` products use
    /// cooperative matrices, which fused matmuls do not support.
    fn is_candidate(&self, node: NodeId) -> bool {
        let descriptor = self.graph.descriptor(node);
        is_product(self.graph, node)
            && descriptor.dtype == DType::F32
            && descriptor.shape.elements() > 0
            && !self.in_memory.contains(&node)
    }

    /// Returns whether fusing the product is faster than storing it. If several kernels use it, each recomputes it.
    /// This pays if the product is at least as large as its factors, and has enough rows and columns to keep the device
    /// busy. If only one kernel uses it, nothing is recomputed. This pays even for few rows, if each row has few
    /// columns, because a workgroup processes them sequentially, tile by tile.
    fn is_profitable(&self, product: NodeId, reached: &ProductUses) -> bool {
        let Some(ContractOp::MatMul { transpose_a, .. }) = self.graph.node(product).op.as_contract() else {
            return false;
        };
        let shape = &self.graph.descriptor(product).shape;
        let [rows, columns] = last_two(shape.dims());
        let factor = last_two(self.graph.descriptor(self.graph.node(product).inputs[0]).shape.dims());
        let depth = factor[if *transpose_a { 0 } else { 1 }];
        let is_large =
            rows * columns >= depth * (rows + columns) && shape.elements() / rows.max(columns) >= self.rows_min;
        let is_short = columns <= FUSED_MATMUL_SINGLE_USE_COLUMNS_MAX
            && depth <= FUSED_MATMUL_SINGLE_USE_DEPTH_MAX
            && rows >= FUSED_MATMUL_SINGLE_USE_ROWS_MIN;
        is_large || (is_short && self.is_used_once(reached))
    }

    /// Returns whether the product is used only by a softmax and one product of that softmax.
    fn is_used_once(&self, reached: &ProductUses) -> bool {
        let products = reached.consumers.iter().filter(|(end, _)| is_product(self.graph, **end));
        let mut softmaxes = products.filter_map(|(_, end)| self.match_softmax(end.matrix).filter(|_| !end.transposed));
        let parts = softmaxes.next().map(|rows| [rows.largest, rows.sum]);
        reached.consumers.len() == 3
            && parts.is_some_and(|parts| parts.iter().all(|part| reached.consumers.contains_key(part)))
    }

    /// Returns the uses of the product's elements, or `None` if something needs them in memory or too many nodes read
    /// them.
    fn product_uses(&self, product: NodeId) -> Option<ProductUses> {
        let mut reached = ProductUses::default();
        let mut open = vec![product];
        let mut visits = 0;
        while let Some(node) = open.pop() {
            if self.in_memory.contains(&node) {
                return None;
            }
            for reader in self.readers(product, node, &mut visits)? {
                match reader {
                    ProductReader::Element(user) if reached.elementwise.insert(user) => open.push(user),
                    ProductReader::Element(_) => {}
                    ProductReader::Consumer(user, end) => match reached.consumers.insert(user, end) {
                        None => {}
                        Some(other) if other == end => {}
                        Some(_) => return None,
                    },
                }
            }
        }
        Some(reached)
    }

    /// Returns the readers of `node`, or `None` if it is read in a way that fused matmuls do not support.
    fn readers(&self, product: NodeId, node: NodeId, visits: &mut usize) -> Option<Vec<ProductReader>> {
        let mut readers = Vec::new();
        // Movements between `node` and its readers, and whether they are all reshapes.
        let mut open = vec![(node, true)];
        while let Some((at, is_plain)) = open.pop() {
            if at != node && self.in_memory.contains(&at) {
                return None;
            }
            *visits += 1 + self.users[at.index()].len();
            if *visits > FUSED_MATMUL_VISITS_MAX {
                return None;
            }
            for &(user, operand) in &self.users[at.index()] {
                let user = NodeId(user as u32);
                match fusion_kind(&self.graph.node(user).op) {
                    FusionKind::Movement => {
                        open.push((user, is_plain && self.graph.node(user).op.is_reshape()));
                    }
                    FusionKind::Elementwise(_) if is_plain => readers.push(ProductReader::Element(user)),
                    FusionKind::Anchor => readers.push(ProductReader::Consumer(
                        user,
                        self.matrix_consumer(product, node, user, operand, is_plain)?,
                    )),
                    FusionKind::Elementwise(_) | FusionKind::External | FusionKind::Standalone => return None,
                }
            }
        }
        Some(readers)
    }

    /// Returns how the anchor `user` reads `node`, whose elements are those of `product`, as its `operand`.
    fn matrix_consumer(
        &self,
        product: NodeId,
        node: NodeId,
        user: NodeId,
        operand: usize,
        is_plain: bool,
    ) -> Option<MatrixConsumer> {
        let matrix_dims = last_two(self.graph.descriptor(product).shape.dims());
        let input = self.graph.node(user).inputs[operand];
        let dims = self.graph.descriptor(input).shape.dims();
        let op = &self.graph.node(user).op;
        match (op.as_reduce(), op.as_contract()) {
            (Some(ReduceOp::Fold { axes, .. }), _) => {
                let folds_rows = is_plain && axes[..] == [dims.len() - 1] && dims.last() == Some(&matrix_dims[1]);
                let own = last_two(self.graph.descriptor(reshape_base(self.graph, input)).shape.dims());
                (folds_rows && own == matrix_dims).then_some(MatrixConsumer {
                    matrix: reshape_base(self.graph, input),
                    operand,
                    transposed: false,
                    softmax: None,
                })
            }
            (_, Some(ContractOp::MatMul { transpose_a, transpose_b })) => {
                let read = matrix_view(self.graph, input);
                let size = matrix_dims[0] * matrix_dims[1];
                let batches = self.graph.descriptor(product).shape.elements() / size;
                let is_whole = read.node == node && (batches == 1 || read.batch_stride == size);
                let transposed = read.transposed != [*transpose_a, *transpose_b][operand];
                let own = last_two(self.graph.descriptor(node).shape.dims());
                let columns = last_two(self.graph.descriptor(user).shape.dims())[1 - operand];
                let suits = is_whole && own == matrix_dims && columns <= FUSED_MATMUL_COLUMNS_MAX;
                let as_read =
                    if read.transposed { [dims[dims.len() - 1], dims[dims.len() - 2]] } else { last_two(dims) };
                (suits && as_read == matrix_dims && self.graph.descriptor(user).dtype == DType::F32).then_some(
                    MatrixConsumer {
                        matrix: node,
                        operand,
                        // Rows of the result are rows of a left matrix operand; columns of the result are columns of a
                        // right one.
                        transposed: transposed != (operand == 1),
                        softmax: None,
                    },
                )
            }
            (Some(_) | None, None) => None,
        }
    }

    /// Returns products with a reader that cannot be a fused matmul, or `None` if all products are valid.
    fn unfusable_products(&self, reached: &BTreeMap<NodeId, ProductUses>) -> Option<BTreeSet<NodeId>> {
        let mut of_end: BTreeMap<NodeId, BTreeSet<NodeId>> = BTreeMap::new();
        let mut ways: BTreeMap<NodeId, MatrixConsumer> = BTreeMap::new();
        let mut refused = BTreeSet::new();
        for (&product, ProductUses { consumers: ends, .. }) in reached {
            for (&end, &way) in ends {
                of_end.entry(end).or_default().insert(product);
                // Both operands are matrices that are not materialized, or one matrix is read in two ways.
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
            if products.len() > FUSED_MATMUL_PRODUCTS_MAX
                || products.iter().any(|product| Some(shape(product)) != first)
            {
                refused.extend(products);
            }
        }
        (!refused.is_empty()).then_some(refused)
    }

    /// Lets the products of a softmax also compute the softmax's row statistics.
    fn absorb_softmax(&self, chains: &mut FusedMatMulSet) {
        let ends: Vec<(NodeId, MatrixConsumer)> = chains.consumers.iter().map(|(&node, &end)| (node, end)).collect();
        for (node, end) in ends {
            let suits = is_product(self.graph, node) && !end.transposed;
            let Some(rows) = self.match_softmax(end.matrix).filter(|_| suits) else { continue };
            let parts = [rows.largest, rows.sum];
            let other = self.graph.node(node).inputs[1 - end.operand];
            let is_free =
                parts.iter().all(|part| chains.consumers.contains_key(part) && !chains.absorbed_folds.contains(part))
                    && chains.contains(rows.scores)
                    && self.matrix_sides(rows.scores) == self.matrix_sides(end.matrix);
            if is_free && !self.depends_on_any(other, parts) {
                chains.absorbed_folds.extend(parts);
                chains.consumers.insert(node, MatrixConsumer { softmax: Some(rows), ..end });
            }
        }
    }

    /// Returns the numbers of rows and columns.
    fn matrix_sides(&self, node: NodeId) -> [usize; 2] {
        last_two(self.graph.descriptor(node).shape.dims())
    }

    /// Matches `exp(x - largest) / sum(exp(x - largest))` over the last axis and returns its nodes, or `None`.
    fn match_softmax(&self, node: NodeId) -> Option<SoftmaxNodes> {
        let graph = self.graph;
        let inputs = |node: NodeId| &graph.node(node).inputs;
        let is = |node: NodeId, binary: BinaryOp| graph.node(node).op.as_binary() == Some(&binary);
        let folded = |node: NodeId, over: ReduceKind| match graph.node(node).op.as_reduce() {
            Some(ReduceOp::Fold { kind, .. }) if *kind == over => Some(reshape_base(graph, inputs(node)[0])),
            Some(_) | None => None,
        };
        if !is(node, BinaryOp::Div) {
            return None;
        }
        let (power, sum) = (reshape_base(graph, inputs(node)[0]), self.broadcast_row_source(inputs(node)[1])?);
        let Some(UnaryOp::Exp) = graph.node(power).op.as_unary() else { return None };
        let less = reshape_base(graph, inputs(power)[0]);
        if !is(less, BinaryOp::Sub) || folded(sum, ReduceKind::Sum) != Some(power) {
            return None;
        }
        let (scores, largest) = (reshape_base(graph, inputs(less)[0]), self.broadcast_row_source(inputs(less)[1])?);
        (folded(largest, ReduceKind::Max) == Some(scores)).then_some(SoftmaxNodes { scores, largest, sum })
    }

    /// Returns the node with one element per row that `node` broadcasts along the row, or `None`.
    fn broadcast_row_source(&self, mut node: NodeId) -> Option<NodeId> {
        let whole = self.graph.descriptor(node).shape.dims();
        let mut is_spread = false;
        loop {
            let at = self.graph.node(node);
            let is_unchanged = at.op.is_reshape() || at.op.as_unary() == Some(&UnaryOp::StopGradient);
            node = match at.op.as_movement() {
                _ if is_unchanged => at.inputs[0],
                Some(MovementOp::Broadcast(_)) if !is_spread => {
                    let dims = self.graph.descriptor(at.inputs[0]).shape.dims();
                    let (last, rest) = dims.split_last()?;
                    if *last != 1 || *rest != whole[..whole.len() - 1] {
                        return None;
                    }
                    is_spread = true;
                    at.inputs[0]
                }
                Some(_) | None => return is_spread.then_some(node),
            };
        }
    }

    /// Returns whether `node` is computed from one of `parts`, or true if the search takes too long.
    fn depends_on_any(&self, node: NodeId, parts: [NodeId; 2]) -> bool {
        let mut seen = BTreeSet::from([node]);
        let mut open = vec![node];
        while let Some(node) = open.pop() {
            if parts.contains(&node) || seen.len() > FUSED_MATMUL_VISITS_MAX {
                return true;
            }
            let first = parts.iter().min();
            // An operand always has a smaller number than its reader.
            let inputs = self.graph.node(node).inputs.iter().filter(|input| Some(*input) >= first);
            open.extend(inputs.filter(|input| seen.insert(**input)));
        }
        false
    }
}

fn is_product(graph: &Graph, node: NodeId) -> bool {
    graph.node(node).op.as_contract().is_some()
}

fn last_two(dims: &[usize]) -> [usize; 2] {
    match dims {
        [.., rows, columns] => [*rows, *columns],
        [columns] => [1, *columns],
        [] => [1, 1],
    }
}
