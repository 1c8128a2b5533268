//! Rules of losses.

use super::{RuleResult, single_result};
use crate::backend::ReductionOperator;
use crate::call::OperatorCall;
use crate::elem::ElementType;
use crate::error::{Error, Result};
use crate::graph::{FoldingGraph, ValueResult};
use crate::value::GraphValue;

/// Builds NegativeLogLikelihoodLoss of log-probabilities `[n, c, d..]` and labels `[n, d..]`.
pub(super) fn negative_log_likelihood(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    single_result(nll_loss(g, call, call.input(0)?))
}

/// Builds SoftmaxCrossEntropyLoss of logits. The log-probabilities are the second result.
pub(super) fn softmax_cross_entropy(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let logs = super::activation::log_softmax(g, call.input(0)?, 1)?;
    Ok(vec![nll_loss(g, call, &logs)?, logs])
}

fn nll_loss(g: &mut FoldingGraph, call: &OperatorCall, logs: &GraphValue) -> ValueResult {
    let labels = g.cast(call.input(1)?, ElementType::Int64)?;
    let classes = logs.dim(1)?;
    let ignored = call.optional_int("ignore_index");
    // An ignored label can be outside the classes. It is replaced by the first class, with weight 0.
    let (labels, not_ignored) = match ignored {
        Some(ignored) => {
            let hit = g.equal(&labels, &g.scalar_like(&labels, ignored as f64))?;
            (g.select(&hit, &g.scalar_like(&labels, 0.0), &labels)?, Some(g.not(&hit)?))
        }
        None => (labels, None),
    };
    let apart = g.unsqueeze(&labels, 1)?;
    let mut shape = vec![1; logs.rank()];
    shape[1] = classes;
    let places = g.iota(ElementType::Int64, &[classes], 0)?;
    let places = g.reshape(&places, &shape)?;
    let hit = g.equal(&apart, &places)?;
    let zero = g.scalar_like(logs, 0.0);
    let chosen = pick_labels(g, &hit, logs, &zero)?;
    let mut weights = match call.optional(2) {
        Some(weight) => {
            let weight = g.reshape(weight, &shape)?;
            let weight = g.expand(&weight, logs.shape())?;
            Some(pick_labels(g, &hit, &weight, &zero)?)
        }
        None => None,
    };
    if let Some(not_ignored) = not_ignored {
        let not_ignored = g.cast(&not_ignored, logs.elem())?;
        weights = Some(match weights {
            Some(weights) => g.mul(&weights, &not_ignored)?,
            None => not_ignored,
        });
    }
    let loss = g.neg(&chosen)?;
    let loss = match &weights {
        Some(weights) => g.mul(&loss, weights)?,
        None => loss,
    };
    let axes: Vec<usize> = (0..loss.rank()).collect();
    let total = |g: &mut FoldingGraph, x: &GraphValue| -> Result<GraphValue> {
        let sum = g.reduce(ReductionOperator::Sum, x, &axes)?;
        g.reshape(&sum, &[])
    };
    match &*call.string("reduction", "mean") {
        "none" => Ok(loss),
        "sum" => total(g, &loss),
        "mean" => {
            let sum = total(g, &loss)?;
            let weight = match &weights {
                Some(weights) => total(g, weights)?,
                None => g.scalar_like(&sum, loss.len() as f64),
            };
            g.div(&sum, &weight)
        }
        other => Err(Error::invalid(format!("`reduction` is `{other}`"))),
    }
}

/// Returns along axis 1 the element where `hit` is true, and removes the axis.
fn pick_labels(g: &mut FoldingGraph, hit: &GraphValue, x: &GraphValue, zero: &GraphValue) -> ValueResult {
    let only = g.select(hit, x, zero)?;
    let sum = g.reduce(ReductionOperator::Sum, &only, &[1])?;
    g.squeeze(&sum, &[1])
}
