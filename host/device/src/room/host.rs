//! How much memory the host has left for this process: what the system could free, and what its control groups leave it.

use std::path::{Path, PathBuf};

use super::Available;

/// The least of what the system and each control group above this process leave; none where no file says.
pub(crate) fn available() -> Option<Available> {
    let system = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| mem_available(&text));
    let system = system.map(|bytes| Available { bytes, of: "MemAvailable of the system".to_owned() });
    let groups = std::fs::read_to_string("/proc/self/cgroup").map(|text| groups(&text)).unwrap_or_default();
    let left = groups.iter().filter_map(Group::left);
    system.into_iter().chain(left).min_by_key(|it| it.bytes)
}

/// Bytes of this process that are in memory.
pub(crate) fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    kib(&status, "VmRSS:")
}

/// A control group of this process, or one above it.
#[derive(Debug, PartialEq, Eq)]
struct Group {
    directory: PathBuf,
    /// Names of the files that hold the limit and the use, and the word for what the kernel could drop at once.
    files: [&'static str; 3],
}

const VERSION_2: [&str; 3] = ["memory.max", "memory.current", "inactive_file"];
const VERSION_1: [&str; 3] = ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"];

impl Group {
    /// What it leaves; none where it has no limit.
    fn left(&self) -> Option<Available> {
        let [limit, usage, droppable] = self.files;
        let read = |name: &str| std::fs::read_to_string(self.directory.join(name)).ok();
        // Without a limit it says `max`, or a number that no machine has.
        let limit_bytes: u64 = read(limit)?.trim().parse().ok().filter(|&bytes| bytes < 1 << 60)?;
        let used_bytes: u64 = read(usage)?.trim().parse().ok()?;
        let droppable_bytes = read("memory.stat").and_then(|text| counted(&text, droppable)).unwrap_or(0);
        let bytes = limit_bytes.saturating_sub(used_bytes.saturating_sub(droppable_bytes));
        Some(Available { bytes, of: format!("{limit} of the control group, {limit_bytes}") })
    }
}

/// The groups that `/proc/self/cgroup` names, with those above them.
fn groups(text: &str) -> Vec<Group> {
    let mut groups = Vec::new();
    for line in text.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (root, files) = match controllers {
            "" => ("/sys/fs/cgroup", VERSION_2),
            list if list.split(',').any(|name| name == "memory") => ("/sys/fs/cgroup/memory", VERSION_1),
            _ => continue,
        };
        let path = Path::new(path.trim_start_matches('/'));
        let above = path.ancestors().map(|path| Group { directory: Path::new(root).join(path), files });
        groups.extend(above);
    }
    groups
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
        let files = VERSION_2;
        let path = std::env::temp_dir().join(format!("saggar-group-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        let write = |name: &str, text: &str| std::fs::write(path.join(name), text).unwrap();
        write("memory.max", "1000\n");
        write("memory.current", "700\n");
        write("memory.stat", "anon 500\ninactive_file 200\n");
        let group = Group { directory: path.clone(), files };
        assert_eq!(group.left().unwrap().bytes, 500);
        write("memory.max", "max\n");
        assert_eq!(group.left(), None);
        std::fs::remove_dir_all(&path).unwrap();
    }
}
