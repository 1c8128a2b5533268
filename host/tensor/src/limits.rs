//! Named limits of graphs and tensors. Guest graphs that exceed them are refused with a named error.

/// Most dimensions of a tensor.
pub const RANK_MAX: usize = 8;
/// Most elements of a tensor; offsets and element counts therefore fit a signed 32-bit integer on every device.
pub const ELEMENTS_MAX: usize = (1 << 31) - 1;
/// Most nodes of a graph, gradients included.
pub const GRAPH_NODES_MAX: usize = 100_000;
/// Most bytes of all constants of a graph.
pub const GRAPH_CONSTANT_BYTES_MAX: usize = 256 << 20;
/// Most operands of a node (only concatenation takes more than three).
pub const OPERANDS_MAX: usize = 256;
/// Most operands of all nodes of a graph together. The time of passes over a graph is proportional to this number.
pub const GRAPH_OPERANDS_MAX: usize = 1_000_000;
/// Most bytes of the name of an input, variable or output, or of a label.
pub const NAME_BYTES_MAX: usize = 256;
/// Most named outputs of a graph.
pub const GRAPH_OUTPUTS_MAX: usize = 4096;
/// Largest size of an axis after resampling: the source position of each element is computed and kept as a constant.
pub const RESAMPLED_SIZE_MAX: usize = 1 << 24;

const _: () = assert!(GRAPH_NODES_MAX <= u32::MAX as usize);
const _: () = assert!(3 * GRAPH_NODES_MAX <= GRAPH_OPERANDS_MAX, "only concatenation takes more than three operands");
const _: () = assert!(ELEMENTS_MAX <= i32::MAX as usize);
