//! Variants of a kernel: the tuned one and, if the driver refuses it, one without cooperative matrices, then a plain
//! one without workgroup memory and tiles. All compute the same function, but not bit for bit.

use std::sync::Arc;

use saggar_compile::program::{Kernel, Program};

use super::context::GpuContext;
use super::kernel_pass::KernelPass;
use super::pipeline::{PipelineDescriptor, PipelineRefusal};
use super::wgsl::{self, Shader, ShaderTuning};
use saggar_device::error::DeviceError;

/// The shader passes of a kernel's variants: the tuned one and its fallbacks, each slower than the one before it.
pub(super) struct KernelVariants {
    kernel: usize,
    tuned: Vec<Shader>,
    fallbacks: Vec<Vec<Shader>>,
}

impl KernelVariants {
    /// Generates the shaders of all variants.
    ///
    /// # Errors
    /// Returns `Unsupported` if the tuned variant has no shader.
    pub(super) fn new(
        context: &GpuContext,
        program: &Program,
        kernel: usize,
        way: Option<&str>,
    ) -> Result<KernelVariants, DeviceError> {
        let suited = context.tuning.without(program.without);
        let passes =
            |tuning: ShaderTuning| wgsl::shader_passes_of_candidate(program, &program.kernels[kernel], tuning, way);
        let tuned =
            passes(suited).map_err(|error| unsupported(context, &program.kernels[kernel], error.to_string()))?;
        let by_lanes = ShaderTuning { cooperative_matrix: None, ..suited };
        let plain = ShaderTuning { workgroup_memory: false, ..by_lanes };
        let mut others: Vec<Vec<Shader>> = Vec::new();
        for tuning in [by_lanes, plain] {
            // A variant that cannot be generated is not a fallback.
            others.extend(passes(tuning).ok().filter(|other| *other != tuned && others.last() != Some(other)));
        }
        Ok(KernelVariants { kernel, tuned, fallbacks: others })
    }

    /// Returns the pipeline descriptors of the tuned variant.
    pub(super) fn pipeline_descriptors<'a>(
        &'a self,
        program: &'a Program,
    ) -> impl Iterator<Item = PipelineDescriptor<'a>> {
        let label = program.kernels[self.kernel].label.as_str();
        let written = self.tuned.iter().filter(|shader| shader.workgroups[0] > 0);
        written.flat_map(move |shader| (0..shader.slices).map(move |slice| PipelineDescriptor { label, shader, slice }))
    }

    /// Returns the largest buffer that any variant needs between its passes, in bytes.
    pub(super) fn parts_bytes(&self) -> usize {
        let passes = self.fallbacks.iter().flatten().chain(&self.tuned);
        passes.map(|pass| pass.pass_buffer_bytes).max().unwrap_or(0)
    }

    /// Returns the passes of the first variant that the driver accepts, with their pipelines. The result is empty if
    /// the kernel writes nothing.
    ///
    /// # Errors
    /// Returns `Unsupported` with the driver's errors if it refuses all variants, and `Lost`.
    pub(super) fn into_passes(
        self,
        context: &Arc<GpuContext>,
        program: &Program,
    ) -> Result<Vec<KernelPass>, DeviceError> {
        let kernel = &program.kernels[self.kernel];
        if self.tuned.iter().any(|pass| pass.workgroups[0] == 0) {
            return Ok(Vec::new());
        }
        let mut refusals: Vec<PipelineRefusal> = Vec::new();
        for passes in [self.tuned].into_iter().chain(self.fallbacks) {
            match create_passes(context, kernel, self.kernel, passes)? {
                Ok(stages) => {
                    // A refusal that was reported before is not logged again.
                    if let Some(PipelineRefusal { reason, is_already_reported: false }) = refusals.first() {
                        let device = &context.device.info.name;
                        tracing::warn!(
                            %device, kernel = %kernel.label, %reason,
                            "the driver refuses this kernel; its plain variant runs instead, which is slower"
                        );
                    }
                    return Ok(stages);
                }
                Err(refused) => refusals.push(refused),
            }
        }
        let reasons: Vec<String> = refusals.iter().map(|refused| refused.reason.to_string()).collect();
        Err(unsupported(context, kernel, reasons.join("; and its plain variant: ")))
    }
}

fn unsupported(context: &GpuContext, kernel: &Kernel, reason: String) -> DeviceError {
    DeviceError::Unsupported { device: context.device.info.name.clone(), kernel: kernel.label.clone(), reason }
}

/// Creates the pipelines of a kernel's passes, or returns the driver's refusal.
///
/// # Errors
/// Returns `Lost`.
fn create_passes(
    context: &Arc<GpuContext>,
    kernel: &Kernel,
    number: usize,
    passes: Vec<Shader>,
) -> Result<Result<Vec<KernelPass>, PipelineRefusal>, DeviceError> {
    let mut stages = Vec::with_capacity(passes.len());
    for shader in passes {
        for slice in 0..shader.slices {
            let description = PipelineDescriptor { label: &kernel.label, shader: &shader, slice };
            match context.pipelines.get_or_compile(&context.device, description) {
                Ok(pipeline) => {
                    let (bindings, workgroups) = (shader.bindings.clone(), shader.workgroups);
                    stages.push(KernelPass { kernel: number, pipeline, bindings, workgroups });
                }
                Err(refused) => return context.device.ensure_alive().map(|()| Err(refused)),
            }
        }
    }
    Ok(Ok(stages))
}
