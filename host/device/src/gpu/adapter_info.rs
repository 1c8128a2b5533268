//! Adapter information: names, limits and optional features.

use super::{cooperative_matrix, subgroups};
use crate::backend::DeviceInfo;

/// Returns the description of adapter `index`.
pub(super) fn device_info(index: usize, adapter: &wgpu::Adapter) -> DeviceInfo {
    let info = adapter.get_info();
    let vendor = match info.vendor {
        0x10de => "NVIDIA".to_owned(),
        0x1002 => "AMD".to_owned(),
        0x8086 => "Intel".to_owned(),
        0x106b => "Apple".to_owned(),
        0x10005 => "Mesa".to_owned(),
        other => format!("{other:#06x}"),
    };
    let backend = info.backend.to_str().to_owned();
    DeviceInfo {
        name: format!("{backend}:{index}"),
        adapter: info.name,
        vendor,
        driver: format!("{} {}", info.driver, info.driver_info).trim().to_owned(),
        backend,
        software: info.device_type == wgpu::DeviceType::Cpu,
        exact_seconds: adapter.features().contains(wgpu::Features::TIMESTAMP_QUERY),
        limits: device_limits(&adapter.limits()),
        features: device_features(adapter),
    }
}

/// Returns the limits that decide which programs can run.
fn device_limits(limits: &wgpu::Limits) -> Vec<(String, u64)> {
    let found = [
        ("buffer_bytes_max", limits.max_buffer_size),
        ("binding_bytes_max", limits.max_storage_buffer_binding_size),
        ("bindings_max", limits.max_storage_buffers_per_shader_stage.into()),
        ("workgroup_bytes_max", limits.max_compute_workgroup_storage_size.into()),
        ("workgroup_invocations_max", limits.max_compute_invocations_per_workgroup.into()),
    ];
    found.map(|(name, most)| (name.to_owned(), most)).into()
}

/// Returns the optional features that kernels use if the adapter has them.
fn device_features(adapter: &wgpu::Adapter) -> Vec<String> {
    let named = [
        ("timestamps", wgpu::Features::TIMESTAMP_QUERY),
        ("pipeline_cache", wgpu::Features::PIPELINE_CACHE),
        ("shader_f16", wgpu::Features::SHADER_F16),
        ("shader_i64", wgpu::Features::SHADER_INT64),
    ];
    let offered = adapter.features();
    let has = |(name, feature)| offered.contains(feature).then_some(str::to_owned(name));
    let mut features: Vec<String> = named.into_iter().filter_map(has).collect();
    features.extend(subgroups::query_size(adapter).map(|lanes| format!("subgroups_of_{lanes}")));
    features
        .extend(cooperative_matrix::query_support(adapter).map(|matrices| format!("matrices_{0}x{0}", matrices.side)));
    features
}
