//! Compute pipelines, shared by equal shaders for as long as some executable uses them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use super::context::{Context, lock};

/// A pipeline and the layout of its one bind group.
#[derive(Debug)]
pub(super) struct Pipeline {
    pub(super) pipeline: wgpu::ComputePipeline,
    pub(super) layout: wgpu::BindGroupLayout,
}

/// A device's pipelines by shader text, and its layouts by number of bindings.
#[derive(Debug, Default)]
pub(super) struct Pipelines {
    pipelines: Mutex<HashMap<String, Weak<Pipeline>>>,
    layouts: Mutex<HashMap<usize, (wgpu::BindGroupLayout, wgpu::PipelineLayout)>>,
}

impl Pipelines {
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
    ) -> Result<Arc<Pipeline>, wgpu::Error> {
        if let Some(pipeline) = lock(&self.pipelines).get(source).and_then(Weak::upgrade) {
            return Ok(pipeline);
        }
        let pipeline = context.scoped(|| self.create(&context.device, label, source, bindings))?;
        let pipeline = Arc::new(pipeline);
        lock(&self.pipelines).insert(source.to_owned(), Arc::downgrade(&pipeline));
        Ok(pipeline)
    }

    fn create(&self, device: &wgpu::Device, label: &str, source: &str, bindings: usize) -> Pipeline {
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
            label: Some(label),
            source: wgpu::ShaderSource::Wgsl(source.into()),
        });
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
