//! Limits that a child sets itself before it reads what it is to compile.

use std::io::Read;

/// Limits processor time and lowers the scheduling priority below the server's; where the system is short of memory, it kills
/// this process first.
#[cfg(unix)]
pub(super) fn limit_processor(cpu_seconds: u64) {
    use rustix::process::{Resource, nice};

    use crate::limits::BACKGROUND_NICENESS;

    // The signal of the first limit says what happened; at the second, the system kills without a word.
    limit(Resource::Cpu, cpu_seconds, cpu_seconds.saturating_add(CPU_GRACE_SECONDS));
    // Memory of guests is nothing to leave on the disk.
    limit(Resource::Core, 0, 0);
    let _ = nice(BACKGROUND_NICENESS);
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
}

/// Limits what is allocated from now on. Addresses that are only reserved do not count.
#[cfg(unix)]
pub(super) fn limit_memory(bytes: u64) {
    let bytes = data_bytes().saturating_add(bytes);
    limit(rustix::process::Resource::Data, bytes, bytes);
}

#[cfg(unix)]
const CPU_GRACE_SECONDS: u64 = 5;

/// What cannot be limited is bounded by the parent's clock all the same.
#[cfg(unix)]
fn limit(resource: rustix::process::Resource, current: u64, maximum: u64) {
    use rustix::process::{Rlimit, getrlimit, setrlimit};

    let maximum = getrlimit(resource).maximum.map_or(maximum, |inherited| inherited.min(maximum));
    let _ = setrlimit(resource, Rlimit { current: Some(current.min(maximum)), maximum: Some(maximum) });
}

/// What this process has allocated already: an engine's pools among it, which are hardly touched.
#[cfg(unix)]
fn data_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmData:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0).saturating_mul(1024)
}

#[cfg(not(unix))]
pub(super) fn limit_processor(_: u64) {}

#[cfg(not(unix))]
pub(super) fn limit_memory(_: u64) {}

/// Ends this process when its standard input does, which the parent holds open as long as it waits.
pub(super) fn exit_when_stdin_closes() {
    let watch = || {
        let mut byte = [0];
        while std::io::stdin().read(&mut byte).is_ok_and(|read| read > 0) {}
        std::process::exit(EXIT_ABANDONED);
    };
    if std::thread::Builder::new().name("parent".to_owned()).spawn(watch).is_err() {
        std::process::exit(EXIT_ABANDONED);
    }
}

/// The exit code of a child whose parent is gone.
const EXIT_ABANDONED: i32 = 3;
