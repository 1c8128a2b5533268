//! A dataset whose columns are stored entirely on the device. Batches are gathered there by item index, so a step
//! copies only the indices.

use std::ops::Range;
use std::sync::Arc;

use saggar_device::{Backend, CancelToken, DeviceBuffer, DeviceError, Executable, Meter};
use saggar_store::dataset::{ColumnarDataset, DatasetField};
use saggar_tensor::{DType, Descriptor, GraphBuilder, InterruptCheck, Shape, verify};

use super::BatchIterator;
use crate::host_error::HostError;
use crate::instance_state::InstanceState;
use crate::limits::DEVICE_DATASET_BYTES_MAX;

/// A run must draw at least one in this many items. Otherwise uploading whole columns costs more than copying its
/// batches.
const RUN_FRACTION_DIVISOR: u64 = 4;

/// Columns on the device, and programs that gather batches of one size from them.
#[derive(Debug)]
pub(super) struct DeviceDataset {
    /// Index in the dataset of the first item on the device.
    first: u64,
    /// In the order of the fields: the column, and the program that gathers from it.
    columns: Vec<(DeviceBuffer, Arc<dyn Executable>)>,
    /// Indices of a batch's items in the columns.
    item_indices: DeviceBuffer,
}

impl DeviceDataset {
    /// Uploads the items `range` of these fields.
    ///
    /// # Errors
    /// The device's errors if the columns do not fit; the dataset's errors.
    pub(super) fn new(
        backend: &dyn Backend,
        meter: &Meter,
        dataset: &ColumnarDataset,
        (fields, range): (&[DatasetField], Range<u64>),
        size: u32,
        cancel: &CancelToken,
    ) -> Result<DeviceDataset, HostError> {
        let items = (range.end - range.start) as usize;
        let columns = fields.iter().map(|field| {
            let whole = BatchIterator::descriptor(field, items)?;
            let column = backend.allocate(&whole, meter)?;
            let bytes = field.item.bytes();
            let rows = &dataset.column(&field.name)?[range.start as usize * bytes..][..items * bytes];
            backend.write_cancellable(&column, rows, cancel)?;
            let mut g = GraphBuilder::new();
            let all = g.input("column", whole)?;
            let places = g.input("places", index_descriptor(size)?)?;
            let batch = g.gather(all, places, 0)?;
            g.output("batch", batch)?;
            let program =
                backend.compile(&verify(g.finish())?, &InterruptCheck::from_condition(&|| cancel.is_cancelled()))?;
            Ok((column, backend.load_cancellable(Arc::new(program), meter, cancel)?))
        });
        let columns = columns.collect::<Result<_, HostError>>()?;
        Ok(DeviceDataset {
            first: range.start,
            columns,
            item_indices: backend.allocate(&index_descriptor(size)?, meter)?,
        })
    }

    /// Returns the tensors of a batch, one per field, with these items, which are indices into the dataset.
    ///
    /// # Errors
    /// The device's errors.
    pub(super) fn gather_batch(
        &self,
        backend: &dyn Backend,
        items: &[u64],
        cancel: &CancelToken,
    ) -> Result<Vec<DeviceBuffer>, DeviceError> {
        let places: Vec<u8> = items.iter().flat_map(|item| ((item - self.first) as i32).to_le_bytes()).collect();
        // The write is ordered after earlier dispatches, so the buffer can be reused.
        backend.write_cancellable(&self.item_indices, &places, cancel)?;
        let mut batch = Vec::with_capacity(self.columns.len());
        for (column, draw) in &self.columns {
            batch.extend(draw.dispatch_cancellable(&[column.clone(), self.item_indices.clone()], &[], cancel)?);
        }
        Ok(batch)
    }
}

/// Returns the descriptor of `size` item indices.
fn index_descriptor(size: u32) -> Result<Descriptor, HostError> {
    Ok(Descriptor::new(DType::I32, Shape::new([size as usize])?))
}

impl InstanceState {
    /// Returns the device dataset to gather batches of `size` items from, or `None` if batches should be copied. Once
    /// made, the choice holds for all further runs over these batches.
    ///
    /// # Errors
    /// `Lost`; `Cancelled`.
    pub(super) fn device_dataset(
        &self,
        batches: &mut BatchIterator,
        size: u32,
        steps: u32,
    ) -> Result<Option<Arc<DeviceDataset>>, HostError> {
        if let Some((for_size, known)) = &batches.device_dataset
            && *for_size == size
        {
            return Ok(known.clone());
        }
        let few = u64::from(steps) * u64::from(size) * RUN_FRACTION_DIVISOR < u64::from(batches.items);
        if few || !self.backend.has_discrete_memory() {
            return Ok(None);
        }
        let made =
            if self.has_memory_for_columns(batches) { self.upload_device_dataset(batches, size) } else { Ok(None) };
        let resident = match made {
            Ok(resident) => resident,
            Err(HostError::Device(error @ (DeviceError::Lost { .. } | DeviceError::Cancelled))) => {
                return Err(HostError::Device(error));
            }
            Err(fault) => {
                tracing::debug!(?fault, "cannot keep the dataset's columns on the device: batches are copied");
                None
            }
        };
        batches.device_dataset = Some((size, resident.clone()));
        Ok(resident)
    }

    /// Returns whether the device has memory for twice the size of the columns.
    fn has_memory_for_columns(&self, batches: &BatchIterator) -> bool {
        let target = self.backend.target();
        let bytes = batches.fields.iter().map(|field| {
            let whole = BatchIterator::descriptor(field, batches.items as usize).ok()?;
            Some(target.tensor_bytes(&whole))
        });
        let Some(bytes) = bytes.sum::<Option<u64>>() else { return false };
        let what = "the dataset's columns";
        bytes <= DEVICE_DATASET_BYTES_MAX
            && self.backend.check_memory(&what, bytes.saturating_mul(2), &self.meter).is_ok()
    }

    fn upload_device_dataset(
        &self,
        batches: &BatchIterator,
        size: u32,
    ) -> Result<Option<Arc<DeviceDataset>>, HostError> {
        let range = batches.first..batches.first + u64::from(batches.items);
        let what = (&*batches.fields, range);
        let made = DeviceDataset::new(&*self.backend, &self.meter, &batches.dataset, what, size, self.cancel_token());
        made.map(|made| Some(Arc::new(made)))
    }
}
