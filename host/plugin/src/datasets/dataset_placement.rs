//! The choice whether a dataset's columns are placed on the device or its batches are copied.

use std::sync::Arc;

use saggar_compile::Optimization;
use saggar_device::DeviceError;

use super::batch_iterator::BatchIterator;
use super::device_dataset::{DeviceDataset, batch_descriptor};
use crate::host_error::HostError;
use crate::instance_state::InstanceState;
use crate::limits::DEVICE_DATASET_BYTES_MAX;

/// A run must draw at least one in this many items. Otherwise uploading whole columns costs more than copying its
/// batches.
const RUN_FRACTION_DIVISOR: u64 = 4;

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
        let target = self.backend.target();
        if few || !self.backend.has_discrete_memory() || !target.without.enables(Optimization::DatasetResidency) {
            return Ok(None);
        }
        let uploaded =
            if self.has_memory_for_columns(batches) { self.upload_device_dataset(batches, size) } else { Ok(None) };
        let resident = match uploaded {
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
            let whole = batch_descriptor(field, batches.items as usize).ok()?;
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
        let what = (&*batches.fields, batches.first..batches.first + u64::from(batches.items));
        let read_column = |place: usize| batches.read_column(place);
        let cancel = self.cancel_token();
        let dataset = DeviceDataset::new(&*self.backend, &self.meter, what, &read_column, size, cancel)?;
        Ok(Some(Arc::new(dataset)))
    }
}
