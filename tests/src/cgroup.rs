//! Control groups with a memory limit, for tests under memory pressure.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// A control group; dropping it kills its processes and removes it.
#[derive(Debug)]
pub struct MemoryGroup {
    directory: PathBuf,
    is_version_1: bool,
}

impl MemoryGroup {
    /// Returns a group whose processes share `bytes` of memory, or prints SKIP and returns `None` if this user cannot
    /// create control groups.
    ///
    /// # Panics
    /// If the group cannot be created and `REQUIRE_CGROUP` is set.
    pub fn new(bytes: u64) -> Option<MemoryGroup> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!("saggar-test-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let roots = [("/sys/fs/cgroup/memory", "memory.limit_in_bytes", true), ("/sys/fs/cgroup", "memory.max", false)];
        for (root, limit, is_version_1) in roots {
            let directory = Path::new(root).join(&name);
            let created =
                std::fs::create_dir(&directory).and_then(|()| std::fs::write(directory.join(limit), bytes.to_string()));
            if created.is_ok() {
                // With swap, the processes would slow down instead of running out of memory.
                let _ = std::fs::write(directory.join("memory.swap.max"), "0");
                return Some(MemoryGroup { directory, is_version_1 });
            }
            let _ = std::fs::remove_dir(&directory);
        }
        assert!(
            std::env::var_os("REQUIRE_CGROUP").is_none(),
            "no control group can be made, and REQUIRE_CGROUP is set"
        );
        #[expect(clippy::print_stdout, reason = "a skipped test says so")]
        {
            println!("SKIP: no control group with a memory limit can be made here");
        }
        None
    }

    /// Returns a command that runs `program` in the group; the caller can add arguments.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("sh");
        let enter = "echo $$ > \"$0\" && exec \"$@\"";
        command.args(["-c", enter]).arg(self.directory.join("cgroup.procs")).arg(program);
        command
    }

    /// Changes the group's memory limit to `bytes`.
    ///
    /// # Panics
    /// If its processes already use more.
    pub fn set_limit(&self, bytes: u64) {
        let file = if self.is_version_1 { "memory.limit_in_bytes" } else { "memory.max" };
        std::fs::write(self.directory.join(file), bytes.to_string()).expect("the group is ours");
    }

    /// Returns the peak memory of its processes in bytes, including page cache, or `None` if the kernel does not report
    /// it.
    pub fn peak_bytes(&self) -> Option<u64> {
        let file = if self.is_version_1 { "memory.max_usage_in_bytes" } else { "memory.peak" };
        std::fs::read_to_string(self.directory.join(file)).ok()?.trim().parse().ok()
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // After the processes are killed, the kernel can take a moment to release them.
        for _ in 0..100 {
            if std::fs::remove_dir(&self.directory).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}
