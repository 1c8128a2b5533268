//! Named limits of programs and of the compiler's searches.

/// Most instructions in one expression: a device keeps a block of elements for each.
pub const EXPR_INSTRUCTIONS_MAX: usize = 160;
/// Most instructions in all kernels of a program together. A bound is needed because each kernel recomputes cheap
/// operands.
pub const PROGRAM_INSTRUCTIONS_MAX: usize = 1 << 20;
/// Most nodes visited while one expression is written; a node that is read at several positions counts once for each.
pub const EXPR_VISITS_MAX: usize = 2048;
/// Most movements followed from a matrix product to the matrix that it reads.
pub const MATRIX_MOVEMENTS_MAX: usize = 64;
/// Rounds in which kernels that cannot be built get some of their operands materialized. After these, all operands are.
pub const FUSE_ROUNDS_MAX: usize = 4;
/// Rounds in which individual variables are excluded from in-place updates. After these, all variables are.
pub const PINNED_ROUNDS_MAX: usize = 1;
/// Most nodes fused below one materialized node before more of them are materialized; also bounds recursion.
pub const FUSED_NODES_MAX: usize = 96;
/// Smallest valid `CompileTarget::kernel_values_max`: four operands of a concatenation and the result.
pub const KERNEL_VALUES_MIN: usize = 5;
/// Most values that a fused matmul touches, on targets that support it: the factors of two products, another factor,
/// the row statistics of a softmax and of its gradient, a mask, and the result.
pub const FUSED_MATMUL_VALUES_MAX: usize = 10;
/// Most products whose elements one fused matmul combines.
pub const FUSED_MATMUL_PRODUCTS_MAX: usize = 2;
/// Most nodes and readers visited in the search for the uses of one product, or for the dependencies of a fused
/// matmul's factor.
pub const FUSED_MATMUL_VISITS_MAX: usize = 512;
/// Rows of a fused matmul's matrix per workgroup.
pub const FUSED_MATMUL_TILE_ROWS: usize = 32;
/// Most columns, most depth and fewest rows of a product that only one kernel uses, for fusion to pay. Beyond these
/// limits, the sequential workgroups of a fused matmul would take longer than separate kernels that each keep the
/// device busy, or would be mostly empty.
pub const FUSED_MATMUL_SINGLE_USE_COLUMNS_MAX: usize = 256;
/// See [`FUSED_MATMUL_SINGLE_USE_COLUMNS_MAX`].
pub const FUSED_MATMUL_SINGLE_USE_DEPTH_MAX: usize = 128;
/// See [`FUSED_MATMUL_SINGLE_USE_COLUMNS_MAX`].
pub const FUSED_MATMUL_SINGLE_USE_ROWS_MIN: usize = 16;
/// Most columns of the matrix that a fused matmul's matrix is multiplied by: its lanes keep sums for all of them.
pub const FUSED_MATMUL_COLUMNS_MAX: usize = 128;
/// Most operands of a concatenation in one kernel; longer concatenations become trees.
pub const CONCAT_OPERANDS_MAX: usize = 4;
/// Largest cost, in additions per element, that is recomputed instead of stored.
pub const RECOMPUTE_COST_MAX: u32 = 8;
/// Largest cost, in additions per element, that a broadcast repeats instead of reading a stored value.
pub const BROADCAST_COST_MAX: u32 = 3;
/// Most splits of one iteration space in search of affine views.
pub const SPLITS_MAX: usize = 16;
/// Most kernels visited in the search for a cycle before a merge is abandoned.
pub const MERGE_VISITS_MAX: usize = 4096;
/// Most kernels visited in all searches for cycles before merging stops. Unmerged kernels are correct.
pub const MERGE_ALL_VISITS_MAX: usize = 32 << 20;
/// Most instructions written for candidate merges before merging stops.
pub const MERGE_INSTRUCTIONS_MAX: usize = 4 << 20;
/// Most kernels visited in the search for a cycle before a variable gets a copy instead of an in-place update.
pub const ORDER_VISITS_MAX: usize = 4096;
/// Most ready kernels that are compared before one is chosen.
pub const READY_COMPARED_MAX: usize = 64;
/// Most readers of one value that are considered as merge partners of one kernel.
pub const MERGE_PARTNERS_MAX: usize = 16;
/// Most pairs of values compared while scratch memory is packed tightly. The remaining values are placed in time order.
pub const PLACEMENT_VISITS_MAX: usize = 2 << 20;
/// Most node labels in one kernel's label.
pub const LABELS_MAX: usize = 3;

const _: () = assert!(FUSED_NODES_MAX < EXPR_INSTRUCTIONS_MAX);
const _: () = assert!(EXPR_INSTRUCTIONS_MAX < EXPR_VISITS_MAX);
const _: () = assert!(CONCAT_OPERANDS_MAX < KERNEL_VALUES_MIN);
