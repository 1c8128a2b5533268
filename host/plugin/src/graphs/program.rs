//! From a finished graph to a program on the device, and its dispatches.

use std::sync::{Arc, Mutex, PoisonError};

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

/// Programs of graphs, shared by the instances of one model version: each of them builds the same graphs.
#[derive(Debug, Default)]
pub(crate) struct ExecutableCache(Mutex<Vec<Arc<LoadedProgram>>>);

/// Programs kept for other instances. A plugin that builds a new graph for every call gets no further.
const CACHED_EXECUTABLES_MAX: usize = 64;

#[derive(Debug)]
pub(super) struct LoadedProgram {
    graph: Graph,
    executable: Arc<dyn Executable>,
    /// Host memory: the program shares the graph's constants.
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
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.iter().find(|entry| entry.graph == *graph).cloned()
    }

    /// Forgets all programs; instances keep those that they hold.
    pub(crate) fn clear(&self) {
        let entries = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        // Freeing their memory takes a while: after the lock is free.
        drop(entries);
    }

    fn insert(&self, compiled: &Arc<LoadedProgram>) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() < CACHED_EXECUTABLES_MAX {
            entries.push(Arc::clone(compiled));
        }
    }
}

/// A program with the variables it reads and writes.
#[derive(Clone, Debug)]
#[expect(unreachable_pub, reason = "the generated bindings re-export it")]
pub struct CompiledGraph {
    pub(super) compiled: Arc<LoadedProgram>,
    /// Kept although a plugin may drop its handles.
    pub(super) variables: Arc<[DeviceVariable]>,
    /// What comes after all shards, of a step in shards; `compiled` is then what is run for each.
    pub(super) update: Option<Arc<UpdateProgram>>,
}

impl CompiledGraph {
    /// What a dispatch is given; a step in shards, for each of them.
    pub(crate) fn inputs(&self) -> &[GraphPort] {
        let inputs = self.program_inputs();
        let numbered = self.update.as_ref().is_some_and(|update| update.takes_shard_index);
        &inputs[..inputs.len() - usize::from(numbered)]
    }

    /// What its program is given.
    pub(crate) fn program_inputs(&self) -> &[GraphPort] {
        &self.compiled.program().inputs
    }

    /// What a dispatch returns.
    pub(crate) fn outputs(&self) -> &[GraphPort] {
        match &self.update {
            Some(update) => &update.ports,
            None => self.program_outputs(),
        }
    }

    /// What its program returns: of a step in shards, that of one shard.
    pub(crate) fn program_outputs(&self) -> &[GraphPort] {
        &self.compiled.program().outputs
    }

    /// What comes after all shards; none where batches are computed whole.
    pub(crate) fn update(&self) -> Option<&Arc<UpdateProgram>> {
        self.update.as_ref()
    }

    /// Runs it once, with those of its variables that are weights taken from `weights`.
    ///
    /// # Errors
    /// Whatever the device says; `Cancelled`.
    pub(crate) fn dispatch(
        &self,
        inputs: &[DeviceBuffer],
        weights: Option<&DeviceWeights>,
        cancel: &CancelToken,
    ) -> Result<Vec<DeviceBuffer>, HostError> {
        self.dispatch_with(inputs, &self.variable_buffers(weights)?, cancel)
    }

    /// Runs its program once; of a step in shards, for one of them.
    ///
    /// # Errors
    /// Whatever the device says; `Cancelled`.
    pub(crate) fn dispatch_with(
        &self,
        inputs: &[DeviceBuffer],
        variables: &[DeviceBuffer],
        cancel: &CancelToken,
    ) -> Result<Vec<DeviceBuffer>, HostError> {
        Ok(self.compiled.dispatch(inputs, variables, cancel)?)
    }

    /// Where its variables are.
    pub(crate) fn variable_buffers(&self, weights: Option<&DeviceWeights>) -> Result<Vec<DeviceBuffer>, HostError> {
        self.variables.iter().map(|variable| variable.buffer(weights).cloned()).collect()
    }

    fn has_weights(&self) -> bool {
        self.variables.iter().any(DeviceVariable::is_weight)
    }
}

impl InstanceState {
    /// Whether the job leaves out updates that are not of finite numbers.
    fn skips_nonfinite(&self) -> bool {
        match &self.role {
            InstanceRole::Train(train) => train.context.skips_nonfinite(),
            InstanceRole::Predict { .. } => false,
        }
    }

    /// Ends the building of a graph: verified, compiled, loaded.
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
        // The scale itself is assigned after both guards.
        let sound = match &scaled {
            Some(scaled) => scaled.skip_nonfinite_steps(&mut graph, &means)?,
            None => None,
        };
        if self.skips_nonfinite() {
            // What shards learn without gradients is each one's own until its mean is taken.
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
        // Plugins are not trusted to have built it through the builder's checks alone.
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

    /// In this process, or by a child where the graph is large and children compile.
    fn compile_program(&self, graph: &VerifiedGraph, interrupt: &InterruptCheck<'_>) -> Result<Program, HostError> {
        let children = match &self.compiler {
            CompilerMode::Children(children) if children.should_offload(graph) => children,
            CompilerMode::Children(_) | CompilerMode::InProcess => {
                return catch_compiler_panic(graph, || self.backend.compile(graph, interrupt));
            }
        };
        let program = children.compile_graph(graph, &self.backend.target(), &|| self.check_deadline().is_err());
        // Where the call is over, that is what ended the child.
        program.or_else(|fault| self.check_deadline().and(Err(fault)))
    }

    /// Tensors matched to a graph's inputs by name, each exactly once.
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

    /// Hands buffers to the plugin under their ports' names.
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
            return Err(HostError::unsupported(
                "a graph with gradients is run by `batches.run` in a job whose batches are in shards",
            ));
        }
        let inputs = self.match_inputs(&graph, &inputs)?;
        if self.limiter.is_cancelled() {
            return Err(HostError::cancelled());
        }
        // What is computed outside of a prediction outlives the weights that it was computed with.
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
