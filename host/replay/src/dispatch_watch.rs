//! Watches the dispatches of a replayed training: compares them, prints operands, and looks for numbers that are not
//! finite.

use std::sync::Arc;

use parking_lot::Mutex;
use saggar_device::{Backend, CancelToken, DeviceBuffer, DeviceError, Executable};
use saggar_plugin::{DispatchObserver, ObservedGraph};
use saggar_tensor::{Graph, NodeId};

use crate::comparison::CallComparison;
use crate::host_call::HostCall;
use crate::non_finite::{NonFiniteOperand, find_non_finite};
use crate::operand_probe::{DispatchValues, OperandProbe, copy_variables, find_operands, known_names};
use crate::recording_observer::{graph_digest, tensor_digests};
use crate::report::PrintedOperand;
use crate::tensor_summary::{first_non_finite, summarize};

/// Watches every dispatch.
#[derive(Debug)]
pub(crate) struct DispatchWatch {
    comparison: Arc<CallComparison>,
    device: Arc<dyn Backend>,
    /// Names of operands to print.
    print: Vec<String>,
}

impl DispatchWatch {
    pub(crate) fn new(comparison: Arc<CallComparison>, device: Arc<dyn Backend>, print: Vec<String>) -> DispatchWatch {
        DispatchWatch { comparison, device, print }
    }
}

impl DispatchObserver for DispatchWatch {
    fn observe(&self, graph: &Graph) -> Arc<dyn ObservedGraph> {
        let mut printed = Vec::new();
        for name in &self.print {
            printed.extend(find_operands(graph, name).into_iter().map(|id| (name.clone(), id)));
        }
        if !self.print.is_empty() {
            self.comparison.add_known_operands(known_names(graph));
        }
        Arc::new(WatchedGraph {
            comparison: Arc::clone(&self.comparison),
            device: Arc::clone(&self.device),
            digest: graph_digest(graph),
            graph: graph.clone(),
            printed,
            probe: Mutex::default(),
        })
    }
}

/// A graph whose dispatches are watched.
#[derive(Debug)]
struct WatchedGraph {
    comparison: Arc<CallComparison>,
    device: Arc<dyn Backend>,
    digest: String,
    graph: Graph,
    /// The operands to print, with the names that they were asked for by.
    printed: Vec<(String, NodeId)>,
    /// The probe of these operands, once it was needed.
    probe: Mutex<Option<Arc<OperandProbe>>>,
}

impl ObservedGraph for WatchedGraph {
    fn dispatch(
        &self,
        executable: &dyn Executable,
        inputs: &[DeviceBuffer],
        variables: &[DeviceBuffer],
        cancel: &CancelToken,
    ) -> Result<Vec<DeviceBuffer>, DeviceError> {
        if self.comparison.is_over() {
            return Err(DeviceError::Cancelled);
        }
        let step = self.comparison.next_step();
        let is_watched = self.comparison.is_in_range(step);
        let changes_variables = !self.graph.assignments.is_empty();
        // A dispatch changes its variables, so what is looked at afterwards needs their values before it.
        let before = match is_watched && changes_variables {
            true => Some(copy_variables(&*self.device, variables, cancel).map_err(|_| DeviceError::Cancelled)?),
            false => None,
        };
        let outputs = executable.dispatch_cancellable(inputs, variables, cancel)?;
        let program = executable.program();
        self.comparison.compare(&HostCall::Dispatch {
            graph: self.digest.clone(),
            inputs: tensor_digests(&*self.device, &program.inputs, inputs, cancel)?,
            outputs: tensor_digests(&*self.device, &program.outputs, &outputs, cancel)?,
        });
        if is_watched {
            let values = DispatchValues { inputs, variables: before.as_deref().unwrap_or(variables) };
            self.print_operands(step, values, cancel);
            let found_in = self.non_finite_results(&outputs, variables, cancel)?;
            if !found_in.is_empty() {
                let found = find_non_finite(&self.device, &self.graph, values, cancel);
                self.comparison.end_with(NonFiniteOperand { step, found_in, ..found });
                return Err(DeviceError::Cancelled);
            }
        }
        if changes_variables {
            self.comparison.end_step();
        }
        Ok(outputs)
    }
}

impl WatchedGraph {
    fn print_operands(&self, step: u64, values: DispatchValues<'_>, cancel: &CancelToken) {
        if self.printed.is_empty() {
            return;
        }
        match self.probe().and_then(|probe| probe.values(values, cancel)) {
            Ok(bytes) => {
                let printed = self.printed.iter().zip(bytes).map(|((operand, id), bytes)| PrintedOperand {
                    step,
                    operand: operand.clone(),
                    is_update: !self.graph.assignments.is_empty(),
                    value: summarize(self.graph.descriptor(*id), &bytes),
                });
                self.comparison.add_printed(printed.collect());
            }
            Err(problem) => tracing::warn!("the operands to print cannot be computed: {problem}"),
        }
    }

    fn probe(&self) -> Result<Arc<OperandProbe>, String> {
        let mut probe = self.probe.lock();
        if let Some(probe) = &*probe {
            return Ok(Arc::clone(probe));
        }
        let operands: Vec<NodeId> = self.printed.iter().map(|(_, id)| *id).collect();
        let compiled = Arc::new(OperandProbe::new(&self.device, &self.graph, &operands)?);
        Ok(Arc::clone(probe.insert(compiled)))
    }

    /// Returns the names of outputs and of changed variables that are not finite.
    fn non_finite_results(
        &self,
        outputs: &[DeviceBuffer],
        variables: &[DeviceBuffer],
        cancel: &CancelToken,
    ) -> Result<Vec<String>, DeviceError> {
        let named = self.graph.outputs.iter().map(|(name, _)| name).zip(outputs);
        let changed = self.graph.assignments.iter().map(|(variable, _)| {
            let index = *variable as usize;
            (&self.graph.variables[index].name, &variables[index])
        });
        let mut found = Vec::new();
        for (name, buffer) in named.chain(changed) {
            let bytes = self.device.read_cancellable(buffer, cancel)?;
            if first_non_finite(buffer.descriptor(), &bytes).is_some() {
                found.push(name.clone());
            }
        }
        Ok(found)
    }
}
