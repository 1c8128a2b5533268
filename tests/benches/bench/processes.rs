//! CPU time and memory of a process with all its descendants.

use saggar_tests::child_processes;

/// Returns `pid` and every process below it.
fn process_tree(pid: u32) -> Vec<u32> {
    let below = child_processes(pid).into_iter().flat_map(process_tree);
    std::iter::once(pid).chain(below).collect()
}

/// Returns the CPU microseconds that the tree has used, in user space and in the kernel.
pub(crate) fn cpu_us(pid: u32) -> f64 {
    // A tick is a hundredth of a second on every Linux that this runs on.
    process_tree(pid).into_iter().filter_map(cpu_ticks).sum::<f64>() * 1e4
}

fn cpu_ticks(pid: u32) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses can contain anything; user and system time are fields 14 and 15 of the line.
    let mut fields = stat.rsplit(')').next()?.split_whitespace().skip(11);
    let (user, system): (f64, f64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(user + system)
}

/// Returns the proportional set size of the tree in MB: shared pages are counted by their share.
pub(crate) fn pss_mb(pid: u32) -> f64 {
    process_tree(pid).into_iter().filter_map(|pid| kilobytes(&format!("/proc/{pid}/smaps_rollup"), "Pss:")).sum::<f64>()
        / 1024.0
}

/// Returns the resident memory of one process in MB.
pub(crate) fn rss_mb(pid: u32) -> f64 {
    kilobytes(&format!("/proc/{pid}/status"), "VmRSS:").unwrap_or(f64::NAN) / 1024.0
}

fn kilobytes(path: &str, key: &str) -> Option<f64> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse().ok()
}
