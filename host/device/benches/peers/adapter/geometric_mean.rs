//! Geometric means over networks, of our time over PyTorch's.

use super::torch_comparison::{TorchMode, reason_not_judged};
use crate::stage::BenchContext;
use crate::table::{ComparisonRow, PerformanceGoal};
use crate::task::{DECODER, LENET, RESNET50, TRANSFORMER};

/// A row for each of PyTorch's ways that all networks have; the goal is about the compiled one with the same arithmetic.
///
/// # Errors
/// A network has no figure.
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
                // TF32 is there where CUDA is, which the row of the goal must know too.
                let cuda = stage.ratios.borrow().iter().any(|(name, _)| name.ends_with("TF32 on"));
                rows.push(row.mark_unjudged(reason_not_judged(stage, cuda)));
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
        logarithms += found.ok_or_else(|| format!("a mean needs {name}"))?.1.ln();
    }
    Ok((logarithms / networks.len() as f64).exp())
}
