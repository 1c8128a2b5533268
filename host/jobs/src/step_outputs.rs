//! The values that a step returned. They are recorded as events of the job, one for each output, so that a job and its
//! outputs are removed together.

use std::collections::BTreeMap;

use saggar_plugin::StepValue;
use saggar_project::ParameterType;
use saggar_store::records::{JobEvent, JobRecord, JobState};
use serde_json::Value;

use crate::JobService;
use crate::error::JobError;
use crate::protocol::WorkerEvent;

/// The output of a data step: the version that it made.
pub(crate) const DATASET_OUTPUT: &str = "dataset";

/// The kind of the event that records an output. Its text is `NAME: TYPE = VALUE`.
pub const STEP_OUTPUT_EVENT: &str = "STEP_OUTPUT";

/// An output of a step that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct StepOutput {
    /// The type.
    pub kind: ParameterType,
    /// The value: a number, a text or a boolean; for a dataset and a file the reference that mounts it, such as
    /// `digits/3` or `job:digits-7/output/report`; null if it was redacted.
    pub value: Value,
    /// The size of a file in bytes.
    pub bytes: Option<u64>,
    /// The SHA-256 of a file, as hexadecimal digits.
    pub sha256: Option<String>,
}

impl JobService {
    /// Returns the outputs of a step by name. Empty if the job has not succeeded, or is not a step.
    ///
    /// # Errors
    /// `Records`.
    pub async fn step_outputs(&self, job: &JobRecord) -> Result<BTreeMap<String, StepOutput>, JobError> {
        if job.state != JobState::Succeeded {
            return Ok(BTreeMap::new());
        }
        let events = self.events_of_kinds(&job.id, &[STEP_OUTPUT_EVENT]).await?;
        Ok(read_outputs(&job.name, &events))
    }
}

/// Returns the event of an output of the job named `job`.
pub(crate) fn output_event(job: &str, name: &str, value: &StepValue, file_digest: Option<&str>) -> WorkerEvent {
    let text = match value {
        StepValue::Integer(number) => number.to_string(),
        StepValue::Number(number) => number.to_string(),
        StepValue::Boolean(flag) => flag.to_string(),
        StepValue::Text(text) | StepValue::Model(text) | StepValue::Checkpoint(text) => text.clone(),
        StepValue::Dataset(path) => format!("job:{job}/output/{path}"),
        StepValue::File(bytes) => format!("{} bytes, sha256 {}", bytes.len(), file_digest.unwrap_or_default()),
    };
    WorkerEvent::StepOutput { name: name.to_owned(), kind: value.kind().name().to_owned(), value: text }
}

/// Returns the text of the event that records an output.
pub(crate) fn event_text(name: &str, kind: &str, value: &str) -> String {
    format!("{name}: {kind} = {value}")
}

/// Reads the events of a job, oldest first. An attempt that ran again replaces the outputs of the previous one.
fn read_outputs(job: &str, events: &[JobEvent]) -> BTreeMap<String, StepOutput> {
    events
        .iter()
        .filter(|event| event.kind == STEP_OUTPUT_EVENT)
        .filter_map(|event| read_event(job, &event.text))
        .collect()
}

fn read_event(job: &str, text: &str) -> Option<(String, StepOutput)> {
    let (name, rest) = text.split_once(": ")?;
    let (kind, text) = rest.split_once(" = ")?;
    let kind = ParameterType::from_name(kind)?;
    let plain = |value: Value| StepOutput { kind, value, bytes: None, sha256: None };
    let output = match kind {
        ParameterType::Integer => plain(text.parse::<i64>().map_or(Value::Null, Value::from)),
        ParameterType::Number => plain(text.parse::<f64>().map_or(Value::Null, Value::from)),
        ParameterType::Boolean => plain(text.parse::<bool>().map_or(Value::Null, Value::from)),
        ParameterType::Text | ParameterType::Dataset | ParameterType::Model | ParameterType::Checkpoint => {
            plain(text.into())
        }
        ParameterType::File => {
            let (bytes, digest) = text.split_once(" bytes, sha256 ")?;
            let value = format!("job:{job}/output/{name}").into();
            StepOutput { kind, value, bytes: bytes.parse().ok(), sha256: Some(digest.to_owned()) }
        }
    };
    Some((name.to_owned(), output))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn events(outputs: &[(&str, StepValue)]) -> Vec<JobEvent> {
        let event = |(name, value): &(&str, StepValue)| match output_event("p-1", name, value, Some("ab12")) {
            WorkerEvent::StepOutput { name, kind, value } => JobEvent {
                sequence: 0,
                job: String::new(),
                at_ms: 0,
                kind: STEP_OUTPUT_EVENT.to_owned(),
                text: event_text(&name, &kind, &value),
            },
            other => panic!("{other:?}"),
        };
        outputs.iter().map(event).collect()
    }

    #[test]
    fn outputs_round_trip_through_events() {
        let awkward = "a = b: c\nnumber = 3 \"ä\"";
        let outputs = events(&[
            ("mean", StepValue::Number(0.1 + 0.2)),
            ("count", StepValue::Integer(i64::MIN)),
            ("note", StepValue::Text(awkward.to_owned())),
            ("empty", StepValue::Text(String::new())),
            ("is-good", StepValue::Boolean(true)),
            ("report", StepValue::File(vec![0; 3])),
            ("table", StepValue::Dataset("table/a.csv".to_owned())),
            ("model", StepValue::Model("digits@3".to_owned())),
            ("best", StepValue::Checkpoint("job:a-1/checkpoint@2".to_owned())),
        ]);
        let read = read_outputs("p-1", &outputs);
        let values: BTreeMap<&str, Value> = read.iter().map(|(name, it)| (name.as_str(), it.value.clone())).collect();
        let expected = json!({
            "mean": 0.1 + 0.2,
            "count": i64::MIN,
            "note": awkward,
            "empty": "",
            "is-good": true,
            "report": "job:p-1/output/report",
            "table": "job:p-1/output/table/a.csv",
            "model": "digits@3",
            "best": "job:a-1/checkpoint@2",
        });
        assert_eq!(json!(values), expected);
        assert_eq!((read["report"].bytes, read["report"].sha256.as_deref()), (Some(3), Some("ab12")));
        assert_eq!(read["table"].kind, ParameterType::Dataset);
    }

    #[test]
    fn a_later_attempt_replaces_outputs_and_redacted_ones_are_null() {
        let mut recorded = events(&[("mean", StepValue::Integer(1)), ("mean", StepValue::Integer(2))]);
        assert_eq!(read_outputs("p-1", &recorded)["mean"].value, json!(2));
        recorded[1].text = "mean: integer = [secret]".to_owned();
        assert_eq!(read_outputs("p-1", &recorded)["mean"].value, Value::Null);
        recorded[1].text = "no output at all".to_owned();
        assert_eq!(read_outputs("p-1", &recorded)["mean"].value, json!(1));
    }
}
