//! Checks of losses and their gradients.

use saggar_plugin::losses::{CrossEntropy, binary_cross_entropy_with_logits, mean_squared_error};
use saggar_plugin::{Graph, Result};

use crate::numbers::{assert_close, floats, integers, noise, value, values};

pub(crate) fn check() -> Result<()> {
    for label_smoothing in [0.0, 0.1] {
        for ignore_index in [None, Some(2)] {
            check_cross_entropy(CrossEntropy { label_smoothing, ignore_index })?;
        }
    }
    check_fully_ignored_labels()?;
    check_infinite_logits()?;
    check_regression_losses()
}

/// Checks `[2, 3]` labels of 4 classes: loss, accuracy, and the gradient `(p - target) / count`.
fn check_cross_entropy(it: CrossEntropy) -> Result<()> {
    let (rows, classes) = (6, 4);
    let logits = noise(rows * classes, 1).iter().map(|x| 3.0 * x).collect::<Vec<_>>();
    let labels = [0, 2, 3, 2, 1, 0];
    let counted = |label: i32| Some(label) != it.ignore_index;
    let count = labels.iter().filter(|label| counted(**label)).count() as f64;
    let (mut loss, mut right, mut gradient) = (0.0, 0.0, vec![0.0; rows * classes]);
    for (row, label) in labels.into_iter().enumerate() {
        let logits = &logits[row * classes..][..classes];
        let sum: f64 = logits.iter().map(|x| x.exp()).sum();
        let largest = (0..classes).max_by(|a, b| logits[*a].total_cmp(&logits[*b]));
        right += f64::from(counted(label) && largest == Some(label as usize));
        for class in (0..classes).filter(|_| counted(label)) {
            let here = f64::from(class == label as usize);
            let target = (1.0 - it.label_smoothing) * here + it.label_smoothing / classes as f64;
            let probability = logits[class].exp() / sum;
            loss -= target * probability.ln();
            gradient[row * classes + class] = (probability - target) / count;
        }
    }
    let graph = Graph::new();
    let logits = floats(&graph, &[2, 3, 4], &logits)?.identity()?;
    let labels = integers(&graph, &[2, 3], &labels)?;
    let loss_of_graph = it.loss(&logits, &labels)?;
    let gradients = graph.gradients(&loss_of_graph, &[&logits])?;
    let got = values(&graph, &[&loss_of_graph, &it.accuracy(&logits, &labels)?, &gradients[0]])?;
    assert_close(&format!("{it:?}"), &got[0], &[loss / count], 1e-5);
    assert_close(&format!("accuracy of {it:?}"), &got[1], &[right / count], 1e-6);
    assert_close(&format!("gradient of {it:?}"), &got[2], &gradient, 1e-5);
    Ok(())
}

fn check_fully_ignored_labels() -> Result<()> {
    let graph = Graph::new();
    let (logits, labels) = (floats(&graph, &[2, 2], &[1.0, 2.0, 3.0, 4.0])?, integers(&graph, &[2], &[0, 0])?);
    let it = CrossEntropy::new().ignore_index(0);
    let got = values(&graph, &[&it.loss(&logits, &labels)?, &it.accuracy(&logits, &labels)?])?;
    assert_close("a batch of ignored labels", &got.concat(), &[0.0, 0.0], 0.0);
    Ok(())
}

/// Checks that a class with a logit of minus infinity adds nothing to the loss if it is not the label.
fn check_infinite_logits() -> Result<()> {
    let graph = Graph::new();
    let logits = floats(&graph, &[1, 3], &[0.5, f64::NEG_INFINITY, 0.5])?;
    let loss = CrossEntropy::new().loss(&logits, &integers(&graph, &[1], &[2])?)?;
    assert_close("a class that is ruled out", &value(&loss)?, &[2f64.ln()], 1e-6);
    Ok(())
}

fn check_regression_losses() -> Result<()> {
    let graph = Graph::new();
    let (x, t) = ([0.5, -2.0, 3.0, 100.0], [0.0, 1.0, 0.25, 1.0]);
    let (logits, targets) = (floats(&graph, &[4], &x)?, floats(&graph, &[4], &t)?);
    let got = values(
        &graph,
        &[&mean_squared_error(&logits, &targets)?, &binary_cross_entropy_with_logits(&logits, &targets)?],
    )?;
    let squares: f64 = x.iter().zip(t).map(|(x, t)| (x - t) * (x - t)).sum();
    // ln(1 + e^x) is max(x, 0) + ln(1 + e^-|x|).
    let cross: f64 = x.iter().zip(t).map(|(x, t)| x.max(0.0) + (-x.abs()).exp().ln_1p() - t * x).sum();
    assert_close("mean squared error", &got[0], &[squares / 4.0], 1e-5);
    assert_close("binary cross-entropy", &got[1], &[cross / 4.0], 1e-5);
    Ok(())
}
