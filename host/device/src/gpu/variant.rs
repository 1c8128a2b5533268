//! Which variant of a kernel runs: the one that suits the adapter, or, where its driver refuses that, the plain one, which
//! needs no memory that lanes share and no tiles. Both compute the same, but not to the bit.

use std::sync::Arc;

use saggar_compile::program::{Kernel, Program};
use saggar_compile::wgsl::{self, Shader, Tuning};

use super::context::Context;
use super::executable::Stage;
use super::pipeline::{Pipeline, Refused};
use crate::error::DeviceError;

/// A program's kernel by its number, with its pipeline; none where it has nothing to write.
///
/// # Errors
/// `Unsupported` where it has no shader here, or the driver refuses every variant, in the driver's words; `Lost`.
pub(super) fn stage(context: &Arc<Context>, program: &Program, number: usize) -> Result<Option<Stage>, DeviceError> {
    let kernel = &program.kernels[number];
    let unsupported = |reason: String| DeviceError::Unsupported {
        device: context.info.name.clone(),
        kernel: kernel.label.clone(),
        reason,
    };
    let shader = |tuning: Tuning| wgsl::shader(program, kernel, tuning).map_err(|error| unsupported(error.to_string()));
    let stage = |pipeline, Shader { bindings, workgroups, .. }: Shader| Stage {
        kernel: number,
        pipeline,
        bindings,
        workgroups,
    };
    let fast = shader(context.tuning)?;
    if fast.workgroups[0] == 0 {
        return Ok(None);
    }
    let refused = match pipeline(context, kernel, &fast)? {
        Ok(pipeline) => return Ok(Some(stage(pipeline, fast))),
        Err(refused) => refused,
    };
    let plain = shader(Tuning { workgroup_memory: false, ..context.tuning })?;
    if plain.source == fast.source {
        return Err(unsupported(refused.reason.to_string()));
    }
    match pipeline(context, kernel, &plain)? {
        Ok(pipeline) => {
            if !refused.is_known {
                let device = &context.info.name;
                tracing::warn!(
                    %device, kernel = %kernel.label, reason = %refused.reason,
                    "the driver refuses this kernel; its plain variant runs instead, which is slower"
                );
            }
            Ok(Some(stage(pipeline, plain)))
        }
        Err(also) => Err(unsupported(format!("{}; and its plain variant: {}", refused.reason, also.reason))),
    }
}

/// The shader's pipeline, or why the driver refuses it.
///
/// # Errors
/// `Lost`.
fn pipeline(
    context: &Arc<Context>,
    kernel: &Kernel,
    shader: &Shader,
) -> Result<Result<Arc<Pipeline>, Refused>, DeviceError> {
    let made = context.pipelines.get(context, &kernel.label, &shader.source, shader.bindings.len());
    match made {
        Ok(pipeline) => Ok(Ok(pipeline)),
        Err(refused) => context.alive().map(|()| Err(refused)),
    }
}
