//! Detects kernel OOM kills while a worker runs. The kernel does not report them to the process; it only counts them,
//! per control group and for the machine.

use std::path::{Path, PathBuf};

use saggar_device::MemoryControlGroup;

/// A counter of OOM kills that would include the worker.
#[derive(Debug)]
pub(super) struct OomKillCounter {
    counter: PathBuf,
    before: u64,
}

impl OomKillCounter {
    /// Opens the counter of the process's control group, or of the machine if the group has none. Returns `None` if
    /// there is no counter.
    pub(super) fn for_process(pid: u32) -> Option<OomKillCounter> {
        let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        let counters = counter_files(&groups).into_iter().chain([PathBuf::from("/proc/vmstat")]);
        counters
            .into_iter()
            .find_map(|counter| Some(OomKillCounter { before: read_oom_kill_count(&counter)?, counter }))
    }

    /// Returns whether the counter has increased since then.
    pub(super) fn has_increased(&self) -> bool {
        read_oom_kill_count(&self.counter).is_some_and(|now| now > self.before)
    }
}

/// Returns the files that can have a counter for one of these control groups, in the format of `/proc/PID/cgroup`.
fn counter_files(groups: &str) -> Vec<PathBuf> {
    let counter = |group: &MemoryControlGroup| {
        group.directory().join(if group.is_version_1 { "memory.oom_control" } else { "memory.events" })
    };
    MemoryControlGroup::parse_proc_cgroup(groups).iter().map(counter).collect()
}

/// Returns the number after `oom_kill` in a file of names and numbers.
fn read_oom_kill_count(counter: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(counter).ok()?;
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counter_files_follow_the_control_groups_of_the_process() {
        let paths = |groups: &str| -> Vec<String> {
            counter_files(groups).iter().map(|path| path.display().to_string()).collect()
        };
        assert_eq!(paths("0::/jobs.slice/one:two\n"), ["/sys/fs/cgroup/jobs.slice/one:two/memory.events"]);
        assert_eq!(
            paths("5:devices:/a\n4:cpu,memory:/a/b\n0::/\n"),
            ["/sys/fs/cgroup/memory/a/b/memory.oom_control", "/sys/fs/cgroup/memory.events"]
        );
        assert!(paths("").is_empty());
    }

    #[test]
    fn a_new_oom_kill_is_detected() {
        let directory = tempfile::tempdir().unwrap();
        let counter = directory.path().join("memory.events");
        let write = |kills: u64| std::fs::write(&counter, format!("low 0\noom 3\noom_kill {kills}\n")).unwrap();
        write(2);
        let kills = OomKillCounter { before: read_oom_kill_count(&counter).unwrap(), counter: counter.clone() };
        assert!(!kills.has_increased());
        write(3);
        assert!(kills.has_increased());
        std::fs::remove_file(&counter).unwrap();
        assert!(!kills.has_increased(), "a group that is gone counts nothing");
        assert_eq!(read_oom_kill_count(directory.path()), None);
    }
}
