//! Which variant of a kernel runs: the one that suits the adapter, or, where its driver refuses that, the plain one, which
//! needs no memory that lanes share and no tiles. Both compute the same, but not to the bit.

use std::sync::Arc;

use saggar_compile::program::{Kernel, Program};
use saggar_compile::wgsl::{self, Shader, Tuning};

use super::context::Context;
use super::executable::Stage;
use super::pipeline::{Description, Refused};
use crate::error::DeviceError;

/// The passes of the variants of a program's kernel, by its number: the tuned one's, and those that it falls back to, each
/// slower than the one before it.
pub(super) struct Variants {
    kernel: usize,
    tuned: Vec<Shader>,
    others: Vec<Vec<Shader>>,
}

impl Variants {
    /// The text of all.
    ///
    /// # Errors
    /// `Unsupported` where the kernel has no shader here.
    pub(super) fn new(
        context: &Context,
        program: &Program,
        kernel: usize,
        way: Option<&str>,
    ) -> Result<Variants, DeviceError> {
        let passes = |tuning: Tuning| wgsl::passes_in(program, &program.kernels[kernel], tuning, way);
        let tuned = passes(context.tuning)
            .map_err(|error| unsupported(context, &program.kernels[kernel], error.to_string()))?;
        let by_lanes = Tuning { matrices: None, ..context.tuning };
        let plain = Tuning { workgroup_memory: false, ..by_lanes };
        let mut others: Vec<Vec<Shader>> = Vec::new();
        for tuning in [by_lanes, plain] {
            // One that cannot be written here is none to fall back to.
            others.extend(passes(tuning).ok().filter(|other| *other != tuned && others.last() != Some(other)));
        }
        Ok(Variants { kernel, tuned, others })
    }

    /// What the pipelines of the tuned one are made of.
    pub(super) fn descriptions<'a>(&'a self, program: &'a Program) -> impl Iterator<Item = Description<'a>> {
        let label = program.kernels[self.kernel].label.as_str();
        let written = self.tuned.iter().filter(|shader| shader.workgroups[0] > 0);
        written.flat_map(move |shader| (0..shader.slices).map(move |slice| Description { label, shader, slice }))
    }

    /// The most that one of them keeps between its passes.
    pub(super) fn parts_bytes(&self) -> usize {
        let passes = self.others.iter().flatten().chain(&self.tuned);
        passes.map(|pass| pass.parts_bytes).max().unwrap_or(0)
    }

    /// The passes of the variant that the driver takes, with their pipelines; none where there is nothing to write.
    ///
    /// # Errors
    /// `Unsupported` where the driver refuses all, in its words; `Lost`.
    pub(super) fn stages(self, context: &Arc<Context>, program: &Program) -> Result<Vec<Stage>, DeviceError> {
        let kernel = &program.kernels[self.kernel];
        if self.tuned.iter().any(|pass| pass.workgroups[0] == 0) {
            return Ok(Vec::new());
        }
        let mut refusals: Vec<Refused> = Vec::new();
        for passes in [self.tuned].into_iter().chain(self.others) {
            match stages(context, kernel, self.kernel, passes)? {
                Ok(stages) => {
                    // What is known has been said already.
                    if let Some(Refused { reason, is_known: false }) = refusals.first() {
                        let device = &context.info.name;
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

fn unsupported(context: &Context, kernel: &Kernel, reason: String) -> DeviceError {
    DeviceError::Unsupported { device: context.info.name.clone(), kernel: kernel.label.clone(), reason }
}

/// The passes of a kernel with their pipelines, or why the driver refuses one.
///
/// # Errors
/// `Lost`.
fn stages(
    context: &Arc<Context>,
    kernel: &Kernel,
    number: usize,
    passes: Vec<Shader>,
) -> Result<Result<Vec<Stage>, Refused>, DeviceError> {
    let mut stages = Vec::with_capacity(passes.len());
    for shader in passes {
        for slice in 0..shader.slices {
            let description = Description { label: &kernel.label, shader: &shader, slice };
            match context.pipelines.get(context, description) {
                Ok(pipeline) => {
                    let (bindings, workgroups) = (shader.bindings.clone(), shader.workgroups);
                    stages.push(Stage { kernel: number, pipeline, bindings, workgroups });
                }
                Err(refused) => return context.alive().map(|()| Err(refused)),
            }
        }
    }
    Ok(Ok(stages))
}
