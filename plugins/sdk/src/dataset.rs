//! Datasets mounted into a job, and those that a training makes of them.

use crate::bindings::datasets as raw;
use crate::bindings::tensors::{DataType, Descriptor};
use crate::error::{Error, Result};
use crate::graph::Executable;
use crate::tensor::{NamedTensor, Tensor, descriptor, named, unpadded};

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

/// A column of a dataset that a training makes.
#[derive(Debug, Clone)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Data type and shape of one item.
    pub item: Descriptor,
    /// The items one after the other: little-endian elements in row-major order.
    pub data: Vec<u8>,
}

impl Column {
    /// A column of `int32` vectors of `width` elements. Shape: `[items, width]`, row-major.
    pub fn of_i32(name: &str, width: u32, elements: &[i32]) -> Self {
        let data = elements.iter().flat_map(|element| element.to_le_bytes()).collect();
        Self { name: name.to_owned(), item: descriptor(DataType::Int32, [width]), data }
    }
}

/// Lines of a text that are read at a time.
const TEXTS_PER_READ: u32 = 4096;

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

    /// A dataset in the host's memory, of columns and of parts by name and number of items, which follow each other in
    /// order. The host feeds it to a training like any other and keeps its place in a checkpoint; an attempt that resumes
    /// makes it again, alike.
    ///
    /// # Errors
    /// `Host` if a column has not as many items as the parts together, or the host's memory does not take it.
    pub fn from_columns(columns: Vec<Column>, parts: &[(String, u64)]) -> Result<Self> {
        let column = |Column { name, item, data }| {
            let field = raw::Field { name, item, classes: Vec::new() };
            raw::Column { field, data }
        };
        let columns: Vec<raw::Column> = columns.into_iter().map(column).collect();
        Ok(Self(raw::Dataset::from_columns(&columns, parts)?))
    }

    /// The texts of a field of `uint8[n]`, which have zeros after them, of a part or of all.
    ///
    /// # Errors
    /// `NoSuch` for a field; `Shape` for one that holds something else; `Host` if there is no such part; `Text` for an item
    /// that is no UTF-8.
    pub fn texts(&self, field: &str, split: Option<&str>) -> Result<Vec<String>> {
        let item = self.field(field)?.item;
        let ([width], DataType::Uint8) = (&item.shape[..], item.data_type) else {
            let what = format!("the field `{field}`");
            return Err(Error::Shape { what, expected: "texts, uint8[n]", given: item.shape });
        };
        let options = BatchOptions {
            size: TEXTS_PER_READ,
            shuffle_seed: None,
            drop_last: false,
            split: split.map(str::to_owned),
        };
        let batches = self.batches(&[field.to_owned()], &options)?;
        let mut texts = Vec::new();
        while let Some(batch) = batches.next_batch()? {
            let bytes = named(&batch, field)?.read()?;
            for item in bytes.chunks((*width).max(1) as usize) {
                let text = std::str::from_utf8(unpadded(item));
                let text = text.map_err(|_| Error::Text { field: field.to_owned(), item: texts.len() })?;
                texts.push(text.to_owned());
            }
        }
        Ok(texts)
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
