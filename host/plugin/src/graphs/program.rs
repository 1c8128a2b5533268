//! Compiles a finished graph to a program on the device, and dispatches it.

use std::sync::Arc;

use parking_lot::Mutex;
use saggar_compile::Program;
use saggar_device::meter::MeterCharge;
use saggar_device::{CancelToken, DeviceBuffer, DeviceError, Executable};
use saggar_store::checkpoint::VariableKind;
use saggar_tensor::{Graph, GraphPort, InterruptCheck, NodeId, VerifiedGraph, verify_interruptible};
use wasmtime::component::Resource;

use super::panic_guard::catch_compiler_panic;
use super::shards::UpdateProgram;
use super::{BuilderHandle, PluginGraphBuilder, missing_builder_error};
use crate::bindings::graphs::HostGraph;
use crate::bindings::tensors::NamedTensor;
use crate::compiler::CompilerMode;
use crate::host_error::HostError;
use crate::instance_state::{InstanceRole, InstanceState};
use crate::tensors::DeviceTensor;
use crate::variables::{DeviceVariable, DeviceWeights};

/// A cache of programs by graph, shared by the instances of one model version, which all build the same graphs.
#[derive(Debug, Default)]
pub(crate) struct ExecutableCache(Mutex<Vec<Arc<LoadedProgram>>>);

/// Maximum number of cached programs. It also bounds a plugin that builds a new graph in every call.
const CACHED_EXECUTABLES_MAX: usize = 64;

#[derive(Debug)]
pub(super) struct LoadedProgram {
    graph: Graph,
    executable: Arc<dyn Executable>,
    /// Charges for host memory: the program shares the graph's constants.
    _charges: Vec<MeterCharge>,
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
        self.executable.dispatch_cancellable(inputs, variables, cancel)
    }
}

impl ExecutableCache {
    fn find(&self, graph: &Graph) -> Option<Arc<LoadedProgram>> {
        let entries = self.0.lock();
        entries.iter().find(|entry| entry.graph == *graph).cloned()
    }

    /// Drops all entries. Instances keep the programs that they use.
    pub(crate) fn clear(&self) {
        let entries = std::mem::take(&mut *self.0.lock());
        // Freeing their memory takes a while, so do it after unlocking.
        drop(entries);
    }

    fn insert(&self, compiled: &Arc<LoadedProgram>) {
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

    fn has_weights(&self) -> bool {
        self.variables.iter().any(DeviceVariable::is_weight)
    }
}

impl InstanceState {
    /// Returns whether the job skips updates that are not finite.
    fn skips_nonfinite(&self) -> bool {
        match &self.role {
            InstanceRole::Train(train) => train.context.skips_nonfinite(),
            InstanceRole::Predict { .. } => false,
        }
    }

    /// Finishes the building of a graph: verifies, compiles and loads it.
    pub(super) fn compile_pending_graph(
        &mut self,
        handle: Resource<BuilderHandle>,
        outputs: Vec<(String, NodeId)>,
    ) -> Result<Resource<CompiledGraph>, HostError> {
        self.check_deadline()?;
        let BuilderHandle(number) = self.table.delete(handle)?;
        let PluginGraphBuilder { mut graph, variables, charges, mut means, mixed_precision: scaled, .. } =
            self.builders.remove(&number).ok_or_else(missing_builder_error)?;
        for (name, node) in outputs {
            graph.output(&name, node)?;
        }
        // The loss scale is assigned after both guards, so that it changes in skipped steps too.
        let sound = match &scaled {
            Some(scaled) => scaled.skip_nonfinite_steps(&mut graph, &means)?,
            None => None,
        };
        if self.skips_nonfinite() {
            // Statistics differ between shards until their mean is taken, so they cannot decide.
            let statistic = |variable: u32| variables[variable as usize].kind() == VariableKind::Statistic;
            graph.guard_assignments(&statistic)?;
        }
        let graph = match scaled {
            Some(scaled) => scaled.finish(graph, sound, &mut means)?,
            None => graph.finish(),
        };
        if !means.is_empty() {
            let compiled = self.compile_sharded(graph, &means, variables, charges)?;
            return self.push(compiled);
        }
        let known = self.executables.as_ref().and_then(|known| known.find(&graph));
        let compiled = match known {
            Some(compiled) => compiled,
            None => self.load_program(graph, charges)?,
        };
        self.push(CompiledGraph { compiled, variables: variables.into(), update: None })
    }

    pub(super) fn load_program(
        &self,
        graph: Graph,
        charges: Vec<MeterCharge>,
    ) -> Result<Arc<LoadedProgram>, HostError> {
        let span = tracing::debug_span!("compile", nodes = graph.nodes.len());
        let _entered = span.enter();
        self.check_deadline()?;
        // Verify the graph again: a plugin is not trusted to have passed every check of the builder.
        let cancel = self.cancel_token();
        let is_cancelled = || cancel.is_cancelled();
        let interrupt = InterruptCheck::from_condition(&is_cancelled);
        let verified = verify_interruptible(graph, &interrupt)?;
        let program = self.compile_program(&verified, &interrupt)?;
        let executable = self.backend.load_cancellable(Arc::new(program), &self.meter, cancel)?;
        let compiled = Arc::new(LoadedProgram { graph: verified.into_graph(), executable, _charges: charges });
        if let Some(known) = &self.executables {
            known.insert(&compiled);
        }
        Ok(compiled)
    }

    /// Compiles in this process, or in a child if the graph is large and children compile.
    fn compile_program(&self, graph: &VerifiedGraph, interrupt: &InterruptCheck<'_>) -> Result<Program, HostError> {
        let children = match &self.compiler {
            CompilerMode::Children(children) if children.should_offload(graph) => children,
            CompilerMode::Children(_) | CompilerMode::InProcess => {
                return catch_compiler_panic(graph, || self.backend.compile(graph, interrupt));
            }
        };
        let program = children.compile_graph(graph, &self.backend.target(), &|| self.check_deadline().is_err());
        // If the call is over, report that: it is the reason why the child was killed.
        program.or_else(|fault| self.check_deadline().and(Err(fault)))
    }

    /// Matches tensors to the graph's inputs by name; each input must be given exactly once.
    fn match_inputs(
        &self,
        graph: &CompiledGraph,
        tensors: &[(String, Resource<DeviceTensor>)],
    ) -> Result<Vec<DeviceBuffer>, HostError> {
        let ports = graph.inputs();
        if let Some((name, _)) = tensors.iter().find(|(name, _)| !ports.iter().any(|port| port.name == *name)) {
            let known: Vec<&str> = ports.iter().map(|port| port.name.as_str()).collect();
            return Err(HostError::not_found(
                name,
                format!("the graph has no such input; it has {}", known.join(", ")),
            ));
        }
        let buffer = |port: &GraphPort| {
            let mut named = tensors.iter().filter(|(name, _)| *name == port.name);
            let (Some((_, tensor)), None) = (named.next(), named.next()) else {
                return Err(HostError::invalid_at(&port.name, "every input is given exactly once"));
            };
            let buffer = &self.table.get(tensor)?.buffer;
            if *buffer.descriptor() != port.descriptor {
                let message = format!("the graph takes {}, not {}", port.descriptor, buffer.descriptor());
                return Err(HostError::invalid_at(&port.name, message));
            }
            Ok(buffer.clone())
        };
        ports.iter().map(buffer).collect()
    }

    /// Returns handles of these buffers to the plugin, under the names of their ports.
    pub(crate) fn push_named_tensors(
        &mut self,
        names: impl Iterator<Item = String>,
        buffers: Vec<DeviceBuffer>,
    ) -> Result<Vec<NamedTensor>, HostError> {
        let name = |(name, buffer)| Ok(NamedTensor { name, tensor: self.push(DeviceTensor { buffer })? });
        names.zip(buffers).map(name).collect()
    }
}

impl HostGraph for InstanceState {
    fn dispatch(
        &mut self,
        graph: Resource<CompiledGraph>,
        inputs: Vec<(String, Resource<DeviceTensor>)>,
    ) -> Result<Vec<NamedTensor>, HostError> {
        let graph = self.table.get(&graph)?.clone();
        if graph.update.is_some() {
            return Err(HostError::unsupported("in a job with shards, run a graph with gradients by `batches.run`"));
        }
        let inputs = self.match_inputs(&graph, &inputs)?;
        if self.limiter.is_cancelled() {
            return Err(HostError::cancelled());
        }
        // The result of a dispatch outside of a prediction outlives the weights it was computed with.
        if !self.is_predicting() && graph.has_weights() {
            self.weights_read = true;
        }
        let outputs = graph.dispatch(&inputs, self.weights.as_deref(), self.cancel_token())?;
        let names: Vec<String> = graph.outputs().iter().map(|port| port.name.clone()).collect();
        self.push_named_tensors(names.into_iter(), outputs)
    }

    fn drop(&mut self, graph: Resource<CompiledGraph>) -> wasmtime::Result<()> {
        self.table.delete(graph)?;
        Ok(())
    }
}
