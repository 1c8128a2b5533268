//! `/api/v1/schedules`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The schedules, which submit jobs at the times of a cron expression.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Schedules")]
pub struct ScheduleListDocument {
    /// The schedules.
    pub schedules: Vec<ScheduleDocument>,
}

/// A schedule.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Schedule")]
pub struct ScheduleDocument {
    /// Its name.
    pub name: String,
    /// Five fields of cron, in UTC.
    pub cron: String,
    /// The specification of its jobs.
    pub spec: Value,
    /// The key that it was set with.
    pub owner: Option<String>,
    /// When it was set, in Unix milliseconds.
    pub created_ms: u64,
    /// When it is due next, in Unix milliseconds.
    pub next_ms: Option<u64>,
    /// The name of the last job that it submitted.
    pub last_job: Option<String>,
}

/// Creates or replaces a schedule. `Spec` is the type of a job's specification.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "NewSchedule")]
pub struct SetScheduleRequest<Spec> {
    /// Its name.
    pub name: String,
    /// Five fields of cron, in UTC.
    pub cron: String,
    /// The specification of its jobs.
    pub spec: Spec,
}

/// The name of the schedule that was removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "RemovedSchedule")]
pub struct RemovedScheduleDocument {
    /// The name.
    pub name: String,
}
