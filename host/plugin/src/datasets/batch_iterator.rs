//! Datasets as a plugin holds them, and iterators over their batches.

use std::ops::Range;
use std::sync::Arc;

use saggar_device::meter::MeterCharge;
use saggar_device::{Backend, CancelToken, DeviceBuffer};
use saggar_store::checkpoint::DatasetPosition;
use saggar_store::dataset::{ColumnarDataset, DatasetField};

use super::device_dataset::DeviceDataset;
use crate::host_error::HostError;
use crate::limits::BATCH_ITEMS_MAX;
use crate::shuffle::epoch_permutation;

/// The plugin's handle of a dataset.
#[derive(Clone, Debug)]
#[expect(unreachable_pub, reason = "the generated bindings re-export it")]
pub struct MountedDataset {
    pub(super) dataset: Arc<ColumnarDataset>,
    /// Charge for the memory of a dataset that the plugin created.
    pub(super) charge: Option<Arc<MeterCharge>>,
}

/// An iterator over a dataset's batches, epoch after epoch.
#[derive(Clone, Debug)]
#[expect(unreachable_pub, reason = "the generated bindings re-export it")]
pub struct BatchIterator {
    pub(super) dataset: Arc<ColumnarDataset>,
    /// Charge for the memory of a dataset that the plugin created.
    pub(super) _charge: Option<Arc<MeterCharge>>,
    pub(super) fields: Arc<[DatasetField]>,
    /// Index in the whole dataset of the split's first item.
    pub(super) first: u64,
    pub(super) items: u32,
    pub(super) size: u32,
    seed: Option<u64>,
    drop_last: bool,
    pub(super) epoch: u64,
    /// Number of items of this epoch that were drawn.
    pub(super) item: u32,
    /// The permutation of an epoch, cached during that epoch.
    order: Option<(u64, Arc<[u32]>)>,
    /// The batch size of the device dataset and the dataset, or `None` in its place if batches are copied. `None` until
    /// the first run that decides it.
    pub(super) device_dataset: Option<(u32, Option<Arc<DeviceDataset>>)>,
}

impl BatchIterator {
    /// Returns the batches of `size` items of a range, shuffled if there is a seed. `drop_last` leaves out a last batch
    /// of fewer items.
    ///
    /// # Errors
    /// Invalid argument for the size; unsupported for too many items.
    pub(super) fn new(
        dataset: Arc<ColumnarDataset>,
        fields: Vec<DatasetField>,
        range: Range<u64>,
        (size, drop_last): (u32, bool),
        seed: Option<u64>,
    ) -> Result<BatchIterator, HostError> {
        if !(1..=BATCH_ITEMS_MAX).contains(&size) {
            return Err(HostError::invalid(format!("a batch has 1 to {BATCH_ITEMS_MAX} items, not {size}")));
        }
        let items = u32::try_from(range.end - range.start)
            .map_err(|_| HostError::unsupported(format!("batches are drawn from up to {} items", u32::MAX)))?;
        Ok(BatchIterator {
            dataset,
            _charge: None,
            fields: fields.into(),
            first: range.start,
            items,
            size,
            seed,
            drop_last,
            epoch: 0,
            item: 0,
            order: None,
            device_dataset: None,
        })
    }

    /// Returns how many full batches are left in this epoch.
    pub(super) fn full_batches_left(&self) -> u32 {
        (self.items - self.item) / self.size
    }

    /// Returns the items of the next batch as indices into the whole dataset. Returns `None` at the end of an epoch,
    /// and then starts the next epoch.
    pub(super) fn next_items(&mut self) -> Option<Vec<u64>> {
        let left = self.items - self.item;
        let count = left.min(self.size);
        if count == 0 || (self.drop_last && count < self.size) {
            self.epoch += 1;
            self.item = 0;
            return None;
        }
        let range = self.item..self.item + count;
        self.item += count;
        let first = self.first;
        let Some(seed) = self.seed else { return Some(range.map(|at| first + u64::from(at)).collect()) };
        let order = match &self.order {
            Some((epoch, order)) if *epoch == self.epoch => order,
            _ => &self.order.insert((self.epoch, epoch_permutation(seed, self.epoch, self.items).into())).1,
        };
        Some(order[range.start as usize..range.end as usize].iter().map(|&at| first + u64::from(at)).collect())
    }

    /// Writes these items of the dataset into `inputs`, one tensor of their number for each field.
    ///
    /// # Errors
    /// The errors of the dataset and of the device.
    pub(super) fn write_items(
        &self,
        items: &[u64],
        inputs: &[DeviceBuffer],
        device: &dyn Backend,
        cancel: &CancelToken,
    ) -> Result<(), HostError> {
        for (field, buffer) in self.fields.iter().zip(inputs) {
            let elements = self.dataset.view(&field.name, items)?;
            device.write_cancellable(buffer, &elements, cancel)?;
        }
        Ok(())
    }

    /// Returns the current position, for a checkpoint.
    pub(crate) fn position(&self) -> DatasetPosition {
        DatasetPosition {
            dataset: self.dataset.digest().hex(),
            seed: self.seed,
            batch: u64::from(self.size),
            epoch: self.epoch,
            item: u64::from(self.item),
        }
    }

    /// Continues at the position of a checkpoint.
    ///
    /// # Errors
    /// Invalid argument if the position is of another dataset, shuffle seed or batch size.
    pub(crate) fn restore(&mut self, position: &DatasetPosition) -> Result<(), HostError> {
        let here = self.position();
        let differs = if here.dataset != position.dataset {
            Some("another version of the dataset")
        } else if here.seed != position.seed {
            Some("another seed of the shuffle")
        } else if here.batch != position.batch {
            Some("another batch size")
        } else {
            None
        };
        if let Some(what) = differs {
            return Err(HostError::invalid(format!("the checkpoint was taken with {what}: start a new job")));
        }
        let item = u32::try_from(position.item).ok().filter(|&item| item <= self.items);
        let item = item.ok_or_else(|| HostError::invalid("the checkpoint's position is past the dataset's end"))?;
        (self.epoch, self.item) = (position.epoch, item);
        Ok(())
    }
}
