//! An executable: a program loaded on a device. Pipelines and constants are created once; bind groups are cached while
//! the same buffers recur.

mod profile;

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;
use saggar_compile::program::Program;
use saggar_compile::target::StorageClass;
use saggar_tensor::GraphPort;

use super::context::GpuContext;
use super::kernel_pass::{KernelPass, PassBindGroups};
use super::kernel_variants::KernelVariants;
use super::scratch::GpuScratch;
use super::storage_buffer::{self, StorageBuffer};
use super::wgsl::{ShaderBinding, ShaderResource};
use saggar_device::backend::{DeviceBuffer, Executable, ProfiledOutputs};
use saggar_device::cancel::CancelToken;
use saggar_device::error::DeviceError;
use saggar_device::memory_budget::MemoryRequirements;
use saggar_device::meter::{DeviceCounters, Meter};
use saggar_device::owner_cache::PerOwner;

/// Limit of bind groups cached per pass: inputs and outputs alternate among a few recycled buffers.
const BIND_GROUPS_PER_PASS_MAX: usize = 8;

#[derive(Debug)]
pub(super) struct GpuExecutable {
    context: Arc<GpuContext>,
    program: Arc<Program>,
    meter: Meter,
    scratch: Arc<GpuScratch>,
    constants: Vec<StorageBuffer>,
    passes: Vec<KernelPass>,
    bind_groups: Mutex<BindGroupCache>,
    /// Passes that wait for an earlier one.
    barriers: u64,
}

/// The bind groups created so far.
#[derive(Debug)]
struct BindGroupCache {
    /// The slabs that the groups name. When slabs are replaced, all groups are dropped.
    slabs: Vec<Arc<StorageBuffer>>,
    /// The groups of each pass.
    passes: Vec<PassBindGroups>,
}

/// The caller's tensors and the newly allocated outputs of one dispatch.
struct DispatchTensors<'a> {
    slabs: &'a [Arc<StorageBuffer>],
    inputs: Vec<&'a StorageBuffer>,
    variables: Vec<&'a StorageBuffer>,
    outputs: &'a [StorageBuffer],
}

/// Loads a program with the given candidate for each kernel; `None` uses the compiler's default. The program shares
/// scratch memory with the other programs that are charged to `meter`.
///
/// # Errors
/// Returns `Unsupported` for a program of another target or a kernel without a working variant, `OutOfMemory` and
/// `InsufficientMemory` if its memory does not fit, `Cancelled`, and `Lost`.
pub(super) fn load(
    context: &Arc<GpuContext>,
    scratches: &PerOwner<GpuScratch>,
    program: Arc<Program>,
    meter: &Meter,
    choices: &[Option<String>],
    cancel: &CancelToken,
) -> Result<GpuExecutable, DeviceError> {
    let device = &context.device;
    let unsupported =
        |kernel: String, reason: String| DeviceError::Unsupported { device: device.info.name.clone(), kernel, reason };
    let mut sizes = Vec::with_capacity(program.slabs.len());
    for (number, slab) in program.slabs.iter().enumerate() {
        if slab.class == StorageClass::Bytes {
            return Err(unsupported(format!("slab {number}"), "the program was compiled for the CPU".to_owned()));
        }
        // A slab of empty values is bound too; 8 bytes hold the largest element.
        sizes.push(slab.bytes.max(8) as u64);
    }
    let variant = |(number, way): (usize, &Option<String>)| {
        cancel.check()?;
        KernelVariants::new(context, &program, number, way.as_deref())
    };
    let variants = choices.iter().enumerate().map(variant).collect::<Result<Vec<_>, DeviceError>>()?;
    // An additional slab holds the data that kernels keep between their passes.
    sizes.extend(
        variants.iter().map(KernelVariants::parts_bytes).max().filter(|&bytes| bytes > 0).map(|bytes| bytes as u64),
    );
    let scratch = scratches.get_or_create(meter, GpuScratch::new);
    let needs = MemoryRequirements { scratch_bytes: scratch.growth_bytes(&sizes), ..MemoryRequirements::default() };
    let target = context.target();
    device.room.check_program(&program, &target, needs, meter)?;
    scratch.reserve(context, &sizes)?;
    let mut constants = Vec::with_capacity(program.constants.len());
    for (number, (descriptor, bytes)) in program.constants.iter().enumerate() {
        let constant = storage_buffer::allocate_tensor(context, &format!("constant {number}"), descriptor, meter)?;
        constant.write(&storage_buffer::widen_to_words(&target, descriptor.dtype, bytes), cancel)?;
        constants.push(constant);
    }
    context.pipelines.prune();
    let descriptions: Vec<_> = variants.iter().flat_map(|variant| variant.pipeline_descriptors(&program)).collect();
    // Keeps the pipelines alive until the passes refer to them.
    let _made = context.pipelines.compile_all(device, &descriptions, cancel);
    cancel.check()?;
    let mut stages = Vec::with_capacity(program.kernels.len());
    for kernel in variants {
        stages.extend(kernel.into_passes(context, &program)?);
    }
    let groups = Mutex::new(BindGroupCache { slabs: Vec::new(), passes: vec![Vec::new(); stages.len()] });
    let (context, meter, barriers) = (Arc::clone(context), meter.clone(), count_barriers(&stages));
    Ok(GpuExecutable { context, program, meter, scratch, constants, passes: stages, bind_groups: groups, barriers })
}

/// Returns how many of `stages` the driver must synchronize with an earlier one. Any binding may be written, so every
/// pass waits that shares a resource with an earlier pass.
fn count_barriers(stages: &[KernelPass]) -> u64 {
    let mut touched = HashSet::new();
    let mut waits = 0;
    for stage in stages {
        waits += u64::from(stage.bindings.iter().any(|window| touched.contains(&window.resource)));
        touched.extend(stage.bindings.iter().map(|window| window.resource));
    }
    waits
}

impl Executable for GpuExecutable {
    fn program(&self) -> &Program {
        &self.program
    }

    fn dispatch_cancellable(
        &self,
        inputs: &[DeviceBuffer],
        variables: &[DeviceBuffer],
        cancel: &CancelToken,
    ) -> Result<Vec<DeviceBuffer>, DeviceError> {
        self.context.queue.wait_for_capacity(cancel)?;
        self.run_on_checked_tensors(inputs, variables, |tensors| self.encode_dispatch(tensors))
            .map(|(outputs, ())| outputs)
    }

    fn profile(&self, inputs: &[DeviceBuffer], variables: &[DeviceBuffer]) -> Result<ProfiledOutputs, DeviceError> {
        self.run_on_checked_tensors(inputs, variables, |tensors| self.profile_dispatch(tensors))
    }
}

impl DispatchTensors<'_> {
    /// Clears recycled tensors of the caller that still hold other tensors' elements.
    fn clear_stale(&self, encoder: &mut wgpu::CommandEncoder) {
        for memory in self.inputs.iter().chain(&self.variables) {
            memory.clear_if_stale(encoder);
        }
    }
}

impl BindGroupCache {
    /// Drops all groups if any slab was replaced.
    fn drop_groups_of_replaced_slabs(&mut self, slabs: &[Arc<StorageBuffer>]) {
        let same = self.slabs.len() == slabs.len() && self.slabs.iter().zip(slabs).all(|(a, b)| Arc::ptr_eq(a, b));
        if !same {
            self.passes.iter_mut().for_each(Vec::clear);
            self.slabs = slabs.to_vec();
        }
    }
}

impl GpuExecutable {
    fn check_tensors<'a>(
        &self,
        kind: &str,
        ports: &[GraphPort],
        buffers: &'a [DeviceBuffer],
    ) -> Result<Vec<&'a StorageBuffer>, DeviceError> {
        if ports.len() != buffers.len() {
            return Err(DeviceError::Mismatch {
                port: kind.to_owned(),
                expected: format!("{} tensors", ports.len()),
                actual: format!("{} tensors", buffers.len()),
            });
        }
        let checked = ports.iter().zip(buffers).map(|(port, buffer)| {
            if port.descriptor != *buffer.descriptor() {
                return Err(DeviceError::Mismatch {
                    port: port.name.clone(),
                    expected: port.descriptor.to_string(),
                    actual: buffer.descriptor().to_string(),
                });
            }
            storage_buffer::downcast_buffer(&self.context, &port.name, buffer)
        });
        checked.collect()
    }

    /// Checks the tensors, runs the program with `run`, and returns the new outputs.
    fn run_on_checked_tensors<T>(
        &self,
        inputs: &[DeviceBuffer],
        variables: &[DeviceBuffer],
        run: impl FnOnce(&DispatchTensors<'_>) -> Result<T, DeviceError>,
    ) -> Result<(Vec<DeviceBuffer>, T), DeviceError> {
        self.context.device.ensure_alive()?;
        let inputs = self.check_tensors("inputs", &self.program.inputs, inputs)?;
        let variables = self.check_tensors("variables", &self.program.variables, variables)?;
        let ports = &self.program.outputs;
        let output = |port: &GraphPort| {
            storage_buffer::allocate_tensor(&self.context, &port.name, &port.descriptor, &self.meter)
        };
        let outputs = ports.iter().map(output).collect::<Result<Vec<StorageBuffer>, _>>()?;
        let slabs = self.scratch.slabs();
        let ran = run(&DispatchTensors { slabs: &slabs, inputs, variables, outputs: &outputs })?;
        let buffer =
            |(memory, port): (StorageBuffer, &GraphPort)| DeviceBuffer::new(port.descriptor.clone(), Arc::new(memory));
        Ok((outputs.into_iter().zip(ports).map(buffer).collect(), ran))
    }

    /// Makes the bind groups of these tensors the last entry of each pass.
    fn bind_all(&self, bound: &mut BindGroupCache, tensors: &DispatchTensors<'_>) {
        bound.drop_groups_of_replaced_slabs(tensors.slabs);
        for (stage, groups) in self.passes.iter().zip(&mut bound.passes) {
            self.bind_pass(stage, groups, tensors);
        }
    }

    fn encode_dispatch(&self, tensors: &DispatchTensors<'_>) -> Result<(), DeviceError> {
        if self.passes.is_empty() {
            return Ok(());
        }
        let mut bound = self.bind_groups.lock();
        self.bind_all(&mut bound, tensors);
        let GpuContext { device, queue, .. } = &*self.context;
        let mut line = queue.lock_commands();
        line.timer.reserve_queries(device)?;
        tensors.clear_stale(queue.open_encoder(&mut line));
        let mut pass = queue.begin_metered_pass(&mut line, &self.meter);
        for (stage, groups) in self.passes.iter().zip(&bound.passes) {
            stage.encode(groups, &mut pass);
        }
        drop(pass);
        self.meter.add_counters(self.counts_per_dispatch());
        line.kernels += self.passes.len() as u64;
        queue.finish_dispatch(&mut line, &self.meter)
    }

    /// Returns the counters that one dispatch adds.
    fn counts_per_dispatch(&self) -> DeviceCounters {
        let dispatches = self.passes.len() as u64;
        DeviceCounters { dispatches, barriers: self.barriers, ..DeviceCounters::default() }
    }

    /// Makes the bind group of `stage` for these tensors the last of `groups`.
    fn bind_pass(&self, stage: &KernelPass, groups: &mut PassBindGroups, tensors: &DispatchTensors<'_>) {
        let memories: Vec<&StorageBuffer> =
            stage.bindings.iter().map(|window| self.buffer_of_binding(window.resource, tensors)).collect();
        let key: Vec<u64> = memories.iter().map(|memory| memory.id).collect();
        if let Some(position) = groups.iter().position(|(known, _)| *known == key) {
            let last = groups.len() - 1;
            groups.swap(position, last);
            return;
        }
        if groups.len() >= BIND_GROUPS_PER_PASS_MAX {
            groups.remove(0);
        }
        let resources = memories.iter().zip(&stage.bindings).map(|(memory, window)| {
            wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                buffer: &memory.buffer,
                offset: window.offset_bytes as u64,
                size: self.binding_bytes(window).and_then(wgpu::BufferSize::new),
            })
        });
        let entries: Vec<_> =
            (0..).zip(resources).map(|(binding, resource)| wgpu::BindGroupEntry { binding, resource }).collect();
        let group = self.context.device.handle.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &stage.pipeline.layout,
            entries: &entries,
        });
        groups.push((key, group));
        self.meter.add_counters(DeviceCounters { bind_groups: 1, ..DeviceCounters::default() });
    }

    fn buffer_of_binding<'a>(&'a self, binding: ShaderResource, tensors: &DispatchTensors<'a>) -> &'a StorageBuffer {
        match binding {
            ShaderResource::Input(i) => tensors.inputs[i as usize],
            ShaderResource::Variable(i) => tensors.variables[i as usize],
            ShaderResource::Constant(i) => &self.constants[i as usize],
            ShaderResource::Output(i) => &tensors.outputs[i as usize],
            ShaderResource::Slab(i) => &tensors.slabs[i as usize],
            ShaderResource::PassBuffer => &tensors.slabs[self.program.slabs.len()],
        }
    }

    /// Returns the bytes of a binding, or `None` to bind the whole buffer. A slab can be larger than this program
    /// needs.
    fn binding_bytes(&self, window: &ShaderBinding) -> Option<u64> {
        match (window.bytes, window.resource) {
            (Some(bytes), _) => Some(bytes as u64),
            (None, ShaderResource::Slab(i)) => Some(self.program.slabs[i as usize].bytes.max(8) as u64),
            (
                None,
                ShaderResource::Input(_)
                | ShaderResource::Variable(_)
                | ShaderResource::Constant(_)
                | ShaderResource::Output(_)
                | ShaderResource::PassBuffer,
            ) => None,
        }
    }
}
