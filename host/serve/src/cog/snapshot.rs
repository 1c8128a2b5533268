//! A prediction as a text, for servers that did not compute it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::prediction_status::{CogPredictionOutcome, CogPredictionStatus};
use super::shared_json::SharedJson;

/// What clients see of a prediction, with times as numbers. The owner and the identifier are known to those who read it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct PredictionSnapshot {
    pub(super) model: String,
    pub(super) version: u64,
    pub(super) status: CogPredictionStatus,
    pub(super) input: Option<SharedJson>,
    pub(super) output: Option<SharedJson>,
    pub(super) error: Option<String>,
    pub(super) created_ms: u64,
    pub(super) started_ms: Option<u64>,
    pub(super) completed_ms: Option<u64>,
    /// The nanoseconds that it took.
    pub(super) predict_nanos: Option<u64>,
}

impl PredictionSnapshot {
    pub(super) fn to_text(&self) -> String {
        serde_json::to_string(self).expect("a snapshot has text as keys")
    }

    /// Returns the same prediction with this end.
    pub(super) fn with_end(&self, end: &CogPredictionOutcome, now_ms: u64) -> PredictionSnapshot {
        let ended = PredictionSnapshot { completed_ms: Some(now_ms), ..self.clone() };
        match end {
            CogPredictionOutcome::Succeeded(output, time) => PredictionSnapshot {
                status: CogPredictionStatus::Succeeded,
                output: Some(output.clone()),
                predict_nanos: Some(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)),
                ..ended
            },
            CogPredictionOutcome::Failed(error) => {
                PredictionSnapshot { status: CogPredictionStatus::Failed, error: Some(error.clone()), ..ended }
            }
            CogPredictionOutcome::Canceled => PredictionSnapshot { status: CogPredictionStatus::Canceled, ..ended },
        }
    }

    /// Returns how it ended and when, or `None` if it has not.
    pub(super) fn end(&self) -> Option<(CogPredictionOutcome, u64)> {
        let end = match self.status {
            CogPredictionStatus::Starting | CogPredictionStatus::Processing => return None,
            CogPredictionStatus::Succeeded => {
                let time = Duration::from_nanos(self.predict_nanos.unwrap_or_default());
                CogPredictionOutcome::Succeeded(self.output.clone().unwrap_or_default(), time)
            }
            CogPredictionStatus::Failed => CogPredictionOutcome::Failed(self.error.clone().unwrap_or_default()),
            CogPredictionStatus::Canceled => CogPredictionOutcome::Canceled,
        };
        Some((end, self.completed_ms.unwrap_or(self.created_ms)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_keeps_how_a_prediction_ended() {
        let running = PredictionSnapshot {
            model: "m".to_owned(),
            version: 2,
            status: CogPredictionStatus::Processing,
            input: Some(SharedJson::new("{\"x\": [1.50]}".to_owned()).unwrap()),
            output: None,
            error: None,
            created_ms: 1,
            started_ms: Some(2),
            completed_ms: None,
            predict_nanos: None,
        };
        assert!(running.end().is_none());
        let output = SharedJson::new("{\"y\": 2.0}".to_owned()).unwrap();
        let ended = running.with_end(&CogPredictionOutcome::Succeeded(output, Duration::from_nanos(1_234_567_891)), 9);
        let read: PredictionSnapshot = serde_json::from_str(&ended.to_text()).unwrap();
        assert_eq!(read.to_text(), ended.to_text());
        assert_eq!(read.input.as_ref().unwrap().as_str(), "{\"x\": [1.50]}");
        let Some((CogPredictionOutcome::Succeeded(output, time), 9)) = read.end() else { panic!("{read:?}") };
        assert_eq!((output.as_str(), time), ("{\"y\": 2.0}", Duration::from_nanos(1_234_567_891)));
        let failed = running.with_end(&CogPredictionOutcome::Failed("why".to_owned()), 9);
        assert!(matches!(failed.end(), Some((CogPredictionOutcome::Failed(why), 9)) if why == "why"));
    }
}
