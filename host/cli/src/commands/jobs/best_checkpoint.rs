//! The best and the newest checkpoint of a job, in one line of its summary.

use saggar_rest::checkpoints::{CheckpointDocument, CheckpointListDocument};
use saggar_rest::jobs::BestMetricSummary;

use crate::client::ApiClient;
use crate::commands::job_follow::job_path;
use crate::exit::CliError;

/// Returns `step 200, epoch 2 (validation/loss 0.0667), newest step 900, epoch 9`, or an empty text if the job keeps no
/// best checkpoint (`criterion` is `None`) or has none yet.
///
/// # Errors
/// Returns the errors of the request.
pub(super) fn best_checkpoint_summary(
    job: &str,
    criterion: Option<BestMetricSummary>,
    client: &ApiClient,
) -> Result<String, CliError> {
    let Some(BestMetricSummary { metric }) = criterion else { return Ok(String::new()) };
    let listed: CheckpointListDocument = client.get(&format!("{}/checkpoints", job_path(job)))?;
    Ok(summarize(&listed.checkpoints, &metric).unwrap_or_default())
}

/// Summarizes checkpoints, which are sorted newest first.
fn summarize(listed: &[CheckpointDocument], metric: &str) -> Option<String> {
    let place = |of: &CheckpointDocument| {
        let epoch = of.epoch.map_or_else(String::new, |epoch| format!(", epoch {epoch}"));
        format!("step {}{epoch}", of.step)
    };
    let best = listed.iter().find(|it| it.best == Some(true))?;
    let value = (*best.metrics.as_ref()?.get(metric)?)?;
    Some(format!("{} ({metric} {value:.4}), newest {}", place(best), place(listed.first()?)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn the_best_and_newest_checkpoints_are_summarized_by_step_and_epoch() {
        let checkpoint = |step, epoch, best, loss| CheckpointDocument {
            step,
            epoch,
            best: Some(best),
            metrics: Some(BTreeMap::from([("loss".to_owned(), Some(loss))])),
            ..CheckpointDocument::default()
        };
        let listed = |epoch| [checkpoint(900, Some(9), false, 0.117), checkpoint(200, epoch, true, 0.0666)];
        let expected = "step 200, epoch 2 (loss 0.0666), newest step 900, epoch 9";
        assert_eq!(summarize(&listed(Some(2)), "loss").as_deref(), Some(expected));
        let expected = "step 200 (loss 0.0666), newest step 900, epoch 9";
        assert_eq!(summarize(&listed(None), "loss").as_deref(), Some(expected));
        assert_eq!(summarize(&[], "loss"), None);
    }
}
