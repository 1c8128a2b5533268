//! Queries and signals of processes.

use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// Returns the processes whose parent is `pid`.
pub fn child_processes(pid: u32) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("a system with /proc").flatten() {
        let Ok(child) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        // The name in parentheses can contain anything; the parent is the second field after it.
        let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)?.parse().ok());
        if parent == Some(pid) {
            found.push(child);
        }
    }
    found
}

/// Returns the child processes of `pid` that run attempts of jobs. A server also starts other processes, to search for
/// devices.
pub fn worker_processes(pid: u32) -> Vec<u32> {
    let is_worker = |pid: &u32| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = words.split(|byte| *byte == 0).collect();
        words.windows(2).any(|pair| pair == [b"worker".as_slice(), b"attempt".as_slice()])
    };
    child_processes(pid).into_iter().filter(is_worker).collect()
}

/// Waits at most this long for a process to end, and returns its exit status, or `None` if it still runs.
pub(crate) fn wait_for_end(child: &mut Child, time: Duration) -> Option<ExitStatus> {
    let began = Instant::now();
    while began.elapsed() < time {
        if let Some(status) = child.try_wait().expect("it is ours") {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    None
}

/// Sends SIGKILL to the process and returns whether it existed.
pub fn kill_9(pid: u32) -> bool {
    let status = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status();
    status.expect("a system with kill").success()
}

/// Returns the processes that run `program` on the state directory `home`, or on one below it.
pub fn processes_of(program: &Path, home: &Path) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("a system with /proc").flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        let Ok(words) = std::fs::read(entry.path().join("cmdline")) else { continue };
        let words = String::from_utf8_lossy(&words).into_owned();
        let is_program = words.split('\0').any(|word| Path::new(word) == program);
        if is_program && words.split('\0').any(|word| Path::new(word).starts_with(home)) {
            found.push(pid);
        }
    }
    found
}

/// Gives this thread, and the threads and processes that it starts from now on, the lowest scheduling priority.
///
/// # Panics
/// If the system refuses it.
pub fn lower_priority() {
    // On Linux this affects only the calling thread.
    rustix::process::nice(19).expect("every user may lower a priority");
}

/// Returns a memory field of `/proc/PID/status`, such as `VmHWM`, in KiB.
pub fn memory_kib(pid: u32, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process is there");
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).expect("the field is there");
    line.trim().trim_end_matches(" kB").trim().parse().expect("a number")
}

/// Returns a command that runs a program as this user and group id; the caller adds the program and its arguments.
/// Requires root.
pub fn command_as_user(number: u32) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &number.to_string(), "--regid", &number.to_string(), "--clear-groups"]);
    command
}
