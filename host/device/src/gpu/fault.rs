//! A fault that tests make: the driver gives the device up. Only where an environment variable asks for it, and only in
//! builds with the feature `fault-injection`, which a release has not.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::error::DeviceError;

/// Names a file. While a process has adapters open, one of them is lost as soon as that file is there, and the file is
/// removed; if it says `for good`, the process gets no other adapter from then on.
const VARIABLE: &str = "SAGGAR_TEST_LOSE_DEVICE";

/// How often the file is looked for.
const LOOK: Duration = Duration::from_millis(5);

/// Whether this process gets no adapter any more.
static FOR_GOOD: AtomicBool = AtomicBool::new(false);

/// What opening an adapter says where none is to be had any more.
///
/// # Errors
/// `Lost` after a loss for good.
pub(super) fn check(device: &str) -> Result<(), DeviceError> {
    if FOR_GOOD.load(Ordering::Acquire) {
        let reason = "the driver gives this process no other device".to_owned();
        return Err(DeviceError::Lost { device: device.to_owned(), reason });
    }
    Ok(())
}

/// Has the device be lost as the variable says, if it is set.
pub(super) fn arm(device: &wgpu::Device) {
    let Some(file) = std::env::var_os(VARIABLE).map(PathBuf::from) else { return };
    let device = device.clone();
    let watch = move || {
        let for_good = wait(&file);
        FOR_GOOD.fetch_or(for_good, Ordering::AcqRel);
        tracing::warn!(for_good, "{VARIABLE}: the device is lost, as a test wants it");
        device.destroy();
    };
    if let Err(error) = std::thread::Builder::new().name("fault".to_owned()).spawn(watch) {
        tracing::warn!(%error, "{VARIABLE} is not watched");
    }
}

/// Waits until the file is there and this process is the one that removes it; whether the loss is for good.
fn wait(file: &Path) -> bool {
    loop {
        if let Ok(text) = std::fs::read_to_string(file)
            && std::fs::remove_file(file).is_ok()
        {
            return text.trim() == "for good";
        }
        std::thread::sleep(LOOK);
    }
}
