//! A loaded program: prepared kernels that run in their owner's scratch memory.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use saggar_compile::program::{Kernel, Program};
use saggar_compile::target::CompileTarget;
use saggar_tensor::GraphPort;

use super::alias_check::DispatchBlock;
use super::aligned_buffer::AlignedBuffer;
use super::cancel;
use super::kernel_planner::PlannedKernel;
use super::prepacked::{PrepackedOperand, packed_bytes};
use super::prepared_kernel::KernelCall;
use super::scratch::ScratchPool;
use super::storage::{DispatchTensor, HostMemory, MemoryGuard, host_memory, lock_tensors};
use super::threads::CpuThreads;
use super::vector::with_vectors;
use saggar_device::backend::{DeviceBuffer, Executable, ProfiledOutputs};
use saggar_device::cancel::CancelToken;
use saggar_device::error::DeviceError;
use saggar_device::memory_budget::{DeviceMemoryBudget, DeviceMemoryCharge, MemoryRequirements};
use saggar_device::meter::{DeviceCounters, Meter};

/// A program on the CPU.
#[derive(Debug)]
pub(super) struct CpuExecutable {
    program: Arc<Program>,
    kernels: Vec<PlannedKernel>,
    constants: Vec<HostMemory>,
    workspace_bytes: usize,
    written: Vec<bool>,
    threads: Arc<CpuThreads>,
    /// Operations of a dispatch, counted during the first one, which uses all threads.
    operations: OnceLock<usize>,
    room: Arc<DeviceMemoryBudget>,
    meter: Meter,
    scratch: Arc<ScratchPool>,
}

/// Operations up to which a program runs on the calling thread, some 100 microseconds of a core. Waking other threads
/// would take longer than they save.
const SINGLE_THREAD_OPERATIONS_MAX: usize = 1 << 22;
/// Operations up to which a program runs on the calling thread if other programs occupy half of the cores, some 5
/// milliseconds of a core. The cores are busy enough then, and sharing every kernel would only cost time.
const CROWDED_OPERATIONS_MAX: usize = 1 << 28;

impl CpuExecutable {
    /// Prepares every kernel, copies constants, and allocates scratch memory for one dispatch.
    ///
    /// # Errors
    /// Returns `OutOfMemory`, `InsufficientMemory`, `Unsupported` if a kernel cannot run, or `Cancelled`.
    pub(super) fn new(
        program: Arc<Program>,
        threads: Arc<CpuThreads>,
        room: &Arc<DeviceMemoryBudget>,
        meter: &Meter,
        scratch: Arc<ScratchPool>,
        cancel: &CancelToken,
    ) -> Result<CpuExecutable, DeviceError> {
        let kernels = with_vectors(threads.vectors(), || prepare_kernels(&program, cancel))?;
        let workspace_bytes = kernels.iter().map(|planned| planned.kernel.workspace_bytes()).max().unwrap_or(0);
        let needs = MemoryRequirements {
            scratch_bytes: scratch.growth_bytes(&program, workspace_bytes),
            packed_bytes: packed_bytes(kernels.iter().filter_map(|planned| planned.kernel.prepack_request())),
        };
        room.check_program(&program, &CompileTarget::cpu(), needs, meter)?;
        let mut constants = Vec::with_capacity(program.constants.len());
        for (_, bytes) in &program.constants {
            cancel.check()?;
            let charge = room.charge(&"a constant", bytes.len() as u64, meter)?;
            constants.push(HostMemory::new(AlignedBuffer::from_bytes(bytes), bytes.len(), charge));
        }
        let mut written = vec![false; program.variables.len()];
        for &variable in &program.written_variables {
            written[variable as usize] = true;
        }
        // Allocates scratch memory now, so that missing memory is an error here and not in a dispatch.
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

    /// Returns the prepacked operand of each kernel, or `None` if a kernel needs none.
    fn prepacked_operands(
        &self,
        given: &[DispatchTensor<'_>],
        blocks: &[DispatchBlock<'_>],
    ) -> Result<Vec<Option<Arc<PrepackedOperand>>>, DeviceError> {
        let get = |planned: &PlannedKernel| {
            let Some(request) = planned.kernel.prepack_request() else { return Ok(None) };
            let (name, memory) = match given.get(request.block) {
                Some(given) => (given.port, given.memory),
                None => ("a constant", &self.constants[request.block - given.len()]),
            };
            let DispatchBlock::Read(bytes) = &blocks[request.block] else {
                unreachable!("a prepacked operand is not written")
            };
            memory.prepacked().get_or_pack(request, &name, &bytes[..memory.bytes()], &self.room, &self.meter).map(Some)
        };
        self.kernels.iter().map(get).collect()
    }

    /// Runs all kernels, on as many threads as their work is worth. The number of threads does not change the results.
    fn run_kernels(
        &self,
        blocks: &mut [DispatchBlock<'_>],
        workspace: &mut [u64],
        prepacked: &[Option<Arc<PrepackedOperand>>],
        mut took: Option<&mut Vec<Duration>>,
        cancel: &CancelToken,
    ) {
        let mut on = |threads: &CpuThreads, blocks: &mut [DispatchBlock<'_>]| {
            for (planned, operand) in self.kernels.iter().zip(prepacked) {
                if cancel.is_cancelled() {
                    cancel::unwind_cancelled();
                }
                let started = took.is_some().then(Instant::now);
                planned.kernel.run(KernelCall {
                    threads,
                    slices: planned.regions.split_blocks(blocks),
                    workspace,
                    prepacked: operand.as_deref().map(PrepackedOperand::data),
                });
                if let (Some(took), Some(started)) = (&mut took, started) {
                    took.push(started.elapsed());
                }
            }
        };
        let running = self.threads.start_program();
        let alone_max = if running.is_crowded() { CROWDED_OPERATIONS_MAX } else { SINGLE_THREAD_OPERATIONS_MAX };
        match self.operations.get() {
            Some(&operations) if operations <= alone_max => {
                on(&running.threads_for_short_program(operations).with_cancel(cancel), blocks)
            }
            Some(_) => on(&self.threads.with_operation_counter().with_cancel(cancel), blocks),
            None => {
                let counting = self.threads.with_operation_counter().with_cancel(cancel);
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
        inputs: &[DeviceBuffer],
        variables: &[DeviceBuffer],
        cancel: &CancelToken,
    ) -> Result<Vec<DeviceBuffer>, DeviceError> {
        with_vectors(self.threads.vectors(), || self.execute(inputs, variables, None, cancel))
    }

    fn profile(&self, inputs: &[DeviceBuffer], variables: &[DeviceBuffer]) -> Result<ProfiledOutputs, DeviceError> {
        let mut took = Vec::with_capacity(self.kernels.len());
        let outputs = with_vectors(self.threads.vectors(), || {
            self.execute(inputs, variables, Some(&mut took), &CancelToken::never())
        })?;
        Ok((outputs, Some(took)))
    }
}

impl CpuExecutable {
    /// Runs one dispatch. Adds the duration of each kernel to `took`.
    fn execute(
        &self,
        inputs: &[DeviceBuffer],
        variables: &[DeviceBuffer],
        took: Option<&mut Vec<Duration>>,
        cancel: &CancelToken,
    ) -> Result<Vec<DeviceBuffer>, DeviceError> {
        cancel.check()?;
        let program = &*self.program;
        let mut given = check_ports("inputs", &program.inputs, inputs)?;
        given.extend(check_ports("variables", &program.variables, variables)?);
        for (given, &written) in given[program.inputs.len()..].iter_mut().zip(&self.written) {
            given.written = written;
        }
        let mut charges = Vec::with_capacity(program.outputs.len());
        for port in &program.outputs {
            let what = format_args!("output {} {}", port.name, port.descriptor);
            charges.push(self.room.charge(&what, port.descriptor.bytes() as u64, &self.meter)?);
        }
        let mut arena = self.scratch.take(program, self.workspace_bytes)?;
        let zeros = |port: &GraphPort| AlignedBuffer::zeroed(port.descriptor.bytes());
        let mut outputs: Vec<AlignedBuffer> = program.outputs.iter().map(zeros).collect();

        let (mut guards, holder) = lock_tensors(&given)?;
        let started = Instant::now();
        let constants: Vec<_> = self.constants.iter().map(HostMemory::read).collect();
        let mut blocks = port_blocks(&mut guards, &holder);
        blocks.extend(constants.iter().map(|words| DispatchBlock::Read(bytemuck::cast_slice(words))));
        let prepacked = self.prepacked_operands(&given, &blocks)?;
        blocks.extend(outputs.iter_mut().map(|words| writable_block(words)));
        let (slabs, workspace) = arena.split(program);
        blocks.extend(slabs.map(writable_block));
        let ran = cancel::catch_cancelled(|| self.run_kernels(&mut blocks, workspace, &prepacked, took, cancel));
        drop(blocks);
        drop(guards);

        self.meter.add_busy_time(started.elapsed());
        self.meter.add_counters(DeviceCounters {
            dispatches: self.kernels.len() as u64,
            submissions: 1,
            ..DeviceCounters::default()
        });
        self.scratch.put_back(arena);
        ran?;
        let buffer = |((port, words), charge): ((&GraphPort, AlignedBuffer), DeviceMemoryCharge)| {
            let memory = HostMemory::new(words, port.descriptor.bytes(), charge);
            DeviceBuffer::new(port.descriptor.clone(), Arc::new(memory))
        };
        Ok(program.outputs.iter().zip(outputs).zip(charges).map(buffer).collect())
    }
}

/// Prepares every kernel.
///
/// # Errors
/// Returns `Unsupported` if a kernel cannot run, or `Cancelled`.
pub(super) fn prepare_kernels(program: &Program, cancel: &CancelToken) -> Result<Vec<PlannedKernel>, DeviceError> {
    let prepared = |kernel: &Kernel| {
        cancel.check()?;
        PlannedKernel::new(program, kernel).map_err(|refusal| DeviceError::Unsupported {
            device: "cpu".to_owned(),
            kernel: kernel.label.clone(),
            reason: refusal.to_string(),
        })
    };
    program.kernels.iter().map(prepared).collect()
}

fn writable_block(words: &mut [u64]) -> DispatchBlock<'_> {
    DispatchBlock::Write(bytemuck::cast_slice_mut(words))
}

/// Returns the blocks of inputs and variables.
fn port_blocks<'a>(guards: &'a mut [MemoryGuard<'_>], holder: &[usize]) -> Vec<DispatchBlock<'a>> {
    enum HeldBytes<'a> {
        Shared(&'a [u8]),
        Alone(Option<&'a mut [u8]>),
    }
    let mut held: Vec<HeldBytes<'a>> = guards
        .iter_mut()
        .map(|guard| match guard {
            MemoryGuard::Read(words) => HeldBytes::Shared(bytemuck::cast_slice(words)),
            MemoryGuard::Write(words) => HeldBytes::Alone(Some(bytemuck::cast_slice_mut(words))),
        })
        .collect();
    holder
        .iter()
        .map(|&guard| match &mut held[guard] {
            HeldBytes::Shared(bytes) => DispatchBlock::Read(bytes),
            HeldBytes::Alone(bytes) => DispatchBlock::Write(bytes.take().expect("written memory is given once")),
        })
        .collect()
}

/// Checks tensors against their ports.
fn check_ports<'a>(
    kind: &str,
    ports: &'a [GraphPort],
    buffers: &'a [DeviceBuffer],
) -> Result<Vec<DispatchTensor<'a>>, DeviceError> {
    if ports.len() != buffers.len() {
        return Err(DeviceError::Mismatch {
            port: kind.to_owned(),
            expected: format!("{} tensors", ports.len()),
            actual: format!("{} tensors", buffers.len()),
        });
    }
    let check = |(port, buffer): (&'a GraphPort, &'a DeviceBuffer)| {
        if *buffer.descriptor() != port.descriptor {
            return Err(DeviceError::Mismatch {
                port: port.name.clone(),
                expected: port.descriptor.to_string(),
                actual: buffer.descriptor().to_string(),
            });
        }
        Ok(DispatchTensor { port: &port.name, memory: host_memory(buffer, &port.name)?, written: false })
    };
    ports.iter().zip(buffers).map(check).collect()
}
