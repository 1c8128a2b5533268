//! Datasets: mounted into a job, or created by a training.

use crate::bindings::datasets as raw;
use crate::bindings::tensors::{DataType, Descriptor};
use crate::call_site::AtCallSite;
use crate::error::{Error, Result};
use crate::graph::Executable;
use crate::tensor::{NamedTensor, Tensor, descriptor, named, unpadded};

/// A column of a dataset: one tensor per item.
#[derive(Debug, Clone)]
pub struct Field {
    /// Name of the column.
    pub name: String,
    /// Data type and shape of one item.
    pub item: Descriptor,
    /// Names of the classes if the field is a class index, else empty.
    pub classes: Vec<String>,
}

/// How items are drawn into batches.
///
/// ```no_run
/// # use saggar_plugin::*;
/// # fn f(job: &Job, data: &Dataset) -> Result<()> {
/// let options =
///     BatchOptions { size: 32, shuffle_seed: Some(job.seed()), drop_last: true, split: Some("train".to_owned()) };
/// let batches = data.batches(&["image".to_owned(), "label".to_owned()], &options)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct BatchOptions {
    /// Items per batch, at least 1.
    pub size: u32,
    /// Seed of the order of items, which differs in every epoch. `None` keeps the stored order.
    pub shuffle_seed: Option<u64>,
    /// Whether an epoch omits a last batch with fewer than `size` items.
    pub drop_last: bool,
    /// Name of a split of the dataset, such as `train`. `None` means the whole dataset.
    pub split: Option<String>,
}

/// A column of a dataset that a training creates.
///
/// ```
/// use saggar_plugin::{Column, DataType, descriptor};
///
/// let tokens = Column::of_i32("tokens", 3, &[1, 2, 3, 4, 5, 6]); // two items, int32[3]
/// assert_eq!(tokens.item.shape, [3]);
///
/// let item = descriptor(DataType::Uint8, [2]);
/// let pairs = Column { name: "pairs".to_owned(), item, data: b"abcd".to_vec() }; // two items, uint8[2]
/// ```
#[derive(Debug, Clone)]
pub struct Column {
    /// Name of the column.
    pub name: String,
    /// Data type and shape of one item.
    pub item: Descriptor,
    /// All items, concatenated: little-endian elements in row-major order.
    pub data: Vec<u8>,
}

impl Column {
    /// Returns a column of `int32` vectors with `width` elements each. `elements` are the items `[items, width]`,
    /// row-major.
    pub fn of_i32(name: &str, width: u32, elements: &[i32]) -> Self {
        let data = elements.iter().flat_map(|element| element.to_le_bytes()).collect();
        Self { name: name.to_owned(), item: descriptor(DataType::Int32, [width]), data }
    }
}

/// Texts that are read per batch.
const TEXTS_PER_READ: u32 = 4096;

/// A dataset, read-only.
///
/// ```no_run
/// # use saggar_plugin::*;
/// # fn f() -> Result<()> {
/// let data = Dataset::open("/data")?;
/// for field in data.fields() {
///     info(&format!("{}: {:?} {:?}", field.name, field.item.data_type, field.item.shape));
/// }
/// info(&format!("{} training items", data.count(Some("train"))?));
///
/// // A dataset that the training creates: two items to train on, one held out.
/// let column = Column::of_i32("tokens", 3, &[1, 2, 3, 4, 5, 6, 7, 8, 9]);
/// let tokens = Dataset::from_columns(vec![column], &[("train".to_owned(), 2), ("validation".to_owned(), 1)])?;
/// let feed = Feed::new(&tokens, &["tokens"], 2)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Dataset(raw::Dataset);

impl Dataset {
    /// Opens the dataset mounted at `mount`, such as `/data`.
    ///
    /// # Errors
    /// Returns `Host` if nothing is mounted there.
    #[track_caller]
    pub fn open(mount: &str) -> Result<Self> {
        raw::Dataset::open(mount).map(Self).at_caller()
    }

    /// Creates a dataset in the host's memory. `parts` are the splits by name and number of items; they follow each
    /// other in order and cover all items. The host feeds this dataset to a training like a mounted one and stores the
    /// position in it with a checkpoint. An attempt that resumes must create it again with the same content.
    ///
    /// # Errors
    /// Returns `Host` if a column's number of items is not the sum of the splits', or the host has too little memory.
    #[track_caller]
    pub fn from_columns(columns: Vec<Column>, parts: &[(String, u64)]) -> Result<Self> {
        let column = |Column { name, item, data }| {
            let field = raw::Field { name, item, classes: Vec::new() };
            raw::Column { field, data }
        };
        let columns: Vec<raw::Column> = columns.into_iter().map(column).collect();
        raw::Dataset::from_columns(&columns, parts).map(Self).at_caller()
    }

    /// Returns the texts of a field `uint8[n]`, padded with zeros, of the split `split` or of the whole dataset.
    ///
    /// # Errors
    /// Returns `NoSuch` if the field does not exist, `Shape` if it is not `uint8[n]`, `Host` if the split does not
    /// exist, and `Text` if an item is not UTF-8.
    #[track_caller]
    pub fn texts(&self, field: &str, split: Option<&str>) -> Result<Vec<String>> {
        let item = self.field(field)?.item;
        let ([width], DataType::Uint8) = (&item.shape[..], item.data_type) else {
            let what = format!("the field `{field}`");
            return Err(Error::Shape { what, expected: "a text field, uint8[n]", given: item.shape }).at_caller();
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

    /// Returns the columns.
    pub fn fields(&self) -> Vec<Field> {
        let fields = self.0.fields().into_iter();
        fields.map(|field| Field { name: field.name, item: field.item, classes: field.classes }).collect()
    }

    /// Returns the column with this name.
    ///
    /// # Errors
    /// Returns `NoSuch`, with the existing names, if there is no such column.
    #[track_caller]
    pub fn field(&self, name: &str) -> Result<Field> {
        let mut fields = self.fields();
        match fields.iter().position(|field| field.name == name) {
            Some(i) => Ok(fields.swap_remove(i)),
            None => Err(Error::NoSuch {
                what: "field",
                name: name.to_owned(),
                known: fields.into_iter().map(|field| field.name).collect(),
            })
            .at_caller(),
        }
    }

    /// Returns the names of the splits.
    pub fn splits(&self) -> Vec<String> {
        self.0.splits()
    }

    /// Returns the number of items in a split, or in the whole dataset if `split` is `None`.
    ///
    /// # Errors
    /// Returns `Host` if the split does not exist.
    #[track_caller]
    pub fn count(&self, split: Option<&str>) -> Result<u64> {
        self.0.len(split).at_caller()
    }

    /// Returns an iterator over batches of these fields. Each tensor is `[size, item...]`.
    ///
    /// # Errors
    /// Returns `Host` if a field or the split does not exist.
    #[track_caller]
    pub fn batches(&self, fields: &[String], options: &BatchOptions) -> Result<Batches> {
        let options = raw::BatchOptions {
            size: options.size,
            shuffle_seed: options.shuffle_seed,
            drop_last: options.drop_last,
            split: options.split.clone(),
        };
        self.0.batches(fields, &options).map(Batches).at_caller()
    }
}

/// An iterator over the batches of a dataset, epoch after epoch. Its position is part of a checkpoint.
#[derive(Debug)]
pub struct Batches(raw::Batches);

impl Batches {
    /// Returns the next batch, or `None` at the end of an epoch. The call after that returns the first batch of the
    /// next epoch.
    ///
    /// # Errors
    /// Returns `Host` if the data cannot be read.
    #[track_caller]
    pub fn next_batch(&self) -> Result<Option<Vec<NamedTensor>>> {
        let batch = self.0.next().at_caller()?;
        Ok(batch.map(|batch| batch.into_iter().map(Into::into).collect()))
    }

    /// Dispatches `graph` up to `steps` times, without a call of the guest in between. Each dispatch gets the next full
    /// batch, with fields matched to inputs by name. Returns the number of dispatches and the mean of each output over
    /// them. There are fewer than `steps` dispatches only if the epoch has no more full batches.
    ///
    /// # Errors
    /// Returns `Host` if the graph's inputs are not the fields, or the device fails.
    #[track_caller]
    pub fn run(&self, graph: &Executable, steps: u32) -> Result<(u32, Vec<(String, Tensor)>)> {
        let result = self.0.run(graph.raw(), steps).at_caller()?;
        let outputs = result.outputs.into_iter().map(|output| (output.name, Tensor(output.tensor)));
        Ok((result.steps, outputs.collect()))
    }

    /// Returns the number of full batches in an epoch.
    pub fn full_batches(&self) -> u64 {
        self.0.full_batches()
    }

    /// Returns the epoch, from 0, and the index in it of the next item.
    pub fn position(&self) -> (u64, u64) {
        self.0.position()
    }

    pub(crate) fn raw(&self) -> &raw::Batches {
        &self.0
    }
}
