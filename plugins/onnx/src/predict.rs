//! The plugin: what the host calls.

use std::collections::BTreeMap;

use saggar_plugin::{
    DataType, Executable, Importer, NamedTensor, Params, Port, Predictor, Signature, Variables, Weights, descriptor,
};

use crate::backend::Backend;
use crate::elem::Elem;
use crate::error::Result;
use crate::host::Host;
use crate::import::{self, Store};
use crate::plan::{self, Plan};

/// An imported model, with a graph for each batch size.
#[derive(Debug)]
pub struct Onnx {
    plan: Plan,
    /// By batch size; 0 is the one graph of a model without batches.
    graphs: BTreeMap<u32, Executable>,
}

impl Onnx {
    fn restore(variables: &Variables, config: &Params) -> Result<Self> {
        let (model, plan) = import::restore(config)?;
        let sizes: Vec<Option<u32>> =
            if plan.batch.is_empty() { vec![None] } else { plan.batch.iter().copied().map(Some).collect() };
        let mut graphs = BTreeMap::new();
        for size in sizes {
            let mut host = Host::over(variables);
            let built = import::build(&model, &plan.inputs, size, &mut host)?;
            let outputs = built.outputs.iter().map(|(name, operand)| (name.as_str(), host.handle(operand)));
            graphs.insert(size.unwrap_or(0), host.graph().build(outputs)?);
        }
        Ok(Self { plan, graphs })
    }

    fn ports(ports: &[plan::Port]) -> Vec<Port> {
        let port = |port: &plan::Port| {
            let item: Vec<u32> = port.item.iter().map(|&dim| dim as u32).collect();
            // The plan was made with the host's types.
            let port_of = Port::new(&port.name, port.elem.data_type().unwrap_or(DataType::Float32), item);
            // The host has no truth values: they are bytes, of which clients are told what they are.
            if port.elem == Elem::Bool { port_of.semantics("boolean") } else { port_of }
        };
        ports.iter().map(port).collect()
    }
}

impl Predictor for Onnx {
    fn load(variables: Variables, config: Params) -> saggar_plugin::Result<Self> {
        Ok(Self::restore(&variables, &config)?)
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
        let graph = self.graphs.get(&batch).ok_or(saggar_plugin::Error::Shape {
            what: "a batch".to_owned(),
            expected: "of one of the signature's sizes",
            given: shape,
        })?;
        graph.dispatch(inputs.iter().map(|input| (input.name.as_str(), &input.tensor)))
    }
}

impl Importer for Onnx {
    fn import(file: &[u8], options: &Params, weights: &Weights<'_>) -> saggar_plugin::Result<Params> {
        Ok(import::import(file, options, &mut Space(weights))?)
    }
}

/// The namespace of the model version being made.
struct Space<'a>(&'a Weights<'a>);

impl Store for Space<'_> {
    fn parameter(&mut self, name: &str, data_type: DataType, shape: &[usize], bytes: Vec<u8>) -> Result<()> {
        let shape: Vec<u32> = shape.iter().map(|&dim| dim as u32).collect();
        Ok(self.0.put(name, &descriptor(data_type, shape), bytes)?)
    }

    fn backend(&mut self) -> Box<dyn Backend + '_> {
        Box::new(Host::trial())
    }
}
