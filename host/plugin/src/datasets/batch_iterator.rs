//! Datasets as a plugin holds them, and iterators over their batches.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use saggar_device::meter::MeterCharge;
use saggar_device::{Backend, CancelToken, DeviceBuffer};
use saggar_store::ImageInputs;
use saggar_store::checkpoint::DatasetPosition;
use saggar_store::dataset::{ColumnarDataset, DatasetField};

use super::device_dataset::DeviceDataset;
use super::image_field::ImageField;
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
    /// The fields as the training gets them.
    pub(super) fields: Arc<[DatasetField]>,
    /// For each field, its preprocessing, or `None` if the training gets what is stored.
    image_fields: Arc<[Option<ImageField>]>,
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
            image_fields: vec![None; fields.len()].into(),
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

    /// Returns the batches with the images of these fields preprocessed.
    ///
    /// # Errors
    /// Invalid argument if such a field does not store images.
    pub(super) fn with_image_inputs(mut self, inputs: &ImageInputs) -> Result<BatchIterator, HostError> {
        let image_field = |field: &DatasetField| {
            inputs.get(&field.name).map(|preprocessing| ImageField::new(preprocessing, field)).transpose()
        };
        self.image_fields = self.fields.iter().map(image_field).collect::<Result<_, HostError>>()?;
        let delivered = |(field, image): (&DatasetField, &Option<ImageField>)| {
            image.as_ref().map_or_else(|| field.clone(), |image| image.delivered(field))
        };
        self.fields = self.fields.iter().zip(&*self.image_fields).map(delivered).collect();
        Ok(self)
    }

    /// Returns one tensor of these items of the field at `place`: `[items, item...]`, as the training gets it.
    ///
    /// # Errors
    /// The errors of the dataset.
    pub(super) fn read_field(&self, place: usize, items: &[u64]) -> Result<Cow<'_, [u8]>, HostError> {
        let stored = self.dataset.view(&self.fields[place].name, items)?;
        Ok(match &self.image_fields[place] {
            Some(image) => Cow::Owned(image.preprocess(&stored)),
            None => stored,
        })
    }

    /// Returns all items of these batches of the field at `place`, in the stored order, as the training gets them.
    ///
    /// # Errors
    /// The errors of the dataset.
    pub(super) fn read_column(&self, place: usize) -> Result<Cow<'_, [u8]>, HostError> {
        let field = self.dataset.field(&self.fields[place].name)?;
        let bytes = field.item.bytes();
        let stored = &self.dataset.column(&field.name)?[self.first as usize * bytes..][..self.items as usize * bytes];
        Ok(match &self.image_fields[place] {
            Some(image) => Cow::Owned(image.preprocess(stored)),
            None => Cow::Borrowed(stored),
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
        for (place, buffer) in inputs.iter().enumerate() {
            let elements = self.read_field(place, items)?;
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
