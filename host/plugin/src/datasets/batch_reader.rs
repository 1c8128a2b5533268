//! Reads batches outside a training, by the code that trainings use, so that reading alone can be measured.

use std::sync::Arc;

use saggar_device::{Backend, CancelToken, DeviceBuffer, Meter};
use saggar_store::dataset::ColumnarDataset;

use super::batch_iterator::BatchIterator;
use super::device_dataset::batch_descriptor;
use crate::error::PluginError;
use crate::host_error::HostError;

/// Which batches are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchReadOptions {
    /// The split, or `None` for the whole dataset.
    pub split: Option<String>,
    /// The fields in the order in which they are read; all fields if empty.
    pub fields: Vec<String>,
    /// Items in a batch, at least 1.
    pub size: u32,
    /// The seed of the shuffle of each epoch, or `None` for the stored order.
    pub shuffle_seed: Option<u64>,
}

/// A reader of batches: draws items as a training's batches do, reads them from the mapped columns and copies them to
/// the device.
#[derive(Debug)]
pub struct BatchReader {
    batches: BatchIterator,
    device: Arc<dyn Backend>,
    meter: Meter,
    /// The tensors of a full batch, one for each field. They are allocated for the first batch.
    inputs: Option<Vec<DeviceBuffer>>,
}

impl BatchReader {
    /// Returns a reader that stands at the beginning of the first epoch.
    ///
    /// # Errors
    /// Fails as a training would if the dataset lacks a field or the split, or a batch has no valid size.
    pub fn new(
        dataset: Arc<ColumnarDataset>,
        options: &BatchReadOptions,
        device: Arc<dyn Backend>,
    ) -> Result<BatchReader, PluginError> {
        let batches = BatchReader::batches(dataset, options).map_err(to_plugin_error)?;
        Ok(BatchReader { batches, device, meter: Meter::unlimited(), inputs: None })
    }

    fn batches(dataset: Arc<ColumnarDataset>, options: &BatchReadOptions) -> Result<BatchIterator, HostError> {
        let fields = match options.fields.is_empty() {
            true => dataset.fields().to_vec(),
            false => {
                options.fields.iter().map(|name| Ok(dataset.field(name)?.clone())).collect::<Result<_, HostError>>()?
            }
        };
        let range = dataset.items(options.split.as_deref())?;
        BatchIterator::new(dataset, fields, range, (options.size, false), options.shuffle_seed)
    }

    /// Returns the bytes of one item over all fields that are read.
    pub fn item_bytes(&self) -> usize {
        self.batches.fields.iter().map(|field| field.item.bytes()).sum()
    }

    /// Reads the next batch to the device and returns its number of items, or `None` at the end of an epoch, after
    /// which the next epoch begins.
    ///
    /// # Errors
    /// The errors of the dataset and of the device.
    pub fn read_batch(&mut self) -> Result<Option<usize>, PluginError> {
        let Some(items) = self.batches.next_items() else { return Ok(None) };
        self.copy_items(&items).map_err(to_plugin_error)?;
        Ok(Some(items.len()))
    }

    fn copy_items(&mut self, items: &[u64]) -> Result<(), HostError> {
        let is_full = items.len() == self.batches.size as usize;
        if is_full && let Some(inputs) = &self.inputs {
            return self.batches.write_items(items, inputs, &*self.device, &CancelToken::default());
        }
        let allocate = |field| Ok(self.device.allocate(&batch_descriptor(field, items.len())?, &self.meter)?);
        let inputs = self.batches.fields.iter().map(allocate).collect::<Result<Vec<_>, HostError>>()?;
        self.batches.write_items(items, &inputs, &*self.device, &CancelToken::default())?;
        if is_full {
            self.inputs = Some(inputs);
        }
        Ok(())
    }
}

fn to_plugin_error(error: HostError) -> PluginError {
    match error {
        HostError::Answer(answer) => PluginError::job(match answer.place {
            Some(place) => format!("{place}: {}", answer.message),
            None => answer.message,
        }),
        HostError::Device(error) => error.into(),
        HostError::Job(error) => error,
        HostError::HandlesFull | HostError::Trap(_) => PluginError::job("reading a batch failed in the host"),
    }
}
