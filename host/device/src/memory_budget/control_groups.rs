//! Memory control groups of a process, versions 1 and 2. Source: Linux, cgroups(7).

use std::path::{Path, PathBuf};

/// A control group with the memory controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryControlGroup {
    /// The mount point of the group's hierarchy.
    root: &'static str,
    /// The group's path below the mount point.
    path: PathBuf,
    /// Whether its files are those of version 1. Otherwise they are those of version 2.
    pub is_version_1: bool,
}

impl MemoryControlGroup {
    /// Returns the memory control groups that `text`, the content of `/proc/PID/cgroup`, lists, in its order.
    pub fn parse_proc_cgroup(text: &str) -> Vec<MemoryControlGroup> {
        let group = |line: &str| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?);
            let (root, is_version_1) = match controllers {
                "" => ("/sys/fs/cgroup", false),
                list if list.split(',').any(|name| name == "memory") => ("/sys/fs/cgroup/memory", true),
                _ => return None,
            };
            Some(MemoryControlGroup { root, path: PathBuf::from(path.trim_start_matches('/')), is_version_1 })
        };
        text.lines().filter_map(group).collect()
    }

    /// Returns the directory with the group's files.
    pub fn directory(&self) -> PathBuf {
        Path::new(self.root).join(&self.path)
    }

    /// Returns the directories of the group and of those above it, itself first.
    pub fn directories(&self) -> impl Iterator<Item = PathBuf> {
        self.path.ancestors().map(|path| Path::new(self.root).join(path))
    }
}
