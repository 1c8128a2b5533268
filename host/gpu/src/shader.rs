//! Shader modules of generated code, without wgpu's checks for untrusted shaders.

/// Creates the module of `source`, which must come from [`crate::wgsl`]. Invalid text is an error of the
/// device's error scope.
///
/// The driver's compiler does not clamp indices, and it adds no counters that bound loops.
#[expect(unsafe_code, reason = "wgpu omits shader checks only if its caller vouches for the text")]
pub(super) fn create_module(device: &wgpu::Device, label: &str, source: &str) -> wgpu::ShaderModule {
    let descriptor =
        wgpu::ShaderModuleDescriptor { label: Some(label), source: wgpu::ShaderSource::Wgsl(source.into()) };
    // Integer division keeps its check: WGSL defines the smallest integer divided by -1, and drivers do not.
    let checks = wgpu::ShaderRuntimeChecks { int_div_checks: true, ..wgpu::ShaderRuntimeChecks::unchecked() };
    // SAFETY: the text is generated, never a guest's. Every loop counts to a constant. Every index is computed from
    // constant sizes and from coordinates below them, or is clamped if it comes from another tensor's elements
    // (`wgsl::index`). `saggar_compile::check` proves for every program that its elements lie within its values before
    // the text is written. That the text's indices are those elements depends on how it is written, and on tests that
    // compare results with the interpreter's. Nothing checks the indices in the text: a mistake there reaches other
    // tensors of a buffer.
    unsafe { device.create_shader_module_trusted(descriptor, checks) }
}

/// Returns the token that enables wgpu's experimental features, for cooperative matrices.
#[expect(unsafe_code, reason = "wgpu enables experimental features only if its caller accepts the risk")]
pub(super) fn experimental_features() -> wgpu::ExperimentalFeatures {
    // SAFETY: used only for matrix products whose shaders are generated, never a guest's, and which a self-test runs
    // before any user's work.
    unsafe { wgpu::ExperimentalFeatures::enabled() }
}
