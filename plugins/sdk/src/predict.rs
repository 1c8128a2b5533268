//! Predictors: models that answer requests.

mod port;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::bindings::predictor as raw;
use crate::bindings::tensors::{DataType, Descriptor};
use crate::error::{Error, Result};
use crate::graph::{Executable, Graph, Inputs};
use crate::operand::Operand;
use crate::params::Params;
use crate::tensor::{NamedTensor, descriptor};
use crate::variables::Variables;

/// The batch sizes that a model has graphs for where it says nothing else.
pub const BATCH_SIZES: &[u32] = &[1, 2, 4, 8, 16, 32];

/// A named input or output of a model.
#[derive(Debug, Clone)]
pub struct Port {
    name: String,
    item: Descriptor,
    semantics: Option<String>,
    classes: Vec<String>,
    default: Option<f64>,
}

impl Port {
    /// A port whose items, without the batch, have that data type and shape.
    pub fn new(name: &str, data_type: DataType, item: impl Into<Vec<u32>>) -> Self {
        let (name, item) = (name.to_owned(), descriptor(data_type, item));
        Self { name, item, semantics: None, classes: Vec::new(), default: None }
    }

    /// A port of texts: `uint8[bytes]`, UTF-8 with zeros after it. Clients send and get strings.
    pub fn text(name: &str, bytes: u32) -> Self {
        Self::new(name, DataType::Uint8, [bytes]).semantics("text")
    }

    /// The port, known to be more than numbers: `image`, `class`, `probabilities`, `text` or `boolean`.
    #[must_use]
    pub fn semantics(mut self, semantics: &str) -> Self {
        self.semantics = Some(semantics.to_owned());
        self
    }

    /// The input, which a request may leave out: every element then has this value, rounded to the data type. The version
    /// is refused if the type does not hold it.
    #[must_use]
    pub fn default_value(mut self, value: f64) -> Self {
        self.default = Some(value);
        self
    }

    /// The port, with the names of its classes.
    #[must_use]
    pub fn classes(mut self, classes: &[String]) -> Self {
        self.classes = classes.to_vec();
        self
    }
}

/// What a model takes and gives, and in which batch sizes.
#[derive(Debug, Clone)]
pub struct Signature {
    /// Inputs.
    pub inputs: Vec<Port>,
    /// Outputs.
    pub outputs: Vec<Port>,
    /// Ascending. Empty where the model knows no batches: then a port's item is the whole tensor.
    pub batch_sizes: Vec<u32>,
    /// Paths of its own.
    pub routes: Vec<Route>,
}

/// A path of the model's own: `POST /models/NAME/invert`, or `POST /invert` where the model is the default one.
#[derive(Debug, Clone)]
pub struct Route {
    path: String,
    inputs: Vec<(String, f64)>,
}

impl Route {
    /// A route by its path, whose segments may be inputs: `/brighten/{gain}`.
    pub fn new(path: &str) -> Self {
        Self { path: path.to_owned(), inputs: Vec::new() }
    }

    /// The route, which gives an input by itself: every element of it is `value`.
    #[must_use]
    pub fn with(mut self, input: &str, value: f64) -> Self {
        self.inputs.push((input.to_owned(), value));
        self
    }
}

impl From<Port> for raw::Port {
    fn from(port: Port) -> Self {
        let Port { name, item, semantics, classes, default } = port;
        Self { name, item, semantics, classes, default }
    }
}

impl From<Signature> for raw::Signature {
    fn from(signature: Signature) -> Self {
        Self {
            inputs: signature.inputs.into_iter().map(Into::into).collect(),
            outputs: signature.outputs.into_iter().map(Into::into).collect(),
            batch_sizes: signature.batch_sizes,
            routes: signature.routes.into_iter().map(|Route { path, inputs }| raw::Route { path, inputs }).collect(),
        }
    }
}

/// A model that is one graph for each batch size: what most plugins implement. [`Graphs`] serves it.
pub trait Model: Sized + 'static {
    /// The batch sizes to build graphs for: ascending, not empty.
    const BATCH_SIZES: &'static [u32] = BATCH_SIZES;

    /// The model over these variables. `config` is what [`crate::Job::publish`] was given.
    ///
    /// # Errors
    /// Any; the version is then refused.
    fn load(variables: &Variables, config: &Params) -> Result<Self>;

    /// What it takes.
    fn inputs(&self) -> Vec<Port>;

    /// What it gives.
    fn outputs(&self) -> Vec<Port>;

    /// Paths of its own.
    fn routes(&self) -> Vec<Route> {
        Vec::new()
    }

    /// Builds the outputs, by their ports' names. Inputs are `[batch, item...]`. Called once for each batch size.
    ///
    /// # Errors
    /// Any; the version is then refused.
    fn predict(&self, graph: &Graph, inputs: &Inputs) -> Result<Vec<(&'static str, Operand)>>;
}

/// Anything that answers requests: for models that do more than run one graph.
pub trait Predictor: Sized + 'static {
    /// The model over these variables. Called once an instance.
    ///
    /// # Errors
    /// Any; the version is then refused.
    fn load(variables: Variables, config: Params) -> Result<Self>;

    /// What it takes and gives.
    fn signature(&self) -> Signature;

    /// One batch: each tensor is `[batch, item...]`, batch one of the signature's. What is known early may go ahead through
    /// [`emit`](crate::emit).
    ///
    /// # Errors
    /// Any; the batch's requests then fail.
    fn predict(&self, inputs: Vec<NamedTensor>) -> Result<Vec<NamedTensor>>;
}

/// A [`Model`] with its compiled graphs. That of the smallest batch size is made when it is loaded; the host asks for a
/// larger one when requests fill it, on an instance beside those that answer them.
#[derive(Debug)]
pub struct Graphs<M> {
    model: M,
    graphs: RefCell<BTreeMap<u32, Executable>>,
}

impl<M: Model> Graphs<M> {
    fn build(&self, size: u32) -> Result<Executable> {
        let ports = self.model.inputs();
        let graph = Graph::new();
        let inputs = graph.inputs(ports.iter().map(|port| (port.name.as_str(), &port.item)), size)?;
        let outputs = self.model.predict(&graph, &inputs)?;
        graph.build(outputs.iter().map(|(name, operand)| (*name, operand)))
    }
}

impl<M: Model> Predictor for Graphs<M> {
    fn load(variables: Variables, config: Params) -> Result<Self> {
        let model = M::load(&variables, &config)?;
        config.check()?;
        let graphs = Self { model, graphs: RefCell::default() };
        if let Some(&smallest) = M::BATCH_SIZES.first() {
            let built = graphs.build(smallest)?;
            graphs.graphs.borrow_mut().insert(smallest, built);
        }
        Ok(graphs)
    }

    fn signature(&self) -> Signature {
        Signature {
            inputs: self.model.inputs(),
            outputs: self.model.outputs(),
            batch_sizes: M::BATCH_SIZES.to_vec(),
            routes: self.model.routes(),
        }
    }

    fn predict(&self, inputs: Vec<NamedTensor>) -> Result<Vec<NamedTensor>> {
        let shape = inputs.first().map(|input| input.tensor.descriptor().shape).unwrap_or_default();
        let Some(&batch) = shape.first().filter(|batch| M::BATCH_SIZES.contains(batch)) else {
            let (what, expected) = ("a batch".to_owned(), "of one of the signature's sizes");
            return Err(Error::Shape { what, expected, given: shape });
        };
        let mut graphs = self.graphs.borrow_mut();
        let graph = match graphs.entry(batch) {
            Entry::Occupied(graph) => graph.into_mut(),
            Entry::Vacant(place) => place.insert(self.build(batch)?),
        };
        graph.dispatch(inputs.iter().map(|input| (input.name.as_str(), &input.tensor)))
    }
}
