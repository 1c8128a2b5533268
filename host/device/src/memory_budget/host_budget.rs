//! The host's memory budget: what the system could free, limited by the control groups of this process.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{AvailableMemory, MemoryControlGroup, UNPOLLED_BYTES_MAX};

/// The host's memory, and the bytes that devices in it were charged. The system assigns pages when they are touched, so
/// charged memory that was not touched yet is counted here.
#[derive(Debug)]
pub(super) struct HostMemoryBudget {
    read_snapshot: fn() -> Option<HostMemorySnapshot>,
    held_bytes: AtomicU64,
    /// Bytes charged since the last reading.
    unpolled_bytes: AtomicU64,
}

/// The memory figures of the system.
#[derive(Clone, Debug)]
pub(super) struct HostMemorySnapshot {
    pub(super) available: AvailableMemory,
    /// Bytes that this process has touched, or `None` if no file says.
    pub(super) resident_bytes: Option<u64>,
}

/// Reads the system's files. Returns `None` if they do not say how much memory is available.
pub(super) fn read_snapshot() -> Option<HostMemorySnapshot> {
    available_memory().map(|available| HostMemorySnapshot { available, resident_bytes: resident_bytes() })
}

impl HostMemoryBudget {
    /// Returns a budget with nothing charged, which reads the system's figures with `look`.
    pub(super) const fn new(look: fn() -> Option<HostMemorySnapshot>) -> HostMemoryBudget {
        HostMemoryBudget { read_snapshot: look, held_bytes: AtomicU64::new(0), unpolled_bytes: AtomicU64::new(0) }
    }

    /// Reserves `bytes`. Returns the bytes that were held before.
    pub(super) fn reserve(&self, bytes: u64) -> u64 {
        self.held_bytes.fetch_add(bytes, Ordering::AcqRel)
    }

    /// Returns whether the system's figures must be read again, after `bytes` more were charged.
    pub(super) fn needs_poll(&self, bytes: u64) -> bool {
        self.unpolled_bytes.fetch_add(bytes, Ordering::AcqRel).saturating_add(bytes) >= UNPOLLED_BYTES_MAX
    }

    /// Releases `bytes`.
    pub(super) fn release(&self, bytes: u64) {
        self.held_bytes.fetch_sub(bytes, Ordering::AcqRel);
    }

    /// Returns the bytes that are charged now.
    pub(super) fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Acquire)
    }

    /// Returns the memory available beside `held` bytes, or `None` if it is unknown.
    pub(super) fn remaining(&self, held: u64) -> Option<AvailableMemory> {
        self.unpolled_bytes.store(0, Ordering::Release);
        let HostMemorySnapshot { available, resident_bytes: touched_bytes } = (self.read_snapshot)()?;
        // The system does not count memory that is held but untouched, so it is subtracted here.
        let untouched = held.saturating_sub(touched_bytes.unwrap_or(held));
        Some(AvailableMemory { bytes: available.bytes.saturating_sub(untouched), source: available.source })
    }
}

/// Returns the smallest of what the system and each control group of this process leave, or `None` if no file says.
fn available_memory() -> Option<AvailableMemory> {
    let system = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| parse_mem_available(&text));
    let system = system.map(|bytes| AvailableMemory { bytes, source: "MemAvailable of the system".to_owned() });
    let groups = std::fs::read_to_string("/proc/self/cgroup").map(|text| cgroup_directories(&text)).unwrap_or_default();
    let left = groups.iter().filter_map(CgroupDirectory::remaining);
    system.into_iter().chain(left).min_by_key(|it| it.bytes)
}

/// Returns the bytes of this process that are in memory.
fn resident_bytes() -> Option<u64> {
    parse_resident_bytes(&std::fs::read_to_string("/proc/self/status").ok()?)
}

/// Returns the resident bytes without mapped files, such as datasets, if the system lists them separately. Mapped files
/// are not charged to a device.
fn parse_resident_bytes(status: &str) -> Option<u64> {
    parse_kib_line(status, "RssAnon:").or_else(|| parse_kib_line(status, "VmRSS:"))
}

/// A control group of this process, or one of its ancestors.
#[derive(Debug, PartialEq, Eq)]
struct CgroupDirectory {
    directory: PathBuf,
    files: &'static CgroupFiles,
}

/// The files in which a control group lists its memory.
#[derive(Debug, PartialEq, Eq)]
struct CgroupFiles {
    limit: &'static str,
    usage: &'static str,
    /// Lines of `memory.stat` with memory that the kernel could drop. It also drops pages of files that are read
    /// repeatedly, the active ones, before it refuses memory to a process. Source: Linux,
    /// Documentation/admin-guide/cgroup-v2.rst, and si_mem_available in mm/show_mem.c, which counts the same for
    /// MemAvailable.
    droppable: &'static [&'static str],
}

const CGROUP_V2_FILES: CgroupFiles = CgroupFiles {
    limit: "memory.max",
    usage: "memory.current",
    droppable: &["inactive_file", "active_file", "slab_reclaimable"],
};
/// Version 1 does not say how much of the kernel's own memory could be dropped.
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
    /// Returns what a group leaves, with its files read by `read`, or `None` if it has no limit.
    fn remaining_with(&self, read: impl Fn(&str) -> Option<String>) -> Option<AvailableMemory> {
        let CgroupFiles { limit, usage, droppable } = *self;
        // A group without a limit says `max`, or a number that no machine has.
        let limit_bytes: u64 = read(limit)?.trim().parse().ok().filter(|&bytes| bytes < 1 << 60)?;
        let used_bytes: u64 = read(usage)?.trim().parse().ok()?;
        let stat = read("memory.stat").unwrap_or_default();
        let droppable_bytes =
            droppable.iter().filter_map(|name| parse_counter_line(&stat, name)).fold(0, u64::saturating_add);
        let bytes = limit_bytes.saturating_sub(used_bytes.saturating_sub(droppable_bytes));
        Some(AvailableMemory { bytes, source: format!("{limit} of the control group, {limit_bytes}") })
    }
}

/// Returns the groups that `/proc/self/cgroup` lists, with their ancestors.
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

/// Parses the bytes of a line such as `MemAvailable:   1024 kB`.
fn parse_kib_line(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = rest.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Parses the number of a line such as `inactive_file 4096`.
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
