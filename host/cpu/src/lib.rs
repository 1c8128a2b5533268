//! The native device: runs programs as Rust loops and a packed matrix product on the host's cores.
//!
//! Results do not depend on the number of threads, bit for bit: work is partitioned by shape alone, and every sum has a
//! fixed order. Element-wise functions use neither the platform's math library nor fused multiply-add, so they agree
//! between processors too. Matrix products use the widest vector instructions available, so their last bits depend on
//! the processor's class, which [`DeviceInfo::driver`] names.

#![deny(clippy::wildcard_enum_match_arm)]

mod alias_check;
mod aligned_buffer;
mod bytecode;
mod cancel;
pub mod driver;
mod element;
mod elementwise_loops;
mod elementwise_ops;
mod elementwise_stage;
mod epilogue;
mod evaluator;
mod executable;
mod f32_access;
mod gemm;
mod kernel_context;
mod kernel_planner;
mod kernels;
mod math;
mod prepacked;
mod prepared_kernel;
mod random;
mod scratch;
mod simd;
mod storage;
mod thread_scratch;
mod threads;
mod vector;

use std::fmt::Display;
use std::sync::Arc;

use saggar_compile::program::Program;
use saggar_compile::target::CompileTarget;
use saggar_tensor::Descriptor;

use executable::CpuExecutable;
use kernel_planner::PlannedKernel;
use saggar_device::backend::{Backend, DeviceBuffer, DeviceInfo, Executable, TuningRecords};
use saggar_device::cancel::CancelToken;
use saggar_device::error::DeviceError;
use saggar_device::memory_budget::{DeviceMemoryBudget, MemorySource, check_host_memory};
use saggar_device::meter::Meter;
use saggar_device::owner_cache::PerOwner;
use scratch::ScratchPool;
use storage::{HostMemory, host_memory};
use threads::CpuThreads;
pub use vector::VectorSet;

/// Opens the host's processor as a device with a pool of `threads` threads, or one per core if `None`.
///
/// # Errors
/// Returns `Unsupported` if the system cannot start threads.
pub fn open(threads: Option<usize>) -> Result<Arc<dyn Backend>, DeviceError> {
    open_with(CpuOptions { threads, ..CpuOptions::default() })
}

/// Options for opening a processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuOptions {
    /// Number of threads, or `None` for one per core.
    pub threads: Option<usize>,
    /// Bytes of memory for all tensors together, or `None` for what the system and its control groups leave.
    pub memory_bytes: Option<u64>,
    /// The vector instruction set, or `None` for the widest of this processor. For tests and measurements.
    pub vectors: Option<VectorSet>,
}

/// Opens the host's processor as a device.
///
/// # Errors
/// Returns `Unsupported` if the system cannot start threads or the processor lacks the vector instructions.
pub fn open_with(options: CpuOptions) -> Result<Arc<dyn Backend>, DeviceError> {
    let here = VectorSet::available();
    if let Some(set) = options.vectors.filter(|set| !here.contains(set)) {
        let names: Vec<&str> = here.iter().map(|set| set.name()).collect();
        return Err(DeviceError::Unsupported {
            device: "cpu".to_owned(),
            kernel: "vectors".to_owned(),
            reason: format!("this processor has no {}; it has {}", set.name(), names.join(", ")),
        });
    }
    let threads = CpuThreads::new(options.threads, options.vectors)?;
    let info = device_info(threads.count(), options.vectors);
    let limit = |bytes| MemorySource::Fixed { bytes, source: "the memory limit of the device" };
    let room = DeviceMemoryBudget::new(&info.name, options.memory_bytes.map_or(MemorySource::Host, limit));
    Ok(Arc::new(CpuBackend { info, threads: Arc::new(threads), room, scratches: PerOwner::default() }))
}

/// Returns the description of the device that [`open`] would give with one thread per core. Starts no threads.
pub fn describe() -> DeviceInfo {
    device_info(core_count(), None)
}

/// Describes the routine that each of a program's kernels would use here. Allocates and runs nothing.
///
/// # Errors
/// Returns `Unsupported` for a kernel that was not compiled for a host.
pub fn describe_kernels(program: &Program) -> Result<Vec<String>, DeviceError> {
    Ok(executable::prepare_kernels(program, &CancelToken::never())?.iter().map(PlannedKernel::describe).collect())
}

/// Returns the number of cores.
pub(crate) fn core_count() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

#[derive(Debug)]
struct CpuBackend {
    info: DeviceInfo,
    threads: Arc<CpuThreads>,
    room: Arc<DeviceMemoryBudget>,
    scratches: PerOwner<ScratchPool>,
}

impl Backend for CpuBackend {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn target(&self) -> CompileTarget {
        CompileTarget::cpu()
    }

    fn check_memory(&self, what: &dyn Display, bytes: u64, meter: &Meter) -> Result<(), DeviceError> {
        drop(meter.charge(bytes)?);
        self.room.check(what, bytes)
    }

    fn allocate(&self, descriptor: &Descriptor, meter: &Meter) -> Result<DeviceBuffer, DeviceError> {
        let memory = HostMemory::zeros(descriptor, &self.room, meter)?;
        Ok(DeviceBuffer::new(descriptor.clone(), Arc::new(memory)))
    }

    fn write_cancellable(&self, buffer: &DeviceBuffer, bytes: &[u8], cancel: &CancelToken) -> Result<(), DeviceError> {
        cancel.check()?;
        let memory = host_memory(buffer, "write")?;
        if memory.bytes() != bytes.len() {
            return Err(DeviceError::Mismatch {
                port: "write".to_owned(),
                expected: format!("{} bytes", memory.bytes()),
                actual: format!("{} bytes", bytes.len()),
            });
        }
        bytemuck::cast_slice_mut::<u64, u8>(&mut memory.write())[..bytes.len()].copy_from_slice(bytes);
        memory.charge().add_written(bytes.len());
        Ok(())
    }

    fn read_cancellable(&self, buffer: &DeviceBuffer, cancel: &CancelToken) -> Result<Vec<u8>, DeviceError> {
        cancel.check()?;
        let memory = host_memory(buffer, "read")?;
        check_host_memory(&format_args!("a copy of {}", buffer.descriptor()), memory.bytes() as u64)?;
        memory.charge().add_read(memory.bytes());
        Ok(bytemuck::cast_slice::<u64, u8>(&memory.read())[..memory.bytes()].to_vec())
    }

    fn load_cancellable(
        &self,
        program: Arc<Program>,
        meter: &Meter,
        cancel: &CancelToken,
    ) -> Result<Arc<dyn Executable>, DeviceError> {
        let scratch = self.scratches.get_or_create(meter, |meter| ScratchPool::new(Arc::clone(&self.room), meter));
        let threads = Arc::clone(&self.threads);
        Ok(Arc::new(CpuExecutable::new(program, threads, &self.room, meter, scratch, cancel)?))
    }

    fn tuning_records(&self) -> TuningRecords {
        TuningRecords::new()
    }

    fn load_tuning(&self, _: &TuningRecords) {}

    fn synchronize(&self) -> Result<(), DeviceError> {
        // Every dispatch is done when it returns.
        Ok(())
    }
}

fn device_info(threads: usize, vectors: Option<VectorSet>) -> DeviceInfo {
    DeviceInfo {
        name: "cpu".to_owned(),
        adapter: processor_name().unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
        vendor: processor_vendor(),
        driver: format!("{}, {threads} threads", instruction_set_name(vectors)),
        backend: "cpu".to_owned(),
        software: false,
        exact_seconds: false,
        limits: Vec::new(),
        features: Vec::new(),
    }
}

/// Returns the processor's name from `/proc/cpuinfo`, if the system has that file.
fn processor_name() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn processor_vendor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let id = text.lines().find(|line| line.starts_with("vendor_id")).and_then(|line| line.split_once(':'));
    id.map_or("unknown", |(_, id)| id.trim()).to_owned()
}

/// Returns the instruction set of matrix products: `vectors`, or the widest of this processor if `None`.
fn instruction_set_name(vectors: Option<VectorSet>) -> String {
    let set = vectors.or_else(|| VectorSet::available().last().copied()).unwrap_or(VectorSet::Plain);
    match (std::env::consts::ARCH, set) {
        ("x86_64", VectorSet::Plain) => "x86-64 sse2".to_owned(),
        ("x86_64", set) => format!("x86-64 {}", set.name()),
        (arch, VectorSet::Plain) if vectors.is_some() => format!("{arch} plain"),
        (arch, _) => arch.to_owned(),
    }
}
