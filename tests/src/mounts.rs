//! Mount namespaces for tests that mount file systems.

use std::process::Command;

/// Arguments of `unshare`: a user namespace, or root's own privilege if user namespaces are disabled.
const UNSHARE_ARGUMENTS: [&[&str]; 2] = [&["--user", "--map-root-user", "--mount"], &["--mount"]];

/// Returns a command that runs a shell script and its arguments, which the caller adds, in a mount namespace. Prints
/// SKIP and returns `None` if mounting is not permitted on this machine.
pub fn unshare_command() -> Option<Command> {
    let place = tempfile::tempdir().expect("a directory for temporary files");
    let command = |way: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(way).args(["sh", "-euc"]);
        command
    };
    let may = |way: &&[&str]| {
        let tried = command(way).arg("mount -t tmpfs tmpfs \"$0\"").arg(place.path()).output();
        tried.is_ok_and(|output| output.status.success())
    };
    let way = UNSHARE_ARGUMENTS.into_iter().find(may);
    if way.is_none() {
        #[expect(clippy::print_stdout, reason = "a skipped test says so")]
        {
            println!("SKIP: this machine lets nobody mount");
        }
    }
    way.map(command)
}
