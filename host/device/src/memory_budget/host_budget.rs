//! How much memory the host has left for this process: what the system could free, and what its control groups leave it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{AvailableMemory, MemoryControlGroup, UNPOLLED_BYTES_MAX};

/// The host's memory, with what devices in it were charged: the system hands pages out when they are touched, so what is
/// charged and was not touched is counted here.
#[derive(Debug)]
pub(super) struct HostMemoryBudget {
    read_snapshot: fn() -> Option<HostMemorySnapshot>,
    held_bytes: AtomicU64,
    /// Bytes charged since the last look.
    unpolled_bytes: AtomicU64,
}

/// What the system says.
#[derive(Clone, Debug)]
pub(super) struct HostMemorySnapshot {
    pub(super) available: AvailableMemory,
    /// Bytes that this process has touched; none where no file says.
    pub(super) resident_bytes: Option<u64>,
}

/// Looks at the system's files; none where they do not say what is left.
pub(super) fn read_snapshot() -> Option<HostMemorySnapshot> {
    available_memory().map(|available| HostMemorySnapshot { available, resident_bytes: resident_bytes() })
}

impl HostMemoryBudget {
    /// Nothing is held yet; `read_snapshot` says what the system has.
    pub(super) const fn new(look: fn() -> Option<HostMemorySnapshot>) -> HostMemoryBudget {
        HostMemoryBudget { read_snapshot: look, held_bytes: AtomicU64::new(0), unpolled_bytes: AtomicU64::new(0) }
    }

    /// Takes `bytes`. Returns what was held before.
    pub(super) fn reserve(&self, bytes: u64) -> u64 {
        self.held_bytes.fetch_add(bytes, Ordering::AcqRel)
    }

    /// Whether it is time for a look, with `bytes` more that are charged.
    pub(super) fn needs_poll(&self, bytes: u64) -> bool {
        self.unpolled_bytes.fetch_add(bytes, Ordering::AcqRel).saturating_add(bytes) >= UNPOLLED_BYTES_MAX
    }

    /// They are free again.
    pub(super) fn release(&self, bytes: u64) {
        self.held_bytes.fetch_sub(bytes, Ordering::AcqRel);
    }

    /// Bytes that are charged now.
    pub(super) fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Acquire)
    }

    /// What is left beside `held` bytes; none where nobody knows.
    pub(super) fn remaining(&self, held: u64) -> Option<AvailableMemory> {
        self.unpolled_bytes.store(0, Ordering::Release);
        let HostMemorySnapshot { available, resident_bytes: touched_bytes } = (self.read_snapshot)()?;
        // What is held and was never touched is still to come out of it.
        let untouched = held.saturating_sub(touched_bytes.unwrap_or(held));
        Some(AvailableMemory { bytes: available.bytes.saturating_sub(untouched), source: available.source })
    }
}

/// The least of what the system and each control group above this process leave; none where no file says.
fn available_memory() -> Option<AvailableMemory> {
    let system = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| parse_mem_available(&text));
    let system = system.map(|bytes| AvailableMemory { bytes, source: "MemAvailable of the system".to_owned() });
    let groups = std::fs::read_to_string("/proc/self/cgroup").map(|text| cgroup_directories(&text)).unwrap_or_default();
    let left = groups.iter().filter_map(CgroupDirectory::remaining);
    system.into_iter().chain(left).min_by_key(|it| it.bytes)
}

/// Bytes of this process that are in memory.
fn resident_bytes() -> Option<u64> {
    parse_resident_bytes(&std::fs::read_to_string("/proc/self/status").ok()?)
}

/// Without the files that it maps, such as datasets, where the system tells them apart: those are nothing that was charged.
fn parse_resident_bytes(status: &str) -> Option<u64> {
    parse_kib_line(status, "RssAnon:").or_else(|| parse_kib_line(status, "VmRSS:"))
}

/// A control group of this process, or one above it.
#[derive(Debug, PartialEq, Eq)]
struct CgroupDirectory {
    directory: PathBuf,
    files: &'static CgroupFiles,
}

/// Where a control group says what it has.
#[derive(Debug, PartialEq, Eq)]
struct CgroupFiles {
    limit: &'static str,
    usage: &'static str,
    /// Lines of `memory.stat` with what the kernel could drop. Pages of files that are read again and again, which are the
    /// active ones, go too before a process is refused memory. Source: Linux, Documentation/admin-guide/cgroup-v2.rst,
    /// and si_mem_available in mm/show_mem.c, which counts the same for MemAvailable.
    droppable: &'static [&'static str],
}

const CGROUP_V2_FILES: CgroupFiles = CgroupFiles {
    limit: "memory.max",
    usage: "memory.current",
    droppable: &["inactive_file", "active_file", "slab_reclaimable"],
};
/// Its files do not say how much of the kernel's own memory could be dropped.
const CGROUP_V1_FILES: CgroupFiles = CgroupFiles {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    droppable: &["total_inactive_file", "total_active_file"],
};

impl CgroupDirectory {
    fn remaining(&self) -> Option<AvailableMemory> {
        self.files.remaining_with(|name| std::fs::read_to_string(self.directory.join(name)).ok())
    }
}

impl CgroupFiles {
    /// What a group leaves whose files `read` gives; none where it has no limit.
    fn remaining_with(&self, read: impl Fn(&str) -> Option<String>) -> Option<AvailableMemory> {
        let CgroupFiles { limit, usage, droppable } = *self;
        // Without a limit it says `max`, or a number that no machine has.
        let limit_bytes: u64 = read(limit)?.trim().parse().ok().filter(|&bytes| bytes < 1 << 60)?;
        let used_bytes: u64 = read(usage)?.trim().parse().ok()?;
        let stat = read("memory.stat").unwrap_or_default();
        let droppable_bytes =
            droppable.iter().filter_map(|name| parse_counter_line(&stat, name)).fold(0, u64::saturating_add);
        let bytes = limit_bytes.saturating_sub(used_bytes.saturating_sub(droppable_bytes));
        Some(AvailableMemory { bytes, source: format!("{limit} of the control group, {limit_bytes}") })
    }
}

/// The groups that `/proc/self/cgroup` names, with those above them.
fn cgroup_directories(text: &str) -> Vec<CgroupDirectory> {
    let with_ancestors = |group: &MemoryControlGroup| {
        let files = if group.is_version_1 { &CGROUP_V1_FILES } else { &CGROUP_V2_FILES };
        group.directories().map(|directory| CgroupDirectory { directory, files }).collect::<Vec<_>>()
    };
    MemoryControlGroup::parse_proc_cgroup(text).iter().flat_map(with_ancestors).collect()
}

fn parse_mem_available(meminfo: &str) -> Option<u64> {
    parse_kib_line(meminfo, "MemAvailable:")
}

/// Bytes of a line such as `MemAvailable:   1024 kB`.
fn parse_kib_line(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = rest.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The number of a line such as `inactive_file 4096`.
fn parse_counter_line(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_and_cgroup_files_are_parsed() {
        assert_eq!(parse_mem_available("MemTotal:  9 kB\nMemAvailable:     12 kB\n"), Some(12 << 10));
        assert_eq!(parse_mem_available("MemTotal:  9 kB\n"), None);
        assert_eq!(parse_counter_line("active_file 1\ninactive_file 4096\n", "inactive_file"), Some(4096));
        let status = "VmRSS:  30 kB\nRssAnon:  10 kB\nRssFile:  20 kB\n";
        assert_eq!(
            (parse_resident_bytes(status), parse_resident_bytes("VmRSS:  30 kB\n")),
            (Some(10 << 10), Some(30 << 10))
        );
    }

    #[test]
    fn cgroups_are_listed_with_their_ancestors() {
        let directories = |text: &str| -> Vec<String> {
            cgroup_directories(text).iter().map(|group| group.directory.display().to_string()).collect()
        };
        assert_eq!(directories("0::/a/b\n"), ["/sys/fs/cgroup/a/b", "/sys/fs/cgroup/a", "/sys/fs/cgroup/"]);
        assert_eq!(
            directories("3:cpu:/x\n5:memory,hugetlb:/docker/1\n"),
            ["/sys/fs/cgroup/memory/docker/1", "/sys/fs/cgroup/memory/docker", "/sys/fs/cgroup/memory/"]
        );
        assert!(directories("nonsense\n").is_empty());
    }

    #[test]
    fn a_cgroup_leaves_its_unused_and_reclaimable_memory() {
        let left = |files: &CgroupFiles, texts: &[(&str, &str)]| {
            let read = |name: &str| Some(texts.iter().find(|(file, _)| *file == name)?.1.to_owned());
            files.remaining_with(read).map(|it| it.bytes)
        };
        let stat = "anon 400\ninactive_file 200\nactive_file 60\nslab_reclaimable 30\nslab 40\n";
        let used = [("memory.current", "700\n"), ("memory.stat", stat)];
        assert_eq!(
            left(&CGROUP_V2_FILES, &[&used[..], &[("memory.max", "1000\n")]].concat()),
            Some(300 + 200 + 60 + 30)
        );
        assert_eq!(left(&CGROUP_V2_FILES, &[&used[..], &[("memory.max", "max\n")]].concat()), None);
        let stat = "inactive_file 1\nactive_file 1\ntotal_inactive_file 100\ntotal_active_file 50\n";
        let texts = [("memory.limit_in_bytes", "1000"), ("memory.usage_in_bytes", "900"), ("memory.stat", stat)];
        assert_eq!(left(&CGROUP_V1_FILES, &texts), Some(100 + 100 + 50));
        assert_eq!(left(&CGROUP_V1_FILES, &texts[..2]), Some(100), "without statistics all that is used is needed");
    }
}
