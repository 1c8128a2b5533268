//! Datasets that are mounted into a training or created by it, and iterators over their batches. The host reads the
//! data and uploads it to the device; it never passes through the plugin.

mod device_dataset;
mod run;
mod shards;

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use saggar_device::DeviceBuffer;
use saggar_device::meter::MeterCharge;
use saggar_store::checkpoint::DatasetPosition;
use saggar_store::dataset::{ColumnarDataset, DatasetField};
use saggar_tensor::{Descriptor, Shape};
use wasmtime::component::Resource;

use self::device_dataset::DeviceDataset;
use crate::bindings::datasets::{BatchOptions, Column, Field as WitField, Host, HostBatches, HostDataset, RunResult};
use crate::bindings::tensors::NamedTensor;
use crate::convert;
use crate::graphs::CompiledGraph;
use crate::host_error::HostError;
use crate::instance_state::{InstanceRole, InstanceState};
use crate::limits::BATCH_ITEMS_MAX;
use crate::shuffle::epoch_permutation;

/// The plugin's handle of a dataset.
#[derive(Clone, Debug)]
#[expect(unreachable_pub, reason = "the generated bindings re-export it")]
pub struct MountedDataset {
    dataset: Arc<ColumnarDataset>,
    /// Charge for the memory of a dataset that the plugin created.
    charge: Option<Arc<MeterCharge>>,
}

/// An iterator over a dataset's batches, epoch after epoch.
#[derive(Clone, Debug)]
#[expect(unreachable_pub, reason = "the generated bindings re-export it")]
pub struct BatchIterator {
    dataset: Arc<ColumnarDataset>,
    /// Charge for the memory of a dataset that the plugin created.
    _charge: Option<Arc<MeterCharge>>,
    fields: Arc<[DatasetField]>,
    /// Index in the whole dataset of the split's first item.
    first: u64,
    items: u32,
    size: u32,
    seed: Option<u64>,
    drop_last: bool,
    epoch: u64,
    /// Number of items of this epoch that were drawn.
    item: u32,
    /// The permutation of an epoch, cached during that epoch.
    order: Option<(u64, Arc<[u32]>)>,
    /// The batch size of the device dataset and the dataset, or `None` in its place if batches are copied. `None` until
    /// the first run that decides it.
    device_dataset: Option<(u32, Option<Arc<DeviceDataset>>)>,
}

impl BatchIterator {
    fn new(
        dataset: Arc<ColumnarDataset>,
        fields: Vec<DatasetField>,
        range: Range<u64>,
        options: &BatchOptions,
    ) -> Result<BatchIterator, HostError> {
        if !(1..=BATCH_ITEMS_MAX).contains(&options.size) {
            return Err(HostError::invalid(format!("a batch has 1 to {BATCH_ITEMS_MAX} items, not {}", options.size)));
        }
        let items = u32::try_from(range.end - range.start)
            .map_err(|_| HostError::unsupported(format!("batches are drawn from up to {} items", u32::MAX)))?;
        Ok(BatchIterator {
            dataset,
            _charge: None,
            fields: fields.into(),
            first: range.start,
            items,
            size: options.size,
            seed: options.shuffle_seed,
            drop_last: options.drop_last,
            epoch: 0,
            item: 0,
            order: None,
            device_dataset: None,
        })
    }

    /// Returns how many full batches are left in this epoch.
    fn full_batches_left(&self) -> u32 {
        (self.items - self.item) / self.size
    }

    /// Returns the items of the next batch as indices into the whole dataset. Returns `None` at the end of an epoch,
    /// and then starts the next epoch.
    fn next_items(&mut self) -> Option<Vec<u64>> {
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

    /// Returns the data type and shape of a field in a batch.
    fn descriptor(field: &DatasetField, items: usize) -> Result<Descriptor, HostError> {
        let dims = [&[items], field.item.shape.dims()].concat();
        Ok(Descriptor::new(field.item.dtype, Shape::new(dims)?))
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

impl InstanceState {
    /// Uploads these items, one buffer per field.
    fn upload_batch(&self, batches: &BatchIterator, items: &[u64]) -> Result<Vec<DeviceBuffer>, HostError> {
        let upload = |field: &DatasetField| {
            let bytes = batches.dataset.view(&field.name, items)?;
            self.upload(&BatchIterator::descriptor(field, items.len())?, &bytes)
        };
        batches.fields.iter().map(upload).collect()
    }

    fn record_drawn(&mut self, items: &[u64], time: Duration) {
        if let InstanceRole::Train(train) = &mut self.role {
            train.context.items_drawn(items.len() as u64, time);
        }
    }
}

impl Host for InstanceState {}

impl HostDataset for InstanceState {
    fn open(&mut self, mount: String) -> Result<Resource<MountedDataset>, HostError> {
        let InstanceRole::Train(train) = &self.role else {
            return Err(HostError::unsupported("only a training has datasets, not a predictor or an importer"));
        };
        let Some(dataset) = train.datasets.get(&mount) else {
            let known: Vec<&str> = train.datasets.keys().map(String::as_str).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(HostError::not_found(&mount, format!("nothing is mounted there; the job mounts {known}")));
        };
        let dataset = MountedDataset { dataset: Arc::clone(dataset), charge: None };
        self.push(dataset)
    }

    fn from_columns(
        &mut self,
        columns: Vec<Column>,
        parts: Vec<(String, u64)>,
    ) -> Result<Resource<MountedDataset>, HostError> {
        if let InstanceRole::Predict { .. } = &self.role {
            return Err(HostError::unsupported("only a training has datasets, not a predictor or an importer"));
        }
        let bytes = columns.iter().map(|column| column.data.len() as u64).sum();
        let charge = self.host_meter.charge(bytes).map_err(|error| {
            HostError::out_of_memory(format!("a dataset of {bytes} bytes takes too much host memory: {error}"))
        })?;
        let column = |Column { field, data }| {
            let item = convert::descriptor(&field.item)?;
            Ok((DatasetField { name: field.name, item, classes: field.classes }, data))
        };
        let columns = columns.into_iter().map(column).collect::<Result<_, HostError>>()?;
        let dataset = Arc::new(ColumnarDataset::from_columns(columns, &parts)?);
        self.push(MountedDataset { dataset, charge: Some(Arc::new(charge)) })
    }

    fn fields(&mut self, dataset: Resource<MountedDataset>) -> wasmtime::Result<Vec<WitField>> {
        let field = |field: &DatasetField| WitField {
            name: field.name.clone(),
            item: convert::wit_descriptor(&field.item),
            classes: field.classes.clone(),
        };
        Ok(self.table.get(&dataset)?.dataset.fields().iter().map(field).collect())
    }

    fn splits(&mut self, dataset: Resource<MountedDataset>) -> wasmtime::Result<Vec<String>> {
        Ok(self.table.get(&dataset)?.dataset.splits().iter().map(|split| split.name.clone()).collect())
    }

    fn len(&mut self, dataset: Resource<MountedDataset>, split: Option<String>) -> Result<u64, HostError> {
        Ok(self.table.get(&dataset)?.dataset.len(split.as_deref())?)
    }

    fn batches(
        &mut self,
        dataset: Resource<MountedDataset>,
        fields: Vec<String>,
        options: BatchOptions,
    ) -> Result<Resource<BatchIterator>, HostError> {
        let MountedDataset { dataset, charge } = self.table.get(&dataset)?.clone();
        let mut columns: Vec<DatasetField> = Vec::with_capacity(fields.len());
        for name in fields {
            if columns.iter().any(|column| column.name == name) {
                return Err(HostError::invalid_at(name, "the field is named twice"));
            }
            columns.push(dataset.field(&name)?.clone());
        }
        let range = dataset.items(options.split.as_deref())?;
        let batches = BatchIterator { _charge: charge, ..BatchIterator::new(dataset, columns, range, &options)? };
        self.push(batches)
    }

    fn drop(&mut self, dataset: Resource<MountedDataset>) -> wasmtime::Result<()> {
        self.table.delete(dataset)?;
        Ok(())
    }
}

impl HostBatches for InstanceState {
    fn next(&mut self, handle: Resource<BatchIterator>) -> Result<Option<Vec<NamedTensor>>, HostError> {
        // The position advances only after the batch was uploaded.
        let began = Instant::now();
        let mut batches = self.table.get(&handle)?.clone();
        let items = batches.next_items();
        let named = match &items {
            Some(items) => {
                let buffers = self.upload_batch(&batches, items)?;
                let names: Vec<String> = batches.fields.iter().map(|field| field.name.clone()).collect();
                Some(self.push_named_tensors(names.into_iter(), buffers)?)
            }
            None => None,
        };
        *self.table.get_mut(&handle)? = batches;
        self.record_drawn(&items.unwrap_or_default(), began.elapsed());
        Ok(named)
    }

    fn run(
        &mut self,
        handle: Resource<BatchIterator>,
        graph: Resource<CompiledGraph>,
        steps: u32,
    ) -> Result<RunResult, HostError> {
        self.record_host_call();
        let mut batches = self.table.get(&handle)?.clone();
        let graph = self.table.get(&graph)?.clone();
        let run = self.run_steps(&mut batches, &graph, steps);
        self.record_host_call();
        // Keep the completed steps even if a later step failed.
        *self.table.get_mut(&handle)? = batches;
        run
    }

    fn full_batches(&mut self, batches: Resource<BatchIterator>) -> wasmtime::Result<u64> {
        let batches = self.table.get(&batches)?;
        Ok(u64::from(batches.items / batches.size))
    }

    fn position(&mut self, batches: Resource<BatchIterator>) -> wasmtime::Result<(u64, u64)> {
        let batches = self.table.get(&batches)?;
        Ok((batches.epoch, u64::from(batches.item)))
    }

    fn drop(&mut self, batches: Resource<BatchIterator>) -> wasmtime::Result<()> {
        self.table.delete(batches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
