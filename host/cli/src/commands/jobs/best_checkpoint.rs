//! The best and the newest checkpoint of a job, in one line of its summary.

use serde_json::Value;

use super::{job_path, text};
use crate::client::ApiClient;
use crate::exit::CliError;

/// Returns `step 200, epoch 2 (validation/loss 0.0667), newest step 900, epoch 9`, or an empty text if the job keeps no
/// best checkpoint or has none yet.
///
/// # Errors
/// Returns the errors of the request.
pub(super) fn best_checkpoint_summary(job: &Value, client: &ApiClient) -> Result<String, CliError> {
    let Some(metric) = job["spec"]["checkpoint_keep_best"]["metric"].as_str() else { return Ok(String::new()) };
    let answer = client.get(&format!("{}/checkpoints", job_path(text(job, "name"))))?;
    Ok(answer["checkpoints"].as_array().and_then(|listed| summarize(listed, metric)).unwrap_or_default())
}

/// Summarizes checkpoints, which are sorted newest first.
fn summarize(listed: &[Value], metric: &str) -> Option<String> {
    let place = |of: &Value| {
        let epoch = of["epoch"].as_u64().map_or_else(String::new, |epoch| format!(", epoch {epoch}"));
        format!("step {}{epoch}", of["step"])
    };
    let best = listed.iter().find(|it| it["best"] == true)?;
    let value = best["metrics"][metric].as_f64()?;
    Some(format!("{} ({metric} {value:.4}), newest {}", place(best), place(listed.first()?)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_best_and_newest_checkpoints_are_summarized_by_step_and_epoch() {
        let listed = |epoch: Value| {
            [
                json!({ "step": 900, "epoch": 9, "best": false, "metrics": { "loss": 0.117 } }),
                json!({ "step": 200, "epoch": epoch, "best": true, "metrics": { "loss": 0.0666 } }),
            ]
        };
        let expected = "step 200, epoch 2 (loss 0.0666), newest step 900, epoch 9";
        assert_eq!(summarize(&listed(json!(2)), "loss").as_deref(), Some(expected));
        let expected = "step 200 (loss 0.0666), newest step 900, epoch 9";
        assert_eq!(summarize(&listed(Value::Null), "loss").as_deref(), Some(expected));
        assert_eq!(summarize(&[], "loss"), None);
    }
}
