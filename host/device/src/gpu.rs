//! wgpu compute shaders: Vulkan on every adapter, those whose shaders run on a processor (Mesa's lavapipe,
//! SwiftShader) included.
//!
//! A dispatch is one compute pass, and one submission or a part of one; nothing is read back unless a caller reads. Elements
//! narrower than a word occupy one on the device and are widened and narrowed at its border, but for 16-bit floats where the
//! adapter has them; 64-bit integers are two words of shaders that have none. wgpu gives the whole device up on its first
//! unexpected error, and some drivers allow no second one in a process: from then on every call here answers `Lost`.

mod adapter_info;
mod autotune;
mod buffer_pool;
mod command_queue;
mod context;
mod cooperative_matrix;
mod executable;
#[cfg(feature = "fault-injection")]
mod fault_injection;
mod gpu_timer;
mod kernel_variants;
mod pipeline;
mod pipeline_cache;
mod poll_thread;
mod profile;
mod scratch;
mod self_test;
mod shader;
mod staging_belt;
mod storage_buffer;
mod subgroups;
mod vram;
mod watchdog;

#[cfg(test)]
mod tests;

use std::fmt::Display;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use saggar_compile::program::Program;
use saggar_compile::target::CompileTarget;
use saggar_compile::wgsl::{CooperativeMatrix, ShaderTuning};
use saggar_tensor::Descriptor;

use crate::backend::{Backend, DeviceBuffer, DeviceInfo, Executable, TuningRecords};
use crate::cancel::CancelToken;
use crate::error::DeviceError;
use crate::memory_budget::{DeviceMemoryBudget, MemorySource as RoomMemory, check_host_memory};
use crate::meter::Meter;
use adapter_info::device_info;
use autotune::Autotuner;
use context::{GpuContext, block_on};
use pipeline::SharedPipelines;
use pipeline_cache::PipelineCacheFile;
use storage_buffer::StorageBuffer;

/// Alignment of values in a slab.
const ALIGNMENT_BYTES: usize = CompileTarget::gpu().alignment_bytes;

/// The adapters of this machine that can run compute shaders, in the order of [`open`]'s index.
pub fn adapters() -> Vec<DeviceInfo> {
    enumerate_adapters().iter().enumerate().map(|(index, adapter)| device_info(index, adapter)).collect()
}

/// Opens adapter `index` of [`adapters`], with kernels that suit it.
///
/// # Errors
/// `NotFound` where there is no such adapter; `Lost` where its driver refuses.
pub fn open(index: usize) -> Result<Arc<dyn Backend>, DeviceError> {
    let found = enumerate_adapters();
    let adapter = find_adapter(&found, index)?;
    open_adapter(index, adapter, GpuOptions::default())
}

/// As [`open`], with kernels of the caller's choosing: for tests and measurements. An adapter without 64-bit integers
/// or 16-bit floats does without them whatever is chosen, and so does one with other subgroups.
///
/// # Errors
/// As [`open`].
pub fn open_tuned(index: usize, tuning: ShaderTuning) -> Result<Arc<dyn Backend>, DeviceError> {
    open_with(index, GpuOptions { tuning: Some(tuning), ..GpuOptions::default() })
}

/// The operation on small matrices that products of 16-bit floats take on adapter `index`, if it has one.
pub fn cooperative_matrix(index: usize) -> Option<CooperativeMatrix> {
    enumerate_adapters().get(index).and_then(cooperative_matrix::query_support)
}

/// Lanes of the subgroups by which adapter `index` can fold, if all of its subgroups have as many.
pub fn subgroup_size(index: usize) -> Option<usize> {
    enumerate_adapters().get(index).and_then(subgroups::query_size)
}

/// Operations of the smallest kernel whose ways are tried out on hardware.
pub const AUTOTUNE_OPERATIONS_MIN: u64 = autotune::OPERATIONS_MIN;

/// What an adapter is opened with.
#[derive(Clone, Copy, Debug, Default)]
pub struct GpuOptions<'a> {
    /// Which kernels; none takes those that suit the adapter.
    pub tuning: Option<ShaderTuning>,
    /// Shaders that are made such that the driver's compiler refuses them, by their text: a fault for tests.
    pub fail_shaders: Option<fn(&str) -> bool>,
    /// Where what the driver compiles is kept for other processes, and which ways of kernels are fastest; nowhere if none.
    pub cache_dir: Option<&'a Path>,
    /// Operations of the smallest kernel whose ways are tried out, where the adapter has timestamps; none where none is.
    pub autotune_operations_min: Option<u64>,
    /// Buffers that the driver is made to refuse, by their numbers since the device was opened, from one to another: a
    /// fault for tests.
    pub fail_allocations: Option<[u64; 2]>,
}

/// As [`open`], with options of the caller's choosing.
///
/// # Errors
/// As [`open`].
pub fn open_with(index: usize, options: GpuOptions<'_>) -> Result<Arc<dyn Backend>, DeviceError> {
    open_adapter(index, find_adapter(&enumerate_adapters(), index)?, options)
}

fn enumerate_adapters() -> Vec<wgpu::Adapter> {
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

fn find_adapter(found: &[wgpu::Adapter], index: usize) -> Result<&wgpu::Adapter, DeviceError> {
    found.get(index).ok_or_else(|| DeviceError::NotFound {
        name: format!("vulkan:{index}"),
        reason: match found.len() {
            0 => "no adapter with compute shaders; is a Vulkan driver installed?".to_owned(),
            count => format!("{count} adapters are here, numbered from 0"),
        },
    })
}

fn open_adapter(
    index: usize,
    adapter: &wgpu::Adapter,
    options: GpuOptions<'_>,
) -> Result<Arc<dyn Backend>, DeviceError> {
    let info = device_info(index, adapter);
    watchdog::check_not_hung(&info.name)?;
    #[cfg(feature = "fault-injection")]
    fault_injection::check_not_permanently_lost(&info.name)?;
    let small = cooperative_matrix::query_support(adapter);
    let subgroup = subgroups::query_size(adapter);
    let suited = ShaderTuning {
        workgroup_memory: !info.software,
        cooperative_matrix: small,
        subgroup,
        ..ShaderTuning::UNLIMITED
    };
    let tuning = options.tuning.unwrap_or(suited);
    let mut wanted = wgpu::Features::TIMESTAMP_QUERY | wgpu::Features::PIPELINE_CACHE;
    wanted.set(wgpu::Features::SHADER_INT64, tuning.wide_integers);
    wanted.set(wgpu::Features::SHADER_F16, tuning.half_storage);
    let chosen = tuning
        .cooperative_matrix
        .filter(|_| small == tuning.cooperative_matrix && tuning.half_storage && tuning.workgroup_memory);
    wanted.set(cooperative_matrix::FEATURES, chosen.is_some());
    let subgroup = tuning.subgroup.filter(|_| subgroup == tuning.subgroup && tuning.workgroup_memory);
    wanted.set(subgroups::FEATURES, subgroup.is_some() || chosen.is_some());
    let required_features = adapter.features() & wanted;
    let binding_bytes_max = usize::try_from(adapter.limits().max_storage_buffer_binding_size).unwrap_or(usize::MAX);
    // Mesa's lavapipe counts iterations in 16 bits.
    let iterations_max = if info.software { 65_535 } else { usize::MAX };
    let tuning = ShaderTuning {
        iterations_max: tuning.iterations_max.min(iterations_max),
        operations_max: tuning.operations_max.min(dispatch_operations_max(adapter.get_info().device_type)),
        wide_integers: required_features.contains(wgpu::Features::SHADER_INT64),
        half_storage: required_features.contains(wgpu::Features::SHADER_F16),
        // Windows begin where a binding may.
        window_bytes: tuning.window_bytes.min(binding_bytes_max) / ALIGNMENT_BYTES * ALIGNMENT_BYTES,
        cooperative_matrix: chosen,
        subgroup,
        ..tuning
    };
    let descriptor = wgpu::DeviceDescriptor {
        label: Some("saggar"),
        required_features,
        required_limits: adapter.limits(),
        experimental_features: match chosen {
            Some(_) => shader::experimental_features(),
            None => wgpu::ExperimentalFeatures::disabled(),
        },
        ..Default::default()
    };
    let (device, queue) = block_on(adapter.request_device(&descriptor))
        .map_err(|error| DeviceError::Lost { device: info.name.clone(), reason: error.to_string() })?;
    #[cfg(feature = "fault-injection")]
    fault_injection::watch_for_trigger(&device, &queue);
    let room = DeviceMemoryBudget::new(&info.name, memory_budget_source(adapter));
    tracing::info!(device = %info.name, adapter = %info.adapter, driver = %info.driver, "device opened");
    let opened = |tuning: ShaderTuning| {
        let room = Arc::clone(&room);
        let mut context = GpuContext::new(device.clone(), queue.clone(), info.clone(), tuning, room);
        context.pipelines = SharedPipelines::with_failing_shaders(options.fail_shaders);
        context.pipelines.cache_file = options
            .cache_dir
            .and_then(|directory| PipelineCacheFile::open(&context.device, &adapter.get_info(), directory));
        let file = options.cache_dir.and_then(|directory| {
            Some(directory.join(format!("{}.ways.json", wgpu::util::pipeline_cache_key(&adapter.get_info())?)))
        });
        context.autotuner = Autotuner::new(options.autotune_operations_min, file);
        context.fail_allocations = options.fail_allocations;
        let context = Arc::new(context);
        context.poll_thread.start(&context);
        context.start_watchdog();
        Arc::new(GpuDevice { context })
    };
    open_with_self_tests(tuning, opened)
}

/// The device with what it computes rightly of what `tuning` would use.
///
/// # Errors
/// `Lost`.
fn open_with_self_tests(
    mut tuning: ShaderTuning,
    opened: impl Fn(ShaderTuning) -> Arc<GpuDevice>,
) -> Result<Arc<dyn Backend>, DeviceError> {
    let mut gpu = opened(tuning);
    let left_alone = |gpu: &GpuDevice, what: &str, reason: String| {
        let device = &gpu.context.info.name;
        tracing::warn!(%device, %reason, "this adapter's {what} are left alone, and kernels are slower");
        gpu.context.poll_and_check()
    };
    if tuning.subgroup.is_some()
        && let Err(reason) = subgroups::run_self_test(&*gpu)
    {
        left_alone(&gpu, "subgroups", reason)?;
        tuning.subgroup = None;
        gpu = opened(tuning);
    }
    if tuning.cooperative_matrix.is_some()
        && let Err(reason) = cooperative_matrix::run_self_test(&*gpu)
    {
        left_alone(&gpu, "operations on small matrices", reason)?;
        tuning.cooperative_matrix = None;
        gpu = opened(tuning);
    }
    Ok(gpu)
}

/// Operations that an adapter of this type does in about 50 milliseconds, of those that do fewest.
fn dispatch_operations_max(kind: wgpu::DeviceType) -> u64 {
    match kind {
        wgpu::DeviceType::Cpu => 1 << 29,
        wgpu::DeviceType::IntegratedGpu => 1 << 34,
        wgpu::DeviceType::DiscreteGpu | wgpu::DeviceType::VirtualGpu | wgpu::DeviceType::Other => 1 << 37,
    }
}

/// Where an adapter's memory is. Shaders that run on a processor work in the host's memory, and an integrated adapter takes a
/// part of it, whatever size its heap is said to have.
fn memory_budget_source(adapter: &wgpu::Adapter) -> RoomMemory {
    let of = "the adapter's memory, less what this process holds";
    match (adapter.get_info().device_type, vram::largest_heap_bytes(adapter)) {
        (wgpu::DeviceType::Cpu, _) => RoomMemory::Host,
        (wgpu::DeviceType::IntegratedGpu, bytes) => {
            RoomMemory::HostUpTo { bytes: bytes.unwrap_or(u64::MAX), source: of }
        }
        (_, Some(bytes)) => RoomMemory::Fixed { bytes, source: of },
        (_, None) => RoomMemory::Fixed { bytes: u64::MAX, source: "nobody knows" },
    }
}

/// An opened adapter.
#[derive(Debug)]
struct GpuDevice {
    context: Arc<GpuContext>,
}

impl Drop for GpuDevice {
    fn drop(&mut self) {
        self.context.poll_thread.stop_if_last_owner(&self.context);
    }
}

impl Backend for GpuDevice {
    fn info(&self) -> &DeviceInfo {
        &self.context.info
    }

    fn target(&self) -> CompileTarget {
        self.context.target()
    }

    fn has_discrete_memory(&self) -> bool {
        true
    }

    fn calls_driver(&self) -> bool {
        true
    }

    fn check_memory(&self, what: &dyn Display, bytes: u64, meter: &Meter) -> Result<(), DeviceError> {
        drop(meter.charge(bytes)?);
        self.context.room.check(what, bytes)
    }

    fn check_alive(&self) -> Result<(), DeviceError> {
        // The device's own thread asks the driver, which may not come back from a call.
        self.context.poll_thread.wake();
        self.context.ensure_alive()
    }

    fn allocate(&self, descriptor: &Descriptor, meter: &Meter) -> Result<DeviceBuffer, DeviceError> {
        let memory = storage_buffer::allocate_tensor(&self.context, "tensor", descriptor, meter)?;
        memory.mark_stale_if_recycled();
        Ok(DeviceBuffer::new(descriptor.clone(), Arc::new(memory)))
    }

    fn write_cancellable(&self, buffer: &DeviceBuffer, bytes: &[u8], cancel: &CancelToken) -> Result<(), DeviceError> {
        self.context.ensure_alive()?;
        let memory = self.storage_buffer(buffer)?;
        let expected = buffer.descriptor().bytes();
        if bytes.len() != expected {
            return Err(DeviceError::Mismatch {
                port: "write".to_owned(),
                expected: format!("{expected} bytes for {}", buffer.descriptor()),
                actual: format!("{} bytes", bytes.len()),
            });
        }
        let words = storage_buffer::widen_to_words(&self.context.target(), buffer.descriptor().dtype, bytes);
        memory.charge.add_written(bytes.len());
        self.context.write(memory, &words, cancel)
    }

    fn read_cancellable(&self, buffer: &DeviceBuffer, cancel: &CancelToken) -> Result<Vec<u8>, DeviceError> {
        let memory = self.storage_buffer(buffer)?;
        check_host_memory(&format_args!("a copy of {}", buffer.descriptor()), buffer.descriptor().bytes() as u64)?;
        memory.charge.add_read(buffer.descriptor().bytes());
        let target = self.context.target();
        let words = self.context.read(memory, storage_buffer::tensor_bytes(&target, buffer.descriptor()), cancel)?;
        Ok(storage_buffer::narrow_from_words(&target, buffer.descriptor(), words))
    }

    fn load_cancellable(
        &self,
        program: Arc<Program>,
        meter: &Meter,
        cancel: &CancelToken,
    ) -> Result<Arc<dyn Executable>, DeviceError> {
        Ok(Arc::new(executable::load(&self.context, program, meter, cancel)?))
    }

    fn tuning_records(&self) -> TuningRecords {
        self.context.autotuner.choices()
    }

    fn load_tuning(&self, ways: &TuningRecords) {
        self.context.autotuner.load_choices(ways);
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        self.context.synchronize()
    }
}

impl GpuDevice {
    fn storage_buffer<'a>(&self, buffer: &'a DeviceBuffer) -> Result<&'a StorageBuffer, DeviceError> {
        storage_buffer::downcast_buffer(&self.context, "buffer", buffer)
    }
}
