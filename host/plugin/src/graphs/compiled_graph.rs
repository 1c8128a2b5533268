//! Programs on the device, and finished graphs with the variables that they read and write.

use std::sync::Arc;

use parking_lot::Mutex;
use saggar_compile::Program;
use saggar_device::meter::MeterCharge;
use saggar_device::{CancelToken, DeviceBuffer, DeviceError, Executable};
use saggar_tensor::micro_batches::StepOutput;
use saggar_tensor::{Descriptor, Graph, GraphPort};

use crate::dispatch_observer::ObservedGraph;
use crate::host_error::HostError;
use crate::shards::{ShardMean, ShardSection};
use crate::variables::device_variable::DeviceVariable;
use crate::variables::device_weights::DeviceWeights;

/// A cache of programs by graph, shared by the instances of one model version, which all build the same graphs.
#[derive(Debug, Default)]
pub(crate) struct ExecutableCache(Mutex<Vec<Arc<LoadedProgram>>>);

/// Maximum number of cached programs. It also bounds a plugin that builds a new graph in every call.
const CACHED_EXECUTABLES_MAX: usize = 64;

#[derive(Debug)]
pub(crate) struct LoadedProgram {
    pub(super) graph: Graph,
    pub(super) executable: Arc<dyn Executable>,
    /// Runs the program instead, and looks at what it computes.
    pub(super) observed: Option<Arc<dyn ObservedGraph>>,
    /// Charges for host memory: the program shares the graph's constants.
    pub(super) _charges: Vec<MeterCharge>,
}

impl LoadedProgram {
    pub(super) fn program(&self) -> &Program {
        self.executable.program()
    }

    pub(super) fn dispatch(
        &self,
        inputs: &[DeviceBuffer],
        variables: &[DeviceBuffer],
        cancel: &CancelToken,
    ) -> Result<Vec<DeviceBuffer>, DeviceError> {
        match &self.observed {
            Some(observed) => observed.dispatch(&*self.executable, inputs, variables, cancel),
            None => self.executable.dispatch_cancellable(inputs, variables, cancel),
        }
    }
}

impl ExecutableCache {
    pub(super) fn find(&self, graph: &Graph) -> Option<Arc<LoadedProgram>> {
        let entries = self.0.lock();
        entries.iter().find(|entry| entry.graph == *graph).cloned()
    }

    /// Drops all entries. Instances keep the programs that they use.
    pub(crate) fn clear(&self) {
        let entries = std::mem::take(&mut *self.0.lock());
        // Freeing their memory takes a while, so do it after unlocking.
        drop(entries);
    }

    pub(super) fn insert(&self, compiled: &Arc<LoadedProgram>) {
        let mut entries = self.0.lock();
        if entries.len() < CACHED_EXECUTABLES_MAX {
            entries.push(Arc::clone(compiled));
        }
    }
}

/// A program with the variables that it reads and writes.
#[derive(Clone, Debug)]
#[expect(unreachable_pub, reason = "the generated bindings re-export it")]
pub struct CompiledGraph {
    pub(super) compiled: Arc<LoadedProgram>,
    /// Kept alive even if the plugin drops its handles.
    pub(super) variables: Arc<[DeviceVariable]>,
    /// The update program of a step in shards; `compiled` then runs once per shard.
    pub(super) update: Option<Arc<UpdateProgram>>,
}

impl CompiledGraph {
    /// Returns the inputs of a dispatch; of a step in shards, those of one shard.
    pub(crate) fn inputs(&self) -> &[GraphPort] {
        let inputs = self.program_inputs();
        let numbered = self.update.as_ref().is_some_and(|update| update.takes_shard_index);
        &inputs[..inputs.len() - usize::from(numbered)]
    }

    /// Returns the inputs of the program, including the shard index if it takes one.
    pub(crate) fn program_inputs(&self) -> &[GraphPort] {
        &self.compiled.program().inputs
    }

    /// Returns the outputs of a dispatch.
    pub(crate) fn outputs(&self) -> &[GraphPort] {
        match &self.update {
            Some(update) => &update.ports,
            None => self.program_outputs(),
        }
    }

    /// Returns the outputs of the program; of a step in shards, those of one shard.
    pub(crate) fn program_outputs(&self) -> &[GraphPort] {
        &self.compiled.program().outputs
    }

    /// Returns the program that runs after all shards, or `None` if batches are not sharded.
    pub(crate) fn update(&self) -> Option<&Arc<UpdateProgram>> {
        self.update.as_ref()
    }

    /// Runs the graph once. Variables that are weights are taken from `weights`.
    ///
    /// # Errors
    /// The device's errors; `Cancelled`.
    pub(crate) fn dispatch(
        &self,
        inputs: &[DeviceBuffer],
        weights: Option<&DeviceWeights>,
        cancel: &CancelToken,
    ) -> Result<Vec<DeviceBuffer>, HostError> {
        self.dispatch_with(inputs, &self.variable_buffers(weights)?, cancel)
    }

    /// Runs the program once; of a step in shards, for one shard.
    ///
    /// # Errors
    /// The device's errors; `Cancelled`.
    pub(crate) fn dispatch_with(
        &self,
        inputs: &[DeviceBuffer],
        variables: &[DeviceBuffer],
        cancel: &CancelToken,
    ) -> Result<Vec<DeviceBuffer>, HostError> {
        Ok(self.compiled.dispatch(inputs, variables, cancel)?)
    }

    /// Returns the buffers of its variables.
    pub(crate) fn variable_buffers(&self, weights: Option<&DeviceWeights>) -> Result<Vec<DeviceBuffer>, HostError> {
        self.variables.iter().map(|variable| variable.buffer(weights).cloned()).collect()
    }

    pub(super) fn has_weights(&self) -> bool {
        self.variables.iter().any(DeviceVariable::is_weight)
    }
}

/// The second program of a step in shards.
#[derive(Debug)]
pub(crate) struct UpdateProgram {
    pub(super) compiled: Arc<LoadedProgram>,
    /// Number of a shard's outputs whose means the update takes.
    pub(super) means: usize,
    /// Whether a shard's last input is its index.
    pub(crate) takes_shard_index: bool,
    /// Outputs of the whole step.
    pub(super) ports: Vec<GraphPort>,
    /// Source of each output of the step.
    pub(super) outputs: Vec<StepOutput>,
}

impl UpdateProgram {
    /// Returns the mean that the step takes over its shards.
    pub(crate) fn mean(&self, shard: &[GraphPort]) -> ShardMean {
        let section = |(at, port): (usize, &GraphPort)| {
            let Descriptor { dtype, shape } = &port.descriptor;
            let section = if at < self.means { ShardSection::Same(*dtype) } else { ShardSection::Number(*dtype) };
            (section, shape.elements())
        };
        ShardMean::new(shard.iter().enumerate().map(section).collect())
    }

    /// Returns the inputs of the update.
    pub(crate) fn inputs(&self) -> &[GraphPort] {
        &self.compiled.program().inputs
    }

    /// Runs the update once.
    ///
    /// # Errors
    /// The device's errors; `Cancelled`.
    pub(crate) fn dispatch(
        &self,
        means: &[DeviceBuffer],
        variables: &[DeviceBuffer],
        cancel: &CancelToken,
    ) -> Result<Vec<DeviceBuffer>, DeviceError> {
        self.compiled.dispatch(means, variables, cancel)
    }

    /// Returns the outputs of the step as numbers, from the means of the shards' own outputs and from the update's
    /// outputs.
    pub(crate) fn output_numbers(&self, shards: &[Vec<f64>], update: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let numbers = |output: &StepOutput| match *output {
            // A shard's first outputs are those whose means the update takes; `shards` starts after them.
            StepOutput::MicroBatches(at) => shards[at - self.means].clone(),
            StepOutput::Update(at) => update[at].clone(),
        };
        self.outputs.iter().map(numbers).collect()
    }
}
