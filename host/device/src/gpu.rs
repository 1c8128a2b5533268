//! wgpu compute shaders: Vulkan on every adapter, those whose shaders run on a processor (Mesa's lavapipe,
//! SwiftShader) included.
//!
//! A dispatch is one compute pass, and one submission or a part of one; nothing is read back unless a caller reads. Elements
//! narrower than a word occupy one on the device and are widened and narrowed at its border, but for 16-bit floats where the
//! adapter has them; 64-bit integers are two words of shaders that have none. wgpu gives the whole device up on its first
//! unexpected error, and some drivers allow no second one in a process: from then on every call here answers `Lost`.

mod clock;
mod context;
mod described;
mod executable;
#[cfg(feature = "fault-injection")]
mod fault;
mod heap;
mod kept;
mod line;
mod matrices;
mod memory;
mod pipeline;
mod pool;
mod profile;
mod scratch;
mod shader;
mod subgroups;
mod tender;
mod trial;
mod uploads;
mod variant;
mod watchdog;
mod ways;

#[cfg(test)]
mod tests;

use std::fmt::Display;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use saggar_compile::program::Program;
use saggar_compile::target::Target;
use saggar_compile::wgsl::{Matrices, Tuning};
use saggar_tensor::Descriptor;

use crate::backend::{Backend, Buffer, DeviceInfo, Executable, Ways};
use crate::cancel::CancelToken;
use crate::error::DeviceError;
use crate::meter::Meter;
use crate::room::{Memory as RoomMemory, Room, check_host};
use context::{Context, block_on};
use described::info;
use kept::Kept;
use memory::Memory;
use pipeline::Pipelines;
use ways::Trials;

/// Alignment of values in a slab.
const ALIGNMENT_BYTES: usize = Target::gpu().alignment_bytes;

/// The adapters of this machine that can run compute shaders, in the order of [`open`]'s index.
pub fn adapters() -> Vec<DeviceInfo> {
    found().iter().enumerate().map(|(index, adapter)| info(index, adapter)).collect()
}

/// Opens adapter `index` of [`adapters`], with kernels that suit it.
///
/// # Errors
/// `NotFound` where there is no such adapter; `Lost` where its driver refuses.
pub fn open(index: usize) -> Result<Arc<dyn Backend>, DeviceError> {
    let found = found();
    let adapter = adapter(&found, index)?;
    connect(index, adapter, Options::default())
}

/// As [`open`], with kernels of the caller's choosing: for tests and measurements. An adapter without 64-bit integers
/// or 16-bit floats does without them whatever is chosen, and so does one with other subgroups.
///
/// # Errors
/// As [`open`].
pub fn open_tuned(index: usize, tuning: Tuning) -> Result<Arc<dyn Backend>, DeviceError> {
    open_with(index, Options { tuning: Some(tuning), ..Options::default() })
}

/// The operation on small matrices that products of 16-bit floats take on adapter `index`, if it has one.
pub fn matrices(index: usize) -> Option<Matrices> {
    found().get(index).and_then(matrices::of)
}

/// Lanes of the subgroups by which adapter `index` can fold, if all of its subgroups have as many.
pub fn subgroup(index: usize) -> Option<usize> {
    found().get(index).and_then(subgroups::of)
}

/// Operations of the smallest kernel whose ways are tried out on hardware.
pub const TRIED_OPERATIONS_MIN: u64 = ways::OPERATIONS_MIN;

/// What an adapter is opened with.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'a> {
    /// Which kernels; none takes those that suit the adapter.
    pub tuning: Option<Tuning>,
    /// Shaders that are made such that the driver's compiler refuses them, by their text: a fault for tests.
    pub refuse: Option<fn(&str) -> bool>,
    /// Where what the driver compiles is kept for other processes, and which ways of kernels are fastest; nowhere if none.
    pub kept: Option<&'a Path>,
    /// Operations of the smallest kernel whose ways are tried out, where the adapter has timestamps; none where none is.
    pub tried_operations_min: Option<u64>,
    /// Buffers that the driver is made to refuse, by their numbers since the device was opened, from one to another: a
    /// fault for tests.
    pub refuse_buffers: Option<[u64; 2]>,
}

/// As [`open`], with options of the caller's choosing.
///
/// # Errors
/// As [`open`].
pub fn open_with(index: usize, options: Options<'_>) -> Result<Arc<dyn Backend>, DeviceError> {
    connect(index, adapter(&found(), index)?, options)
}

fn found() -> Vec<wgpu::Adapter> {
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    descriptor.backends = wgpu::Backends::PRIMARY;
    descriptor.flags = wgpu::InstanceFlags::empty();
    let instance = wgpu::Instance::new(descriptor);
    // Drivers stay loaded: where one is unloaded while the process ends, the end of it crashes.
    static LOADED: OnceLock<wgpu::Instance> = OnceLock::new();
    LOADED.get_or_init(|| instance.clone());
    let mut adapters = block_on(instance.enumerate_adapters(wgpu::Backends::PRIMARY));
    adapters.retain(|adapter| {
        let capabilities = adapter.get_downlevel_capabilities();
        capabilities.flags.contains(wgpu::DownlevelFlags::COMPUTE_SHADERS)
    });
    adapters
}

fn adapter(found: &[wgpu::Adapter], index: usize) -> Result<&wgpu::Adapter, DeviceError> {
    found.get(index).ok_or_else(|| DeviceError::NotFound {
        name: format!("vulkan:{index}"),
        reason: match found.len() {
            0 => "no adapter with compute shaders; is a Vulkan driver installed?".to_owned(),
            count => format!("{count} adapters are here, numbered from 0"),
        },
    })
}

fn connect(index: usize, adapter: &wgpu::Adapter, options: Options<'_>) -> Result<Arc<dyn Backend>, DeviceError> {
    let info = info(index, adapter);
    watchdog::check(&info.name)?;
    #[cfg(feature = "fault-injection")]
    fault::check(&info.name)?;
    let small = matrices::of(adapter);
    let subgroup = subgroups::of(adapter);
    let suited = Tuning { workgroup_memory: !info.software, matrices: small, subgroup, ..Tuning::UNLIMITED };
    let tuning = options.tuning.unwrap_or(suited);
    let mut wanted = wgpu::Features::TIMESTAMP_QUERY | wgpu::Features::PIPELINE_CACHE;
    wanted.set(wgpu::Features::SHADER_INT64, tuning.wide_integers);
    wanted.set(wgpu::Features::SHADER_F16, tuning.half_storage);
    let chosen = tuning.matrices.filter(|_| small == tuning.matrices && tuning.half_storage && tuning.workgroup_memory);
    wanted.set(matrices::FEATURES, chosen.is_some());
    let subgroup = tuning.subgroup.filter(|_| subgroup == tuning.subgroup && tuning.workgroup_memory);
    wanted.set(subgroups::FEATURES, subgroup.is_some() || chosen.is_some());
    let required_features = adapter.features() & wanted;
    let binding_bytes_max = usize::try_from(adapter.limits().max_storage_buffer_binding_size).unwrap_or(usize::MAX);
    // Mesa's lavapipe counts iterations in 16 bits.
    let iterations_max = if info.software { 65_535 } else { usize::MAX };
    let tuning = Tuning {
        iterations_max: tuning.iterations_max.min(iterations_max),
        operations_max: tuning.operations_max.min(operations_max(adapter.get_info().device_type)),
        wide_integers: required_features.contains(wgpu::Features::SHADER_INT64),
        half_storage: required_features.contains(wgpu::Features::SHADER_F16),
        // Windows begin where a binding may.
        window_bytes: tuning.window_bytes.min(binding_bytes_max) / ALIGNMENT_BYTES * ALIGNMENT_BYTES,
        matrices: chosen,
        subgroup,
        ..tuning
    };
    let descriptor = wgpu::DeviceDescriptor {
        label: Some("saggar"),
        required_features,
        required_limits: adapter.limits(),
        experimental_features: match chosen {
            Some(_) => shader::experimental(),
            None => wgpu::ExperimentalFeatures::disabled(),
        },
        ..Default::default()
    };
    let (device, queue) = block_on(adapter.request_device(&descriptor))
        .map_err(|error| DeviceError::Lost { device: info.name.clone(), reason: error.to_string() })?;
    #[cfg(feature = "fault-injection")]
    fault::arm(&device, &queue);
    let room = Room::new(&info.name, memory_of(adapter));
    tracing::info!(device = %info.name, adapter = %info.adapter, driver = %info.driver, "device opened");
    let opened = |tuning: Tuning| {
        let room = Arc::clone(&room);
        let mut context = Context::new(device.clone(), queue.clone(), info.clone(), tuning, room);
        context.pipelines = Pipelines::refusing(options.refuse);
        context.pipelines.kept =
            options.kept.and_then(|directory| Kept::open(&context.device, &adapter.get_info(), directory));
        let file = options.kept.and_then(|directory| {
            Some(directory.join(format!("{}.ways.json", wgpu::util::pipeline_cache_key(&adapter.get_info())?)))
        });
        context.trials = Trials::new(options.tried_operations_min, file);
        context.refuse_buffers = options.refuse_buffers;
        let context = Arc::new(context);
        context.tender.start(&context);
        context.start_watchdog();
        Arc::new(Gpu { context })
    };
    tried(tuning, opened)
}

/// The device with what it computes rightly of what `tuning` would use.
///
/// # Errors
/// `Lost`.
fn tried(mut tuning: Tuning, opened: impl Fn(Tuning) -> Arc<Gpu>) -> Result<Arc<dyn Backend>, DeviceError> {
    let mut gpu = opened(tuning);
    let left_alone = |gpu: &Gpu, what: &str, reason: String| {
        let device = &gpu.context.info.name;
        tracing::warn!(%device, %reason, "this adapter's {what} are left alone, and kernels are slower");
        gpu.context.check()
    };
    if tuning.subgroup.is_some()
        && let Err(reason) = subgroups::check(&*gpu)
    {
        left_alone(&gpu, "subgroups", reason)?;
        tuning.subgroup = None;
        gpu = opened(tuning);
    }
    if tuning.matrices.is_some()
        && let Err(reason) = matrices::check(&*gpu)
    {
        left_alone(&gpu, "operations on small matrices", reason)?;
        tuning.matrices = None;
        gpu = opened(tuning);
    }
    Ok(gpu)
}

/// Operations that an adapter of this type does in about 50 milliseconds, of those that do fewest.
fn operations_max(kind: wgpu::DeviceType) -> u64 {
    match kind {
        wgpu::DeviceType::Cpu => 1 << 29,
        wgpu::DeviceType::IntegratedGpu => 1 << 34,
        wgpu::DeviceType::DiscreteGpu | wgpu::DeviceType::VirtualGpu | wgpu::DeviceType::Other => 1 << 37,
    }
}

/// Where an adapter's memory is. Shaders that run on a processor work in the host's memory, and an integrated adapter takes a
/// part of it, whatever size its heap is said to have.
fn memory_of(adapter: &wgpu::Adapter) -> RoomMemory {
    let of = "the adapter's memory, less what this process holds";
    match (adapter.get_info().device_type, heap::bytes(adapter)) {
        (wgpu::DeviceType::Cpu, _) => RoomMemory::Host,
        (wgpu::DeviceType::IntegratedGpu, bytes) => RoomMemory::HostUpTo { bytes: bytes.unwrap_or(u64::MAX), of },
        (_, Some(bytes)) => RoomMemory::Bytes { bytes, of },
        (_, None) => RoomMemory::Bytes { bytes: u64::MAX, of: "nobody knows" },
    }
}

/// An opened adapter.
#[derive(Debug)]
struct Gpu {
    context: Arc<Context>,
}

impl Drop for Gpu {
    fn drop(&mut self) {
        self.context.tender.end_with(&self.context);
    }
}

impl Backend for Gpu {
    fn info(&self) -> &DeviceInfo {
        &self.context.info
    }

    fn target(&self) -> Target {
        self.context.target()
    }

    fn is_apart(&self) -> bool {
        true
    }

    fn calls_driver(&self) -> bool {
        true
    }

    fn check_room(&self, what: &dyn Display, bytes: u64, meter: &Meter) -> Result<(), DeviceError> {
        drop(meter.charge(bytes)?);
        self.context.room.check(what, bytes)
    }

    fn check(&self) -> Result<(), DeviceError> {
        // The device's own thread asks the driver, which may not come back from a call.
        self.context.tender.wake();
        self.context.alive()
    }

    fn allocate(&self, descriptor: &Descriptor, meter: &Meter) -> Result<Buffer, DeviceError> {
        let memory = memory::tensor(&self.context, "tensor", descriptor, meter)?;
        memory.must_clear();
        Ok(Buffer::new(descriptor.clone(), Arc::new(memory)))
    }

    fn write_cancellable(&self, buffer: &Buffer, bytes: &[u8], cancel: &CancelToken) -> Result<(), DeviceError> {
        self.context.alive()?;
        let memory = self.own(buffer)?;
        let expected = buffer.descriptor().bytes();
        if bytes.len() != expected {
            return Err(DeviceError::Mismatch {
                port: "write".to_owned(),
                expected: format!("{expected} bytes for {}", buffer.descriptor()),
                actual: format!("{} bytes", bytes.len()),
            });
        }
        let words = memory::widen(&self.context.target(), buffer.descriptor().dtype, bytes);
        memory.charge.add_written(bytes.len());
        self.context.write(memory, &words, cancel)
    }

    fn read_cancellable(&self, buffer: &Buffer, cancel: &CancelToken) -> Result<Vec<u8>, DeviceError> {
        let memory = self.own(buffer)?;
        check_host(&format_args!("a copy of {}", buffer.descriptor()), buffer.descriptor().bytes() as u64)?;
        memory.charge.add_read(buffer.descriptor().bytes());
        let target = self.context.target();
        let words = self.context.read(memory, memory::bytes(&target, buffer.descriptor()), cancel)?;
        Ok(memory::narrow(&target, buffer.descriptor(), words))
    }

    fn load_cancellable(
        &self,
        program: Arc<Program>,
        meter: &Meter,
        cancel: &CancelToken,
    ) -> Result<Arc<dyn Executable>, DeviceError> {
        Ok(Arc::new(executable::load(&self.context, program, meter, cancel)?))
    }

    fn ways(&self) -> Ways {
        self.context.trials.ways()
    }

    fn keep_ways(&self, ways: &Ways) {
        self.context.trials.keep(ways);
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        self.context.synchronize()
    }
}

impl Gpu {
    fn own<'a>(&self, buffer: &'a Buffer) -> Result<&'a Memory, DeviceError> {
        memory::of(&self.context, "buffer", buffer)
    }
}
