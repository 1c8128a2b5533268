//! Modules of our own shaders, without the checks that are for shaders of others.

/// The module of `source`, which is of [`saggar_compile::wgsl`]: what is not valid is an error of the device's scope.
///
/// Indices are not clamped by the driver's compiler, and loops have no counter of their own that ends them.
#[expect(unsafe_code, reason = "wgpu leaves out checks of shaders only where its caller vouches for them")]
pub(super) fn create_module(device: &wgpu::Device, label: &str, source: &str) -> wgpu::ShaderModule {
    let descriptor =
        wgpu::ShaderModuleDescriptor { label: Some(label), source: wgpu::ShaderSource::Wgsl(source.into()) };
    // Quotients of elements keep theirs: WGSL says what the smallest integer by -1 is, and drivers do not.
    let checks = wgpu::ShaderRuntimeChecks { int_div_checks: true, ..wgpu::ShaderRuntimeChecks::unchecked() };
    // SAFETY: the text is generated, never a guest's. Every loop counts to a constant; every index is computed from sizes
    // that are baked in and from coordinates below them, or is clamped where another tensor's elements say it
    // (`wgsl::index`). `saggar_compile::check` has every program's elements within its values before its text is written; that
    // the text's indices are those elements is held by how it is written, and by results that tests compare with the
    // interpreter's. Nothing checks the indices in the text itself: a mistake there reaches other tensors of a buffer.
    unsafe { device.create_shader_module_trusted(descriptor, checks) }
}

/// Leave to use what wgpu calls experimental: operations on small matrices.
#[expect(unsafe_code, reason = "wgpu gives out what may have faults only to who says that he knows it")]
pub(super) fn experimental_features() -> wgpu::ExperimentalFeatures {
    // SAFETY: used for nothing but products of matrices whose shaders are generated, never a guest's, and which are tried out
    // before anybody's work.
    unsafe { wgpu::ExperimentalFeatures::enabled() }
}
