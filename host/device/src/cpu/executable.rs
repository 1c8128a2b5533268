//! A loaded program: prepared kernels, run in scratch memory of its owner.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use saggar_compile::program::{Kernel, Program};
use saggar_compile::target::Target;
use saggar_tensor::Port;

use super::cancel;
use super::kept::{Formed, packed_bytes};
use super::plan::Prepared;
use super::region::Block;
use super::scratch::Scratch;
use super::storage::{Given, Guard, HostMemory, lock, memory};
use super::threads::Threads;
use super::vector::under;
use super::words::Words;
use crate::backend::{Buffer, Executable, Profiled};
use crate::cancel::CancelToken;
use crate::error::DeviceError;
use crate::meter::{Charge, Counts, Meter};
use crate::room::{Needs, Room};

/// A program on the CPU.
#[derive(Debug)]
pub(super) struct CpuExecutable {
    program: Arc<Program>,
    kernels: Vec<Prepared>,
    constants: Vec<HostMemory>,
    workspace_bytes: usize,
    written: Vec<bool>,
    threads: Arc<Threads>,
    /// What a dispatch does, counted in the first one, which takes all threads.
    operations: OnceLock<usize>,
    room: Arc<Room>,
    meter: Meter,
    scratch: Arc<Scratch>,
}

/// Programs of up to so many operations, some 100 microseconds of a core, run on the thread that asks: waking others would
/// take longer than they save.
const ALONE_OPERATIONS_MAX: usize = 1 << 22;
/// Programs of up to so many, some 5 milliseconds, do so where others run already on half of the cores: those have enough to
/// do, and changing threads in every kernel would only cost.
const BESIDE_OPERATIONS_MAX: usize = 1 << 28;

impl CpuExecutable {
    /// Prepares every kernel, copies constants, and sees to scratch memory for one dispatch.
    ///
    /// # Errors
    /// `OutOfMemory`; `NoRoom`; `Unsupported` where a kernel cannot be run; `Cancelled`.
    pub(super) fn new(
        program: Arc<Program>,
        threads: Arc<Threads>,
        room: &Arc<Room>,
        meter: &Meter,
        scratch: Arc<Scratch>,
        cancel: &CancelToken,
    ) -> Result<CpuExecutable, DeviceError> {
        let kernels = under(threads.vectors(), || prepare(&program, cancel))?;
        let workspace_bytes = kernels.iter().map(Prepared::workspace_bytes).max().unwrap_or(0);
        let needs = Needs {
            scratch_bytes: scratch.growth_bytes(&program, workspace_bytes),
            packed_bytes: packed_bytes(kernels.iter().filter_map(Prepared::kept)),
        };
        room.check_program(&program, &Target::cpu(), needs, meter)?;
        let mut constants = Vec::with_capacity(program.constants.len());
        for (_, bytes) in &program.constants {
            cancel.check()?;
            let charge = room.charge(&"a constant", bytes.len() as u64, meter)?;
            constants.push(HostMemory::new(Words::of(bytes), bytes.len(), charge));
        }
        let mut written = vec![false; program.variables.len()];
        for &variable in &program.written_variables {
            written[variable as usize] = true;
        }
        // Memory that is missing is missed now and not in a dispatch.
        scratch.put_back(scratch.take(&program, workspace_bytes)?);
        Ok(CpuExecutable {
            program,
            kernels,
            constants,
            workspace_bytes,
            written,
            threads,
            operations: OnceLock::new(),
            room: Arc::clone(room),
            meter: meter.clone(),
            scratch,
        })
    }

    /// What kernels need in another form than that in memory.
    fn kept(&self, given: &[Given<'_>], blocks: &[Block<'_>]) -> Result<Vec<Option<Arc<Formed>>>, DeviceError> {
        let get = |kernel: &Prepared| {
            let Some(kept) = kernel.kept() else { return Ok(None) };
            let (name, memory) = match given.get(kept.block) {
                Some(given) => (given.port, given.memory),
                None => ("a constant", &self.constants[kept.block - given.len()]),
            };
            let Block::Read(bytes) = &blocks[kept.block] else { unreachable!("what is kept is not written") };
            memory.forms().get(kept, &name, &bytes[..memory.bytes()], &self.room, &self.meter).map(Some)
        };
        self.kernels.iter().map(get).collect()
    }

    /// Runs all kernels, on as many threads as their work is worth. Which threads those are changes no bit.
    fn run(
        &self,
        blocks: &mut [Block<'_>],
        workspace: &mut [u64],
        kept: &[Option<Arc<Formed>>],
        mut took: Option<&mut Vec<Duration>>,
        cancel: &CancelToken,
    ) {
        let mut on = |threads: &Threads, blocks: &mut [Block<'_>]| {
            for (kernel, kept) in self.kernels.iter().zip(kept) {
                if cancel.is_cancelled() {
                    cancel::give_up();
                }
                let started = took.is_some().then(Instant::now);
                let pieces = kernel.regions.cut(blocks);
                kernel.run(threads, pieces, workspace, kept.as_deref().map(Formed::data));
                if let (Some(took), Some(started)) = (&mut took, started) {
                    took.push(started.elapsed());
                }
            }
        };
        let running = self.threads.running();
        let alone_max = if running.is_crowded() { BESIDE_OPERATIONS_MAX } else { ALONE_OPERATIONS_MAX };
        match self.operations.get() {
            Some(&operations) if operations <= alone_max => on(&running.quick(operations).cancelled_by(cancel), blocks),
            Some(_) => on(&self.threads.counting().cancelled_by(cancel), blocks),
            None => {
                let counting = self.threads.counting().cancelled_by(cancel);
                on(&counting, blocks);
                self.operations.get_or_init(|| counting.operations());
            }
        }
    }
}

impl Executable for CpuExecutable {
    fn program(&self) -> &Program {
        &self.program
    }

    fn dispatch_cancellable(
        &self,
        inputs: &[Buffer],
        variables: &[Buffer],
        cancel: &CancelToken,
    ) -> Result<Vec<Buffer>, DeviceError> {
        under(self.threads.vectors(), || self.execute(inputs, variables, None, cancel))
    }

    fn profile(&self, inputs: &[Buffer], variables: &[Buffer]) -> Result<Profiled, DeviceError> {
        let mut took = Vec::with_capacity(self.kernels.len());
        let outputs =
            under(self.threads.vectors(), || self.execute(inputs, variables, Some(&mut took), &CancelToken::never()))?;
        Ok((outputs, Some(took)))
    }
}

impl CpuExecutable {
    /// One dispatch; `took` is given what each kernel took.
    fn execute(
        &self,
        inputs: &[Buffer],
        variables: &[Buffer],
        took: Option<&mut Vec<Duration>>,
        cancel: &CancelToken,
    ) -> Result<Vec<Buffer>, DeviceError> {
        cancel.check()?;
        let program = &*self.program;
        let mut given = check("inputs", &program.inputs, inputs)?;
        given.extend(check("variables", &program.variables, variables)?);
        for (given, &written) in given[program.inputs.len()..].iter_mut().zip(&self.written) {
            given.written = written;
        }
        let mut charges = Vec::with_capacity(program.outputs.len());
        for port in &program.outputs {
            let what = format_args!("output {} {}", port.name, port.descriptor);
            charges.push(self.room.charge(&what, port.descriptor.bytes() as u64, &self.meter)?);
        }
        let mut arena = self.scratch.take(program, self.workspace_bytes)?;
        let zeros = |port: &Port| Words::zeroed(port.descriptor.bytes());
        let mut outputs: Vec<Words> = program.outputs.iter().map(zeros).collect();

        let (mut guards, holder) = lock(&given)?;
        let started = Instant::now();
        let constants: Vec<_> = self.constants.iter().map(HostMemory::read).collect();
        let mut blocks = given_blocks(&mut guards, &holder);
        blocks.extend(constants.iter().map(|words| Block::Read(bytemuck::cast_slice(words))));
        let kept = self.kept(&given, &blocks)?;
        blocks.extend(outputs.iter_mut().map(|words| writable(words)));
        let (slabs, workspace) = arena.split(program);
        blocks.extend(slabs.map(writable));
        let ran = cancel::catch(|| self.run(&mut blocks, workspace, &kept, took, cancel));
        drop(blocks);
        drop(guards);

        self.meter.add_busy(started.elapsed());
        self.meter.add_work(Counts { dispatches: self.kernels.len() as u64, submissions: 1, ..Counts::default() });
        self.scratch.put_back(arena);
        ran?;
        let buffer = |((port, words), charge): ((&Port, Words), Charge)| {
            let memory = HostMemory::new(words, port.descriptor.bytes(), charge);
            Buffer::new(port.descriptor.clone(), Arc::new(memory))
        };
        Ok(program.outputs.iter().zip(outputs).zip(charges).map(buffer).collect())
    }
}

/// Every kernel, ready to run.
///
/// # Errors
/// `Unsupported` where one cannot be run; `Cancelled`.
pub(super) fn prepare(program: &Program, cancel: &CancelToken) -> Result<Vec<Prepared>, DeviceError> {
    let prepared = |kernel: &Kernel| {
        cancel.check()?;
        Prepared::new(program, kernel).map_err(|refusal| DeviceError::Unsupported {
            device: "cpu".to_owned(),
            kernel: kernel.label.clone(),
            reason: refusal.to_string(),
        })
    };
    program.kernels.iter().map(prepared).collect()
}

fn writable(words: &mut [u64]) -> Block<'_> {
    Block::Write(bytemuck::cast_slice_mut(words))
}

/// The blocks of inputs and variables.
fn given_blocks<'a>(guards: &'a mut [Guard<'_>], holder: &[usize]) -> Vec<Block<'a>> {
    enum Held<'a> {
        Shared(&'a [u8]),
        Alone(Option<&'a mut [u8]>),
    }
    let mut held: Vec<Held<'a>> = guards
        .iter_mut()
        .map(|guard| match guard {
            Guard::Read(words) => Held::Shared(bytemuck::cast_slice(words)),
            Guard::Write(words) => Held::Alone(Some(bytemuck::cast_slice_mut(words))),
        })
        .collect();
    holder
        .iter()
        .map(|&guard| match &mut held[guard] {
            Held::Shared(bytes) => Block::Read(bytes),
            Held::Alone(bytes) => Block::Write(bytes.take().expect("written memory is given once")),
        })
        .collect()
}

/// Checks tensors against their ports.
fn check<'a>(kind: &str, ports: &'a [Port], buffers: &'a [Buffer]) -> Result<Vec<Given<'a>>, DeviceError> {
    if ports.len() != buffers.len() {
        return Err(DeviceError::Mismatch {
            port: kind.to_owned(),
            expected: format!("{} tensors", ports.len()),
            actual: format!("{} tensors", buffers.len()),
        });
    }
    let check = |(port, buffer): (&'a Port, &'a Buffer)| {
        if *buffer.descriptor() != port.descriptor {
            return Err(DeviceError::Mismatch {
                port: port.name.clone(),
                expected: port.descriptor.to_string(),
                actual: buffer.descriptor().to_string(),
            });
        }
        Ok(Given { port: &port.name, memory: memory(buffer, &port.name)?, written: false })
    };
    ports.iter().zip(buffers).map(check).collect()
}
