//! The confusion matrix of the held-out items.

use super::Feed;
use crate::bindings::tensors::DataType;
use crate::call_site::AtCallSite;
use crate::classes::Classes;
use crate::confusion_matrix::ConfusionMatrix;
use crate::error::Result;
use crate::graph::operand::Operand;
use crate::graph::{Executable, Graph, Inputs};
use crate::tensor::{NamedTensor, named};

/// Builds the logits `[batch, classes]` and labels `[batch]` of a batch.
type LogitsAndLabels<'a> = &'a dyn Fn(&Graph, &Inputs) -> Result<(Operand, Operand)>;

/// Gets the fields of a batch, the class of each item, and the class that was predicted.
type BatchVisitor<'a> = &'a mut dyn FnMut(&[NamedTensor], &[i32], &[i32]) -> Result<()>;

impl ConfusionMatrix {
    /// Classifies every held-out item once. Returns `None` if the feed has no held-out split.
    ///
    /// `answers` builds the logits (`[batch, classes]`, float) and labels (`[batch]`, of an integer type) of a batch.
    /// It is called once for each batch size. If several logits are equal, the first one is the predicted class.
    ///
    /// # Errors
    /// Returns `Label` if a label is not a class index, and `Host` if the host refuses a call.
    #[track_caller]
    pub fn of_held_out(feed: &Feed<'_>, classes: &Classes, answers: LogitsAndLabels<'_>) -> Result<Option<Self>> {
        count_held_out(feed, classes, answers, &mut |_, _, _| Ok(())).at_caller()
    }

    /// Classifies every held-out item once, as [`ConfusionMatrix::of_held_out`] does, and calls `visit` with each batch:
    /// its fields, the class of each item, and the class that was predicted, for example to log wrong predictions.
    ///
    /// # Errors
    /// As [`ConfusionMatrix::of_held_out`], and the errors of `visit`.
    #[track_caller]
    pub fn of_held_out_with(
        feed: &Feed<'_>,
        classes: &Classes,
        answers: LogitsAndLabels<'_>,
        visit: BatchVisitor<'_>,
    ) -> Result<Option<Self>> {
        count_held_out(feed, classes, answers, visit).at_caller()
    }
}

fn count_held_out(
    feed: &Feed<'_>,
    classes: &Classes,
    answers: LogitsAndLabels<'_>,
    visit: BatchVisitor<'_>,
) -> Result<Option<ConfusionMatrix>> {
    let Some(split) = &feed.held_out else { return Ok(None) };
    let items = feed.dataset.count(Some(split))?;
    let batches = feed.batches(Some(split), None)?;
    let mut confusion = ConfusionMatrix::new(classes);
    let mut graph = None;
    let mut left = items;
    while left > 0 {
        let Some(batch) = batches.next_batch()? else { break };
        // The last batch can be smaller, and each graph has a fixed batch size.
        let size = u32::try_from(left).map_or(feed.batch, |left| left.min(feed.batch));
        let built = match graph.take() {
            Some((built, of)) if of == size => built,
            _ => build_graph(feed, size, answers)?,
        };
        let outputs = built.dispatch(batch.iter().map(|field| (field.name.as_str(), &field.tensor)))?;
        let [truth, predicted] = ["truth", "predicted"].map(|name| named(&outputs, name)?.read_i32());
        let (truth, predicted) = (truth?, predicted?);
        for (truth, predicted) in truth.iter().zip(&predicted) {
            confusion.add(*truth, *predicted)?;
        }
        visit(&batch, &truth, &predicted)?;
        graph = Some((built, size));
        left -= u64::from(size);
    }
    Ok(Some(confusion))
}

fn build_graph(feed: &Feed<'_>, size: u32, answers: LogitsAndLabels<'_>) -> Result<Executable> {
    let graph = Graph::new();
    let (logits, labels) = answers(&graph, &feed.inputs(&graph, size)?)?;
    let (truth, predicted) = (labels.cast(DataType::Int32)?, logits.arg_max(1, false)?);
    graph.build([("truth", &truth), ("predicted", &predicted)])
}
