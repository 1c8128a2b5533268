//! The memory of a notebook: of its sandbox's first process and all below it. In the sandbox's process namespace, an orphan
//! becomes a child of the sandbox's own first process, so none is missed.

use std::collections::HashMap;
use std::fs;
use std::io;

/// Returns the resident bytes of a process and all its descendants, with shared pages divided among the processes that
/// share them, as far as the system says so.
///
/// # Errors
/// The operating system's error if `/proc` cannot be listed.
pub fn resident_bytes(root: u32) -> io::Result<u64> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for entry in fs::read_dir("/proc")? {
        let Some(process) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if let Some(parent) = parent_of(process) {
            children.entry(parent).or_default().push(process);
        }
    }
    let (mut bytes, mut left) = (0, vec![root]);
    while let Some(process) = left.pop() {
        bytes += process_bytes(process);
        left.extend(children.remove(&process).unwrap_or_default());
    }
    Ok(bytes)
}

fn parent_of(process: u32) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, which can contain spaces, is in parentheses before the state and the parent.
    text.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// Returns the bytes of one process; 0 if it has ended.
fn process_bytes(process: u32) -> u64 {
    let read = |file: &str, name: &str| {
        let text = fs::read_to_string(format!("/proc/{process}/{file}")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    read("smaps_rollup", "Pss:").or_else(|| read("status", "VmRSS:")).unwrap_or(0).saturating_mul(1024)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn the_memory_of_descendants_is_counted() {
        let mut shell = Command::new("sh");
        let mut shell = shell.args(["-c", "sleep 60 & echo; wait"]).stdout(Stdio::piped()).spawn().unwrap();
        // The line comes after the child was made.
        std::io::Read::read_exact(shell.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        let (alone, all) = (process_bytes(shell.id()), resident_bytes(shell.id()).unwrap());
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", shell.id())).unwrap();
        for process in children.split_whitespace() {
            let _ = Command::new("kill").args(["-9", process]).status();
        }
        shell.wait().unwrap();
        assert!(alone > 0 && all > alone, "{alone} {all}");
    }
}
