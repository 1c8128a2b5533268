//! Geometric means over networks of our time divided by PyTorch's.

use super::torch_comparison::{TorchMode, reason_not_judged};
use crate::measurement_context::BenchContext;
use crate::table::{ComparisonRow, PerformanceGoal};
use crate::task::{DECODER, LENET, RESNET50, TRANSFORMER};

/// Returns a row for each of PyTorch's modes that all networks have. The goal applies to the compiled mode with the
/// same arithmetic.
///
/// # Errors
/// Returns an error if a network has no figure.
pub(super) fn measure(stage: &BenchContext, kind: &str, most: f64) -> Result<Vec<ComparisonRow>, String> {
    let ways = [(true, false), (true, true), (false, false), (false, true)];
    let mut rows = Vec::new();
    for (compiled, tf32) in ways {
        let way = TorchMode { compiled, tf32 };
        match geometric_mean(stage, kind, way) {
            Ok(mean) => {
                let row = ComparisonRow::mean_ratio(
                    mean,
                    &format!("PyTorch, {}", way.name()),
                    PerformanceGoal::TimeAtMost(most),
                );
                let row = if compiled && !tf32 { row } else { row.without_goal() };
                rows.push(row.mark_unjudged(reason_not_judged(stage, stage.peer_has_cuda.get())));
            }
            Err(reason) if compiled && !tf32 => rows.push(ComparisonRow::without_figures(&reason)),
            Err(_) => {}
        }
    }
    Ok(rows)
}

fn geometric_mean(stage: &BenchContext, kind: &str, way: TorchMode) -> Result<f64, String> {
    let ratios = stage.ratios.borrow();
    let networks = [&LENET, &RESNET50, &DECODER, &TRANSFORMER];
    let mut logarithms = 0.0;
    for task in networks {
        let name = format!("{kind}-{}, {}", task.name, way.name());
        let found = ratios.iter().find(|(ratio, _)| *ratio == name);
        logarithms += found.ok_or_else(|| format!("the mean needs a figure of {name}"))?.1.ln();
    }
    Ok((logarithms / networks.len() as f64).exp())
}
