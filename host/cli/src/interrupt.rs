//! Ctrl-C handling: an action that a command runs before it ends. A second Ctrl-C ends the command at once.

use std::sync::Once;

use parking_lot::{Mutex, MutexGuard};

use crate::exit;

type InterruptAction = Box<dyn FnOnce() + Send>;

struct InterruptState {
    action: Option<InterruptAction>,
    /// Whether the command is ending.
    is_ending: bool,
}

static INTERRUPT: Mutex<InterruptState> = Mutex::new(InterruptState { action: None, is_ending: false });
static LISTENER_STARTED: Once = Once::new();

/// Sets the action that Ctrl-C runs before it ends the command, replacing the previous one. If the command is already
/// ending, waits for its end.
pub(crate) fn set_interrupt_action(action: impl FnOnce() + Send + 'static) {
    let is_ending = {
        let mut interrupt = lock_state();
        interrupt.action = Some(Box::new(action));
        interrupt.is_ending
    };
    if is_ending {
        loop {
            std::thread::park();
        }
    }
    // Without the thread, Ctrl-C still ends the command, but without the action.
    LISTENER_STARTED
        .call_once(|| drop(std::thread::Builder::new().name("interrupt".to_owned()).spawn(wait_for_ctrl_c)));
}

fn lock_state() -> MutexGuard<'static, InterruptState> {
    INTERRUPT.lock()
}

fn wait_for_ctrl_c() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else { return };
    if runtime.block_on(tokio::signal::ctrl_c()).is_err() {
        return;
    }
    let action = {
        let mut interrupt = lock_state();
        interrupt.is_ending = true;
        interrupt.action.take()
    };
    let end = move || {
        if let Some(action) = action {
            action();
        }
        std::process::exit(exit::INTERRUPTED);
    };
    if std::thread::Builder::new().name("interrupted".to_owned()).spawn(end).is_ok() {
        let _ = runtime.block_on(tokio::signal::ctrl_c());
    }
    std::process::exit(exit::INTERRUPTED);
}
