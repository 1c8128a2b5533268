//! A description of the machine that measured, for saved results.

use serde::{Deserialize, Serialize};

/// The machine. Only figures of equal machines can be compared as they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MachineDescription {
    /// The processor's name, or its architecture if the system does not name it.
    pub(super) processor: String,
    /// The cores that this process can use.
    pub(super) cores: usize,
    /// The memory in bytes; 0 if the system does not say.
    pub(super) memory_bytes: u64,
    /// The operating system and its release.
    pub(super) system: String,
}

impl MachineDescription {
    /// Reads the description of this machine.
    pub(super) fn read() -> MachineDescription {
        let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let release = text("/proc/sys/kernel/osrelease");
        MachineDescription {
            processor: processor_name(&text("/proc/cpuinfo")).unwrap_or(std::env::consts::ARCH).to_owned(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: memory_bytes(&text("/proc/meminfo")),
            system: format!("{} {}", std::env::consts::OS, release.trim()).trim().to_owned(),
        }
    }
}

/// Returns the processor's name from the text of `/proc/cpuinfo`.
fn processor_name(text: &str) -> Option<&str> {
    let name = |line: &'_ str| line.strip_prefix("model name").is_some();
    let line = text.lines().find(|line| name(line))?;
    Some(line.split_once(':')?.1.trim()).filter(|name| !name.is_empty())
}

/// Returns the bytes of memory from the text of `/proc/meminfo`, or 0.
fn memory_bytes(text: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.map_or(0, |kib| kib.saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_names_processor_and_memory() {
        assert_eq!(processor_name("processor\t: 0\nmodel name\t: AMD EPYC\n"), Some("AMD EPYC"));
        assert_eq!(processor_name("processor\t: 0\n"), None);
        assert_eq!((memory_bytes("MemTotal:  2048 kB\n"), memory_bytes("")), (2 << 20, 0));
    }
}
