//! The memory size of an adapter. WebGPU does not report it; Vulkan does.

/// Returns the bytes of the adapter's largest device-local heap, or `None` if its driver is not Vulkan or reports no
/// such heap.
#[expect(unsafe_code, reason = "the raw adapter is read, and the caller must not destroy it")]
pub(super) fn largest_heap_bytes(adapter: &wgpu::Adapter) -> Option<u64> {
    // SAFETY: the guard is used only here, and nothing obtained from it is destroyed or kept.
    let raw = unsafe { adapter.as_hal::<wgpu::hal::api::Vulkan>() }?;
    let instance = raw.shared_instance().raw_instance();
    // SAFETY: the physical device belongs to the adapter; this instance enumerated it, and it outlives the guard.
    let properties = unsafe { instance.get_physical_device_memory_properties(raw.raw_physical_device()) };
    let heaps = properties.memory_heaps.iter().take(properties.memory_heap_count as usize);
    // Bit 0 of a heap's flags marks it as device-local.
    let own = heaps.filter(|heap| heap.flags.as_raw() & 1 != 0);
    own.map(|heap| heap.size).max()
}
