//! CPU time that other processes took during a measurement.

/// Limit of the share of the cores that other processes take on a quiet machine.
pub(crate) const OTHERS_MAX: f64 = 0.05;

/// Processor time so far, in kernel ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuUsage {
    /// Time of all cores, idle or not.
    total: f64,
    /// Time in which they worked, or were taken away by the hypervisor.
    busy: f64,
    /// Time in which they worked for this process and its children.
    own: f64,
}

impl CpuUsage {
    /// Returns the current values.
    pub(crate) fn now() -> CpuUsage {
        let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let line = text.lines().next().unwrap_or_default();
        // user, nice, system, idle, iowait, irq, softirq, steal; guest time is included in the first two.
        let ticks: Vec<f64> = line.split_whitespace().skip(1).take(8).filter_map(|word| word.parse().ok()).collect();
        let total: f64 = ticks.iter().sum();
        let idle: f64 = ticks.iter().skip(3).take(2).sum();
        CpuUsage { total, busy: total - idle, own: own_ticks() }
    }

    /// Returns the share of the cores that other processes took since then.
    pub(crate) fn others_since(self) -> f64 {
        let now = CpuUsage::now();
        let others = (now.busy - self.busy) - (now.own - self.own);
        (others / (now.total - self.total).max(1.0)).max(0.0)
    }
}

/// Returns the ticks of this process and its children.
fn own_ticks() -> f64 {
    let me = std::process::id().to_string();
    let Ok(entries) = std::fs::read_dir("/proc") else { return 0.0 };
    let mut sum = 0.0;
    for entry in entries.flatten() {
        let Ok(text) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        // After the name in brackets: state, parent, and user and system time as fields 12 and 13.
        let Some((_, rest)) = text.rsplit_once(')') else { continue };
        let words: Vec<&str> = rest.split_whitespace().collect();
        let is_own = entry.file_name().to_string_lossy() == me.as_str() || words.get(1) == Some(&me.as_str());
        if is_own {
            sum += words.iter().skip(11).take(2).filter_map(|word| word.parse::<f64>().ok()).sum::<f64>();
        }
    }
    sum
}
