//! Exact means over the part of a dataset that is held out.

use super::run::{STEPS_PER_BOUNDARY, read_scalars};
use super::{Feed, Fit};
use crate::dataset::Batches;
use crate::error::Result;
use crate::graph::Executable;

/// The held-out part, and graphs that evaluate it.
pub(super) struct Validation<'a> {
    feed: &'a Feed<'a>,
    split: &'a String,
    /// None where the part is smaller than a batch.
    full: Option<Executable>,
    /// For the last, smaller batch.
    last: Option<(u32, Executable)>,
}

impl<'a> Validation<'a> {
    pub(super) fn new(fit: &Fit<'_>, feed: &'a Feed<'a>, split: &'a String) -> Result<Self> {
        let items = feed.dataset.count(Some(split))?;
        let batch = u64::from(feed.batch);
        let full = if items >= batch { Some(fit.evaluation_graph(feed, feed.batch)?) } else { None };
        let last = match (items % batch) as u32 {
            0 => None,
            size => Some((size, fit.evaluation_graph(feed, size)?)),
        };
        Ok(Self { feed, split, full, last })
    }

    /// The mean of every output over all items, each item counted once. `boundary` is called now and then.
    pub(super) fn run(&self, boundary: impl Fn() -> Result<()>) -> Result<Vec<(String, f64)>> {
        let batches = self.feed.batches(Some(self.split), None)?;
        let mut means = Means::default();
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
        self.add_last(&batches, &mut means)?;
        Ok(means.finish())
    }

    fn add_last(&self, batches: &Batches, means: &mut Means) -> Result<()> {
        let Some((size, last)) = &self.last else { return Ok(()) };
        let Some(batch) = batches.next_batch()? else { return Ok(()) };
        let outputs = last.dispatch(batch.iter().map(|field| (field.name.as_str(), &field.tensor)))?;
        let outputs = outputs.into_iter().map(|output| (output.name, output.tensor)).collect();
        means.add(u64::from(*size), read_scalars(outputs)?);
        Ok(())
    }
}

/// Means weighted by items.
#[derive(Default)]
struct Means {
    items: u64,
    sums: Vec<(String, f64)>,
}

impl Means {
    fn add(&mut self, items: u64, means: Vec<(String, f64)>) {
        self.items += items;
        for (name, mean) in means {
            let sum = mean * items as f64;
            match self.sums.iter_mut().find(|(other, _)| *other == name) {
                Some((_, total)) => *total += sum,
                None => self.sums.push((name, sum)),
            }
        }
    }

    fn finish(self) -> Vec<(String, f64)> {
        let items = self.items as f64;
        self.sums.into_iter().map(|(name, sum)| (name, sum / items)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_counts_once() {
        let mut means = Means::default();
        means.add(64, vec![("loss".to_owned(), 1.0)]);
        means.add(16, vec![("loss".to_owned(), 6.0)]);
        assert_eq!(means.finish(), [("loss".to_owned(), 2.0)]);
    }
}
