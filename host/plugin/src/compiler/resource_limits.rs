//! Resource limits that a child sets for itself before it reads its request.

use std::io::Read;

/// Limits processor time and lowers the scheduling priority below the server's. If the system runs out of memory, it
/// kills this process first.
#[cfg(unix)]
pub(super) fn limit_processor(cpu_seconds: u64) {
    use rustix::process::{Resource, nice};

    use crate::limits::BACKGROUND_NICENESS;

    // At the soft limit the process gets SIGXCPU, which identifies the cause; at the hard limit it is killed without
    // one.
    limit(Resource::Cpu, cpu_seconds, cpu_seconds.saturating_add(CPU_GRACE_SECONDS));
    // A core dump would write the memory of plugins to disk.
    limit(Resource::Core, 0, 0);
    let _ = nice(BACKGROUND_NICENESS);
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
}

/// Limits allocations from now on. Address space that is only reserved does not count.
#[cfg(unix)]
pub(super) fn limit_memory(bytes: u64) {
    let bytes = data_bytes().saturating_add(bytes);
    limit(rustix::process::Resource::Data, bytes, bytes);
}

#[cfg(unix)]
const CPU_GRACE_SECONDS: u64 = 5;

/// Sets a resource limit and ignores errors: the parent's deadline applies in any case.
#[cfg(unix)]
fn limit(resource: rustix::process::Resource, current: u64, maximum: u64) {
    use rustix::process::{Rlimit, getrlimit, setrlimit};

    let maximum = getrlimit(resource).maximum.map_or(maximum, |inherited| inherited.min(maximum));
    let _ = setrlimit(resource, Rlimit { current: Some(current.min(maximum)), maximum: Some(maximum) });
}

/// Returns the bytes that this process has allocated already, including the engine's pools, which are mostly untouched.
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

/// Ends this process when its standard input is closed. The parent keeps it open while it waits.
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

/// The exit code of a child whose parent has died.
const EXIT_ABANDONED: i32 = 3;
