//! Runs steps in shards. The gradients of each shard of a batch are computed one after the other, here or in other
//! processes; the update runs once, with the means over all shards.
//!
//! Every process draws every batch, uploads only its own shards' items, and runs the update with the same means.
//! So all processes have the same variables, and each counts the whole batch.

use std::time::{Duration, Instant};

use saggar_device::DeviceBuffer;
use saggar_tensor::{GraphPort, micro_batches};

use super::batch_iterator::BatchIterator;
use super::run::OutputMeans;
use crate::graphs::compiled_graph::{CompiledGraph, UpdateProgram};
use crate::host_error::HostError;
use crate::instance_state::{InstanceRole, InstanceState};
use crate::shards::{BatchShards, ShardMean, decode_numbers};

/// The buffers and programs of sharded steps, reused for every step.
struct ShardedStep<'a> {
    graph: &'a CompiledGraph,
    update: &'a UpdateProgram,
    shards: BatchShards,
    /// For each input of the graph, the index of the field that feeds it.
    places: &'a [usize],
    /// Input buffers of one shard.
    inputs: Vec<DeviceBuffer>,
    /// Input buffers of the update.
    means: Vec<DeviceBuffer>,
}

impl InstanceState {
    /// Runs `steps` steps over the next full batches. The caller ensures that there are enough.
    pub(super) fn run_sharded(
        &mut self,
        batches: &mut BatchIterator,
        graph: &CompiledGraph,
        update: &UpdateProgram,
        places: &[usize],
        steps: u32,
        means: &mut OutputMeans,
    ) -> Result<(), HostError> {
        let allocate = |port: &GraphPort| Ok(self.backend.allocate(&port.descriptor, &self.meter)?);
        let step = ShardedStep {
            graph,
            update,
            shards: self.shards(),
            places,
            inputs: graph.program_inputs().iter().map(allocate).collect::<Result<_, HostError>>()?,
            means: update.inputs().iter().map(allocate).collect::<Result<_, HostError>>()?,
        };
        for _ in 0..steps {
            self.check_deadline()?;
            let before = (batches.epoch, batches.item);
            let Some(items) = batches.next_items() else { break };
            let mut drawn = Duration::ZERO;
            match self.run_sharded_step(batches, &step, &items, &mut drawn) {
                Ok(outputs) => means.add_numbers(&outputs),
                Err(fault) => {
                    (batches.epoch, batches.item) = before;
                    return Err(fault);
                }
            }
            self.record_drawn(&items, drawn);
        }
        Ok(())
    }

    /// Runs one step and adds the time of uploading its items to `drawn`.
    fn run_sharded_step(
        &mut self,
        batches: &BatchIterator,
        step: &ShardedStep<'_>,
        items: &[u64],
        drawn: &mut Duration,
    ) -> Result<Vec<Vec<f64>>, HostError> {
        let variables = step.graph.variable_buffers(self.weights.current())?;
        let size = items.len() / step.shards.count as usize;
        let mut parts = Vec::with_capacity(step.shards.own.len());
        for shard in step.shards.own.clone() {
            let items = &items[shard as usize * size..][..size];
            let began = Instant::now();
            for (&place, buffer) in step.places.iter().zip(&step.inputs) {
                let elements = batches.read_field(place, items)?;
                self.backend.write_cancellable(buffer, &elements, self.cancel_token())?;
            }
            *drawn += began.elapsed();
            parts.push(self.run_shard(step, shard, &variables)?);
        }
        let mean = step.update.mean(step.graph.program_outputs());
        let means = self.all_reduce(parts, mean)?;
        self.record_host_call();
        let mut rest = means.as_slice();
        for buffer in &step.means {
            let (bytes, after) = rest.split_at(buffer.descriptor().bytes());
            self.backend.write_cancellable(buffer, bytes, self.cancel_token())?;
            rest = after;
        }
        let outputs = step.update.dispatch(&step.means, &variables, self.cancel_token())?;
        let read = |buffer: &DeviceBuffer| {
            let elements = self.backend.read_cancellable(buffer, self.cancel_token())?;
            Ok(decode_numbers(buffer.descriptor().dtype, &elements))
        };
        let update: Vec<Vec<f64>> = outputs.iter().map(read).collect::<Result<_, HostError>>()?;
        Ok(step.update.output_numbers(&shard_output_means(step, rest), &update))
    }

    /// Runs the graph on the shard in the input buffers. Returns the bytes of its outputs.
    fn run_shard(&self, step: &ShardedStep<'_>, shard: u32, variables: &[DeviceBuffer]) -> Result<Vec<u8>, HostError> {
        if let Some(number) = step.inputs.get(step.places.len()).filter(|_| step.update.takes_shard_index) {
            self.backend.write_cancellable(number, &micro_batches::random_key_offset(shard), self.cancel_token())?;
        }
        let outputs = step.graph.dispatch_with(&step.inputs, variables, self.cancel_token())?;
        let mut part = Vec::new();
        for output in &outputs {
            part.extend(self.backend.read_cancellable(output, self.cancel_token())?);
        }
        Ok(part)
    }

    fn all_reduce(&mut self, parts: Vec<Vec<u8>>, mean: ShardMean) -> Result<Vec<u8>, HostError> {
        let bytes = mean.mean_bytes();
        let means = match &mut self.role {
            InstanceRole::Train(train) => train.context.all_reduce(parts, mean).map_err(HostError::Job)?,
            InstanceRole::Predict { .. } => {
                return Err(HostError::unsupported("only a training has shards, not a predictor or an importer"));
            }
        };
        if means.len() == bytes {
            return Ok(means);
        }
        let message = format!("{} bytes of means over the shards, not {bytes}", means.len());
        Err(HostError::Trap(wasmtime::Error::msg(message)))
    }
}

/// Returns the means of those outputs that the update does not take; they come last.
fn shard_output_means(step: &ShardedStep<'_>, bytes: &[u8]) -> Vec<Vec<f64>> {
    let mut numbers = bytes.as_chunks().0.iter().map(|number| f64::from_le_bytes(*number));
    let own = &step.graph.program_outputs()[step.means.len()..];
    own.iter().map(|port| numbers.by_ref().take(port.descriptor.shape.elements()).collect()).collect()
}
