//! The tables of the records: which are copied to another database, and which are not, with the reason.

/// A table that is copied.
#[derive(Clone, Copy, Debug)]
pub(super) struct CopiedTable {
    pub(super) name: &'static str,
    /// The columns that identify a row. Rows are read in their order.
    pub(super) key: &'static [&'static str],
    /// The column that the database numbers, if it does.
    pub(super) numbered: Option<&'static str>,
    /// Columns that get a constant: a text of SQL.
    pub(super) constants: &'static [(&'static str, &'static str)],
}

const fn table(name: &'static str, key: &'static [&'static str]) -> CopiedTable {
    CopiedTable { name, key, numbered: None, constants: &[] }
}

const fn numbered(name: &'static str, column: &'static [&'static str; 1]) -> CopiedTable {
    CopiedTable { name, key: column, numbered: Some(column[0]), constants: &[] }
}

/// The tables that are copied, each after those that it refers to.
pub(super) const COPIED: [CopiedTable; 18] = [
    table("projects", &["name"]),
    // The storage of a job's files is that of the destination, which every server there has.
    CopiedTable { constants: &[("storage", "''")], ..numbered("jobs", &["cursor"]) },
    table("attempts", &["job", "number"]),
    table("metrics", &["job", "name", "step", "attempt"]),
    table("latest", &["job", "name"]),
    numbered("events", &["sequence"]),
    table("annotations", &["job"]),
    table("spent", &["project", "owner"]),
    table("schedules", &["name"]),
    table("pipelines", &["name"]),
    numbered("pipeline_runs", &["cursor"]),
    table("pipeline_steps", &["run", "position", "item", "attempt"]),
    table("pipeline_schedules", &["name"]),
    numbered("sweeps", &["cursor"]),
    table("trials", &["sweep", "number"]),
    table("attempt_hosts", &["job", "attempt", "part"]),
    numbered("audit_lines", &["sequence"]),
    table("key_usage", &["key_id", "since_ms"]),
];

/// The tables that are not copied, each with the reason.
#[cfg(test)]
pub(super) const EXCLUDED: [(&str, &str); 8] = [
    (
        "documents",
        "they are files of a state directory: keys, secrets, and the settings of models, which are moved as such",
    ),
    ("log_chunks", "the lines are moved as parts of the logs"),
    ("workers", "servers and workers register when they start"),
    ("predictions", "servers keep them for an hour, and the process that computes one is not moved"),
    (
        "publications",
        "they are permissions of attempts that run; no job is active, and its next attempt publishes again",
    ),
    ("write_markers", "they belong to the connections of one database"),
    ("schema_version", "each database has its own"),
    ("sqlite_sequence", "the newest numbers are moved, in the form of the engine"),
];
