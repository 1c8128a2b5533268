//! Named maxima of graphs and tensors. Guest graphs are refused beyond them, by name.

/// Dimensions a tensor may have.
pub const RANK_MAX: usize = 8;
/// Elements one tensor may have; offsets and element counts therefore fit a signed 32-bit integer on every device.
pub const ELEMENTS_MAX: usize = (1 << 31) - 1;
/// Nodes one graph may have, gradients included.
pub const GRAPH_NODES_MAX: usize = 100_000;
/// Bytes of all constants of one graph.
pub const GRAPH_CONSTANT_BYTES_MAX: usize = 256 << 20;
/// Operands one node may have (only concatenation takes more than three).
pub const OPERANDS_MAX: usize = 256;
/// Operands all nodes of one graph may have together: what passes over a graph take time for.
pub const GRAPH_OPERANDS_MAX: usize = 1_000_000;
/// Bytes of an input's, variable's or output's name, or of a label.
pub const NAME_BYTES_MAX: usize = 256;
/// Named outputs one graph may have.
pub const GRAPH_OUTPUTS_MAX: usize = 4096;
/// Size of an axis that images are resized to: where each of its places lies is computed, and kept as a constant.
pub const RESAMPLED_SIZE_MAX: usize = 1 << 24;

const _: () = assert!(GRAPH_NODES_MAX <= u32::MAX as usize);
const _: () = assert!(3 * GRAPH_NODES_MAX <= GRAPH_OPERANDS_MAX, "only concatenation takes more than three operands");
const _: () = assert!(ELEMENTS_MAX <= i32::MAX as usize);
