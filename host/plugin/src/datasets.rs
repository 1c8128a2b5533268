//! Datasets that are mounted into a training or created by it, and iterators over their batches. The host reads the
//! data and uploads it to the device; it never passes through the plugin.

pub(crate) mod batch_iterator;
pub(crate) mod batch_reader;
mod dataset_placement;
mod device_dataset;
mod image_field;
mod run;
mod shards;

use std::sync::Arc;
use std::time::{Duration, Instant};

use saggar_device::DeviceBuffer;
use saggar_store::ImageInputs;
use saggar_store::dataset::{ColumnarDataset, DatasetField};
use wasmtime::component::Resource;

use crate::bindings::datasets::{BatchOptions, Column, Field as WitField, Host, HostBatches, HostDataset, RunResult};
use crate::bindings::tensors::NamedTensor;
use crate::convert;
use crate::graphs::compiled_graph::CompiledGraph;
use crate::host_error::HostError;
use crate::instance_state::{InstanceRole, InstanceState};
use batch_iterator::{BatchIterator, MountedDataset};
use device_dataset::batch_descriptor;
use image_field::image_shape;

impl InstanceState {
    /// Uploads these items, one buffer per field.
    fn upload_batch(&self, batches: &BatchIterator, items: &[u64]) -> Result<Vec<DeviceBuffer>, HostError> {
        let upload = |(place, field): (usize, &DatasetField)| {
            let bytes = batches.read_field(place, items)?;
            self.upload(&batch_descriptor(field, items.len())?, &bytes)
        };
        batches.fields.iter().enumerate().map(upload).collect()
    }

    /// Returns the preprocessing that a training declared.
    fn image_inputs(&self) -> &ImageInputs {
        static NONE: ImageInputs = ImageInputs::new();
        match &self.role {
            InstanceRole::Train(train) => &train.image_inputs,
            InstanceRole::Predict { .. } => &NONE,
        }
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
        let field = |field: &DatasetField| {
            let preprocessing = self.image_inputs().get(&field.name).filter(|_| image_shape(field).is_some());
            let item = preprocessing.map_or_else(|| field.item.clone(), |it| it.input_item());
            WitField { name: field.name.clone(), item: convert::wit_descriptor(&item), classes: field.classes.clone() }
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
        let shape = (options.size, options.drop_last);
        let batches = BatchIterator::new(dataset, columns, range, shape, options.shuffle_seed)?;
        let mut batches = batches.with_image_inputs(self.image_inputs())?;
        batches._charge = charge;
        if let InstanceRole::Train(train) = &mut self.role {
            train.batch_fields.extend(batches.fields.iter().map(|field| field.name.clone()));
        }
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
