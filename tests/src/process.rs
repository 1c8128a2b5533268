//! Processes of the machine.

/// The processes whose parent is `pid`.
pub fn children(pid: u32) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("a system with /proc").flatten() {
        let Ok(child) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        // The name in parentheses may hold anything; the parent is the second field after it.
        let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)?.parse().ok());
        if parent == Some(pid) {
            found.push(child);
        }
    }
    found
}

/// Kills the process as `kill -9` does. Whether it was there.
pub fn kill_9(pid: u32) -> bool {
    let status = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status();
    status.expect("a system with kill").success()
}
