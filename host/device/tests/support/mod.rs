//! The devices that tests run on.

use std::sync::Arc;

use saggar_device::{Backend, cpu, gpu};

/// Returns the number of adapters. If there are no adapters, prints SKIP and `left`, which says what is still tested,
/// or fails if `REQUIRE_GPU=1`.
pub(crate) fn adapters(left: &str) -> usize {
    let adapters = gpu::adapters().len();
    if adapters == 0 {
        assert!(std::env::var_os("REQUIRE_GPU").is_none_or(|value| value != "1"), "no GPU adapter");
        println!("SKIP: no GPU adapter{left}");
    }
    adapters
}

/// Returns the CPU with two threads, and every adapter.
#[allow(dead_code, reason = "tests that tune their devices open them themselves")]
pub(crate) fn devices() -> Vec<Arc<dyn Backend>> {
    let mut devices = vec![cpu::open(Some(2)).unwrap()];
    devices.extend((0..adapters("; the CPU alone is tested")).map(|index| gpu::open(index).unwrap()));
    devices
}
