//! Datasets mounted into a job.

use crate::bindings::datasets as raw;
use crate::bindings::tensors::Descriptor;
use crate::error::{Error, Result};
use crate::graph::Executable;
use crate::tensor::{NamedTensor, Tensor};

/// One column of a dataset: a tensor for every item.
#[derive(Debug, Clone)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Data type and shape of one item.
    pub item: Descriptor,
    /// Names of the classes where the field is a class number, else empty.
    pub classes: Vec<String>,
}

/// How items are drawn.
#[derive(Debug, Clone)]
pub struct BatchOptions {
    /// Items in a batch.
    pub size: u32,
    /// What the order of every epoch follows from; none keeps the stored order.
    pub shuffle_seed: Option<u64>,
    /// Whether an epoch ends before a last, smaller batch.
    pub drop_last: bool,
    /// A named part of the dataset, or all of it.
    pub split: Option<String>,
}

/// A dataset, read-only.
#[derive(Debug)]
pub struct Dataset(raw::Dataset);

impl Dataset {
    /// The dataset mounted at `mount`: `/data`.
    ///
    /// # Errors
    /// `Host` if nothing is mounted there.
    pub fn open(mount: &str) -> Result<Self> {
        Ok(Self(raw::Dataset::open(mount)?))
    }

    /// Its columns.
    pub fn fields(&self) -> Vec<Field> {
        let fields = self.0.fields().into_iter();
        fields.map(|field| Field { name: field.name, item: field.item, classes: field.classes }).collect()
    }

    /// The column of that name.
    ///
    /// # Errors
    /// `NoSuch` with the names there are.
    pub fn field(&self, name: &str) -> Result<Field> {
        let mut fields = self.fields();
        match fields.iter().position(|field| field.name == name) {
            Some(i) => Ok(fields.swap_remove(i)),
            None => Err(Error::NoSuch {
                what: "field",
                name: name.to_owned(),
                known: fields.into_iter().map(|field| field.name).collect(),
            }),
        }
    }

    /// Names of its parts.
    pub fn splits(&self) -> Vec<String> {
        self.0.splits()
    }

    /// Items in a part, or in all.
    ///
    /// # Errors
    /// `Host` if there is no such part.
    pub fn count(&self, split: Option<&str>) -> Result<u64> {
        Ok(self.0.len(split)?)
    }

    /// Batches of these fields.
    ///
    /// # Errors
    /// `Host` if there is no such field or part.
    pub fn batches(&self, fields: &[String], options: &BatchOptions) -> Result<Batches> {
        let options = raw::BatchOptions {
            size: options.size,
            shuffle_seed: options.shuffle_seed,
            drop_last: options.drop_last,
            split: options.split.clone(),
        };
        Ok(Batches(self.0.batches(fields, &options)?))
    }
}

/// Passes over a dataset, epoch after epoch. Its position is part of a checkpoint.
#[derive(Debug)]
pub struct Batches(raw::Batches);

impl Batches {
    /// The next batch; none at the end of an epoch, after which the next one begins.
    ///
    /// # Errors
    /// `Host` if the data cannot be read.
    pub fn next_batch(&self) -> Result<Option<Vec<NamedTensor>>> {
        Ok(self.0.next()?.map(|batch| batch.into_iter().map(Into::into).collect()))
    }

    /// Up to `steps` dispatches of `graph`, each fed with the next full batch by name, without a call of the guest in
    /// between. Returns the dispatches made and the mean of each output over them. Fewer are made only where the
    /// epoch's full batches ran out.
    ///
    /// # Errors
    /// `Host` if the graph's inputs are not the fields, or the device fails.
    pub fn run(&self, graph: &Executable, steps: u32) -> Result<(u32, Vec<(String, Tensor)>)> {
        let result = self.0.run(graph.raw(), steps)?;
        let outputs = result.outputs.into_iter().map(|output| (output.name, Tensor(output.tensor)));
        Ok((result.steps, outputs.collect()))
    }

    /// Full batches in an epoch.
    pub fn full_batches(&self) -> u64 {
        self.0.full_batches()
    }

    /// The epoch (from 0) and the item in it that comes next.
    pub fn position(&self) -> (u64, u64) {
        self.0.position()
    }

    pub(crate) fn raw(&self) -> &raw::Batches {
        &self.0
    }
}
