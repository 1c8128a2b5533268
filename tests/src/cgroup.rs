//! Control groups with a limit of memory, for tests of what a server does where there is little.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// A control group of its own; removed when it is dropped, after its processes.
#[derive(Debug)]
pub struct MemoryGroup {
    directory: PathBuf,
    is_version_1: bool,
}

impl MemoryGroup {
    /// A group whose processes have `bytes` of memory together, or `None` where this user may make none, which is said.
    ///
    /// # Panics
    /// Where there is none, and `REQUIRE_CGROUP` is set.
    pub fn new(bytes: u64) -> Option<MemoryGroup> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!("saggar-test-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let roots = [("/sys/fs/cgroup/memory", "memory.limit_in_bytes", true), ("/sys/fs/cgroup", "memory.max", false)];
        for (root, limit, is_version_1) in roots {
            let directory = Path::new(root).join(&name);
            let made =
                std::fs::create_dir(&directory).and_then(|()| std::fs::write(directory.join(limit), bytes.to_string()));
            if made.is_ok() {
                // A machine with swap would go on slowly instead of running out.
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

    /// A command that runs `program` in the group, to which arguments can be added.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("sh");
        let enter = "echo $$ > \"$0\" && exec \"$@\"";
        command.args(["-c", enter]).arg(self.directory.join("cgroup.procs")).arg(program);
        command
    }

    /// Gives its processes so many bytes together from now on.
    ///
    /// # Panics
    /// Where they have more already.
    pub fn set_limit(&self, bytes: u64) {
        let file = if self.is_version_1 { "memory.limit_in_bytes" } else { "memory.max" };
        std::fs::write(self.directory.join(file), bytes.to_string()).expect("the group is ours");
    }

    /// The most bytes that its processes had at once, with what the system cached for them; `None` where it does not say.
    pub fn peak_bytes(&self) -> Option<u64> {
        let file = if self.is_version_1 { "memory.max_usage_in_bytes" } else { "memory.peak" };
        std::fs::read_to_string(self.directory.join(file)).ok()?.trim().parse().ok()
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // Its processes were killed; the system may take a moment to let go of them.
        for _ in 0..100 {
            if std::fs::remove_dir(&self.directory).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}
