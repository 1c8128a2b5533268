//! The GPU backend: wgpu compute shaders on Vulkan adapters, including software adapters whose shaders run on a
//! processor (Mesa's lavapipe, SwiftShader).
//!
//! A dispatch is one compute pass and is all or a part of one submission. Nothing is read back unless a caller
//! reads. Elements narrower than a 32-bit word occupy one word on the device and are widened and narrowed by the host,
//! except 16-bit floats on adapters that support them. Without 64-bit integers in shaders, each is two words. wgpu
//! gives up the whole device on its first unexpected error, and some drivers allow no second device in a process: after
//! that every call here returns `Lost`.

#![deny(clippy::wildcard_enum_match_arm)]

mod adapter_info;
mod autotune;
mod buffer_pool;
mod command_queue;
mod context;
mod cooperative_matrix;
pub mod driver;
mod executable;
#[cfg(feature = "fault-injection")]
mod fault_injection;
mod gpu_timer;
mod kernel_pass;
mod kernel_variants;
mod pipeline;
mod pipeline_cache;
mod poll_thread;
mod scratch;
mod self_test;
mod shader;
mod staging_belt;
mod storage_buffer;
mod subgroups;
mod vram;
mod watchdog;
mod wgpu_device;
pub mod wgsl;

#[cfg(test)]
mod tests;

use std::fmt::Display;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use saggar_compile::program::Program;
use saggar_compile::target::CompileTarget;
use saggar_tensor::Descriptor;

use adapter_info::device_info;
use autotune::Autotuner;
use context::GpuContext;
use pipeline::SharedPipelines;
use pipeline_cache::PipelineCacheFile;
use saggar_device::backend::{Backend, DeviceBuffer, DeviceInfo, Executable, TuningRecords};
use saggar_device::cancel::CancelToken;
use saggar_device::error::DeviceError;
use saggar_device::memory_budget::{DeviceMemoryBudget, MemorySource as RoomMemory, check_host_memory};
use saggar_device::meter::Meter;
use saggar_device::owner_cache::PerOwner;
use scratch::GpuScratch;
use storage_buffer::StorageBuffer;
use wgpu_device::{WgpuDevice, block_on};
use wgsl::{CooperativeMatrix, ShaderTuning};

/// Alignment of values in a slab, in bytes.
const ALIGNMENT_BYTES: usize = CompileTarget::gpu().alignment_bytes;

/// Returns the adapters of this machine that can run compute shaders, in the order of [`open`]'s index.
pub fn adapters() -> Vec<DeviceInfo> {
    enumerate_adapters().iter().enumerate().map(|(index, adapter)| device_info(index, adapter)).collect()
}

/// Opens adapter `index` of [`adapters`], with the tuning that suits it.
///
/// # Errors
/// Returns `NotFound` if there is no such adapter, and `Lost` if its driver refuses to open it.
pub fn open(index: usize) -> Result<Arc<dyn Backend>, DeviceError> {
    let found = enumerate_adapters();
    let adapter = find_adapter(&found, index)?;
    open_adapter(index, adapter, GpuOptions::default())
}

/// Opens adapter `index` like [`open`], but with the given tuning, for tests and measurements. 64-bit integers, 16-bit
/// floats and subgroup sizes that the adapter does not support are not used even if `tuning` asks for them.
///
/// # Errors
/// As [`open`].
pub fn open_tuned(index: usize, tuning: ShaderTuning) -> Result<Arc<dyn Backend>, DeviceError> {
    open_with(index, GpuOptions { tuning: Some(tuning), ..GpuOptions::default() })
}

/// Returns the cooperative matrix operation that adapter `index` uses for products of 16-bit floats, or `None` if it
/// has none.
pub fn cooperative_matrix(index: usize) -> Option<CooperativeMatrix> {
    enumerate_adapters().get(index).and_then(cooperative_matrix::query_support)
}

/// Returns the number of lanes per subgroup with which adapter `index` can run reductions, or `None` if its subgroups
/// differ in size.
pub fn subgroup_size(index: usize) -> Option<usize> {
    enumerate_adapters().get(index).and_then(subgroups::query_size)
}

/// Operations of the smallest kernel that is autotuned on hardware: the usual [`GpuOptions::autotune_operations_min`].
pub const AUTOTUNE_OPERATIONS_MIN: u64 = autotune::OPERATIONS_MIN;

/// The options with which an adapter is opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct GpuOptions<'a> {
    /// The shader tuning; `None` selects the one that suits the adapter.
    pub tuning: Option<ShaderTuning>,
    /// A predicate on shader text. The shaders it selects are made invalid so that the driver's compiler refuses them;
    /// a fault for tests.
    pub fail_shaders: Option<fn(&str) -> bool>,
    /// The directory of the pipeline cache and the tuning file, which other processes share; `None` disables both
    /// files.
    pub cache_dir: Option<&'a Path>,
    /// Operations of the smallest kernel that is autotuned; `None` disables autotuning, and so does an adapter without
    /// timestamps.
    pub autotune_operations_min: Option<u64>,
    /// The range of buffers, numbered in creation order from 0, whose allocation fails; the end is exclusive. A fault
    /// for tests.
    pub fail_allocations: Option<[u64; 2]>,
}

/// Opens adapter `index` like [`open`], but with the given options.
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
    // Keep the drivers loaded: unloading one while the process exits makes the exit crash.
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
            count => format!("this machine has {count} adapters, numbered from 0"),
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
    // Mesa's lavapipe counts loop iterations in 16 bits.
    let iterations_max = if info.software { 65_535 } else { usize::MAX };
    let tuning = ShaderTuning {
        iterations_max: tuning.iterations_max.min(iterations_max),
        operations_max: tuning.operations_max.min(dispatch_operations_max(adapter.get_info().device_type)),
        wide_integers: required_features.contains(wgpu::Features::SHADER_INT64),
        half_storage: required_features.contains(wgpu::Features::SHADER_F16),
        // A binding window starts at a multiple of the binding alignment.
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
        let mut device = WgpuDevice::new(device.clone(), queue.clone(), info.clone(), room);
        device.fail_allocations = options.fail_allocations;
        let mut pipelines = SharedPipelines::with_failing_shaders(options.fail_shaders);
        pipelines.cache_file = options
            .cache_dir
            .and_then(|directory| PipelineCacheFile::open(&device.handle, &adapter.get_info(), directory));
        let file = options.cache_dir.and_then(|directory| {
            Some(directory.join(format!("{}.ways.json", wgpu::util::pipeline_cache_key(&adapter.get_info())?)))
        });
        let autotuner = Autotuner::new(options.autotune_operations_min, file);
        let context = Arc::new(GpuContext::new(device, tuning, pipelines));
        context.start_threads();
        Arc::new(GpuDevice { context, scratches: PerOwner::default(), autotuner })
    };
    open_with_self_tests(tuning, opened)
}

/// Opens the device and runs the self-tests of the features in `tuning`. A feature whose self-test fails is disabled,
/// and the device is opened again without it.
///
/// # Errors
/// Returns `Lost` if the device is lost during a self-test.
fn open_with_self_tests(
    mut tuning: ShaderTuning,
    opened: impl Fn(ShaderTuning) -> Arc<GpuDevice>,
) -> Result<Arc<dyn Backend>, DeviceError> {
    let mut gpu = opened(tuning);
    let left_alone = |gpu: &GpuDevice, what: &str, reason: String| {
        let device = &gpu.context.device.info.name;
        tracing::warn!(%device, %reason, "this adapter's {what} failed the self-test; kernels run slower without them");
        gpu.context.queue.poll()
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
        left_alone(&gpu, "cooperative matrix operations", reason)?;
        tuning.cooperative_matrix = None;
        gpu = opened(tuning);
    }
    Ok(gpu)
}

/// Returns the operations that the slowest adapters of this type do in about 50 milliseconds.
fn dispatch_operations_max(kind: wgpu::DeviceType) -> u64 {
    match kind {
        wgpu::DeviceType::Cpu => 1 << 29,
        wgpu::DeviceType::IntegratedGpu => 1 << 34,
        wgpu::DeviceType::DiscreteGpu | wgpu::DeviceType::VirtualGpu | wgpu::DeviceType::Other => 1 << 37,
    }
}

/// Returns the memory that limits an adapter's allocations. Software adapters use host memory, and an integrated
/// adapter takes a part of it, whatever heap size it reports.
fn memory_budget_source(adapter: &wgpu::Adapter) -> RoomMemory {
    let of = "the adapter's memory, less what this process holds";
    match (adapter.get_info().device_type, vram::largest_heap_bytes(adapter)) {
        (wgpu::DeviceType::Cpu, _) => RoomMemory::Host,
        (wgpu::DeviceType::IntegratedGpu, bytes) => {
            RoomMemory::HostUpTo { bytes: bytes.unwrap_or(u64::MAX), source: of }
        }
        (_, Some(bytes)) => RoomMemory::Fixed { bytes, source: of },
        (_, None) => RoomMemory::Fixed { bytes: u64::MAX, source: "the adapter's memory size is unknown" },
    }
}

/// An opened adapter.
#[derive(Debug)]
struct GpuDevice {
    context: Arc<GpuContext>,
    scratches: PerOwner<GpuScratch>,
    autotuner: Autotuner,
}

impl Drop for GpuDevice {
    fn drop(&mut self) {
        self.context.queue.poll_thread.stop_if_last_owner(&self.context);
    }
}

impl Backend for GpuDevice {
    fn info(&self) -> &DeviceInfo {
        &self.context.device.info
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
        self.context.device.room.check(what, bytes)
    }

    fn check_alive(&self) -> Result<(), DeviceError> {
        // The poll thread asks the driver, because a call to a hung driver can block forever.
        self.context.queue.poll_thread.wake();
        self.context.device.ensure_alive()
    }

    fn allocate(&self, descriptor: &Descriptor, meter: &Meter) -> Result<DeviceBuffer, DeviceError> {
        let memory = storage_buffer::allocate_tensor(&self.context, "tensor", descriptor, meter)?;
        memory.mark_stale_if_recycled();
        Ok(DeviceBuffer::new(descriptor.clone(), Arc::new(memory)))
    }

    fn write_cancellable(&self, buffer: &DeviceBuffer, bytes: &[u8], cancel: &CancelToken) -> Result<(), DeviceError> {
        self.context.device.ensure_alive()?;
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
        memory.write(&words, cancel)
    }

    fn read_cancellable(&self, buffer: &DeviceBuffer, cancel: &CancelToken) -> Result<Vec<u8>, DeviceError> {
        let memory = self.storage_buffer(buffer)?;
        check_host_memory(&format_args!("a copy of {}", buffer.descriptor()), buffer.descriptor().bytes() as u64)?;
        memory.charge.add_read(buffer.descriptor().bytes());
        let target = self.context.target();
        let words = memory.read(storage_buffer::tensor_bytes(&target, buffer.descriptor()), cancel)?;
        Ok(storage_buffer::narrow_from_words(&target, buffer.descriptor(), words))
    }

    fn load_cancellable(
        &self,
        program: Arc<Program>,
        meter: &Meter,
        cancel: &CancelToken,
    ) -> Result<Arc<dyn Executable>, DeviceError> {
        self.context.device.ensure_alive()?;
        let choose = |kernel| {
            cancel.check()?;
            self.autotuner.choose_candidate(&self.context, &self.scratches, &program, kernel, meter)
        };
        let choices = program.kernels.iter().map(choose).collect::<Result<Vec<_>, _>>()?;
        Ok(Arc::new(executable::load(&self.context, &self.scratches, program, meter, &choices, cancel)?))
    }

    fn tuning_records(&self) -> TuningRecords {
        self.autotuner.choices()
    }

    fn load_tuning(&self, ways: &TuningRecords) {
        self.autotuner.load_choices(ways);
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        self.context.queue.synchronize()
    }
}

impl GpuDevice {
    fn storage_buffer<'a>(&self, buffer: &'a DeviceBuffer) -> Result<&'a StorageBuffer, DeviceError> {
        storage_buffer::downcast_buffer(&self.context, "buffer", buffer)
    }
}
