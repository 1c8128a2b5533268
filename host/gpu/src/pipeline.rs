//! Compute pipelines. Equal shaders share a pipeline while any executable uses it.

use std::collections::{HashMap, HashSet};
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::pipeline_cache::PipelineCacheFile;
use super::shader;
use super::wgpu_device::WgpuDevice;
use super::wgsl::{FIRST_GROUP, Shader};
use saggar_device::cancel::CancelToken;

/// A pipeline and the layout of its one bind group.
#[derive(Debug)]
pub(super) struct GpuPipeline {
    pub(super) pipeline: wgpu::ComputePipeline,
    pub(super) layout: wgpu::BindGroupLayout,
}

/// The pipelines of a device by shader text, and its layouts by number of bindings.
#[derive(Debug, Default)]
pub(super) struct SharedPipelines {
    /// Selects shaders that must fail to compile; for tests.
    fail_shaders: Option<fn(&str) -> bool>,
    /// The driver's errors by shader, and whether each was reported to a caller. A refused shader is not compiled
    /// again.
    refusals: Mutex<HashMap<PipelineKey, (Arc<str>, bool)>>,
    pipelines: Mutex<HashMap<PipelineKey, Weak<GpuPipeline>>>,
    /// The pipeline cache file, if one is in use.
    pub(super) cache_file: Option<PipelineCacheFile>,
    layouts: Mutex<HashMap<usize, (wgpu::BindGroupLayout, wgpu::PipelineLayout)>>,
}

/// A shader's text and its slice.
type PipelineKey = (String, u32);

/// The description from which a pipeline is created.
#[derive(Clone, Copy, Debug)]
pub(super) struct PipelineDescriptor<'a> {
    /// A label for the driver's messages.
    pub(super) label: &'a str,
    pub(super) shader: &'a Shader,
    /// Index among the shader's slices.
    pub(super) slice: u32,
}

/// Limit of stored refusals; further refused shaders are compiled again at each request.
const REFUSALS_MAX: usize = 1024;

/// Limit of threads that compile pipelines.
const COMPILE_THREADS_MAX: usize = 8;

/// The reason why a pipeline was refused.
#[derive(Clone, Debug)]
pub(super) struct PipelineRefusal {
    /// The error of the driver or of wgpu.
    pub(super) reason: Arc<str>,
    /// Whether an earlier caller received this error.
    pub(super) is_already_reported: bool,
}

impl PipelineDescriptor<'_> {
    fn key(&self) -> PipelineKey {
        (self.shader.source.clone(), self.slice)
    }
}

impl SharedPipelines {
    /// Returns an empty set of pipelines. Shaders for which the given predicate is true fail to compile.
    pub(super) fn with_failing_shaders(refuse: Option<fn(&str) -> bool>) -> SharedPipelines {
        SharedPipelines { fail_shaders: refuse, ..SharedPipelines::default() }
    }

    /// Writes pipelines that were compiled since the last save to the cache file.
    pub(super) fn save(&self) {
        self.cache_file.iter().for_each(PipelineCacheFile::save);
    }

    /// Drops entries of pipelines that no executable uses.
    pub(super) fn prune(&self) {
        self.pipelines.lock().retain(|_, pipeline| pipeline.strong_count() > 0);
    }

    /// Returns the pipeline of a shader's slice, and compiles it if needed.
    pub(super) fn get_or_compile(
        &self,
        device: &WgpuDevice,
        description: PipelineDescriptor<'_>,
    ) -> Result<Arc<GpuPipeline>, PipelineRefusal> {
        let made = self.find_or_compile(device, description);
        made.map_err(|reason| {
            let mut refused = self.refusals.lock();
            let reported = refused.get_mut(&description.key()).map(|(_, reported)| std::mem::replace(reported, true));
            PipelineRefusal { reason, is_already_reported: reported.unwrap_or(false) }
        })
    }

    /// Compiles pipelines on several threads, because drivers compile slowly. Refused pipelines are skipped; the later
    /// [`Self::get_or_compile`] reports them. Stops when `cancel` is cancelled.
    pub(super) fn compile_all(
        &self,
        device: &WgpuDevice,
        descriptions: &[PipelineDescriptor<'_>],
        cancel: &CancelToken,
    ) -> Vec<Arc<GpuPipeline>> {
        let mut seen = HashSet::new();
        let mut missing: Vec<PipelineDescriptor<'_>> = descriptions.to_vec();
        missing.retain(|description| seen.insert(description.key()));
        let threads =
            std::thread::available_parallelism().map_or(1, NonZero::get).min(COMPILE_THREADS_MAX).min(missing.len());
        let next = AtomicUsize::new(0);
        let work = || {
            let mut made = Vec::new();
            while let Some(description) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
                if cancel.is_cancelled() {
                    break;
                }
                made.extend(self.find_or_compile(device, *description));
            }
            made
        };
        if threads < 2 {
            return work();
        }
        std::thread::scope(|scope| {
            let workers: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
            let mut made = work();
            // A worker that panicked returns no pipelines; they are compiled when they are requested.
            made.extend(workers.into_iter().filter_map(|worker| worker.join().ok()).flatten());
            made
        })
    }

    fn find_or_compile(
        &self,
        device: &WgpuDevice,
        description: PipelineDescriptor<'_>,
    ) -> Result<Arc<GpuPipeline>, Arc<str>> {
        let key = description.key();
        if let Some(pipeline) = self.pipelines.lock().get(&key).and_then(Weak::upgrade) {
            return Ok(pipeline);
        }
        if let Some((reason, _)) = self.refusals.lock().get(&key) {
            return Err(Arc::clone(reason));
        }
        let made = device.with_error_scopes(|| self.create_pipeline(&device.handle, description));
        let pipeline = made.map_err(|error| {
            let reason: Arc<str> = error.to_string().into();
            let mut refused = self.refusals.lock();
            if refused.len() < REFUSALS_MAX {
                refused.insert(key.clone(), (Arc::clone(&reason), false));
            }
            reason
        })?;
        if let Some(file) = &self.cache_file {
            file.count_created_pipeline();
        }
        let pipeline = Arc::new(pipeline);
        self.pipelines.lock().insert(key, Arc::downgrade(&pipeline));
        Ok(pipeline)
    }

    fn create_pipeline(&self, device: &wgpu::Device, description: PipelineDescriptor<'_>) -> GpuPipeline {
        let PipelineDescriptor { label, shader, slice } = description;
        let is_refused = self.fail_shaders.is_some_and(|refuse| refuse(&shader.source));
        let source = if is_refused { "not a shader: a test requested this fault" } else { &shader.source };
        let module = shader::create_module(device, label, source);
        let (layout, pipeline_layout) = self.layouts_for(device, shader.bindings.len());
        let first_group = [(FIRST_GROUP, f64::from(slice * shader.workgroups.iter().product::<u32>()))];
        let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some(label),
            layout: Some(&pipeline_layout),
            module: &module,
            entry_point: Some("main"),
            compilation_options: wgpu::PipelineCompilationOptions {
                constants: if shader.slices > 1 { &first_group } else { &[] },
                // Our kernels write workgroup memory before they read it.
                zero_initialize_workgroup_memory: false,
            },
            cache: self.cache_file.as_ref().map(PipelineCacheFile::cache),
        });
        GpuPipeline { pipeline, layout }
    }

    fn layouts_for(&self, device: &wgpu::Device, bindings: usize) -> (wgpu::BindGroupLayout, wgpu::PipelineLayout) {
        let mut layouts = self.layouts.lock();
        let layout = layouts.entry(bindings).or_insert_with(|| {
            let entry = |binding| wgpu::BindGroupLayoutEntry {
                binding,
                visibility: wgpu::ShaderStages::COMPUTE,
                ty: wgpu::BindingType::Buffer {
                    ty: wgpu::BufferBindingType::Storage { read_only: false },
                    has_dynamic_offset: false,
                    min_binding_size: None,
                },
                count: None,
            };
            let entries: Vec<_> = (0..bindings as u32).map(entry).collect();
            let group =
                device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: None, entries: &entries });
            let pipeline = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
                label: None,
                bind_group_layouts: &[Some(&group)],
                immediate_size: 0,
            });
            (group, pipeline)
        });
        layout.clone()
    }
}
