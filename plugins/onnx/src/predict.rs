//! The plugin's exports: the importer and the predictor that the host calls.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use saggar_plugin::{
    DataType, Executable, Importer, NamedTensor, Params, Port, Predictor, Signature, Variables, Weights, descriptor,
};

use crate::backend::GraphBackend;
use crate::elem::ElementType;
use crate::error::Result;
use crate::host::HostBackend;
use crate::import::{self, WeightStore};
use crate::model::OnnxModel;
use crate::plan::{self, ImportPlan};

/// An imported model. The graph of the smallest batch size is built at load, the graph of a larger one when the host
/// first requests it.
#[derive(Debug)]
pub struct OnnxPredictor {
    variables: Variables,
    model: OnnxModel,
    plan: ImportPlan,
    /// The graphs by batch size. 0 is the only graph of a model without batches.
    graphs: RefCell<BTreeMap<u32, Executable>>,
}

impl OnnxPredictor {
    fn restore(variables: Variables, config: &Params) -> Result<Self> {
        let (model, plan) = import::restore(config)?;
        let smallest = plan.batch.first().copied().unwrap_or(0);
        let onnx = Self { variables, model, plan, graphs: RefCell::default() };
        let built = onnx.build(smallest)?;
        onnx.graphs.borrow_mut().insert(smallest, built);
        Ok(onnx)
    }

    fn build(&self, batch: u32) -> Result<Executable> {
        let mut host = HostBackend::with_variables(&self.variables);
        let size = Some(batch).filter(|&batch| batch > 0);
        let built = import::build(&self.model, &self.plan.inputs, size, &mut host)?;
        let outputs = built.outputs.iter().map(|(name, operand)| (name.as_str(), host.handle(operand)));
        Ok(host.graph().build(outputs)?)
    }

    fn ports(ports: &[plan::TensorPort]) -> Vec<Port> {
        let port = |port: &plan::TensorPort| {
            let item: Vec<u32> = port.item.iter().map(|&dim| dim as u32).collect();
            // The plan was made with the host's types.
            let port_of = Port::new(&port.name, port.elem.data_type().unwrap_or(DataType::Float32), item);
            // The host has no boolean type. Booleans are `uint8`, and the port's semantics tell clients so.
            if port.elem == ElementType::Bool { port_of.semantics("boolean") } else { port_of }
        };
        ports.iter().map(port).collect()
    }
}

impl Predictor for OnnxPredictor {
    fn load(variables: Variables, config: Params) -> saggar_plugin::Result<Self> {
        Ok(Self::restore(variables, &config)?)
    }

    fn signature(&self) -> Signature {
        Signature {
            inputs: Self::ports(&self.plan.inputs),
            outputs: Self::ports(&self.plan.outputs),
            batch_sizes: self.plan.batch.clone(),
            routes: Vec::new(),
        }
    }

    fn predict(&self, inputs: Vec<NamedTensor>) -> saggar_plugin::Result<Vec<NamedTensor>> {
        let shape = inputs.first().map(|input| input.tensor.descriptor().shape).unwrap_or_default();
        let batch = if self.plan.batch.is_empty() { 0 } else { shape.first().copied().unwrap_or_default() };
        if batch != 0 && !self.plan.batch.contains(&batch) {
            let (what, expected) = ("a batch".to_owned(), "of one of the signature's sizes");
            return Err(saggar_plugin::Error::Shape { what, expected, given: shape });
        }
        let mut graphs = self.graphs.borrow_mut();
        let graph = match graphs.entry(batch) {
            Entry::Occupied(graph) => graph.into_mut(),
            Entry::Vacant(place) => place.insert(self.build(batch)?),
        };
        graph.dispatch(inputs.iter().map(|input| (input.name.as_str(), &input.tensor)))
    }
}

impl Importer for OnnxPredictor {
    fn import(file: &[u8], options: &Params, weights: &Weights<'_>) -> saggar_plugin::Result<Params> {
        Ok(import::import(file, options, &mut HostWeightStore(weights))?)
    }
}

/// The variables of the model version being imported.
struct HostWeightStore<'a>(&'a Weights<'a>);

impl WeightStore for HostWeightStore<'_> {
    fn parameter(&mut self, name: &str, data_type: DataType, shape: &[usize], bytes: Vec<u8>) -> Result<()> {
        let shape: Vec<u32> = shape.iter().map(|&dim| dim as u32).collect();
        Ok(self.0.put(name, &descriptor(data_type, shape), bytes)?)
    }

    fn backend(&mut self) -> Box<dyn GraphBackend + '_> {
        Box::new(HostBackend::dry_run())
    }
}
