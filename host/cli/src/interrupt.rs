//! Ctrl-C: what a command still does before it ends. A second one ends it at once.

use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use crate::exit;

type InterruptAction = Box<dyn FnOnce() + Send>;

struct InterruptState {
    action: Option<InterruptAction>,
    /// The command is being ended.
    is_ending: bool,
}

static INTERRUPT: Mutex<InterruptState> = Mutex::new(InterruptState { action: None, is_ending: false });
static LISTENER_STARTED: Once = Once::new();

/// From now on, Ctrl-C does this before it ends the command, in the place of what was to be done before. Where the command is
/// being ended already, this waits for that end.
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
    // Without the thread, Ctrl-C still ends the command; only what it was to do is missing.
    LISTENER_STARTED
        .call_once(|| drop(std::thread::Builder::new().name("interrupt".to_owned()).spawn(wait_for_ctrl_c)));
}

fn lock_state() -> MutexGuard<'static, InterruptState> {
    INTERRUPT.lock().unwrap_or_else(PoisonError::into_inner)
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
