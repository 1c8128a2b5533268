//! How much memory the host has left for this process: what the system could free, and what its control groups leave it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Available, MemoryControlGroup, UNLOOKED_BYTES_MAX};

/// The host's memory, with what devices in it were charged: the system hands pages out when they are touched, so what is
/// charged and was not touched is counted here.
#[derive(Debug)]
pub(super) struct Host {
    look: fn() -> Option<Look>,
    held_bytes: AtomicU64,
    /// Bytes charged since the last look.
    unlooked_bytes: AtomicU64,
}

/// What the system says.
#[derive(Clone, Debug)]
pub(super) struct Look {
    pub(super) available: Available,
    /// Bytes that this process has touched; none where no file says.
    pub(super) touched_bytes: Option<u64>,
}

/// Looks at the system's files; none where they do not say what is left.
pub(super) fn look() -> Option<Look> {
    available().map(|available| Look { available, touched_bytes: touched_bytes() })
}

impl Host {
    /// Nothing is held yet; `look` says what the system has.
    pub(super) const fn new(look: fn() -> Option<Look>) -> Host {
        Host { look, held_bytes: AtomicU64::new(0), unlooked_bytes: AtomicU64::new(0) }
    }

    /// Takes `bytes`. Returns what was held before.
    pub(super) fn take(&self, bytes: u64) -> u64 {
        self.held_bytes.fetch_add(bytes, Ordering::AcqRel)
    }

    /// Whether it is time for a look, with `bytes` more that are charged.
    pub(super) fn is_due(&self, bytes: u64) -> bool {
        self.unlooked_bytes.fetch_add(bytes, Ordering::AcqRel).saturating_add(bytes) >= UNLOOKED_BYTES_MAX
    }

    /// They are free again.
    pub(super) fn give_back(&self, bytes: u64) {
        self.held_bytes.fetch_sub(bytes, Ordering::AcqRel);
    }

    /// Bytes that are charged now.
    pub(super) fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Acquire)
    }

    /// What is left beside `held` bytes; none where nobody knows.
    pub(super) fn left(&self, held: u64) -> Option<Available> {
        self.unlooked_bytes.store(0, Ordering::Release);
        let Look { available, touched_bytes } = (self.look)()?;
        // What is held and was never touched is still to come out of it.
        let untouched = held.saturating_sub(touched_bytes.unwrap_or(held));
        Some(Available { bytes: available.bytes.saturating_sub(untouched), of: available.of })
    }
}

/// The least of what the system and each control group above this process leave; none where no file says.
fn available() -> Option<Available> {
    let system = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| mem_available(&text));
    let system = system.map(|bytes| Available { bytes, of: "MemAvailable of the system".to_owned() });
    let groups = std::fs::read_to_string("/proc/self/cgroup").map(|text| groups(&text)).unwrap_or_default();
    let left = groups.iter().filter_map(Group::left);
    system.into_iter().chain(left).min_by_key(|it| it.bytes)
}

/// Bytes of this process that are in memory.
fn touched_bytes() -> Option<u64> {
    resident(&std::fs::read_to_string("/proc/self/status").ok()?)
}

/// Without the files that it maps, such as datasets, where the system tells them apart: those are nothing that was charged.
fn resident(status: &str) -> Option<u64> {
    kib(status, "RssAnon:").or_else(|| kib(status, "VmRSS:"))
}

/// A control group of this process, or one above it.
#[derive(Debug, PartialEq, Eq)]
struct Group {
    directory: PathBuf,
    files: &'static Files,
}

/// Where a control group says what it has.
#[derive(Debug, PartialEq, Eq)]
struct Files {
    limit: &'static str,
    usage: &'static str,
    /// Lines of `memory.stat` with what the kernel could drop. Pages of files that are read again and again, which are the
    /// active ones, go too before a process is refused memory. Source: Linux, Documentation/admin-guide/cgroup-v2.rst,
    /// and si_mem_available in mm/show_mem.c, which counts the same for MemAvailable.
    droppable: &'static [&'static str],
}

const VERSION_2: Files = Files {
    limit: "memory.max",
    usage: "memory.current",
    droppable: &["inactive_file", "active_file", "slab_reclaimable"],
};
/// Its files do not say how much of the kernel's own memory could be dropped.
const VERSION_1: Files = Files {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    droppable: &["total_inactive_file", "total_active_file"],
};

impl Group {
    fn left(&self) -> Option<Available> {
        self.files.left(|name| std::fs::read_to_string(self.directory.join(name)).ok())
    }
}

impl Files {
    /// What a group leaves whose files `read` gives; none where it has no limit.
    fn left(&self, read: impl Fn(&str) -> Option<String>) -> Option<Available> {
        let Files { limit, usage, droppable } = *self;
        // Without a limit it says `max`, or a number that no machine has.
        let limit_bytes: u64 = read(limit)?.trim().parse().ok().filter(|&bytes| bytes < 1 << 60)?;
        let used_bytes: u64 = read(usage)?.trim().parse().ok()?;
        let stat = read("memory.stat").unwrap_or_default();
        let droppable_bytes = droppable.iter().filter_map(|name| counted(&stat, name)).fold(0, u64::saturating_add);
        let bytes = limit_bytes.saturating_sub(used_bytes.saturating_sub(droppable_bytes));
        Some(Available { bytes, of: format!("{limit} of the control group, {limit_bytes}") })
    }
}

/// The groups that `/proc/self/cgroup` names, with those above them.
fn groups(text: &str) -> Vec<Group> {
    let with_ancestors = |group: &MemoryControlGroup| {
        let files = if group.is_version_1 { &VERSION_1 } else { &VERSION_2 };
        group.directories().map(|directory| Group { directory, files }).collect::<Vec<_>>()
    };
    MemoryControlGroup::listed_in(text).iter().flat_map(with_ancestors).collect()
}

fn mem_available(meminfo: &str) -> Option<u64> {
    kib(meminfo, "MemAvailable:")
}

/// Bytes of a line such as `MemAvailable:   1024 kB`.
fn kib(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = rest.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The number of a line such as `inactive_file 4096`.
fn counted(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_system_are_read() {
        assert_eq!(mem_available("MemTotal:  9 kB\nMemAvailable:     12 kB\n"), Some(12 << 10));
        assert_eq!(mem_available("MemTotal:  9 kB\n"), None);
        assert_eq!(counted("active_file 1\ninactive_file 4096\n", "inactive_file"), Some(4096));
        let status = "VmRSS:  30 kB\nRssAnon:  10 kB\nRssFile:  20 kB\n";
        assert_eq!((resident(status), resident("VmRSS:  30 kB\n")), (Some(10 << 10), Some(30 << 10)));
    }

    #[test]
    fn groups_are_found_with_those_above_them() {
        let directories = |text: &str| -> Vec<String> {
            groups(text).iter().map(|group| group.directory.display().to_string()).collect()
        };
        assert_eq!(directories("0::/a/b\n"), ["/sys/fs/cgroup/a/b", "/sys/fs/cgroup/a", "/sys/fs/cgroup/"]);
        assert_eq!(
            directories("3:cpu:/x\n5:memory,hugetlb:/docker/1\n"),
            ["/sys/fs/cgroup/memory/docker/1", "/sys/fs/cgroup/memory/docker", "/sys/fs/cgroup/memory/"]
        );
        assert!(directories("nonsense\n").is_empty());
    }

    #[test]
    fn a_group_leaves_what_it_does_not_use_or_could_drop() {
        let left = |files: &Files, texts: &[(&str, &str)]| {
            let read = |name: &str| Some(texts.iter().find(|(file, _)| *file == name)?.1.to_owned());
            files.left(read).map(|it| it.bytes)
        };
        let stat = "anon 400\ninactive_file 200\nactive_file 60\nslab_reclaimable 30\nslab 40\n";
        let used = [("memory.current", "700\n"), ("memory.stat", stat)];
        assert_eq!(left(&VERSION_2, &[&used[..], &[("memory.max", "1000\n")]].concat()), Some(300 + 200 + 60 + 30));
        assert_eq!(left(&VERSION_2, &[&used[..], &[("memory.max", "max\n")]].concat()), None);
        let stat = "inactive_file 1\nactive_file 1\ntotal_inactive_file 100\ntotal_active_file 50\n";
        let texts = [("memory.limit_in_bytes", "1000"), ("memory.usage_in_bytes", "900"), ("memory.stat", stat)];
        assert_eq!(left(&VERSION_1, &texts), Some(100 + 100 + 50));
        assert_eq!(left(&VERSION_1, &texts[..2]), Some(100), "without statistics all that is used is needed");
    }
}
