//! Runs many steps without a call into the plugin: dispatches a graph over the next full batches and averages its
//! outputs.
//!
//! Outputs stay on the device and are read together, every [`RUN_OUTPUTS_PENDING_MAX`] steps and at the end, so that no
//! step waits for the step before it.

use std::borrow::Cow;
use std::time::Instant;

use saggar_device::DeviceBuffer;
use saggar_tensor::{DType, Descriptor, GraphPort};

use super::batch_iterator::BatchIterator;
use super::device_dataset::batch_descriptor;
use crate::bindings::datasets::RunResult;
use crate::graphs::compiled_graph::CompiledGraph;
use crate::host_error::HostError;
use crate::instance_state::InstanceState;
use crate::limits::RUN_OUTPUTS_PENDING_MAX;
use crate::shards::decode_numbers;

/// Bytes of outputs that can be pending on the device; if there are more, they are read earlier.
const PENDING_OUTPUT_BYTES_MAX: usize = 16 << 20;

impl InstanceState {
    /// Dispatches `graph` over the next full batches of this epoch, at most `steps` times.
    pub(super) fn run_steps(
        &mut self,
        batches: &mut BatchIterator,
        graph: &CompiledGraph,
        steps: u32,
    ) -> Result<RunResult, HostError> {
        let size = self.items_per_dispatch(batches, graph)?;
        let places = match_fields_to_inputs(batches, graph.inputs(), size)?;
        let steps = steps.min(batches.full_batches_left());
        let mut means = OutputMeans::new(graph.outputs());
        if let Some(update) = graph.update() {
            self.run_sharded(batches, graph, update, &places, steps, &mut means)?;
        } else {
            self.run_unsharded(batches, graph, &places, steps, &mut means)?;
        }
        let steps = means.steps + means.waiting.len() as u32;
        let outputs = means.finish(self)?;
        // The outputs were read, so this does not wait for the device again.
        self.log_skipped_steps()?;
        let names = outputs.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        let buffers = outputs.into_iter().map(|(_, buffer)| buffer).collect();
        Ok(RunResult { steps, outputs: self.push_named_tensors(names.into_iter(), buffers)? })
    }

    /// Returns the items per dispatch of the graph: those of a batch, or of a shard.
    fn items_per_dispatch(&self, batches: &BatchIterator, graph: &CompiledGraph) -> Result<u32, HostError> {
        let shards = self.shards().count;
        let size = batches.size;
        match graph.update() {
            Some(_) if !size.is_multiple_of(shards) => {
                Err(HostError::invalid(format!("a batch of {size} items has no {shards} equal shards")))
            }
            Some(_) => Ok(size / shards),
            None => Ok(size),
        }
    }

    fn run_unsharded(
        &mut self,
        batches: &mut BatchIterator,
        graph: &CompiledGraph,
        places: &[usize],
        steps: u32,
        means: &mut OutputMeans,
    ) -> Result<(), HostError> {
        let resident = self.device_dataset(batches, batches.size, steps)?;
        // A write is ordered after earlier dispatches, so every step can use the same input tensors.
        let mut inputs: Option<Vec<DeviceBuffer>> = None;
        for _ in 0..steps {
            let before = (batches.epoch, batches.item);
            let began = Instant::now();
            self.check_deadline()?;
            let Some(items) = batches.next_items() else { break };
            let ready = match &resident {
                Some(resident) => {
                    let drawn = resident.gather_batch(&*self.backend, &items, self.cancel_token());
                    drawn.map(Cow::Owned).map_err(HostError::from)
                }
                None => self.fill_inputs(batches, &items, &mut inputs).map(Cow::Borrowed),
            };
            let drawn = began.elapsed();
            let step = ready.and_then(|inputs| {
                let ordered: Vec<DeviceBuffer> = places.iter().map(|&place| inputs[place].clone()).collect();
                graph.dispatch(&ordered, self.weights.current(), self.cancel_token())
            });
            match step {
                Ok(outputs) => means.add(outputs),
                Err(fault) => {
                    (batches.epoch, batches.item) = before;
                    return Err(fault);
                }
            }
            self.record_drawn(&items, drawn);
            if means.is_full() {
                means.add_waiting_outputs(self)?;
            }
        }
        Ok(())
    }

    /// Writes these items into the input buffers, which are allocated at the first call.
    fn fill_inputs<'i>(
        &self,
        batches: &BatchIterator,
        items: &[u64],
        inputs: &'i mut Option<Vec<DeviceBuffer>>,
    ) -> Result<&'i [DeviceBuffer], HostError> {
        match inputs {
            Some(inputs) => {
                batches.write_items(items, inputs, &*self.backend, self.cancel_token())?;
                Ok(inputs)
            }
            None => Ok(inputs.insert(self.upload_batch(batches, items)?)),
        }
    }
}

/// Returns, for each input of the graph, the index of the field that feeds it with `size` items.
///
/// # Errors
/// Invalid argument if inputs and fields do not match one to one, or a field's data type or shape differs from its
/// input's.
fn match_fields_to_inputs(batches: &BatchIterator, ports: &[GraphPort], size: u32) -> Result<Vec<usize>, HostError> {
    if let Some(field) = batches.fields.iter().find(|field| !ports.iter().any(|port| port.name == field.name)) {
        return Err(HostError::invalid_at(&field.name, "the graph has no input of this field's name"));
    }
    let place = |port: &GraphPort| {
        let place = batches.fields.iter().position(|field| field.name == port.name);
        let place =
            place.ok_or_else(|| HostError::invalid_at(&port.name, "the batches have no field of this input's name"))?;
        let given = batch_descriptor(&batches.fields[place], size as usize)?;
        if given != port.descriptor {
            let whole = batches.size;
            let because = if size == whole { String::new() } else { format!(", a shard of a batch of {whole}") };
            let message = format!("the graph takes {}, not {given}{because}", port.descriptor);
            return Err(HostError::invalid_at(&port.name, message));
        }
        Ok(place)
    };
    ports.iter().map(place).collect()
}

/// Sums of a run's outputs, and outputs that are not read yet.
pub(super) struct OutputMeans {
    ports: Vec<GraphPort>,
    sums: Vec<Vec<f64>>,
    /// Number of steps that are included in the sums.
    steps: u32,
    waiting: Vec<Vec<DeviceBuffer>>,
    step_bytes: usize,
}

impl OutputMeans {
    fn new(ports: &[GraphPort]) -> OutputMeans {
        let sums = ports.iter().map(|port| vec![0.0; port.descriptor.shape.elements()]).collect();
        let step_bytes = ports.iter().map(|port| port.descriptor.bytes()).sum();
        OutputMeans { ports: ports.to_vec(), sums, steps: 0, waiting: Vec::new(), step_bytes }
    }

    fn add(&mut self, outputs: Vec<DeviceBuffer>) {
        self.waiting.push(outputs);
    }

    /// Adds the outputs of a step that were read already.
    pub(super) fn add_numbers(&mut self, outputs: &[Vec<f64>]) {
        for (sums, numbers) in self.sums.iter_mut().zip(outputs) {
            sums.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += number);
        }
        self.steps += 1;
    }

    fn is_full(&self) -> bool {
        self.waiting.len() >= RUN_OUTPUTS_PENDING_MAX
            || self.waiting.len() * self.step_bytes >= PENDING_OUTPUT_BYTES_MAX
    }

    /// Reads the pending outputs and adds them, in the order of the steps.
    fn add_waiting_outputs(&mut self, state: &InstanceState) -> Result<(), HostError> {
        for outputs in self.waiting.drain(..) {
            for (buffer, sums) in outputs.iter().zip(&mut self.sums) {
                let bytes = state.backend.read_cancellable(buffer, state.cancel_token())?;
                for (sum, value) in sums.iter_mut().zip(decode_numbers(buffer.descriptor().dtype, &bytes)) {
                    *sum += value;
                }
            }
            self.steps += 1;
        }
        Ok(())
    }

    /// Returns the means as `float32` tensors, or an empty list after no step.
    fn finish(mut self, state: &InstanceState) -> Result<Vec<(String, DeviceBuffer)>, HostError> {
        self.add_waiting_outputs(state)?;
        if self.steps == 0 {
            return Ok(Vec::new());
        }
        let count = f64::from(self.steps);
        let mean = |(port, sums): (GraphPort, Vec<f64>)| {
            let bytes: Vec<u8> = sums.iter().flat_map(|sum| ((sum / count) as f32).to_le_bytes()).collect();
            let descriptor = Descriptor::new(DType::F32, port.descriptor.shape);
            Ok((port.name, state.upload(&descriptor, &bytes)?))
        };
        self.ports.into_iter().zip(self.sums).map(mean).collect()
    }
}
