//! How much of the machine others took while something was measured.

/// The share of the cores that others may take of a machine that passes for quiet.
pub(crate) const OTHERS_MAX: f64 = 0.05;

/// Processor time so far, in the kernel's ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuUsage {
    /// Of all cores, idle or not.
    total: f64,
    /// In which they worked, or were taken away by whoever owns the machine.
    busy: f64,
    /// In which they worked for this process and its children.
    own: f64,
}

impl CpuUsage {
    /// Now.
    pub(crate) fn now() -> CpuUsage {
        let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let line = text.lines().next().unwrap_or_default();
        // user, nice, system, idle, iowait, irq, softirq, steal; guests' time is in the first two.
        let ticks: Vec<f64> = line.split_whitespace().skip(1).take(8).filter_map(|word| word.parse().ok()).collect();
        let total: f64 = ticks.iter().sum();
        let idle: f64 = ticks.iter().skip(3).take(2).sum();
        CpuUsage { total, busy: total - idle, own: own_ticks() }
    }

    /// The share of the cores that others took since.
    pub(crate) fn others_since(self) -> f64 {
        let now = CpuUsage::now();
        let others = (now.busy - self.busy) - (now.own - self.own);
        (others / (now.total - self.total).max(1.0)).max(0.0)
    }
}

/// Ticks of this process and its children.
fn own_ticks() -> f64 {
    let me = std::process::id().to_string();
    let Ok(entries) = std::fs::read_dir("/proc") else { return 0.0 };
    let mut sum = 0.0;
    for entry in entries.flatten() {
        let Ok(text) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        // After the name in brackets: state, parent, and as the 12th and 13th user and system time.
        let Some((_, rest)) = text.rsplit_once(')') else { continue };
        let words: Vec<&str> = rest.split_whitespace().collect();
        let is_own = entry.file_name().to_string_lossy() == me.as_str() || words.get(1) == Some(&me.as_str());
        if is_own {
            sum += words.iter().skip(11).take(2).filter_map(|word| word.parse::<f64>().ok()).sum::<f64>();
        }
    }
    sum
}
