//! What the C library's allocator may keep of freed memory. glibc raises its thresholds to the size of what was freed last,
//! up to 32 MiB, and then keeps up to twice as much in each arena, of which there are eight for every processor: buffers of
//! a model that was unloaded, or inputs that were answered long ago, stay with the process, and no budget of the server
//! knows about them. Thresholds that are set do not move. Source: mallopt(3), `M_MMAP_THRESHOLD`.

/// Memory of this size and more is mapped, and goes back to the system when it is freed.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAPPED_BYTES_MIN: libc::c_int = 256 << 10;
/// Bytes that may stay free at the end of an arena.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const FREE_TOP_BYTES_MAX: libc::c_int = 1 << 20;

/// Bounds what the allocator keeps; other C libraries than glibc have no such settings. A setting that is refused leaves
/// the allocator as it was.
#[cfg_attr(
    all(target_os = "linux", target_env = "gnu"),
    expect(unsafe_code, reason = "the C library has no other way to its settings")
)]
pub(crate) fn bound_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: both are settings that may change at any time; no pointers are passed.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES_MIN);
        libc::mallopt(libc::M_TRIM_THRESHOLD, FREE_TOP_BYTES_MAX);
    }
}
