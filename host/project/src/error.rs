//! Errors of parsing durations, sizes, cron lines, file patterns and references. Each message says what was expected.

use thiserror::Error;

/// The reason why a text is not a valid quantity.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum UnitError {
    /// Not a number with a unit of time.
    #[error("invalid duration {text:?}: expected a number with a unit, such as 90s, 10m or 1h")]
    Duration {
        /// The given text.
        text: String,
    },
    /// Not a number with a unit of size.
    #[error("invalid size {text:?}: expected a number with a unit, such as 512MiB or 4GiB")]
    Size {
        /// The given text.
        text: String,
    },
    /// Not a price per hour.
    #[error("invalid price {text:?}: expected an amount per hour, such as 0.65/h")]
    Price {
        /// The given text.
        text: String,
    },
    /// Not a percentage.
    #[error("invalid percentage {text:?}: expected 0% to 100%")]
    Percent {
        /// The given text.
        text: String,
    },
    /// Not a time in the past or a timestamp.
    #[error("invalid time {text:?}: expected a time ago, such as 10m, or a timestamp, such as 2026-11-21T12:03:13Z")]
    Since {
        /// The given text.
        text: String,
    },
    /// Neither a time nor a number of steps.
    #[error("invalid interval {text:?}: expected a time or a number of steps, such as 30s or 100steps")]
    Interval {
        /// The given text.
        text: String,
    },
}

/// The reason why a text is not a valid cron line.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum CronError {
    /// The number of fields is not five.
    #[error("{count} fields: expected 5, minute hour day-of-month month day-of-week")]
    Fields {
        /// The number of fields.
        count: usize,
    },
    /// A field is invalid.
    #[error("{field} {text:?}: {reason}")]
    Field {
        /// `minute`, `hour`, `day-of-month`, `month`, `day-of-week`.
        field: &'static str,
        /// The field's text.
        text: String,
        /// What is wrong with it.
        reason: String,
        /// Offset of the field in the line, in bytes.
        offset: usize,
    },
    /// The date does not exist, such as the thirtieth of February.
    #[error("this date never occurs")]
    Never,
}

impl CronError {
    /// Returns the position of the mistake in the line, in bytes.
    pub fn offset(&self) -> usize {
        match self {
            CronError::Field { offset, .. } => *offset,
            CronError::Fields { .. } | CronError::Never => 0,
        }
    }
}

/// The reason why a text is not a valid file pattern.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum GlobError {
    /// The path is outside of the project's directory.
    #[error("{text:?} leaves the project's directory: expected a path below it, such as src/**/*.rs")]
    Outside {
        /// The given text.
        text: String,
    },
}

/// The reason why a text is not a valid reference or mount point.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ReferenceError {
    /// Neither a job's nor a model's weights.
    #[error(
        "invalid weights {text:?}: expected a checkpoint or a model, such as job:mnist-7, job:mnist-7/checkpoint@1200 \
         or model:face@12"
    )]
    Weights {
        /// The given text.
        text: String,
    },
    /// Neither a dataset nor a job's output.
    #[error(
        "invalid data {text:?}: expected a dataset or a job's output, such as mnist, mnist/1 or job:mnist-7/output"
    )]
    Data {
        /// The given text.
        text: String,
    },
    /// Not an absolute path.
    #[error("invalid mount point {text:?}: expected an absolute path such as /data")]
    MountPoint {
        /// The given text.
        text: String,
    },
}
