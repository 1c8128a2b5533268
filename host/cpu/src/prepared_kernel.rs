//! The interface between the kernels and the executable that runs them.

use std::fmt;

use super::alias_check::RegionSlice;
use super::prepacked::PrepackRequest;
use super::threads::CpuThreads;

/// One run of a kernel: the threads and the memory that it uses.
pub(super) struct KernelCall<'c> {
    /// The threads that share the work.
    pub(super) threads: &'c CpuThreads,
    /// The memory of each region of the kernel.
    pub(super) slices: Vec<RegionSlice<'c>>,
    /// At least [`PreparedKernel::workspace_bytes`] bytes, with arbitrary content.
    pub(super) workspace: &'c mut [u64],
    /// The packed operand of [`PreparedKernel::prepack_request`], if the kernel has one.
    pub(super) prepacked: Option<&'c [f32]>,
}

/// A kernel with fixed sizes, types and regions, ready to run any number of times.
pub(super) trait PreparedKernel: fmt::Debug + Send + Sync {
    /// Describes the routine for people, such as `Winograd convolution, channels last`.
    fn routine(&self) -> &'static str;

    /// Returns the bytes of workspace that a run needs.
    fn workspace_bytes(&self) -> usize {
        0
    }

    /// Returns the operand that must be packed before a run. It does not change between dispatches.
    fn prepack_request(&self) -> Option<&PrepackRequest> {
        None
    }

    /// Runs the kernel. Writes every element of its results. Gives the same bits on any number of threads.
    fn run(&self, call: KernelCall<'_>);
}
