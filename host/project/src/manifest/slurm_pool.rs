//! `slurm = { ... }` in `[pool.NAME]`: how the jobs of a pool run as jobs of Slurm.

use crate::manifest_table::ManifestTable;
use crate::manifest_value::ManifestValue;

/// Where and how Slurm runs the jobs of a pool. The values are those of the options of `sbatch` with the same names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlurmPoolSection {
    /// The partition.
    pub partition: Option<String>,
    /// The account.
    pub account: Option<String>,
    /// The quality of service.
    pub qos: Option<String>,
    /// Generic resources: `gpu:1`.
    pub gres: Option<String>,
    /// The features of nodes: `a100`.
    pub constraint: Option<String>,
    /// The maximum time: `24:00:00`.
    pub time: Option<String>,
    /// Processors of each job.
    pub cpus: Option<String>,
    /// Memory of each job: `8G`.
    pub memory: Option<String>,
    /// The program on the nodes. `None` if it has the same path as the server's.
    pub program: Option<String>,
    /// The folder of the state directories of workers on the nodes.
    pub home: String,
}

pub(super) fn read_slurm_pool(table: &ManifestTable<'_>) -> Option<SlurmPoolSection> {
    let text = |key: &'static str| table.optional(key, read_value);
    let section = SlurmPoolSection {
        partition: text("partition"),
        account: text("account"),
        qos: text("qos"),
        gres: text("gres"),
        constraint: text("constraint"),
        time: text("time"),
        cpus: text("cpus"),
        memory: text("memory"),
        program: text("program"),
        home: text("home").unwrap_or_else(|| "/tmp/saggar-slurm".to_owned()),
    };
    table.report_unknown_keys();
    Some(section)
}

/// Reads a value of an option: one line that is not empty.
fn read_value(item: &ManifestValue<'_>) -> Option<String> {
    match item.text()? {
        value if !value.is_empty() && !value.chars().any(char::is_control) => Some(value.to_owned()),
        _ => item.report_expected("a value of sbatch, on one line"),
    }
}
