//! Which variant of a kernel runs: the one that suits the adapter, or, where its driver refuses that, the plain one, which
//! needs no memory that lanes share and no tiles. Both compute the same, but not to the bit.

use std::sync::Arc;

use saggar_compile::program::{Kernel, Program};
use saggar_compile::wgsl::{self, Shader, Tuning};

use super::context::Context;
use super::executable::Stage;
use super::pipeline::{Description, Refused};
use crate::error::DeviceError;

/// The passes of the variants of a program's kernel, by its number: the tuned one's, and the plain one's where they differ.
pub(super) struct Variants {
    kernel: usize,
    tuned: Vec<Shader>,
    plain: Option<Vec<Shader>>,
}

impl Variants {
    /// The text of both.
    ///
    /// # Errors
    /// `Unsupported` where the kernel has no shader here.
    pub(super) fn new(context: &Context, program: &Program, kernel: usize) -> Result<Variants, DeviceError> {
        let passes = |tuning: Tuning| {
            let passes = wgsl::passes(program, &program.kernels[kernel], tuning);
            passes.map_err(|error| unsupported(context, &program.kernels[kernel], error.to_string()))
        };
        let tuned = passes(context.tuning)?;
        let plain = match context.tuning.workgroup_memory {
            true => Some(passes(Tuning { workgroup_memory: false, ..context.tuning })?).filter(|plain| *plain != tuned),
            false => None,
        };
        Ok(Variants { kernel, tuned, plain })
    }

    /// What the pipelines of the tuned one are made of.
    pub(super) fn descriptions<'a>(&'a self, program: &'a Program) -> impl Iterator<Item = Description<'a>> {
        let label = program.kernels[self.kernel].label.as_str();
        let written = self.tuned.iter().filter(|shader| shader.workgroups[0] > 0);
        written.flat_map(move |shader| (0..shader.slices).map(move |slice| Description { label, shader, slice }))
    }

    /// What the tuned one keeps between its passes. The plain one, where it is another, has no more than one pass.
    pub(super) fn parts_bytes(&self) -> usize {
        self.tuned.iter().map(|pass| pass.parts_bytes).max().unwrap_or(0)
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
        let refused = match stages(context, kernel, self.kernel, self.tuned)? {
            Ok(stages) => return Ok(stages),
            Err(refused) => refused,
        };
        let Some(plain) = self.plain else { return Err(unsupported(context, kernel, refused.reason.to_string())) };
        match stages(context, kernel, self.kernel, plain)? {
            Ok(stages) => {
                if !refused.is_known {
                    let device = &context.info.name;
                    tracing::warn!(
                        %device, kernel = %kernel.label, reason = %refused.reason,
                        "the driver refuses this kernel; its plain variant runs instead, which is slower"
                    );
                }
                Ok(stages)
            }
            Err(also) => {
                let reason = format!("{}; and its plain variant: {}", refused.reason, also.reason);
                Err(unsupported(context, kernel, reason))
            }
        }
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
