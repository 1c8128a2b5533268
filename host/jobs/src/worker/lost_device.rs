//! The end of a worker whose device is lost: at once. Threads may be in calls of the driver that do not come back, and what
//! drivers do at the end of a process may not come to an end either.

use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Signal, getpid, kill_process};
use saggar_device::{Backend, DeviceError};

use super::channel::EventChannel;
use crate::limits::LOST_DEVICE_GRACE;
use crate::protocol::WorkerEvent;
use crate::spec::DEVICE_LOST;

/// How often the device is looked at.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Looks at a device until it is dropped, and ends the process if the device is lost and nothing else does.
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
                channel.send(&WorkerEvent::Failed { reason: DEVICE_LOST.to_owned(), message: error.to_string() });
                kill_own_process();
            }
        };
        // A system that starts no thread starts no training either, which says so.
        let thread = std::thread::Builder::new().name("device-watch".to_owned()).spawn(watch).ok();
        DeviceWatch { stop: Some(stop), thread }
    }
}

impl Drop for DeviceWatch {
    fn drop(&mut self) {
        // The thread must not be the last one that holds the device.
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Waits until the device has been lost for longer than a worker may take to end; `None` where it is not to wait any more.
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

/// Ends the process without any destructor or handler.
pub(super) fn kill_own_process() -> ! {
    // It is its own, so it may.
    let _ = kill_process(getpid(), Signal::KILL);
    loop {
        std::thread::park();
    }
}
