//! A program loaded on a device: pipelines and constants made once, bind groups kept while buffers recur.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use saggar_compile::program::Program;
use saggar_compile::target::Class;
use saggar_compile::wgsl::{Binding, Window};
use saggar_tensor::Port;

use super::context::{Context, lock};
use super::memory::{self, Memory};
use super::pipeline::Pipeline;
use super::profile;
use super::scratch::Scratch;
use super::variant::Variants;
use crate::backend::{Buffer, Executable, Profiled};
use crate::cancel::CancelToken;
use crate::error::DeviceError;
use crate::meter::{Counts, Meter};
use crate::room::Needs;

/// Bind groups kept for one kernel: inputs and outputs take turns among a few recycled buffers.
const GROUPS_MAX: usize = 8;

#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) context: Arc<Context>,
    pub(super) program: Arc<Program>,
    pub(super) meter: Meter,
    scratch: Arc<Scratch>,
    constants: Vec<Memory>,
    pub(super) stages: Vec<Stage>,
    pub(super) groups: Mutex<Bound>,
    /// Stages that wait for one before them.
    barriers: u64,
}

/// The bind groups made so far.
#[derive(Debug)]
pub(super) struct Bound {
    /// The slabs in them. Once they are replaced, no group of theirs comes again.
    slabs: Vec<Arc<Memory>>,
    /// Of each stage.
    pub(super) stages: Vec<Groups>,
}

/// Bind groups of one kernel by the identities of the buffers in them.
pub(super) type Groups = Vec<(Vec<u64>, wgpu::BindGroup)>;

/// A pass of a kernel that has something to write.
#[derive(Debug)]
pub(super) struct Stage {
    /// Its place among the program's kernels.
    pub(super) kernel: usize,
    pub(super) pipeline: Arc<Pipeline>,
    pub(super) bindings: Vec<Window>,
    pub(super) workgroups: [u32; 3],
}

/// The caller's tensors and the fresh ones of one dispatch.
pub(super) struct Tensors<'a> {
    slabs: &'a [Arc<Memory>],
    inputs: Vec<&'a Memory>,
    variables: Vec<&'a Memory>,
    outputs: &'a [Memory],
}

pub(super) fn load(
    context: &Arc<Context>,
    program: Arc<Program>,
    meter: &Meter,
    cancel: &CancelToken,
) -> Result<impl Executable + use<>, DeviceError> {
    context.alive()?;
    let way = |kernel| {
        cancel.check()?;
        context.trials.way(context, &program, kernel, meter)
    };
    let ways = program.kernels.iter().map(way).collect::<Result<Vec<_>, _>>()?;
    load_in(context, program, meter, &ways, cancel)
}

/// As [`load`], with each kernel computed in its way, where one is given.
pub(super) fn load_in(
    context: &Arc<Context>,
    program: Arc<Program>,
    meter: &Meter,
    ways: &[Option<String>],
    cancel: &CancelToken,
) -> Result<Loaded, DeviceError> {
    let unsupported =
        |kernel: String, reason: String| DeviceError::Unsupported { device: context.info.name.clone(), kernel, reason };
    let mut sizes = Vec::with_capacity(program.slabs.len());
    for (number, slab) in program.slabs.iter().enumerate() {
        if slab.class == Class::Bytes {
            return Err(unsupported(format!("slab {number}"), "the program was compiled for a host".to_owned()));
        }
        // A slab of empty values is bound all the same, and holds the largest element then.
        sizes.push(slab.bytes.max(8) as u64);
    }
    let variant = |(number, way): (usize, &Option<String>)| {
        cancel.check()?;
        Variants::new(context, &program, number, way.as_deref())
    };
    let variants = ways.iter().enumerate().map(variant).collect::<Result<Vec<_>, DeviceError>>()?;
    // One slab more, for kernels of two passes.
    sizes.extend(variants.iter().map(Variants::parts_bytes).max().filter(|&bytes| bytes > 0).map(|bytes| bytes as u64));
    let scratch = context.scratches.of(meter, Scratch::new);
    let needs = Needs { scratch_bytes: scratch.growth_bytes(&sizes), ..Needs::default() };
    let target = context.target();
    context.room.check_program(&program, &target, needs, meter)?;
    scratch.reserve(context, &sizes)?;
    let mut constants = Vec::with_capacity(program.constants.len());
    for (number, (descriptor, bytes)) in program.constants.iter().enumerate() {
        let constant = memory::tensor(context, &format!("constant {number}"), descriptor, meter)?;
        context.write(&constant, &memory::widen(&target, descriptor.dtype, bytes), cancel)?;
        constants.push(constant);
    }
    context.pipelines.prune();
    let descriptions: Vec<_> = variants.iter().flat_map(|variant| variant.descriptions(&program)).collect();
    // Held until the stages hold them.
    let _made = context.pipelines.make_all(context, &descriptions, cancel);
    cancel.check()?;
    let mut stages = Vec::with_capacity(program.kernels.len());
    for kernel in variants {
        stages.extend(kernel.stages(context, &program)?);
    }
    let groups = Mutex::new(Bound { slabs: Vec::new(), stages: vec![Vec::new(); stages.len()] });
    let (context, meter, barriers) = (Arc::clone(context), meter.clone(), barriers(&stages));
    Ok(Loaded { context, program, meter, scratch, constants, stages, groups, barriers })
}

/// How many of `stages` the driver has wait: every binding may be written, so each that shares a resource with one before.
fn barriers(stages: &[Stage]) -> u64 {
    let mut touched = HashSet::new();
    let mut waits = 0;
    for stage in stages {
        waits += u64::from(stage.bindings.iter().any(|window| touched.contains(&window.binding)));
        touched.extend(stage.bindings.iter().map(|window| window.binding));
    }
    waits
}

impl Executable for Loaded {
    fn program(&self) -> &Program {
        &self.program
    }

    fn dispatch_cancellable(
        &self,
        inputs: &[Buffer],
        variables: &[Buffer],
        cancel: &CancelToken,
    ) -> Result<Vec<Buffer>, DeviceError> {
        self.context.wait_for_room(cancel)?;
        self.with(inputs, variables, |tensors| self.run(tensors)).map(|(outputs, ())| outputs)
    }

    fn profile(&self, inputs: &[Buffer], variables: &[Buffer]) -> Result<Profiled, DeviceError> {
        self.with(inputs, variables, |tensors| profile::run(self, tensors))
    }
}

impl Stage {
    /// Encodes the kernel with the group that was bound last.
    pub(super) fn encode(&self, groups: &Groups, pass: &mut wgpu::ComputePass<'_>) {
        if let Some((_, group)) = groups.last() {
            let [x, y, z] = self.workgroups;
            pass.set_pipeline(&self.pipeline.pipeline);
            pass.set_bind_group(0, group, &[]);
            pass.dispatch_workgroups(x, y, z);
        }
    }
}

impl Tensors<'_> {
    /// Clears what the caller's tensors hold of others.
    pub(super) fn clear_stale(&self, encoder: &mut wgpu::CommandEncoder) {
        for memory in self.inputs.iter().chain(&self.variables) {
            memory.clear_if_stale(encoder);
        }
    }
}

impl Bound {
    /// Forgets groups that hold slabs which are no longer there.
    fn begin(&mut self, slabs: &[Arc<Memory>]) {
        let same = self.slabs.len() == slabs.len() && self.slabs.iter().zip(slabs).all(|(a, b)| Arc::ptr_eq(a, b));
        if !same {
            self.stages.iter_mut().for_each(Vec::clear);
            self.slabs = slabs.to_vec();
        }
    }
}

impl Loaded {
    fn check<'a>(&self, kind: &str, ports: &[Port], buffers: &'a [Buffer]) -> Result<Vec<&'a Memory>, DeviceError> {
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
            memory::of(&self.context, &port.name, buffer)
        });
        checked.collect()
    }

    /// Runs the program by `run` on checked tensors; the fresh outputs.
    fn with<T>(
        &self,
        inputs: &[Buffer],
        variables: &[Buffer],
        run: impl FnOnce(&Tensors<'_>) -> Result<T, DeviceError>,
    ) -> Result<(Vec<Buffer>, T), DeviceError> {
        self.context.alive()?;
        let inputs = self.check("inputs", &self.program.inputs, inputs)?;
        let variables = self.check("variables", &self.program.variables, variables)?;
        let ports = &self.program.outputs;
        let output = |port: &Port| memory::tensor(&self.context, &port.name, &port.descriptor, &self.meter);
        let outputs = ports.iter().map(output).collect::<Result<Vec<Memory>, _>>()?;
        let slabs = self.scratch.slabs();
        let ran = run(&Tensors { slabs: &slabs, inputs, variables, outputs: &outputs })?;
        let buffer = |(memory, port): (Memory, &Port)| Buffer::new(port.descriptor.clone(), Arc::new(memory));
        Ok((outputs.into_iter().zip(ports).map(buffer).collect(), ran))
    }

    /// Makes the bind groups of these tensors the last of each stage's.
    pub(super) fn bind_all(&self, bound: &mut Bound, tensors: &Tensors<'_>) {
        bound.begin(tensors.slabs);
        for (stage, groups) in self.stages.iter().zip(&mut bound.stages) {
            self.bind(stage, groups, tensors);
        }
    }

    pub(super) fn run(&self, tensors: &Tensors<'_>) -> Result<(), DeviceError> {
        if self.stages.is_empty() {
            return Ok(());
        }
        let mut bound = lock(&self.groups);
        self.bind_all(&mut bound, tensors);
        let mut line = self.context.line();
        line.clock.prepare(&self.context)?;
        tensors.clear_stale(self.context.open(&mut line));
        let mut pass = self.context.pass(&mut line, &self.meter);
        for (stage, groups) in self.stages.iter().zip(&bound.stages) {
            stage.encode(groups, &mut pass);
        }
        drop(pass);
        self.meter.add_work(self.work());
        line.kernels += self.stages.len() as u64;
        self.context.dispatched(&mut line, &self.meter)
    }

    /// What a dispatch does.
    pub(super) fn work(&self) -> Counts {
        let dispatches = self.stages.len() as u64;
        Counts { dispatches, barriers: self.barriers, ..Counts::default() }
    }

    /// Makes the bind group of `stage` for these tensors the last of `groups`.
    fn bind(&self, stage: &Stage, groups: &mut Groups, tensors: &Tensors<'_>) {
        let memories: Vec<&Memory> = stage.bindings.iter().map(|window| self.memory(window.binding, tensors)).collect();
        let key: Vec<u64> = memories.iter().map(|memory| memory.id).collect();
        if let Some(position) = groups.iter().position(|(known, _)| *known == key) {
            let last = groups.len() - 1;
            groups.swap(position, last);
            return;
        }
        if groups.len() >= GROUPS_MAX {
            groups.remove(0);
        }
        let resources = memories.iter().zip(&stage.bindings).map(|(memory, window)| {
            wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                buffer: &memory.buffer,
                offset: window.offset_bytes as u64,
                size: self.bytes(window).and_then(wgpu::BufferSize::new),
            })
        });
        let entries: Vec<_> =
            (0..).zip(resources).map(|(binding, resource)| wgpu::BindGroupEntry { binding, resource }).collect();
        let group = self.context.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &stage.pipeline.layout,
            entries: &entries,
        });
        groups.push((key, group));
        self.meter.add_work(Counts { bind_groups: 1, ..Counts::default() });
    }

    fn memory<'a>(&'a self, binding: Binding, tensors: &Tensors<'a>) -> &'a Memory {
        match binding {
            Binding::Input(i) => tensors.inputs[i as usize],
            Binding::Variable(i) => tensors.variables[i as usize],
            Binding::Constant(i) => &self.constants[i as usize],
            Binding::Output(i) => &tensors.outputs[i as usize],
            Binding::Slab(i) => &tensors.slabs[i as usize],
            Binding::Parts => &tensors.slabs[self.program.slabs.len()],
        }
    }

    /// Bytes that a binding shows; none for all there are. A slab may be larger than this program knows.
    fn bytes(&self, window: &Window) -> Option<u64> {
        match (window.bytes, window.binding) {
            (Some(bytes), _) => Some(bytes as u64),
            (None, Binding::Slab(i)) => Some(self.program.slabs[i as usize].bytes.max(8) as u64),
            (
                None,
                Binding::Input(_) | Binding::Variable(_) | Binding::Constant(_) | Binding::Output(_) | Binding::Parts,
            ) => None,
        }
    }
}
