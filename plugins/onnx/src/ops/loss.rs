//! Losses.

use super::{Outcome, one};
use crate::backend::Reduction;
use crate::call::Call;
use crate::elem::Elem;
use crate::error::{Error, Result};
use crate::graph::{Built, Graph};
use crate::value::Value;

/// NegativeLogLikelihoodLoss of log-probabilities `[n, c, d..]` and labels `[n, d..]`.
pub(super) fn negative_log_likelihood(g: &mut Graph, call: &Call) -> Outcome {
    one(likelihood(g, call, call.input(0)?))
}

/// SoftmaxCrossEntropyLoss of logits; the log-probabilities are a second result.
pub(super) fn softmax_cross_entropy(g: &mut Graph, call: &Call) -> Outcome {
    let logs = super::activation::log_softmax(g, call.input(0)?, 1)?;
    Ok(vec![likelihood(g, call, &logs)?, logs])
}

fn likelihood(g: &mut Graph, call: &Call, logs: &Value) -> Built {
    let labels = g.cast(call.input(1)?, Elem::Int64)?;
    let classes = logs.dim(1)?;
    let ignored = call.maybe_int("ignore_index");
    // A label that is ignored may be no class at all; it picks the first class, with weight 0.
    let (labels, kept) = match ignored {
        Some(ignored) => {
            let hit = g.equal(&labels, &g.like(&labels, ignored as f64))?;
            (g.select(&hit, &g.like(&labels, 0.0), &labels)?, Some(g.not(&hit)?))
        }
        None => (labels, None),
    };
    let apart = g.unsqueeze(&labels, 1)?;
    let mut shape = vec![1; logs.rank()];
    shape[1] = classes;
    let places = g.iota(Elem::Int64, &[classes], 0)?;
    let places = g.reshape(&places, &shape)?;
    let hit = g.equal(&apart, &places)?;
    let zero = g.like(logs, 0.0);
    let chosen = picked(g, &hit, logs, &zero)?;
    let mut weights = match call.optional(2) {
        Some(weight) => {
            let weight = g.reshape(weight, &shape)?;
            let weight = g.expand(&weight, logs.shape())?;
            Some(picked(g, &hit, &weight, &zero)?)
        }
        None => None,
    };
    if let Some(kept) = kept {
        let kept = g.cast(&kept, logs.elem())?;
        weights = Some(match weights {
            Some(weights) => g.mul(&weights, &kept)?,
            None => kept,
        });
    }
    let loss = g.neg(&chosen)?;
    let loss = match &weights {
        Some(weights) => g.mul(&loss, weights)?,
        None => loss,
    };
    let axes: Vec<usize> = (0..loss.rank()).collect();
    let total = |g: &mut Graph, x: &Value| -> Result<Value> {
        let sum = g.reduce(Reduction::Sum, x, &axes)?;
        g.reshape(&sum, &[])
    };
    match &*call.string("reduction", "mean") {
        "none" => Ok(loss),
        "sum" => total(g, &loss),
        "mean" => {
            let sum = total(g, &loss)?;
            let weight = match &weights {
                Some(weights) => total(g, weights)?,
                None => g.like(&sum, loss.len() as f64),
            };
            g.div(&sum, &weight)
        }
        other => Err(Error::invalid(format!("`reduction` is `{other}`"))),
    }
}

/// Of each place along axis 1 the one that is hit; the axis goes.
fn picked(g: &mut Graph, hit: &Value, x: &Value, zero: &Value) -> Built {
    let only = g.select(hit, x, zero)?;
    let sum = g.reduce(Reduction::Sum, &only, &[1])?;
    g.squeeze(&sum, &[1])
}
