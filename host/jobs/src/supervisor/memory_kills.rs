//! Whether the system kills for want of memory while a worker runs. It does so without a word, and counts it: by control
//! group, and for the machine.

use std::path::{Path, PathBuf};

use saggar_device::MemoryControlGroup;

/// The count that a worker's end would be part of.
#[derive(Debug)]
pub(super) struct MemoryKills {
    counter: PathBuf,
    before: u64,
}

impl MemoryKills {
    /// The count of the process's control group, or of the machine where that has none. `None` where nobody counts.
    pub(super) fn of(pid: u32) -> Option<MemoryKills> {
        let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        let counters = counters(&groups).into_iter().chain([PathBuf::from("/proc/vmstat")]);
        counters.into_iter().find_map(|counter| Some(MemoryKills { before: count(&counter)?, counter }))
    }

    /// Whether one was added since.
    pub(super) fn has_grown(&self) -> bool {
        count(&self.counter).is_some_and(|now| now > self.before)
    }
}

/// Files that may count for one of these control groups, as `/proc/PID/cgroup` lists them.
fn counters(groups: &str) -> Vec<PathBuf> {
    let counter = |group: &MemoryControlGroup| {
        group.directory().join(if group.is_version_1 { "memory.oom_control" } else { "memory.events" })
    };
    MemoryControlGroup::parse_proc_cgroup(groups).iter().map(counter).collect()
}

/// The number after `oom_kill` in a file of names and numbers.
fn count(counter: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(counter).ok()?;
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_found_by_control_group() {
        let paths =
            |groups: &str| -> Vec<String> { counters(groups).iter().map(|path| path.display().to_string()).collect() };
        assert_eq!(paths("0::/jobs.slice/one:two\n"), ["/sys/fs/cgroup/jobs.slice/one:two/memory.events"]);
        assert_eq!(
            paths("5:devices:/a\n4:cpu,memory:/a/b\n0::/\n"),
            ["/sys/fs/cgroup/memory/a/b/memory.oom_control", "/sys/fs/cgroup/memory.events"]
        );
        assert!(paths("").is_empty());
    }

    #[test]
    fn a_count_grows_or_does_not() {
        let directory = tempfile::tempdir().unwrap();
        let counter = directory.path().join("memory.events");
        let write = |kills: u64| std::fs::write(&counter, format!("low 0\noom 3\noom_kill {kills}\n")).unwrap();
        write(2);
        let kills = MemoryKills { before: count(&counter).unwrap(), counter: counter.clone() };
        assert!(!kills.has_grown());
        write(3);
        assert!(kills.has_grown());
        std::fs::remove_file(&counter).unwrap();
        assert!(!kills.has_grown(), "a group that is gone counts nothing");
        assert_eq!(count(directory.path()), None);
    }
}
