//! Faults that tests make: the driver gives the device up, or work on it never ends. Only where an environment variable asks
//! for it, and only in builds with the feature `fault-injection`, which a release has not.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::shader;
use crate::error::DeviceError;

/// Names a file. While a process has adapters open, one of them is lost as soon as that file is there, and the file is
/// removed; if it says `for good`, the process gets no other adapter from then on; if it says `submit_endless_work`, the adapter is not lost,
/// but gets work that does not end.
const VARIABLE: &str = "SAGGAR_TEST_LOSE_DEVICE";

/// How often the file is looked for.
const TRIGGER_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Time that the watchdog gives a submission in a process one of whose adapters hangs.
const HUNG_SUBMISSION_TIME: Duration = Duration::from_secs(3);

/// Work that does not end: more workgroups than anything computes. Software adapters leave loops after 65,536 turns.
const ENDLESS_SHADER: &str = "
    @group(0) @binding(0) var<storage, read_write> word: atomic<u32>;
    @compute @workgroup_size(1) fn main() { for (var n = 0u; n < 65000u; n++) { atomicAdd(&word, n); } }";
/// Workgroups in each dimension, the most that every adapter takes.
const ENDLESS_WORKGROUPS: u32 = 65_535;

/// Whether this process gets no adapter any more.
static IS_PERMANENTLY_LOST: AtomicBool = AtomicBool::new(false);
/// Whether an adapter of this process hangs.
static IS_HUNG: AtomicBool = AtomicBool::new(false);

/// What opening an adapter says where none is to be had any more.
///
/// # Errors
/// `Lost` after a loss for good.
pub(super) fn check_not_permanently_lost(device: &str) -> Result<(), DeviceError> {
    if IS_PERMANENTLY_LOST.load(Ordering::Acquire) {
        let reason = "the driver gives this process no other device".to_owned();
        return Err(DeviceError::Lost { device: device.to_owned(), reason });
    }
    Ok(())
}

/// The time that a submission gets, where it is not the usual one.
pub(super) fn hung_submission_time() -> Option<Duration> {
    IS_HUNG.load(Ordering::Acquire).then_some(HUNG_SUBMISSION_TIME)
}

/// Has the device be lost as the variable says, if it is set.
pub(super) fn watch_for_trigger(device: &wgpu::Device, queue: &wgpu::Queue) {
    let Some(file) = std::env::var_os(VARIABLE).map(PathBuf::from) else { return };
    let (device, queue) = (device.clone(), queue.clone());
    let watch = move || {
        let how = wait_for_trigger(&file);
        tracing::warn!(how, "{VARIABLE}: the device is lost, as a test wants it");
        if how == "hang" {
            IS_HUNG.store(true, Ordering::Release);
            return submit_endless_work(&device, &queue);
        }
        IS_PERMANENTLY_LOST.fetch_or(how == "for good", Ordering::AcqRel);
        device.destroy();
    };
    if let Err(error) = std::thread::Builder::new().name("fault".to_owned()).spawn(watch) {
        tracing::warn!(%error, "{VARIABLE} is not watched");
    }
}

/// Waits until the file is there and this process is the one that removes it; what it says.
fn wait_for_trigger(file: &Path) -> String {
    loop {
        if let Ok(text) = std::fs::read_to_string(file)
            && std::fs::remove_file(file).is_ok()
        {
            return text.trim().to_owned();
        }
        std::thread::sleep(TRIGGER_POLL_INTERVAL);
    }
}

/// Submits work that does not end. What is submitted after it does not begin.
fn submit_endless_work(device: &wgpu::Device, queue: &wgpu::Queue) {
    let usage = wgpu::BufferUsages::STORAGE;
    let word = device.create_buffer(&wgpu::BufferDescriptor { label: None, size: 4, usage, mapped_at_creation: false });
    let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some("endless"),
        layout: None,
        module: &shader::create_module(device, "endless", ENDLESS_SHADER),
        entry_point: Some("main"),
        compilation_options: wgpu::PipelineCompilationOptions::default(),
        cache: None,
    });
    let group = device.create_bind_group(&wgpu::BindGroupDescriptor {
        label: None,
        layout: &pipeline.get_bind_group_layout(0),
        entries: &[wgpu::BindGroupEntry { binding: 0, resource: word.as_entire_binding() }],
    });
    let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
    pass.set_pipeline(&pipeline);
    pass.set_bind_group(0, &group, &[]);
    pass.dispatch_workgroups(ENDLESS_WORKGROUPS, ENDLESS_WORKGROUPS, ENDLESS_WORKGROUPS);
    drop(pass);
    queue.submit([encoder.finish()]);
}
