//! Keeps a driver from talking to the user.

use std::os::unix::process::CommandExt;

/// The variable that a desktop session sets, and a server's or a container's does not.
const RUNTIME_DIR_VARIABLE: &str = "XDG_RUNTIME_DIR";

/// Replaces this process by itself with [`RUNTIME_DIR_VARIABLE`] set, where it is not: Mesa's drivers ask Wayland for a display when
/// they are looked at, and Wayland prints an error about the variable, several times, where nobody wants a display. The
/// process stays the same one; where it cannot be replaced, it goes on as it is.
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
