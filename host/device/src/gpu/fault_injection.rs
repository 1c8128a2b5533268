//! Fault injection for tests: a device is lost, or its work never ends. Active only if an environment variable requests
//! it, in builds with the feature `fault-injection`, which releases do not enable.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::shader;
use crate::error::DeviceError;

/// The environment variable that names a trigger file. When the file appears, a process with open adapters removes it
/// and loses one of them. If the file says `for good`, the process gets no other adapter after that. If it says `hang`,
/// the adapter is not lost, but gets work that does not end.
const VARIABLE: &str = "SAGGAR_TEST_LOSE_DEVICE";

/// Interval between checks for the trigger file.
const TRIGGER_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Time limit of a submission in a process that has a hung adapter.
const HUNG_SUBMISSION_TIME: Duration = Duration::from_secs(3);

/// A shader that does not end, because its dispatch has more workgroups than any adapter finishes. Software adapters
/// leave loops after 65,536 iterations.
const ENDLESS_SHADER: &str = "
    @group(0) @binding(0) var<storage, read_write> word: atomic<u32>;
    @compute @workgroup_size(1) fn main() { for (var n = 0u; n < 65000u; n++) { atomicAdd(&word, n); } }";
/// Workgroups in each dimension: the limit that every adapter supports.
const ENDLESS_WORKGROUPS: u32 = 65_535;

/// Whether this process gets no further adapter.
static IS_PERMANENTLY_LOST: AtomicBool = AtomicBool::new(false);
/// Whether an adapter of this process hangs.
static IS_HUNG: AtomicBool = AtomicBool::new(false);

/// Checks that this process can still open an adapter.
///
/// # Errors
/// Returns `Lost` after a permanent loss.
pub(super) fn check_not_permanently_lost(device: &str) -> Result<(), DeviceError> {
    if IS_PERMANENTLY_LOST.load(Ordering::Acquire) {
        let reason = "the driver gives this process no other device".to_owned();
        return Err(DeviceError::Lost { device: device.to_owned(), reason });
    }
    Ok(())
}

/// Returns the time limit of a submission if an adapter of this process hangs, else `None`.
pub(super) fn hung_submission_time() -> Option<Duration> {
    IS_HUNG.load(Ordering::Acquire).then_some(HUNG_SUBMISSION_TIME)
}

/// Starts the thread that loses or hangs the device when the trigger file appears, if the variable is set.
pub(super) fn watch_for_trigger(device: &wgpu::Device, queue: &wgpu::Queue) {
    let Some(file) = std::env::var_os(VARIABLE).map(PathBuf::from) else { return };
    let (device, queue) = (device.clone(), queue.clone());
    let watch = move || {
        let how = wait_for_trigger(&file);
        tracing::warn!(how, "{VARIABLE}: the device is lost because a test requested it");
        if how == "hang" {
            IS_HUNG.store(true, Ordering::Release);
            return submit_endless_work(&device, &queue);
        }
        IS_PERMANENTLY_LOST.fetch_or(how == "for good", Ordering::AcqRel);
        device.destroy();
    };
    if let Err(error) = std::thread::Builder::new().name("fault".to_owned()).spawn(watch) {
        tracing::warn!(%error, "cannot start the thread that watches {VARIABLE}");
    }
}

/// Waits until the file exists and this process is the one that removes it. Returns its text.
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

/// Submits work that does not end. Later submissions do not start.
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
