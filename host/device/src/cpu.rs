//! The native device: programs run as Rust loops and a packed matrix product on the host's cores.
//!
//! Results do not depend on the number of threads, bit for bit: work is cut by shape alone, and every sum has one fixed
//! order. Element-wise functions are computed without the platform's library and without fused multiply-add, so they
//! agree between processors too; matrix products use the widest instructions there are, so their last bits belong to
//! the processor's class, which [`DeviceInfo::driver`] names.

mod bands;
mod cancel;
mod contract;
mod convolution;
mod direct;
mod element;
mod ending;
mod evaluate;
mod executable;
mod floats;
mod gemm;
mod halve;
mod implicit;
mod index;
mod kept;
mod lanes;
mod map;
mod math;
mod operate;
mod patch;
mod plan;
mod pool;
mod pool_last;
mod random;
mod reduce;
mod region;
mod registers;
mod routine;
mod scratch;
mod simd;
mod storage;
mod threads;
mod vector;
mod winograd;
mod words;

use std::fmt::Display;
use std::sync::Arc;

use saggar_compile::program::Program;
use saggar_compile::target::Target;
use saggar_tensor::Descriptor;

use crate::backend::{Backend, Buffer, DeviceInfo, Executable, Ways};
use crate::cancel::CancelToken;
use crate::error::DeviceError;
use crate::meter::Meter;
use crate::owner::PerOwner;
use crate::room::{Memory, Room, check_host};
use executable::CpuExecutable;
use plan::Prepared;
use scratch::Scratch;
use storage::{HostMemory, memory};
use threads::Threads;
pub use vector::VectorSet;

/// The host's processor as a device, with a pool of `threads` threads; none takes one for each core.
///
/// # Errors
/// `Unsupported` where the system starts no threads.
pub fn open(threads: Option<usize>) -> Result<Arc<dyn Backend>, DeviceError> {
    open_with(Options { threads, ..Options::default() })
}

/// What a processor is opened with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Threads; none takes one for each core.
    pub threads: Option<usize>,
    /// Bytes that all its tensors may take together; none takes what the system and its control groups leave.
    pub memory_bytes: Option<u64>,
    /// The kind of vectors that it computes with; none takes the widest of this processor. For tests and measurements.
    pub vectors: Option<VectorSet>,
}

/// The host's processor as a device.
///
/// # Errors
/// `Unsupported` where the system starts no threads, or the processor has no such vectors.
pub fn open_with(options: Options) -> Result<Arc<dyn Backend>, DeviceError> {
    let here = VectorSet::here();
    if let Some(set) = options.vectors.filter(|set| !here.contains(set)) {
        let names: Vec<&str> = here.iter().map(|set| set.name()).collect();
        return Err(DeviceError::Unsupported {
            device: "cpu".to_owned(),
            kernel: "vectors".to_owned(),
            reason: format!("this processor has no {}; it has {}", set.name(), names.join(", ")),
        });
    }
    let threads = Threads::new(options.threads, options.vectors)?;
    let info = info(threads.count(), options.vectors);
    let limit = |bytes| Memory::Bytes { bytes, of: "the limit that it was opened with" };
    let room = Room::new(&info.name, options.memory_bytes.map_or(Memory::Host, limit));
    Ok(Arc::new(Cpu { info, threads: Arc::new(threads), room, scratches: PerOwner::default() }))
}

/// What [`open`] would give with one thread for each core, without starting any.
pub fn describe() -> DeviceInfo {
    info(threads(), None)
}

/// Which routine each of a program's kernels takes here, in words. Nothing is allocated and nothing run.
///
/// # Errors
/// `Unsupported` for a kernel that was not compiled for a host.
pub fn routines(program: &Program) -> Result<Vec<String>, DeviceError> {
    Ok(executable::prepare(program, &CancelToken::never())?.iter().map(Prepared::described).collect())
}

/// One for each core.
pub(crate) fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

#[derive(Debug)]
struct Cpu {
    info: DeviceInfo,
    threads: Arc<Threads>,
    room: Arc<Room>,
    scratches: PerOwner<Scratch>,
}

impl Backend for Cpu {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn target(&self) -> Target {
        Target::cpu()
    }

    fn check_room(&self, what: &dyn Display, bytes: u64, meter: &Meter) -> Result<(), DeviceError> {
        drop(meter.charge(bytes)?);
        self.room.check(what, bytes)
    }

    fn allocate(&self, descriptor: &Descriptor, meter: &Meter) -> Result<Buffer, DeviceError> {
        let memory = HostMemory::zeros(descriptor, &self.room, meter)?;
        Ok(Buffer::new(descriptor.clone(), Arc::new(memory)))
    }

    fn write_cancellable(&self, buffer: &Buffer, bytes: &[u8], cancel: &CancelToken) -> Result<(), DeviceError> {
        cancel.check()?;
        let memory = memory(buffer, "write")?;
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

    fn read_cancellable(&self, buffer: &Buffer, cancel: &CancelToken) -> Result<Vec<u8>, DeviceError> {
        cancel.check()?;
        let memory = memory(buffer, "read")?;
        check_host(&format_args!("a copy of {}", buffer.descriptor()), memory.bytes() as u64)?;
        memory.charge().add_read(memory.bytes());
        Ok(bytemuck::cast_slice::<u64, u8>(&memory.read())[..memory.bytes()].to_vec())
    }

    fn load_cancellable(
        &self,
        program: Arc<Program>,
        meter: &Meter,
        cancel: &CancelToken,
    ) -> Result<Arc<dyn Executable>, DeviceError> {
        let scratch = self.scratches.of(meter, |meter| Scratch::new(Arc::clone(&self.room), meter));
        let threads = Arc::clone(&self.threads);
        Ok(Arc::new(CpuExecutable::new(program, threads, &self.room, meter, scratch, cancel)?))
    }

    fn ways(&self) -> Ways {
        Ways::new()
    }

    fn keep_ways(&self, _: &Ways) {}

    fn synchronize(&self) -> Result<(), DeviceError> {
        // A dispatch returns when it is done.
        Ok(())
    }
}

fn info(threads: usize, vectors: Option<VectorSet>) -> DeviceInfo {
    DeviceInfo {
        name: "cpu".to_owned(),
        adapter: processor().unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
        vendor: vendor(),
        driver: format!("{}, {threads} threads", instructions(vectors)),
        backend: "cpu".to_owned(),
        software: false,
        exact_seconds: false,
        limits: Vec::new(),
        features: Vec::new(),
    }
}

/// The processor's own name, where the system tells it in `/proc/cpuinfo`.
fn processor() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn vendor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let id = text.lines().find(|line| line.starts_with("vendor_id")).and_then(|line| line.split_once(':'));
    id.map_or("unknown", |(_, id)| id.trim()).to_owned()
}

/// The instructions that matrix products use: the widest here where none are named.
fn instructions(vectors: Option<VectorSet>) -> String {
    let set = vectors.or_else(|| VectorSet::here().last().copied()).unwrap_or(VectorSet::Plain);
    match (std::env::consts::ARCH, set) {
        ("x86_64", VectorSet::Plain) => "x86-64 sse2".to_owned(),
        ("x86_64", set) => format!("x86-64 {}", set.name()),
        (arch, VectorSet::Plain) if vectors.is_some() => format!("{arch} plain"),
        (arch, _) => arch.to_owned(),
    }
}
