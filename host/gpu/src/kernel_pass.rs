//! A pass of a kernel: its pipeline, bindings and workgroups, ready to be encoded.

use std::sync::Arc;

use super::pipeline::GpuPipeline;
use super::wgsl::ShaderBinding;

/// A pass of a kernel that writes at least one element.
#[derive(Debug)]
pub(super) struct KernelPass {
    /// Index among the program's kernels.
    pub(super) kernel: usize,
    pub(super) pipeline: Arc<GpuPipeline>,
    pub(super) bindings: Vec<ShaderBinding>,
    pub(super) workgroups: [u32; 3],
}

/// Bind groups of one pass by the IDs of the buffers in them.
pub(super) type PassBindGroups = Vec<(Vec<u64>, wgpu::BindGroup)>;

impl KernelPass {
    /// Encodes the kernel with the bind group that was bound last.
    pub(super) fn encode(&self, groups: &PassBindGroups, pass: &mut wgpu::ComputePass<'_>) {
        if let Some((_, group)) = groups.last() {
            let [x, y, z] = self.workgroups;
            pass.set_pipeline(&self.pipeline.pipeline);
            pass.set_bind_group(0, group, &[]);
            pass.dispatch_workgroups(x, y, z);
        }
    }
}
