//! Engines: other schedulers that start workers, such as Slurm and Kubernetes. A pool of an engine has no slots of this
//! server's devices: for each job that placement gives to the pool, the engine starts `saggar worker run JOB` somewhere, and
//! that process claims the attempt from the records. An engine knows nothing of leases, so of two workers that it started
//! for one attempt, the second one finds the job claimed and ends.

use std::fmt::Debug;

use thiserror::Error;

/// The environment variable with the settings of a worker's jobs, as JSON.
pub const WORKER_SETTINGS_VARIABLE: &str = "SAGGAR_WORKER_SETTINGS";

/// A scheduler that starts workers. All functions are called on a thread that may block, and may be called by several
/// servers at the same time.
pub trait WorkerEngine: Send + Sync + Debug {
    /// Returns the name of the engine for people: `Kubernetes`.
    fn engine_name(&self) -> &'static str;

    /// Submits the worker of an attempt. If an engine job with the name of the request exists, it does nothing: the request
    /// was submitted before, perhaps by another server.
    ///
    /// # Errors
    /// `Unavailable` if the same request can succeed later, `Refused` if it needs a change first.
    fn submit(&self, request: &EngineRequest) -> Result<(), EngineError>;

    /// Returns the state of the engine job with this name ([`EngineRequest::engine_job`]).
    ///
    /// # Errors
    /// `Unavailable`, `Refused`.
    fn state(&self, engine_job: &str) -> Result<EngineJobState, EngineError>;

    /// Removes the engine job with this name, and asks its worker to end if it runs. Does nothing if it does not exist.
    ///
    /// # Errors
    /// `Unavailable`, `Refused`.
    fn cancel(&self, engine_job: &str) -> Result<(), EngineError>;
}

/// The attempt that an engine starts a worker for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineRequest {
    /// The job's name, `digits-7`, which `saggar worker run` is given.
    pub job: String,
    /// The number of the attempt that the worker will be, from 1.
    pub attempt: u32,
    /// The project of the job.
    pub project: String,
    /// The number of hosts of the job. With several, the engine starts as many workers together, each with its number
    /// ([`BatchTask`](crate::BatchTask)), and the first one claims the job.
    pub hosts: u32,
}

impl EngineRequest {
    /// Returns the name of the engine job, `saggar-digits-7-1`, which is the same on every server.
    pub fn engine_job(&self) -> String {
        format!("saggar-{}-{}", self.job, self.attempt)
    }
}

/// The state of an engine job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineJobState {
    /// There is no engine job with this name.
    Absent,
    /// It waits. The text says for what, if the engine says it.
    Waiting(String),
    /// Its worker runs.
    Running,
    /// Its worker has ended, or could not be started. The text says why, if the engine says it.
    Ended(String),
}

/// Why an engine did not do what was asked.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum EngineError {
    /// The engine does not answer, or failed: the same request can succeed later.
    #[error("{engine} does not answer: {reason}")]
    Unavailable {
        /// The engine.
        engine: &'static str,
        /// What happened.
        reason: String,
    },
    /// The engine refuses the request, which needs a change of its configuration or of the server's.
    #[error("{engine} refuses it: {reason}")]
    Refused {
        /// The engine.
        engine: &'static str,
        /// What the engine said, and how to fix it.
        reason: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_job_is_named_after_the_job_and_the_attempt() {
        let request = EngineRequest { job: "digits-7".into(), attempt: 2, project: "digits".into(), hosts: 1 };
        assert_eq!(request.engine_job(), "saggar-digits-7-2");
    }
}
