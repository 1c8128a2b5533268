//! Why a text is no duration, no cron line, no file pattern. Each says what was expected.

use thiserror::Error;

/// Why a text is no quantity.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum UnitError {
    /// No time with a unit.
    #[error("{text:?} is no duration: expected such as 90s, 10m or 1h")]
    Duration {
        /// What was given.
        text: String,
    },
    /// No size with a unit.
    #[error("{text:?} is no size: expected such as 512MiB or 4GiB")]
    Size {
        /// What was given.
        text: String,
    },
    /// No price of an hour.
    #[error("{text:?} is no price: expected such as 0.65/h")]
    Price {
        /// What was given.
        text: String,
    },
    /// No share.
    #[error("{text:?} is no share: expected 0% to 100%")]
    Percent {
        /// What was given.
        text: String,
    },
    /// No moment that something can be asked for from.
    #[error("{text:?} is no time: expected such as 10m, which is that long ago, or 2026-11-21T12:03:13Z")]
    Since {
        /// What was given.
        text: String,
    },
    /// No time and no count of steps.
    #[error("{text:?} is no interval: expected such as 30s or 100steps")]
    Interval {
        /// What was given.
        text: String,
    },
}

/// Why a text is no cron line.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum CronError {
    /// Not five fields.
    #[error("{count} fields: expected 5, minute hour day-of-month month day-of-week")]
    Fields {
        /// How many there are.
        count: usize,
    },
    /// A field that says nothing.
    #[error("{field} {text:?}: {reason}")]
    Field {
        /// `minute`, `hour`, `day-of-month`, `month`, `day-of-week`.
        field: &'static str,
        /// What it holds.
        text: String,
        /// What is wrong with it.
        reason: String,
        /// Bytes before it in the line.
        offset: usize,
    },
    /// A date that does not exist, such as the thirtieth of February.
    #[error("never comes")]
    Never,
}

impl CronError {
    /// Where in the line the mistake is: bytes before it.
    pub fn offset(&self) -> usize {
        match self {
            CronError::Field { offset, .. } => *offset,
            CronError::Fields { .. } | CronError::Never => 0,
        }
    }
}

/// Why a text is no file pattern.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum GlobError {
    /// It leaves the project.
    #[error("{text:?} leaves the project's directory: expected a path below it, such as src/**/*.rs")]
    Outside {
        /// What was given.
        text: String,
    },
}

/// Why a text names nothing that a job can take.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ReferenceError {
    /// No job's or model's weights.
    #[error("{text:?} names no weights: expected such as job:mnist-7, job:mnist-7/checkpoint@1200 or model:face@12")]
    Weights {
        /// What was given.
        text: String,
    },
    /// No dataset and no job's output.
    #[error("{text:?} names no data: expected such as mnist, mnist/1 or job:mnist-7/output")]
    Data {
        /// What was given.
        text: String,
    },
    /// Not an absolute path.
    #[error("{text:?} is no mount point: expected an absolute path such as /data")]
    MountPoint {
        /// What was given.
        text: String,
    },
}
