//! Compute pipelines, shared by equal shaders for as long as some executable uses them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use super::context::{Context, lock};
use super::shader;

/// A pipeline and the layout of its one bind group.
#[derive(Debug)]
pub(super) struct Pipeline {
    pub(super) pipeline: wgpu::ComputePipeline,
    pub(super) layout: wgpu::BindGroupLayout,
}

/// A device's pipelines by shader text, and its layouts by number of bindings.
#[derive(Debug, Default)]
pub(super) struct Pipelines {
    /// Shaders that a test wants refused.
    refuse: Option<fn(&str) -> bool>,
    /// What the driver said against shaders, by their text: it is not asked again, and said once.
    refused: Mutex<HashMap<String, Arc<str>>>,
    pipelines: Mutex<HashMap<String, Weak<Pipeline>>>,
    layouts: Mutex<HashMap<usize, (wgpu::BindGroupLayout, wgpu::PipelineLayout)>>,
}

/// Shaders that were refused are kept up to so many.
const REFUSED_MAX: usize = 1024;

/// Why there is no pipeline.
#[derive(Clone, Debug)]
pub(super) struct Refused {
    /// The driver's words, or wgpu's.
    pub(super) reason: Arc<str>,
    /// Whether it said so before.
    pub(super) is_known: bool,
}

impl Pipelines {
    /// None yet, and none ever for shaders that `refuse` is true of.
    pub(super) fn refusing(refuse: Option<fn(&str) -> bool>) -> Pipelines {
        Pipelines { refuse, ..Pipelines::default() }
    }

    /// Forgets pipelines that no executable uses any more.
    pub(super) fn prune(&self) {
        lock(&self.pipelines).retain(|_, pipeline| pipeline.strong_count() > 0);
    }

    /// The pipeline of `source`, whose group 0 has `bindings` storage buffers.
    pub(super) fn get(
        &self,
        context: &Context,
        label: &str,
        source: &str,
        bindings: usize,
    ) -> Result<Arc<Pipeline>, Refused> {
        if let Some(pipeline) = lock(&self.pipelines).get(source).and_then(Weak::upgrade) {
            return Ok(pipeline);
        }
        if let Some(reason) = lock(&self.refused).get(source) {
            return Err(Refused { reason: Arc::clone(reason), is_known: true });
        }
        let is_refused = self.refuse.is_some_and(|refuse| refuse(source));
        let given = if is_refused { "this text is no shader, as a test wants it" } else { source };
        let made = context.scoped(|| self.create(&context.device, label, given, bindings));
        let pipeline = made.map_err(|error| {
            let reason: Arc<str> = error.to_string().into();
            let mut refused = lock(&self.refused);
            if refused.len() < REFUSED_MAX {
                refused.insert(source.to_owned(), Arc::clone(&reason));
            }
            Refused { reason, is_known: false }
        })?;
        let pipeline = Arc::new(pipeline);
        lock(&self.pipelines).insert(source.to_owned(), Arc::downgrade(&pipeline));
        Ok(pipeline)
    }

    fn create(&self, device: &wgpu::Device, label: &str, source: &str, bindings: usize) -> Pipeline {
        let module = shader::module(device, label, source);
        let (layout, pipeline_layout) = self.layout(device, bindings);
        let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some(label),
            layout: Some(&pipeline_layout),
            module: &module,
            entry_point: Some("main"),
            // Our kernels write workgroup memory before they read it.
            compilation_options: wgpu::PipelineCompilationOptions {
                zero_initialize_workgroup_memory: false,
                ..Default::default()
            },
            cache: None,
        });
        Pipeline { pipeline, layout }
    }

    fn layout(&self, device: &wgpu::Device, bindings: usize) -> (wgpu::BindGroupLayout, wgpu::PipelineLayout) {
        let mut layouts = lock(&self.layouts);
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
