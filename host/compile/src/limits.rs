//! Named maxima of programs.

/// Instructions one expression may have: a device keeps a block of elements for each.
pub const EXPR_INSTRUCTIONS_MAX: usize = 160;
/// Instructions that all kernels of a program may have together: what is cheap is computed by every kernel that needs it.
pub const PROGRAM_INSTRUCTIONS_MAX: usize = 1 << 20;
/// Nodes visited while one expression is written, those that it reads at several places counted once for each.
pub const EXPR_VISITS_MAX: usize = 2048;
/// Movements followed from a product to the matrix that it reads.
pub const MATRIX_MOVEMENTS_MAX: usize = 64;
/// Rounds in which kernels that cannot be built have some of their operands materialised. After these, all of them are.
pub const FUSE_ROUNDS_MAX: usize = 4;
/// Rounds of kernels for variables that cannot be updated in place. After these, no variable is.
pub const PINNED_ROUNDS_MAX: usize = 1;
/// Nodes that may be fused below one materialised node before more of them are materialised; also bounds recursion.
pub const FUSED_NODES_MAX: usize = 96;
/// The least `CompileTarget::kernel_values_max`: four operands of a concatenation and the result.
pub const KERNEL_VALUES_MIN: usize = 5;
/// The most values that a chain touches, on targets that have chains: two products' factors, another factor, what a softmax
/// and its gradient leave of each row, a mask, and the result.
pub const FUSED_MATMUL_VALUES_MAX: usize = 10;
/// Products whose elements a chain uses together.
pub const FUSED_MATMUL_PRODUCTS_MAX: usize = 2;
/// Nodes and readers visited while looking for what uses one product, or for what a chain's factor depends on.
pub const FUSED_MATMUL_VISITS_MAX: usize = 512;
/// Rows of a chain's matrix that a workgroup has.
pub const FUSED_MATMUL_TILE_ROWS: usize = 32;
/// Columns, depth and rows of a product that one kernel uses and nothing else: past them a chain's workgroups would take longer,
/// one after the other, than kernels that each keep the device busy; or would be mostly empty.
pub const FUSED_MATMUL_SINGLE_USE_COLUMNS_MAX: usize = 256;
/// See [`FUSED_MATMUL_SINGLE_USE_COLUMNS_MAX`].
pub const FUSED_MATMUL_SINGLE_USE_DEPTH_MAX: usize = 128;
/// See [`FUSED_MATMUL_SINGLE_USE_COLUMNS_MAX`].
pub const FUSED_MATMUL_SINGLE_USE_ROWS_MIN: usize = 16;
/// Columns of what a chain's matrix is multiplied by: its lanes keep sums for all of them.
pub const FUSED_MATMUL_COLUMNS_MAX: usize = 128;
/// Operands of a concatenation that one kernel joins; longer ones become trees.
pub const CONCAT_OPERANDS_MAX: usize = 4;
/// Work, in additions per element, that may be repeated instead of stored.
pub const RECOMPUTE_COST_MAX: u32 = 8;
/// Work, in additions per element, that a broadcast may repeat instead of reading it.
pub const BROADCAST_COST_MAX: u32 = 3;
/// Times one iteration space may be split in search of affine views.
pub const SPLITS_MAX: usize = 16;
/// Kernels visited while looking for a cycle before a merge is given up.
pub const MERGE_VISITS_MAX: usize = 4096;
/// Kernels visited while looking for cycles before no more merges are tried: kernels are right as they are.
pub const MERGE_ALL_VISITS_MAX: usize = 32 << 20;
/// Instructions written for kernels that might be merged before no more merges are tried.
pub const MERGE_INSTRUCTIONS_MAX: usize = 4 << 20;
/// Kernels visited while looking for a circle before a variable is given a copy instead of being updated in place.
pub const ORDER_VISITS_MAX: usize = 4096;
/// Kernels that could run next and are compared before one is chosen.
pub const READY_COMPARED_MAX: usize = 64;
/// Readers of one value that are considered as partners of one kernel.
pub const MERGE_PARTNERS_MAX: usize = 16;
/// Values compared with each other while scratch memory is packed tightly, before the rest is placed in the order of time.
pub const PLACEMENT_VISITS_MAX: usize = 2 << 20;
/// Labels named in one kernel's label.
pub const LABELS_MAX: usize = 3;

const _: () = assert!(FUSED_NODES_MAX < EXPR_INSTRUCTIONS_MAX);
const _: () = assert!(EXPR_INSTRUCTIONS_MAX < EXPR_VISITS_MAX);
const _: () = assert!(CONCAT_OPERANDS_MAX < KERNEL_VALUES_MIN);
