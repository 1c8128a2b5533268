//! The input of a training: batches of a dataset.

use crate::call_site::AtCallSite;
use crate::dataset::{BatchOptions, Batches, Dataset, Field};
use crate::error::{Error, Result};
use crate::graph::{Graph, Inputs};

/// The input of a training: fields of a dataset in batches, and the held-out split.
///
/// ```no_run
/// # use saggar_plugin::*;
/// # fn f(job: &Job, fit: Fit<'_>) -> Result<()> {
/// let data = Dataset::open("/data")?;
/// let feed = Feed::new(&data, &["image", "label"], job.param("batch", 32)?)?;
/// let steps = feed.steps_per_epoch()? * 10;
/// let rate = optimizers::LearningRateSchedule::Cosine { peak: 0.001, warmup: 100, steps };
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Feed<'a> {
    pub(super) dataset: &'a Dataset,
    fields: Vec<Field>,
    pub(super) batch: u32,
    pub(super) training: Option<String>,
    pub(super) held_out: Option<String>,
}

impl<'a> Feed<'a> {
    /// Returns batches of `batch` items with these fields of the split `train`. The split `validation`, or `test` if
    /// there is no `validation`, is held out. If there is no split `train`, the training uses the whole dataset and
    /// nothing is held out. If the split has fewer than `batch` items, a batch is the whole split.
    ///
    /// # Errors
    /// Returns `Parameter` if `batch` is 0, `NoSuch` if a field does not exist, and `NoItems` if there is nothing to
    /// train on.
    #[track_caller]
    pub fn new(dataset: &'a Dataset, fields: &[&str], batch: u32) -> Result<Self> {
        if batch == 0 {
            let (name, expected, given) = ("batch".to_owned(), "an integer of at least 1".to_owned(), "0".to_owned());
            return Err(Error::Parameter { name, expected, given });
        }
        let splits = dataset.splits();
        let named = |name: &str| splits.iter().find(|split| *split == name).cloned();
        let training = named("train");
        let held_out = training.as_ref().and_then(|_| named("validation").or_else(|| named("test")));
        let fields = fields.iter().map(|name| dataset.field(name)).collect::<Result<_>>().at_caller()?;
        let items = dataset.count(training.as_deref())?;
        if items == 0 {
            return Err(Error::NoItems).at_caller();
        }
        let batch = u32::try_from(items).map_or(batch, |items| batch.min(items));
        Ok(Self { dataset, fields, batch, training, held_out })
    }

    /// Returns the number of steps of an epoch: full batches in the split that is trained on.
    ///
    /// # Errors
    /// Returns `Host` if the dataset cannot be read.
    #[track_caller]
    pub fn steps_per_epoch(&self) -> Result<u64> {
        Ok(self.dataset.count(self.training.as_deref())? / u64::from(self.batch))
    }

    #[track_caller]
    pub(super) fn inputs(&self, graph: &Graph, size: u32) -> Result<Inputs> {
        graph.inputs(self.fields.iter().map(|field| (field.name.as_str(), &field.item)), size)
    }

    #[track_caller]
    pub(super) fn batches(&self, split: Option<&String>, shuffle_seed: Option<u64>) -> Result<Batches> {
        let names: Vec<String> = self.fields.iter().map(|field| field.name.clone()).collect();
        let drop_last = shuffle_seed.is_some();
        self.dataset.batches(&names, &BatchOptions { size: self.batch, shuffle_seed, drop_last, split: split.cloned() })
    }
}
