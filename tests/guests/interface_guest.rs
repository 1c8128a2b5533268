//! A guest in terms of the plugin interface alone, without the guest library: it trains one number `w` towards a
//! parameter and predicts `y = w x`. Each revision of the interface has a crate that builds it.

use crate::exports::saggar::plugin::predictor::{self, Port, Signature};
use crate::exports::saggar::plugin::trainer;
use crate::saggar::plugin::graphs::{Graph, GraphBuilder, ReduceOptions};
use crate::saggar::plugin::job;
use crate::saggar::plugin::tensors::{DataType, Descriptor, Error, ErrorCode, NamedTensor};
use crate::saggar::plugin::variables::{Initializer, Variable, VariableKind, Variables};

/// The value that `w` is trained to.
const TARGET: f64 = 3.0;
const STEPS: u64 = 100;

/// The plugin.
pub struct InterfaceGuest;

/// The loaded model: the graph of one item.
pub struct InterfaceModel(Graph);

fn floats(shape: &[u32]) -> Descriptor {
    Descriptor { data_type: DataType::Float32, shape: shape.to_vec() }
}

fn weight(variables: &Variables) -> Result<Variable, Error> {
    variables.get("w", &floats(&[1]), &Initializer::Zeros, VariableKind::Parameter)
}

/// Returns the graph of a step: gradient descent on the squared distance of `w` from the target.
fn training_graph(variables: &Variables) -> Result<Graph, Error> {
    let (builder, variable) = (GraphBuilder::new(), weight(variables)?);
    let w = builder.variable(&variable)?;
    let distance = builder.sub(&w, &builder.scalar(DataType::Float32, TARGET)?)?;
    let loss = builder
        .reduce_sum(&builder.mul(&distance, &distance)?, &ReduceOptions { axes: None, keep_dimensions: None })?;
    let gradients = builder.gradients(&loss, &[&w])?;
    let change = builder.mul(&gradients[0], &builder.scalar(DataType::Float32, 0.1)?)?;
    builder.assign(&variable, &builder.sub(&w, &change)?)?;
    GraphBuilder::build(builder, &[("loss".to_owned(), &loss)])
}

impl trainer::Guest for InterfaceGuest {
    fn train() -> Result<(), Error> {
        let variables = Variables::new(job::seed());
        let graph = training_graph(&variables)?;
        let start = job::resume(&variables, &[])?.map_or(0, |(step, _)| step);
        for step in start + 1..=STEPS {
            let loss = graph.dispatch(&[])?.remove(0).tensor.read()?;
            let loss = loss.try_into().map(f32::from_le_bytes).unwrap_or(f32::NAN);
            job::metric(step, "loss", f64::from(loss));
            job::metric(step, "shards", f64::from(crate::shards()));
            job::progress(step, STEPS);
            if !job::boundary(step, &variables, &[], &[])? {
                return Ok(());
            }
        }
        job::publish(env!("CARGO_PKG_NAME"), &variables, "").map(drop)
    }
}

impl predictor::Guest for InterfaceGuest {
    type Model = InterfaceModel;
}

impl predictor::GuestModel for InterfaceModel {
    fn load(variables: Variables, _: String) -> Result<predictor::Model, Error> {
        let (builder, variable) = (GraphBuilder::new(), weight(&variables)?);
        let x = builder.input("x", &floats(&[1, 1]))?;
        let y = builder.mul(&x, &builder.variable(&variable)?)?;
        let graph = GraphBuilder::build(builder, &[("y".to_owned(), &y)])?;
        Ok(predictor::Model::new(InterfaceModel(graph)))
    }

    fn signature(&self) -> Signature {
        let port = |name: &str| Port {
            name: name.to_owned(),
            item: floats(&[1]),
            semantics: None,
            classes: Vec::new(),
            default: None,
        };
        Signature { inputs: vec![port("x")], outputs: vec![port("y")], batch_sizes: vec![1], routes: Vec::new() }
    }

    fn predict(&self, inputs: Vec<NamedTensor>) -> Result<Vec<NamedTensor>, Error> {
        let Some(x) = inputs.first() else {
            let message = "no input".to_owned();
            return Err(Error { code: ErrorCode::InvalidArgument, message, place: None });
        };
        self.0.dispatch(&[("x".to_owned(), &x.tensor)])
    }
}
