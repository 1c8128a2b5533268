//! Validation: exact means over the held-out items.

use super::weighted_means::WeightedMeans;
use super::{Feed, Fit, STEPS_PER_BOUNDARY, read_scalars};
use crate::dataset::Batches;
use crate::error::Result;
use crate::graph::Executable;

/// The held-out splits of all feeds.
pub(super) struct HeldOutValidation<'a>(Vec<HeldOutSplit<'a>>);

impl<'a> HeldOutValidation<'a> {
    /// Builds the evaluation graphs. Returns `None` if no feed has a held-out split.
    pub(super) fn new(fit: &Fit<'_>, feeds: &'a [Feed<'a>]) -> Result<Option<Self>> {
        let parts = feeds.iter().filter_map(|feed| Some((feed, feed.held_out.as_ref()?)));
        let parts: Vec<_> = parts.map(|(feed, split)| HeldOutSplit::new(fit, feed, split)).collect::<Result<_>>()?;
        Ok(if parts.is_empty() { None } else { Some(Self(parts)) })
    }

    /// Returns the mean of every output over all items, each item counted once. Calls `boundary` every few steps.
    pub(super) fn run(&self, boundary: impl Fn() -> Result<()>) -> Result<Vec<(String, f64)>> {
        let mut means = WeightedMeans::default();
        for part in &self.0 {
            part.run(&mut means, &boundary)?;
        }
        Ok(means.finish())
    }
}

/// The held-out split of a feed, and the graphs that evaluate it.
struct HeldOutSplit<'a> {
    feed: &'a Feed<'a>,
    split: &'a String,
    /// The graph for full batches; `None` if the split is smaller than a batch.
    full: Option<Executable>,
    /// The graph for the last, smaller batch, and its size; `None` if all batches are full.
    last: Option<(u32, Executable)>,
}

impl<'a> HeldOutSplit<'a> {
    fn new(fit: &Fit<'_>, feed: &'a Feed<'a>, split: &'a String) -> Result<Self> {
        let items = feed.dataset.count(Some(split))?;
        let batch = u64::from(feed.batch);
        let full = if items >= batch { Some(fit.evaluation_graph(feed, feed.batch)?) } else { None };
        let last = match (items % batch) as u32 {
            0 => None,
            size => Some((size, fit.evaluation_graph(feed, size)?)),
        };
        Ok(Self { feed, split, full, last })
    }

    fn run(&self, means: &mut WeightedMeans, boundary: impl Fn() -> Result<()>) -> Result<()> {
        let batches = self.feed.batches(Some(self.split), None)?;
        if let Some(full) = &self.full {
            let mut left = batches.full_batches();
            while left > 0 {
                let wanted = left.min(STEPS_PER_BOUNDARY);
                let (done, outputs) = batches.run(full, wanted as u32)?;
                means.add(u64::from(done) * u64::from(self.feed.batch), read_scalars(outputs)?);
                left -= wanted;
                boundary()?;
            }
        }
        self.add_last(&batches, means)
    }

    fn add_last(&self, batches: &Batches, means: &mut WeightedMeans) -> Result<()> {
        let Some((size, last)) = &self.last else { return Ok(()) };
        let Some(batch) = batches.next_batch()? else { return Ok(()) };
        let outputs = last.dispatch(batch.iter().map(|field| (field.name.as_str(), &field.tensor)))?;
        let outputs = outputs.into_iter().map(|output| (output.name, output.tensor)).collect();
        means.add(u64::from(*size), read_scalars(outputs)?);
        Ok(())
    }
}
