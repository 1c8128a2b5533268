//! Prevents a driver from printing messages to the user.

use std::os::unix::process::CommandExt;

/// The variable that a desktop session sets, and that is missing on servers and in containers.
const RUNTIME_DIR_VARIABLE: &str = "XDG_RUNTIME_DIR";

/// Restarts this process with [`RUNTIME_DIR_VARIABLE`] set if it is missing. Mesa's drivers connect to Wayland when
/// they are enumerated, and Wayland then prints several errors about the missing variable although no display is
/// needed. The process id stays the same; if the restart fails, the process continues.
pub(crate) fn silence_wayland() {
    if std::env::var_os(RUNTIME_DIR_VARIABLE).is_some() {
        return;
    }
    if let Ok(program) = std::env::current_exe() {
        let arguments = std::env::args_os().skip(1);
        let _ =
            std::process::Command::new(program).args(arguments).env(RUNTIME_DIR_VARIABLE, std::env::temp_dir()).exec();
    }
}
