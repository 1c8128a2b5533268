//! File system name spaces of a test's own, in which it may mount.

use std::process::Command;

/// The ways into one: of a user name space, and, where those are not given, by root's own right.
const UNSHARE_ARGUMENTS: [&[&str]; 2] = [&["--user", "--map-root-user", "--mount"], &["--mount"]];

/// A command that runs the shell script and the arguments that are added to it in such a name space, or `None` where this
/// machine lets nobody mount, which is said.
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
