//! How much memory an adapter has. WebGPU does not tell; Vulkan does.

/// Bytes of the adapter's own memory; none where its driver is not Vulkan's, or names none.
#[expect(unsafe_code, reason = "the adapter behind wgpu's is asked, which promises that it is not destroyed meanwhile")]
pub(super) fn largest_heap_bytes(adapter: &wgpu::Adapter) -> Option<u64> {
    // SAFETY: the guard is used here alone, and nothing that it gives is destroyed or kept.
    let raw = unsafe { adapter.as_hal::<wgpu::hal::api::Vulkan>() }?;
    let instance = raw.shared_instance().raw_instance();
    // SAFETY: the physical device is the adapter's, which this instance enumerated and which outlives the guard.
    let properties = unsafe { instance.get_physical_device_memory_properties(raw.raw_physical_device()) };
    let heaps = properties.memory_heaps.iter().take(properties.memory_heap_count as usize);
    // Bit 0 of a heap's flags says that it is the device's own.
    let own = heaps.filter(|heap| heap.flags.as_raw() & 1 != 0);
    own.map(|heap| heap.size).max()
}
