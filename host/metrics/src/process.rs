//! The standard metrics of the process, read from `/proc/self` at each scrape. Names and units are those of the
//! Prometheus client libraries. They are absent on systems without `/proc`.

use std::fs;

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Counter, Gauge, Opts, Registry};

/// Clock ticks per second in `/proc/self/stat`: part of the Linux ABI, equal on all our target architectures.
const TICKS_PER_SECOND: f64 = 100.0;

/// The process's resource usage according to the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct ProcessUsage {
    cpu_seconds: f64,
    start_time_seconds: f64,
    resident_bytes: f64,
    virtual_bytes: f64,
    threads: f64,
    open_fds: f64,
    fds_max: f64,
}

impl ProcessUsage {
    /// Reads `/proc`. Returns `None` if a file is missing or has an unexpected format.
    fn read() -> Option<ProcessUsage> {
        let text = |path: &str| fs::read_to_string(path).ok();
        let usage = ProcessUsage::parse(
            &text("/proc/self/stat")?,
            &text("/proc/self/status")?,
            &text("/proc/self/limits")?,
            &text("/proc/stat")?,
        )?;
        // Listing the directory opens one descriptor itself.
        let open_fds = fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1);
        Some(ProcessUsage { open_fds: open_fds as f64, ..usage })
    }

    fn parse(stat: &str, status: &str, limits: &str, system: &str) -> Option<ProcessUsage> {
        // The second field is the program's name in parentheses, which can contain spaces and parentheses.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        // Fields are numbered as in proc_pid_stat(5); the first one after the name is field 3.
        let ticks = |field: usize| fields.get(field - 3)?.parse::<f64>().ok();
        let line = |text: &str, name: &str| -> Option<f64> {
            text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
        };
        let fds_max = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
        let fds_max = fds_max.split_whitespace().next()?;
        Some(ProcessUsage {
            cpu_seconds: (ticks(14)? + ticks(15)?) / TICKS_PER_SECOND,
            start_time_seconds: line(system, "btime")? + ticks(22)? / TICKS_PER_SECOND,
            resident_bytes: line(status, "VmRSS:")? * 1024.0,
            virtual_bytes: line(status, "VmSize:")? * 1024.0,
            threads: line(status, "Threads:")?,
            open_fds: 0.0,
            fds_max: if fds_max == "unlimited" { f64::INFINITY } else { fds_max.parse().ok()? },
        })
    }
}

/// Selects a gauge's value from the usage.
type UsageGetter = fn(&ProcessUsage) -> f64;

/// A collector that reads the process's usage when the registry is gathered.
#[derive(Debug)]
struct ProcessCollector {
    cpu: Counter,
    gauges: [(Gauge, UsageGetter); 6],
}

/// Registers the process's metrics.
pub(crate) fn register(registry: &Registry) {
    registry.register(Box::new(ProcessCollector::new())).expect("no family of the table begins with process_");
}

impl ProcessCollector {
    fn new() -> ProcessCollector {
        let cpu =
            Counter::with_opts(Opts::new("process_cpu_seconds_total", "User and system CPU time of the process."));
        let gauge = |name: &str, help: &str| Gauge::with_opts(Opts::new(name, help)).expect("a well formed name");
        ProcessCollector {
            cpu: cpu.expect("a well formed name"),
            gauges: [
                (gauge("process_resident_memory_bytes", "Resident memory of the process."), |it| it.resident_bytes),
                (gauge("process_virtual_memory_bytes", "Virtual memory of the process."), |it| it.virtual_bytes),
                (gauge("process_open_fds", "File descriptors that the process has open."), |it| it.open_fds),
                (gauge("process_max_fds", "Limit on the process's open file descriptors."), |it| it.fds_max),
                (gauge("process_threads", "Threads of the process."), |it| it.threads),
                (gauge("process_start_time_seconds", "Start of the process in seconds since 1970."), |it| {
                    it.start_time_seconds
                }),
            ],
        }
    }
}

impl Collector for ProcessCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.cpu.desc().into_iter().chain(self.gauges.iter().flat_map(|(gauge, _)| gauge.desc())).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let Some(usage) = ProcessUsage::read() else { return Vec::new() };
        // Two concurrent scrapes can read in either order; the counter must not decrease.
        self.cpu.inc_by((usage.cpu_seconds - self.cpu.get()).max(0.0));
        self.gauges.iter().for_each(|(gauge, value)| gauge.set(value(&usage)));
        let gauges = self.gauges.iter().flat_map(|(gauge, _)| gauge.collect());
        self.cpu.collect().into_iter().chain(gauges).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "42 (a) b (c) S 1 42 42 0 -1 4194560 100 0 0 0 1234 66 9 9 20 0 7 0 5000 1000000 300 1 2 3";
    const STATUS: &str = "Name:\ta) b (c\nVmSize:\t    2048 kB\nVmRSS:\t    1024 kB\nThreads:\t7\n";
    const LIMITS: &str = "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024    4096    files\n";
    const SYSTEM: &str = "cpu  1 2 3\nbtime 1700000000\n";

    #[test]
    fn proc_files_are_parsed() {
        let usage = ProcessUsage::parse(STAT, STATUS, LIMITS, SYSTEM).unwrap();
        let expected = ProcessUsage {
            cpu_seconds: 13.0,
            start_time_seconds: 1_700_000_050.0,
            resident_bytes: 1_048_576.0,
            virtual_bytes: 2_097_152.0,
            threads: 7.0,
            open_fds: 0.0,
            fds_max: 1024.0,
        };
        assert_eq!(usage, expected);
        let unlimited = LIMITS.replace("1024", "unlimited");
        assert_eq!(ProcessUsage::parse(STAT, STATUS, &unlimited, SYSTEM).unwrap().fds_max, f64::INFINITY);
        for broken in ["", "42 (a) S 1", "42 a S 1"] {
            assert_eq!(ProcessUsage::parse(broken, STATUS, LIMITS, SYSTEM), None, "{broken}");
        }
    }
}
