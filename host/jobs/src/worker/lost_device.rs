//! Immediate exit of a worker whose device is lost. Threads can be in driver calls that never return, and a driver's
//! exit handlers can hang too.

use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Signal, getpid, kill_process};
use saggar_device::{Backend, DeviceError};
use saggar_plugin::FailureReason;

use super::channel::EventChannel;
use crate::limits::LOST_DEVICE_GRACE;
use crate::protocol::WorkerEvent;

/// How often the device is polled.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// A thread that polls a device until it is dropped, and ends the process if the device is lost and the process does
/// not end.
#[derive(Debug)]
pub(super) struct DeviceWatch {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl DeviceWatch {
    pub(super) fn start(device: &Arc<dyn Backend>, channel: &EventChannel) -> DeviceWatch {
        let (device, channel) = (Arc::clone(device), channel.clone());
        let (stop, stopped) = mpsc::channel::<()>();
        let watch = move || {
            if let Some(error) = wait_for_loss(&*device, &stopped) {
                channel.send(&WorkerEvent::Failed {
                    reason: FailureReason::DeviceLost.as_str().to_owned(),
                    message: error.to_string(),
                });
                channel.close();
                kill_own_process();
            }
        };
        // If the system cannot start this thread, it cannot start the training either, which reports the error.
        let thread = std::thread::Builder::new().name("device-watch".to_owned()).spawn(watch).ok();
        DeviceWatch { stop: Some(stop), thread }
    }
}

impl Drop for DeviceWatch {
    fn drop(&mut self) {
        // The thread must not be the last owner of the device.
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Waits until the device has been lost for [`LOST_DEVICE_GRACE`]; returns `None` if the watch was stopped.
fn wait_for_loss(device: &dyn Backend, stopped: &mpsc::Receiver<()>) -> Option<DeviceError> {
    let mut lost: Option<Instant> = None;
    while stopped.recv_timeout(POLL_INTERVAL) == Err(mpsc::RecvTimeoutError::Timeout) {
        if let Err(error) = device.check_alive()
            && lost.get_or_insert_with(Instant::now).elapsed() > LOST_DEVICE_GRACE
        {
            return Some(error);
        }
    }
    None
}

/// Ends the process without running destructors or exit handlers.
pub(super) fn kill_own_process() -> ! {
    // A process may always kill itself.
    let _ = kill_process(getpid(), Signal::KILL);
    loop {
        std::thread::park();
    }
}
