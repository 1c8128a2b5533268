//! Limits how much freed memory the C library's allocator retains. By default glibc raises its thresholds to the size
//! of the last freed block, up to 32 MiB, and then retains up to twice that in each arena, of which there are eight per
//! processor. Buffers of an unloaded model and inputs of answered requests would then stay with the process, outside
//! every memory budget of the server. Thresholds that are set explicitly do not move. Source: mallopt(3),
//! `M_MMAP_THRESHOLD`.

/// Smallest allocation, in bytes, that is mapped and returned to the system when it is freed.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAPPED_BYTES_MIN: libc::c_int = 256 << 10;
/// Maximum bytes that can stay free at the end of an arena.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const FREE_TOP_BYTES_MAX: libc::c_int = 1 << 20;

/// Limits the memory that the allocator retains. C libraries other than glibc have no such settings. A rejected setting
/// leaves the allocator unchanged.
#[cfg_attr(
    all(target_os = "linux", target_env = "gnu"),
    expect(unsafe_code, reason = "the C library has no other way to its settings")
)]
pub(crate) fn bound_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: both settings can change at any time, and no pointers are passed.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES_MIN);
        libc::mallopt(libc::M_TRIM_THRESHOLD, FREE_TOP_BYTES_MAX);
    }
}
