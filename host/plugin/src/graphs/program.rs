//! Compiles a finished graph to a program on the device, and dispatches it.

use std::sync::Arc;

use saggar_compile::Program;
use saggar_device::DeviceBuffer;
use saggar_device::meter::MeterCharge;
use saggar_store::checkpoint::VariableKind;
use saggar_tensor::{Graph, GraphPort, InterruptCheck, NodeId, VerifiedGraph, verify_interruptible};
use wasmtime::component::Resource;

use super::compiled_graph::{CompiledGraph, LoadedProgram};
use super::panic_guard::catch_compiler_panic;
use super::pending_graph::{BuilderHandle, PluginGraphBuilder};
use crate::bindings::graphs::HostGraph;
use crate::bindings::tensors::NamedTensor;
use crate::compiler::children::CompilerMode;
use crate::dispatch_observer::DispatchObserver;
use crate::host_error::HostError;
use crate::instance_state::{InstanceRole, InstanceState};
use crate::tensors::device_tensor::DeviceTensor;

impl InstanceState {
    /// Returns whether the job skips updates that are not finite.
    fn skips_nonfinite(&self) -> bool {
        match &self.role {
            InstanceRole::Train(train) => train.context.skips_nonfinite(),
            InstanceRole::Predict { .. } => false,
        }
    }

    /// Returns the observer of the job's graphs.
    fn dispatch_observer(&self) -> Option<Arc<dyn DispatchObserver>> {
        match &self.role {
            InstanceRole::Train(train) => train.context.dispatch_observer(),
            InstanceRole::Predict { .. } => None,
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
            self.graphs.remove(number)?;
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
        let known = self.graphs.executables.as_ref().and_then(|known| known.find(&graph));
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
        let observed = self.dispatch_observer().map(|observer| observer.observe(&verified));
        let compiled =
            Arc::new(LoadedProgram { graph: verified.into_graph(), executable, observed, _charges: charges });
        if let Some(known) = &self.graphs.executables {
            known.insert(&compiled);
        }
        Ok(compiled)
    }

    /// Compiles in this process, or in a child if the graph is large and children compile.
    fn compile_program(&self, graph: &VerifiedGraph, interrupt: &InterruptCheck<'_>) -> Result<Program, HostError> {
        let children = match &self.graphs.compiler {
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
            self.weights.record_read();
        }
        let outputs = graph.dispatch(&inputs, self.weights.current(), self.cancel_token())?;
        let names: Vec<String> = graph.outputs().iter().map(|port| port.name.clone()).collect();
        self.push_named_tensors(names.into_iter(), outputs)
    }

    fn drop(&mut self, graph: Resource<CompiledGraph>) -> wasmtime::Result<()> {
        self.table.delete(graph)?;
        Ok(())
    }
}
