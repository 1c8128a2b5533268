//! A control group that limits the memory of one notebook. The kernel enforces the limit at every allocation, files in
//! `/tmp` of memory and shared memory included. Source: Linux, cgroups(7), Documentation/admin-guide/cgroup-v2.rst and
//! cgroup-v1/memory.rst; systemd, CGROUP_DELEGATION.
//!
//! A server can create one as root with version 1 of control groups, and with version 2 below a group that systemd has
//! delegated to it: `Delegate=memory` with `DelegateSubgroup=`, which keeps the group itself free of processes.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The first part of the names of groups.
const NAME_PREFIX: &str = "saggar-notebook-";
/// Enters the group whose file of processes is the first argument, and becomes the program of the others.
const ENTER: &str = "echo $$ > \"$0\" && exec \"$@\"";
/// The extended attributes with which systemd marks a group that it has delegated.
const DELEGATED: [&str; 2] = ["trusted.delegate", "user.delegate"];
/// How long the kernel can take to release the processes of a group that were killed.
const RELEASE_TIME_MAX: Duration = Duration::from_secs(2);
const RELEASE_POLL: Duration = Duration::from_millis(10);

/// The names of a version's files.
#[derive(Debug)]
struct GroupFiles {
    limit: &'static str,
    swap: &'static str,
    /// Whether the limit of swap is one of memory and swap together.
    swap_includes_memory: bool,
    events: &'static str,
}

const VERSION_1: GroupFiles = GroupFiles {
    limit: "memory.limit_in_bytes",
    swap: "memory.memsw.limit_in_bytes",
    swap_includes_memory: true,
    events: "memory.oom_control",
};
const VERSION_2: GroupFiles =
    GroupFiles { limit: "memory.max", swap: "memory.swap.max", swap_includes_memory: false, events: "memory.events" };

/// A control group. Dropping it removes it, which needs that its processes have ended.
#[derive(Debug)]
pub struct MemoryGroup {
    directory: PathBuf,
    files: &'static GroupFiles,
    /// Locked while the worker lives: others remove no locked group.
    _lock: File,
}

impl MemoryGroup {
    /// Creates a group for a job with a limit in bytes, or returns `None` if this process cannot create one.
    pub fn create(job: &str, limit_bytes: u64) -> Option<MemoryGroup> {
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let name = format!("{NAME_PREFIX}{job}-{}", std::process::id());
        let parents = parent_groups(&own, Path::new("/sys/fs/cgroup"), is_delegated);
        parents.into_iter().find_map(|(parent, files)| MemoryGroup::create_in(&parent, files, &name, limit_bytes).ok())
    }

    fn create_in(parent: &Path, files: &'static GroupFiles, name: &str, limit_bytes: u64) -> io::Result<MemoryGroup> {
        // No other worker finds the new group before it is locked.
        let parent_lock = File::open(parent)?;
        parent_lock.lock()?;
        remove_unused_groups(parent);
        let directory = parent.join(name);
        fs::create_dir(&directory)?;
        let lock = File::open(&directory)?;
        lock.lock()?;
        drop(parent_lock);
        // From here on, a failure removes the directory.
        let group = MemoryGroup { directory, files, _lock: lock };
        fs::write(group.directory.join(files.limit), limit_bytes.to_string())?;
        // Swap would make the notebook slow instead of ending it.
        let swap_bytes = if files.swap_includes_memory { limit_bytes } else { 0 };
        // A kernel without accounting of swap has no such file.
        let _ = fs::write(group.directory.join(files.swap), swap_bytes.to_string());
        // Without this file, the kernel kills one process of the group, and the worker the others.
        let _ = fs::write(group.directory.join("memory.oom.group"), "1");
        group.kill_count()?;
        Ok(group)
    }

    /// Returns a command that runs `command` in the group. It keeps the environment that is set on it afterwards.
    pub(crate) fn command_in_group(&self, command: &Command) -> Command {
        let mut entering = Command::new("sh");
        entering.args(["-c", ENTER]).arg(self.directory.join("cgroup.procs"));
        entering.arg(command.get_program()).args(command.get_args());
        entering
    }

    /// Returns whether the kernel has killed a process because the group reached its limit.
    pub fn has_reached_limit(&self) -> bool {
        self.kill_count().is_ok_and(|kills| kills > 0)
    }

    fn kill_count(&self) -> io::Result<u64> {
        let text = fs::read_to_string(self.directory.join(self.files.events))?;
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok());
        count.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the kernel counts no kills"))
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let began = Instant::now();
        let is_busy = |removed: io::Result<()>| removed.is_err_and(|error| error.kind() != io::ErrorKind::NotFound);
        while is_busy(fs::remove_dir(&self.directory)) && began.elapsed() < RELEASE_TIME_MAX {
            std::thread::sleep(RELEASE_POLL);
        }
    }
}

/// Returns the groups in which a new one can be created, for a process with these groups, in the format of
/// `/proc/PID/cgroup`, and with the hierarchies below `root`.
fn parent_groups(own: &str, root: &Path, is_delegated: impl Fn(&Path) -> bool) -> Vec<(PathBuf, &'static GroupFiles)> {
    let mut parents = Vec::new();
    for line in own.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let path = Path::new(path.trim_start_matches('/'));
        if controllers.split(',').any(|name| name == "memory") {
            // In a container, the path can be that of the machine, which is not there.
            let own = [root.join("memory").join(path), root.join("memory")].into_iter().find(|path| path.is_dir());
            parents.extend(own.map(|own| (own, &VERSION_1)));
        } else if controllers.is_empty() {
            // Limits are given to groups below one without processes. The group above another is used only if it is
            // this server's: otherwise the notebook would leave the limits of the server.
            let above = root.join(path).parent().filter(|above| above.starts_with(root)).map(Path::to_owned);
            let above = above.filter(|above| is_delegated(above) && enable_memory_controller(above));
            parents.extend(above.map(|above| (above, &VERSION_2)));
        }
    }
    parents
}

/// Lets groups below `group` have limits of memory. Returns whether they can.
fn enable_memory_controller(group: &Path) -> bool {
    let file = group.join("cgroup.subtree_control");
    let has = || fs::read_to_string(&file).is_ok_and(|text| text.split_whitespace().any(|name| name == "memory"));
    has() || (fs::write(&file, "+memory").is_ok() && has())
}

#[cfg(target_os = "linux")]
fn is_delegated(group: &Path) -> bool {
    let is_marked = |name: &str| {
        let mut value = [0; 8];
        rustix::fs::getxattr(group, name, &mut value).is_ok_and(|length| value[..length] == *b"1")
    };
    DELEGATED.into_iter().any(is_marked)
}

/// Notebooks run only on Linux, where their sandbox exists.
#[cfg(not(target_os = "linux"))]
fn is_delegated(_: &Path) -> bool {
    false
}

/// Removes the groups of workers that were killed. One with processes stays, and so does that of a worker which has not
/// started its notebook yet.
fn remove_unused_groups(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let is_unused = || File::open(entry.path()).is_ok_and(|group| group.try_lock().is_ok());
        if entry.file_name().to_string_lossy().starts_with(NAME_PREFIX) && is_unused() {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parents(own: &str, root: &Path, delegated: &str) -> Vec<String> {
        let is_delegated = |group: &Path| group.ends_with(delegated);
        let found = parent_groups(own, root, is_delegated);
        found.iter().map(|(path, _)| path.strip_prefix(root).unwrap().display().to_string()).collect()
    }

    /// Returns a directory like that of a group, in which all files can be created.
    fn group_in(parent: &Path, name: &str) -> MemoryGroup {
        let directory = parent.join(format!("{NAME_PREFIX}{name}"));
        fs::create_dir(&directory).unwrap();
        let lock = File::open(&directory).unwrap();
        lock.lock().unwrap();
        MemoryGroup { directory, files: &VERSION_2, _lock: lock }
    }

    #[test]
    fn a_group_without_processes_is_removed_only_after_its_worker() {
        let dir = tempfile::tempdir().unwrap();
        let group = group_in(dir.path(), "a-1");
        remove_unused_groups(dir.path());
        assert!(group.directory.is_dir());
        let directory = group.directory.clone();
        // A killed worker drops its lock alone.
        group._lock.unlock().unwrap();
        remove_unused_groups(dir.path());
        assert!(!directory.exists());
    }

    #[test]
    fn version_1_has_groups_below_the_own_one() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("memory/a/b")).unwrap();
        assert_eq!(parents("5:devices:/a\n4:cpu,memory:/a/b\n0::/\n", dir.path(), "x"), ["memory/a/b"]);
        assert_eq!(parents("4:memory:/of/the/machine\n", dir.path(), "x"), ["memory"]);
    }

    #[test]
    fn version_2_has_groups_beside_the_own_one_if_they_are_delegated() {
        let dir = tempfile::tempdir().unwrap();
        let service = dir.path().join("system.slice/saggar.service");
        fs::create_dir_all(service.join("server")).unwrap();
        fs::write(service.join("cgroup.subtree_control"), "cpu memory\n").unwrap();
        let own = "0::/system.slice/saggar.service/server\n";
        assert_eq!(parents(own, dir.path(), "none"), [""; 0]);
        assert_eq!(parents(own, dir.path(), "saggar.service"), ["system.slice/saggar.service"]);
        // A kernel without the controller accepts no request for it.
        fs::write(service.join("cgroup.subtree_control"), "cpu\n").unwrap();
        assert_eq!(parents(own, dir.path(), "saggar.service"), [""; 0]);
        // The group above the service is not this server's.
        assert_eq!(parents("0::/system.slice/saggar.service\n", dir.path(), "saggar.service"), [""; 0]);
        assert_eq!(parents("0::/\n", dir.path(), ""), [""; 0]);
    }
}
