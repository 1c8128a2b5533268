//! References to the inputs of a job: weights of jobs and models, datasets, outputs of other jobs.

use crate::error::ReferenceError;
use crate::name::is_valid_name;

/// Data and its mount point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskMount {
    /// The data.
    pub source: MountSource,
    /// Mount point at which the plugin finds it: `/data`.
    pub at: String,
}

/// A source of data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MountSource {
    /// A dataset.
    Dataset {
        /// Name of the dataset.
        dataset: String,
        /// Version number; `None` means the newest.
        version: Option<u64>,
    },
    /// The output of a job.
    Job {
        /// Name of the job.
        job: String,
        /// Path of a file or directory in the output; `None` means everything.
        path: Option<String>,
    },
}

/// A reference to weights that a job starts from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WeightsReference {
    /// A checkpoint of a job.
    Job {
        /// Name of the job.
        job: String,
        /// The checkpoint: a step number, `latest` or `best`.
        checkpoint: String,
    },
    /// A version of a model.
    Model {
        /// Name of the model.
        model: String,
        /// Version number; `None` means the version that serves.
        version: Option<u64>,
    },
}

impl WeightsReference {
    /// Parses `job:mnist-7`, `job:mnist-7/checkpoint@1200`, `job:mnist-7/checkpoint@best`, `model:face` or
    /// `model:face@12`.
    ///
    /// # Errors
    /// `ReferenceError::Weights`.
    pub fn parse(text: &str) -> Result<WeightsReference, ReferenceError> {
        let read = || match text.split_once(':')? {
            ("job", rest) => {
                let (job, checkpoint) = rest.split_once("/checkpoint@").unwrap_or((rest, "latest"));
                let known = matches!(checkpoint, "latest" | "best") || checkpoint.parse::<u64>().is_ok();
                let whole = is_valid_name(job) && known;
                whole.then(|| WeightsReference::Job { job: job.to_owned(), checkpoint: checkpoint.to_owned() })
            }
            ("model", rest) => {
                let (model, version) = match rest.split_once('@') {
                    Some((model, version)) => (model, Some(version.parse().ok()?)),
                    None => (rest, None),
                };
                is_valid_name(model).then(|| WeightsReference::Model { model: model.to_owned(), version })
            }
            _ => None,
        };
        read().ok_or_else(|| ReferenceError::Weights { text: text.to_owned() })
    }
}

/// Parses `mnist`, `mnist/1`, `mnist:/data`, `mnist/1:/data`, `job:mnist-7` or `job:mnist-7/output/train:/data`.
///
/// # Errors
/// `ReferenceError::Data`, `ReferenceError::MountPoint`.
pub fn parse_mount(text: &str) -> Result<TaskMount, ReferenceError> {
    match text.rsplit_once(":/") {
        Some((from, to)) => parse_mount_at(from, &format!("/{to}")),
        None => parse_mount_at(text, "/data"),
    }
}

/// Parses the data reference `from`, mounted at `to`.
///
/// # Errors
/// As [`parse_mount`].
pub(crate) fn parse_mount_at(from: &str, to: &str) -> Result<TaskMount, ReferenceError> {
    let refused = || ReferenceError::Data { text: from.to_owned() };
    let inside = |path: &str| !path.is_empty() && path.split('/').all(|part| !matches!(part, "" | "." | ".."));
    let source = match from.strip_prefix("job:") {
        Some(rest) => {
            let (job, path) = rest.split_once('/').unwrap_or((rest, "output"));
            let path = if path == "output" { Some(None) } else { path.strip_prefix("output/").map(Some) };
            let whole = |path: &Option<&str>| is_valid_name(job) && path.is_none_or(inside);
            let path = path.filter(whole);
            path.map(|path| MountSource::Job { job: job.to_owned(), path: path.map(str::to_owned) })
        }
        None => {
            let (dataset, version) = match from.split_once('/') {
                Some((dataset, version)) => (dataset, Some(version.parse().map_err(|_| refused())?)),
                None => (from, None),
            };
            is_valid_name(dataset).then(|| MountSource::Dataset { dataset: dataset.to_owned(), version })
        }
    };
    if !to.starts_with('/') || !inside(&to[1..]) {
        return Err(ReferenceError::MountPoint { text: to.to_owned() });
    }
    Ok(TaskMount { source: source.ok_or_else(refused)?, at: to.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mount_syntax_is_parsed() {
        let is = |text: &str, dataset: &str, version: Option<u64>, at: &str| {
            let source = MountSource::Dataset { dataset: dataset.to_owned(), version };
            assert_eq!(parse_mount(text).unwrap(), TaskMount { source, at: at.to_owned() });
        };
        is("mnist", "mnist", None, "/data");
        is("mnist/1", "mnist", Some(1), "/data");
        is("mnist:/train", "mnist", None, "/train");
        is("mnist/12:/a/b", "mnist", Some(12), "/a/b");
        let source = MountSource::Job { job: "mnist-7".to_owned(), path: Some("a/b".to_owned()) };
        assert_eq!(parse_mount("job:mnist-7/output/a/b:/in").unwrap(), TaskMount { source, at: "/in".to_owned() });
        for bad in [
            "mnist/latest",
            "",
            "job:",
            "job:a/../b",
            "job:a/output/../b",
            "job:a/logs",
            "mnist:data",
            "mnist:/",
            "mnist:/a/../b",
            "mnist:/a//b",
        ] {
            assert!(parse_mount(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn every_weights_reference_syntax_is_parsed() {
        let job = |which: &str| WeightsReference::Job { job: "mnist-7".to_owned(), checkpoint: which.to_owned() };
        assert_eq!(WeightsReference::parse("job:mnist-7").unwrap(), job("latest"));
        assert_eq!(WeightsReference::parse("job:mnist-7/checkpoint@1200").unwrap(), job("1200"));
        assert_eq!(WeightsReference::parse("job:mnist-7/checkpoint@best").unwrap(), job("best"));
        let model = WeightsReference::Model { model: "face".to_owned(), version: Some(12) };
        assert_eq!(WeightsReference::parse("model:face@12").unwrap(), model);
        for bad in ["mnist-7", "job:", "job:a/checkpoint@x", "model:face@new", "dataset:a", ""] {
            assert!(WeightsReference::parse(bad).is_err(), "{bad}");
        }
    }
}
