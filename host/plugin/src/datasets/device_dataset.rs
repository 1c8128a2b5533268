//! A dataset whose columns are stored entirely on the device. Batches are gathered there by item index, so a step
//! copies only the indices.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use saggar_device::{Backend, CancelToken, DeviceBuffer, DeviceError, Executable, Meter};
use saggar_store::dataset::DatasetField;
use saggar_tensor::{DType, Descriptor, GraphBuilder, InterruptCheck, Shape, verify};

use crate::host_error::HostError;

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
    /// Uploads columns of items from `range` of the dataset, for batches of `size` items. `read_column` returns the items of
    /// the field at a place.
    ///
    /// # Errors
    /// The device's errors if the columns do not fit; the dataset's errors.
    pub(super) fn new<'a>(
        backend: &dyn Backend,
        meter: &Meter,
        (fields, range): (&[DatasetField], Range<u64>),
        read_column: &dyn Fn(usize) -> Result<Cow<'a, [u8]>, HostError>,
        size: u32,
        cancel: &CancelToken,
    ) -> Result<DeviceDataset, HostError> {
        let items = (range.end - range.start) as usize;
        let columns = fields.iter().enumerate().map(|(place, field)| {
            let whole = batch_descriptor(field, items)?;
            let column = backend.allocate(&whole, meter)?;
            backend.write_cancellable(&column, &read_column(place)?, cancel)?;
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

/// Returns the data type and shape of a field in a batch.
pub(super) fn batch_descriptor(field: &DatasetField, items: usize) -> Result<Descriptor, HostError> {
    let dims = [&[items], field.item.shape.dims()].concat();
    Ok(Descriptor::new(field.item.dtype, Shape::new(dims)?))
}
