//! The mounts of a job: dataset versions, and the outputs of other jobs.

use std::fmt;
use std::str::FromStr;

use saggar_project::MountSource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A read-only mount of a job.
///
/// As JSON: `{"dataset": "mnist", "version": 1, "mount": "/data"}`, or
/// `{"job": "prepare-3", "path": "train", "mount": "/data"}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Record", into = "Record")]
pub struct DataMount {
    /// The source of the data.
    pub source: DataSource,
    /// The mount point that the plugin sees: `/data`.
    pub mount: String,
}

/// The source of a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataSource {
    /// A version of a dataset.
    Dataset {
        /// The dataset's name.
        name: String,
        /// Its version; the newest at submission if omitted.
        version: Option<u64>,
    },
    /// The files that another job wrote.
    Output {
        /// The job's name.
        job: String,
        /// The folder of its output; all of it if omitted.
        path: Option<String>,
    },
}

/// Text that does not name data.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid data {0:?}: expected a dataset or a job's output, such as mnist/1 or job:mnist-7/output/table")]
pub struct DataSourceParseError(String);

impl FromStr for DataSource {
    type Err = DataSourceParseError;

    /// Parses `mnist`, `mnist/1`, `job:mnist-7/output` or `job:mnist-7/output/table`.
    fn from_str(text: &str) -> Result<DataSource, DataSourceParseError> {
        // A mount point follows the source; its own text cannot have one.
        let parsed = if text.contains(":/") { None } else { saggar_project::parse_mount(text).ok() };
        let mount = parsed.ok_or_else(|| DataSourceParseError(text.chars().take(200).collect()))?;
        Ok(mount.source.into())
    }
}

impl From<MountSource> for DataSource {
    fn from(source: MountSource) -> DataSource {
        match source {
            MountSource::Dataset { dataset, version } => DataSource::Dataset { name: dataset, version },
            MountSource::Job { job, path } => DataSource::Output { job, path },
        }
    }
}

impl fmt::Display for DataSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DataSource::Dataset { name, version: None } => f.write_str(name),
            DataSource::Dataset { name, version: Some(version) } => write!(f, "{name}/{version}"),
            DataSource::Output { job, path: None } => write!(f, "job:{job}/output"),
            DataSource::Output { job, path: Some(path) } => write!(f, "job:{job}/output/{path}"),
        }
    }
}

/// A read-only mount of a job: a version of a dataset, or the files that another job wrote.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Mount")]
struct Record {
    /// The dataset's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dataset: Option<String>,
    /// The dataset's version; the newest at submission if omitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    version: Option<u64>,
    /// The job's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    job: Option<String>,
    /// The folder of the job's output; all of it if omitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    /// The mount point that the plugin sees: `/data`.
    mount: String,
}

impl TryFrom<Record> for DataMount {
    type Error = &'static str;

    fn try_from(record: Record) -> Result<DataMount, &'static str> {
        let Record { dataset, version, job, path, mount } = record;
        let source = match (dataset, version, job, path) {
            (Some(name), version, None, None) => DataSource::Dataset { name, version },
            (None, None, Some(job), path) => DataSource::Output { job, path },
            _ => return Err("expected either `dataset` with an optional `version`, or `job` with an optional `path`"),
        };
        Ok(DataMount { source, mount })
    }
}

impl From<DataMount> for Record {
    fn from(DataMount { source, mount }: DataMount) -> Record {
        let none = Record { dataset: None, version: None, job: None, path: None, mount };
        match source {
            DataSource::Dataset { name, version } => Record { dataset: Some(name), version, ..none },
            DataSource::Output { job, path } => Record { job: Some(job), path, ..none },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dataset(name: &str, version: Option<u64>, mount: &str) -> DataMount {
        DataMount { source: DataSource::Dataset { name: name.to_owned(), version }, mount: mount.to_owned() }
    }

    fn output(job: &str, path: Option<&str>, mount: &str) -> DataMount {
        let source = DataSource::Output { job: job.to_owned(), path: path.map(str::to_owned) };
        DataMount { source, mount: mount.to_owned() }
    }

    #[test]
    fn sources_round_trip_through_text() {
        for text in ["mnist", "mnist/3", "job:mnist-7/output", "job:mnist-7/output/a/b.csv"] {
            assert_eq!(text.parse::<DataSource>().unwrap().to_string(), text);
        }
        for wrong in ["", "mnist/x", "mnist:/data", "job:", "job:a-1/output/../b", "a b"] {
            assert!(wrong.parse::<DataSource>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn mounts_round_trip_through_json_and_unknown_fields_are_refused() {
        for mount in [dataset("mnist", Some(3), "/data"), dataset("m", None, "/a"), output("p-1", Some("x"), "/b")] {
            let text = serde_json::to_string(&mount).unwrap();
            assert_eq!(serde_json::from_str::<DataMount>(&text).unwrap(), mount, "{text}");
        }
        for wrong in [
            r#"{"mount": "/data"}"#,
            r#"{"dataset": "a", "job": "b-1", "mount": "/data"}"#,
            r#"{"dataset": "a", "path": "x", "mount": "/data"}"#,
            r#"{"dataset": "a", "mount": "/data", "extra": 1}"#,
        ] {
            assert!(serde_json::from_str::<DataMount>(wrong).is_err(), "{wrong}");
        }
    }
}
