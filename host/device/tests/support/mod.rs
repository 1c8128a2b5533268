//! The devices that tests run on.

use std::sync::Arc;

use saggar_device::{Backend, cpu, gpu};

/// How many adapters there are. Where there are none it says SKIP and what of the test is left, and with `REQUIRE_GPU=1` it
/// fails.
pub(crate) fn adapters(left: &str) -> usize {
    let adapters = gpu::adapters().len();
    if adapters == 0 {
        assert!(std::env::var_os("REQUIRE_GPU").is_none_or(|value| value != "1"), "no GPU adapter");
        println!("SKIP: no GPU adapter{left}");
    }
    adapters
}

/// The CPU with two threads, and every adapter.
#[allow(dead_code, reason = "tests that tune their devices open them themselves")]
pub(crate) fn devices() -> Vec<Arc<dyn Backend>> {
    let mut devices = vec![cpu::open(Some(2)).unwrap()];
    devices.extend((0..adapters("; the CPU alone is tested")).map(|index| gpu::open(index).unwrap()));
    devices
}
