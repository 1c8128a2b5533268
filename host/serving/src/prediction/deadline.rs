//! The deadline of a prediction.

use std::time::{Duration, Instant};

use crate::limits::{DEADLINE_DEFAULT, DEADLINE_MAX};

/// The deadline of a prediction.
#[derive(Clone, Copy, Debug)]
pub struct PredictionDeadline {
    began: Instant,
    /// The time that the client allows, or `None` for the model's default.
    limit: Option<Duration>,
}

impl PredictionDeadline {
    /// Returns the default deadline of a request that arrived at `began`.
    pub fn default_from(began: Instant) -> PredictionDeadline {
        PredictionDeadline { began, limit: None }
    }

    /// Returns the deadline `limit` after `began`, which is at most [`DEADLINE_MAX`].
    pub fn starting_at(began: Instant, limit: Duration) -> PredictionDeadline {
        PredictionDeadline { began, limit: Some(limit.min(DEADLINE_MAX)) }
    }

    /// Returns the deadline with this limit if the client set none.
    pub(crate) fn or_default_limit(self, limit: Duration) -> PredictionDeadline {
        PredictionDeadline { limit: Some(self.limit.unwrap_or(limit)), ..self }
    }

    /// Returns the deadline with a limit of at most `limit`.
    pub(crate) fn capped(self, limit: Duration) -> PredictionDeadline {
        PredictionDeadline { limit: Some(self.limit().min(limit)), ..self }
    }

    /// Returns the time from the request's arrival to the deadline.
    pub(crate) fn limit(&self) -> Duration {
        self.limit.unwrap_or(DEADLINE_DEFAULT)
    }

    /// Returns the time of the deadline.
    pub fn until(&self) -> Instant {
        self.began + self.limit()
    }

    /// Returns the time since the request's arrival.
    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }
}
