//! The sandbox of a notebook: bubblewrap. The notebook sees the system's programs read-only, its own folders and its mounts,
//! but neither the state directory nor other users' files. It has its own process namespace, whose processes all end with
//! the worker that started it. It shares the network, by which it reaches the server.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::NotebookError;
use crate::folders::NotebookFolders;

/// The program.
const BUBBLEWRAP: &str = "bwrap";
/// Where the sandbox has the environment of JupyterLab.
pub(crate) const ENVIRONMENT_PATH: &str = "/opt/jupyterlab";
/// Where the sandbox has the Python client.
pub(crate) const CLIENT_PATH: &str = "/opt/saggar";
/// Where the sandbox has JupyterLab's settings.
pub(crate) const SETTINGS_PATH: &str = "/opt/jupyterlab-settings";
/// Where the sandbox has the folder of documents and outputs.
pub(crate) const OUTPUT_PATH: &str = "/output";
/// Where the sandbox has the home directory.
pub(crate) const HOME_PATH: &str = "/home/notebook";
/// Where the sandbox has the folder of JupyterLab's socket.
pub(crate) const RUN_PATH: &str = "/run/notebook";

/// The directories of programs and libraries. On most systems all but the first are links into it.
const PROGRAMS: [&str; 6] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64"];
/// The files of the system's configuration that programs need: the linker's, names of users, hosts and time zones, and
/// certificates.
const CONFIGURATION: [&str; 20] = [
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/fonts",
    "/etc/gai.conf",
    "/etc/group",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/inputrc",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/pki",
    "/etc/protocols",
    "/etc/resolv.conf",
    "/etc/ssl",
    "/etc/terminfo",
];
/// The first parts of paths that cannot be mount points of data.
const RESERVED: [&str; 15] = [
    "bin", "dev", "etc", "home", "lib", "lib32", "lib64", "opt", "output", "proc", "root", "run", "sbin", "tmp", "usr",
];

/// A directory that the notebook can read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxMount {
    /// The directory of this machine.
    pub source: PathBuf,
    /// Its absolute path in the sandbox: `/data`.
    pub target: String,
}

/// Returns whether data can be mounted at this absolute path: the sandbox itself does not use it.
pub fn is_mount_point(path: &str) -> bool {
    let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    !first.is_empty() && !RESERVED.contains(&first)
}

/// Checks that this machine has a sandbox, by starting one.
///
/// # Errors
/// `Sandbox`.
pub fn check() -> Result<(), NotebookError> {
    let mut command = Command::new(BUBBLEWRAP);
    command.args(["--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"]).args(ISOLATION).arg("true");
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| NotebookError::Sandbox { reason: start_error(&error) })?;
    if output.status.success() {
        return Ok(());
    }
    Err(NotebookError::Sandbox { reason: String::from_utf8_lossy(&output.stderr).trim().to_owned() })
}

pub(crate) fn start_error(error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::NotFound {
        return format!("there is no program `{BUBBLEWRAP}`");
    }
    format!("{BUBBLEWRAP}: {error}")
}

/// The options of every sandbox: namespaces of processes, System V objects and the host's name, no capabilities, no
/// terminal of the server, and no process that outlives the one that starts the sandbox.
const ISOLATION: [&str; 8] = [
    "--unshare-pid",
    "--unshare-ipc",
    "--unshare-uts",
    "--unshare-cgroup-try",
    "--cap-drop",
    "ALL",
    "--die-with-parent",
    "--new-session",
];

/// Returns the command that runs a program in the sandbox: bubblewrap with everything before the program. `base` is the
/// installation of Python that the environment was made with.
pub(crate) fn command(folders: &NotebookFolders, environment: &Path, base: &Path, mounts: &[SandboxMount]) -> Command {
    let mut command = Command::new(BUBBLEWRAP);
    for directory in PROGRAMS {
        match std::fs::read_link(directory) {
            Ok(target) => command.arg("--symlink").arg(target).arg(directory),
            Err(_) => command.args(["--ro-bind-try", directory, directory]),
        };
    }
    for file in CONFIGURATION {
        command.args(["--ro-bind-try", file, file]);
    }
    command.args(["--proc", "/proc", "--dev", "/dev"]);
    if !base.starts_with("/usr") {
        command.arg("--ro-bind").arg(base).arg(base);
    }
    command.arg("--ro-bind").arg(environment).arg(ENVIRONMENT_PATH);
    command.arg("--ro-bind").arg(folders.client()).arg(CLIENT_PATH);
    command.arg("--ro-bind").arg(folders.settings()).arg(SETTINGS_PATH);
    command.arg("--bind").arg(folders.output()).arg(OUTPUT_PATH);
    command.arg("--bind").arg(folders.home()).arg(HOME_PATH);
    command.arg("--bind").arg(folders.temporary()).arg("/tmp");
    command.arg("--bind").arg(folders.run()).arg(RUN_PATH);
    for SandboxMount { source, target } in mounts {
        command.arg("--ro-bind").arg(source).arg(target);
    }
    command.args(ISOLATION).args(["--hostname", "notebook", "--chdir", OUTPUT_PATH, "--"]);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_cannot_hide_what_the_sandbox_uses() {
        for path in ["/data", "/before/now", "/mnt/x"] {
            assert!(is_mount_point(path), "{path}");
        }
        for path in ["/usr", "/usr/share/x", "/output", "/output/a", "/proc/1", "/", "", "/opt/saggar"] {
            assert!(!is_mount_point(path), "{path}");
        }
    }

    #[test]
    fn the_command_has_no_folder_but_those_of_the_notebook_and_its_mounts() {
        let folders = NotebookFolders::new(Path::new("/state/jobs/J"));
        let mounts = [SandboxMount { source: "/state/d".into(), target: "/data".to_owned() }];
        let command = command(&folders, Path::new("/cache/jupyterlab-1"), Path::new("/usr"), &mounts);
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
        let writable: Vec<_> = words.windows(3).filter(|words| words[0] == "--bind").map(|words| &*words[1]).collect();
        let folder = |name: &str| format!("/state/jobs/J/notebook/{name}");
        assert_eq!(writable, ["output", "home", "tmp", "run"].map(folder));
        let text = words.join(" ");
        assert!(text.contains("--ro-bind /state/d /data"), "{text}");
        assert!(text.contains("--die-with-parent") && text.contains("--unshare-pid"), "{text}");
    }
}
