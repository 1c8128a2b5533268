//! Shutdown of `saggar dev`. Ctrl-C and SIGTERM end the running build and the server that was started, and wait for it,
//! so that no process remains; a second signal kills the server. If this process is killed, the server ends because its
//! standard input ends.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use crate::signals::ShutdownSignals;

/// Maximum time for the server's jobs to save their state before the server is killed.
const SERVER_STOP_TIME_MAX: Duration = Duration::from_secs(40);
/// How often the server is polled meanwhile.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The processes that were started.
#[derive(Debug, Default)]
struct DevProcesses {
    server: Option<Child>,
    /// The build's process group.
    build: Option<u32>,
    ending: bool,
}

/// Ends the processes that were started.
#[derive(Debug, Default)]
pub(crate) struct DevShutdown {
    started: Mutex<DevProcesses>,
    /// Whether a second signal arrived, so that nothing is waited for any more.
    is_forced: AtomicBool,
}

impl DevShutdown {
    /// Installs a shutdown that signals trigger.
    pub(super) fn install() -> Arc<DevShutdown> {
        let ending = Arc::new(DevShutdown::default());
        let own = Arc::clone(&ending);
        let listen = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let Ok(runtime) = runtime else { return };
            let Ok(mut signals) = runtime.block_on(async { ShutdownSignals::install() }) else { return };
            let code = runtime.block_on(signals.recv());
            let ended = Arc::clone(&own);
            let end = move || {
                ended.shut_down();
                std::process::exit(code);
            };
            if std::thread::Builder::new().name("interrupted".to_owned()).spawn(end).is_err() {
                std::process::exit(code);
            }
            let _ = runtime.block_on(signals.recv());
            own.is_forced.store(true, Ordering::Release);
        };
        // Without the thread, signals end this process, and the server's standard input ends.
        let _ = std::thread::Builder::new().name("interrupt".to_owned()).spawn(listen);
        ending
    }

    fn lock_processes(&self) -> MutexGuard<'_, DevProcesses> {
        self.started.lock()
    }

    /// Registers the server to be ended on shutdown.
    pub(super) fn set_server(&self, server: Child) {
        self.lock_processes().server = Some(server);
    }

    /// Registers the build's process group to be ended on shutdown, or with `None` removes it.
    pub(crate) fn set_build_group(&self, group: Option<u32>) {
        let mut started = self.lock_processes();
        started.build = group;
        if started.ending {
            kill_group(group);
        }
    }

    /// Ends everything and waits for it.
    fn shut_down(&self) {
        let (server, build) = {
            let mut started = self.lock_processes();
            started.ending = true;
            (started.server.take(), started.build.take())
        };
        kill_group(build);
        let Some(mut server) = server else { return };
        drop(server.stdin.take());
        let began = Instant::now();
        while matches!(server.try_wait(), Ok(None)) {
            if began.elapsed() > SERVER_STOP_TIME_MAX || self.is_forced.load(Ordering::Acquire) {
                let _ = server.kill();
                let _ = server.wait();
                return;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

/// Ends every process of a group, like Ctrl-C in a terminal.
fn kill_group(group: Option<u32>) {
    if let Some(group) = group {
        let mut kill = Command::new("kill");
        let kill = kill.args(["-TERM", "--", &format!("-{group}")]).stdout(Stdio::null()).stderr(Stdio::null());
        // The group may have ended already.
        let _ = kill.status();
    }
}
