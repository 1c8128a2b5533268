//! `saggar compare --png`: one series of several jobs as lines of a chart.

use std::collections::BTreeMap;

use saggar_charts::{LINES_MAX, SeriesLine};
use serde_json::Value;

use super::{ComparedFields, differing_fields, format_value, series_choice};
use crate::args::CompareArgs;
use crate::client::ApiClient;
use crate::commands::jobs::job_series::JobMetrics;
use crate::exit::CliError;
use crate::output::CliOutput;

/// Parameters that differ and are named beside a job.
const NAMED_PARAMETERS: usize = 2;

/// Draws the chart into the files that the arguments name.
pub(super) fn write(
    args: &CompareArgs,
    jobs: &[ComparedFields],
    client: &ApiClient,
    output: CliOutput,
) -> Result<(), CliError> {
    let metric = choose_metric(args.metric.as_deref(), jobs)?;
    let fields: Vec<BTreeMap<String, Value>> = jobs.iter().map(|(_, fields)| fields.clone()).collect();
    let differing = differing_fields(&fields);
    let line = |(index, (job, fields)): (usize, &ComparedFields)| -> Result<SeriesLine, CliError> {
        let name = format!("{}{}", job.name, named_parameters(fields, &differing));
        // Only counted in the legend.
        if index >= LINES_MAX {
            return Ok(SeriesLine { name, points: Vec::new() });
        }
        let mut measured = JobMetrics::fetch(&job.name, std::slice::from_ref(&metric), 0, client)?;
        Ok(SeriesLine { name, points: measured.take_points(&metric) })
    };
    let lines = jobs.iter().enumerate().map(line).collect::<Result<Vec<_>, _>>()?;
    if lines.len() > LINES_MAX {
        output.print_note(&format!(
            "{} of {} jobs are drawn; choose others with --filter and --sort",
            LINES_MAX,
            lines.len()
        ));
    }
    let title = match &args.experiment {
        Some(experiment) => format!("{metric} of the experiment {experiment}"),
        None => format!("{metric} of {} jobs", jobs.len()),
    };
    series_choice::write_series(args, &title, (&metric, lines), output)
}

fn choose_metric(named: Option<&str>, jobs: &[ComparedFields]) -> Result<String, CliError> {
    let known = jobs.iter().flat_map(|(job, _)| job.metrics.keys().cloned()).collect();
    series_choice::choose_series(named, known, ("job", "saggar ps -a"))
}

/// Returns the parameters by which a job differs from others: ` lr=0.1 batch=64`.
fn named_parameters(fields: &BTreeMap<String, Value>, differing: &[String]) -> String {
    let parameters = differing.iter().filter_map(|name| Some((name, name.strip_prefix("parameters.")?)));
    let named = parameters.take(NAMED_PARAMETERS);
    named.map(|(field, name)| format!(" {name}={}", format_value(fields.get(field)))).collect()
}

#[cfg(test)]
mod tests {
    use saggar_rest::jobs::JobDocument;
    use serde_json::json;

    use super::*;

    fn job(metrics: &[&str]) -> ComparedFields {
        let metrics = metrics.iter().map(|name| ((*name).to_owned(), Some(0.5))).collect();
        (JobDocument { metrics, ..JobDocument::default() }, BTreeMap::new())
    }

    #[test]
    fn the_loss_is_drawn_unless_another_series_is_named() {
        let jobs = [job(&["accuracy", "validation/loss"]), job(&["loss"])];
        assert_eq!(choose_metric(None, &jobs).unwrap(), "loss");
        assert_eq!(choose_metric(Some("accuracy"), &jobs).unwrap(), "accuracy");
        assert_eq!(choose_metric(None, &jobs[..1]).unwrap(), "accuracy");
        let error = choose_metric(Some("bleu"), &jobs).unwrap_err();
        assert_eq!(error.message, "--metric bleu: no compared job has this series");
        assert_eq!(error.hint.as_deref(), Some("there are: accuracy, loss, validation/loss"));
        assert!(choose_metric(None, &[job(&[])]).is_err());
    }

    #[test]
    fn differing_parameters_are_named_beside_a_job() {
        let fields = BTreeMap::from([
            ("parameters.lr".to_owned(), json!(0.1)),
            ("parameters.kind".to_owned(), json!("a")),
            ("parameters.seed".to_owned(), json!(1)),
        ]);
        let differing = ["message", "parameters.kind", "parameters.lr", "parameters.seed"].map(str::to_owned);
        assert_eq!(named_parameters(&fields, &differing), " kind=a lr=0.1");
        assert_eq!(named_parameters(&fields, &[]), "");
    }
}
