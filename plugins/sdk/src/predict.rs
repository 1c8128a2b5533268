//! Predictors: models that answer requests.

pub(crate) mod port;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::bindings::predictor as raw;
use crate::bindings::tensors::{DataType, Descriptor};
use crate::error::{Error, Result};
use crate::graph::operand::Operand;
use crate::graph::{Executable, Graph, Inputs};
use crate::params::Params;
use crate::tensor::{NamedTensor, descriptor};
use crate::variables::Variables;

/// The default batch sizes of a [`Model`].
pub const BATCH_SIZES: &[u32] = &[1, 2, 4, 8, 16, 32];

/// A named input or output of a model.
///
/// ```
/// use saggar_plugin::{DataType, Port};
///
/// let image = Port::new("image", DataType::Uint8, [28, 28]).semantics("image"); // clients can send PNG
/// let classes = ["cat", "dog"].map(str::to_owned);
/// let label = Port::new("label", DataType::Int32, []).semantics("class").classes(&classes);
/// let prompt = Port::text("prompt", 256); // uint8[256], at most 256 bytes of UTF-8
/// let temperature = Port::new("temperature", DataType::Float32, []).default_value(0.8); // optional in a request
/// assert_eq!((image.name(), &image.item().shape[..]), ("image", &[28, 28][..]));
/// ```
#[derive(Debug, Clone)]
pub struct Port {
    name: String,
    item: Descriptor,
    semantics: Option<String>,
    classes: Vec<String>,
    default: Option<f64>,
}

impl Port {
    /// Returns a port whose items have this data type and shape, without the batch dimension.
    pub fn new(name: &str, data_type: DataType, item: impl Into<Vec<u32>>) -> Self {
        let (name, item) = (name.to_owned(), descriptor(data_type, item));
        Self { name, item, semantics: None, classes: Vec::new(), default: None }
    }

    /// Returns a port for texts: `uint8[bytes]`, UTF-8 padded with zeros. Clients send and receive strings.
    pub fn text(name: &str, bytes: u32) -> Self {
        Self::new(name, DataType::Uint8, [bytes]).semantics("text")
    }

    /// Sets the meaning of the values: `image`, `class`, `probabilities`, `text` or `boolean`. Clients can then use
    /// other forms than numbers.
    #[must_use]
    pub fn semantics(mut self, semantics: &str) -> Self {
        self.semantics = Some(semantics.to_owned());
        self
    }

    /// Makes an input optional: if a request omits it, every element has this value, rounded to the data type. The host
    /// refuses the model version if the data type cannot represent the value.
    #[must_use]
    pub fn default_value(mut self, value: f64) -> Self {
        self.default = Some(value);
        self
    }

    /// Sets the names of the port's classes.
    #[must_use]
    pub fn classes(mut self, classes: &[String]) -> Self {
        self.classes = classes.to_vec();
        self
    }
}

/// The inputs, outputs, batch sizes and routes of a model.
#[derive(Debug, Clone)]
pub struct Signature {
    /// Inputs.
    pub inputs: Vec<Port>,
    /// Outputs.
    pub outputs: Vec<Port>,
    /// Batch sizes, ascending. Empty if the model has no batches; a port's item is then the whole tensor.
    pub batch_sizes: Vec<u32>,
    /// Additional paths.
    pub routes: Vec<Route>,
}

/// An additional path of a model: `POST /models/NAME/invert`, or `POST /invert` if the model is the default model.
///
/// ```
/// use saggar_plugin::Route;
///
/// let invert = Route::new("/invert").with("inverted", 1.0); // sets the input `inverted` to 1
/// let brighten = Route::new("/brighten/{gain}"); // `/brighten/1.5` sets the input `gain` to 1.5
/// ```
#[derive(Debug, Clone)]
pub struct Route {
    path: String,
    inputs: Vec<(String, f64)>,
}

impl Route {
    /// Returns a route with this path. A segment can be an input: `/brighten/{gain}`.
    pub fn new(path: &str) -> Self {
        Self { path: path.to_owned(), inputs: Vec::new() }
    }

    /// Sets every element of an input to `value`.
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

/// A model that is one graph per batch size. Most plugins implement this trait; [`Graphs`] serves it.
///
/// ```no_run
/// use saggar_plugin::layers::Linear;
/// use saggar_plugin::{Classes, DataType, Graph, Inputs, Model, Operand, Params, Port, Result, Variables};
///
/// struct Classifier {
///     classes: Classes,
///     linear: Linear,
/// }
///
/// impl Model for Classifier {
///     fn load(v: &Variables, config: &Params) -> Result<Self> {
///         let classes: Classes = config.require("classes")?;
///         let linear = Linear::new(v, 28 * 28, classes.count())?;
///         Ok(Self { classes, linear })
///     }
///     fn inputs(&self) -> Vec<Port> {
///         vec![Port::new("image", DataType::Uint8, [28, 28]).semantics("image")]
///     }
///     fn outputs(&self) -> Vec<Port> {
///         self.classes.ports()
///     }
///     fn predict(&self, graph: &Graph, inputs: &Inputs) -> Result<Vec<(&'static str, Operand)>> {
///         let x = inputs.get("image")?.cast(graph.float())?.div_scalar(255.0)?.flatten(1)?; // [batch, 784]
///         self.classes.outputs(&self.linear.forward(&x)?)
///     }
/// }
///
/// saggar_plugin::export!(predict: Classifier);
/// ```
pub trait Model: Sized + 'static {
    /// The batch sizes to build graphs for: ascending, not empty.
    const BATCH_SIZES: &'static [u32] = BATCH_SIZES;

    /// Creates the model from these variables. `config` is the configuration given to [`crate::Job::publish`].
    ///
    /// # Errors
    /// After any error, the host refuses the model version.
    fn load(variables: &Variables, config: &Params) -> Result<Self>;

    /// Returns the inputs.
    fn inputs(&self) -> Vec<Port>;

    /// Returns the outputs.
    fn outputs(&self) -> Vec<Port>;

    /// Returns additional paths of the model.
    fn routes(&self) -> Vec<Route> {
        Vec::new()
    }

    /// Builds the outputs, named like their ports. Inputs are `[batch, item...]`. Called once per batch size.
    ///
    /// # Errors
    /// After any error, the host refuses the model version.
    fn predict(&self, graph: &Graph, inputs: &Inputs) -> Result<Vec<(&'static str, Operand)>>;
}

/// A predictor that runs custom code for each batch, such as a loop that generates a text. [`Model`] is simpler if one
/// graph is enough.
///
/// ```no_run
/// # use saggar_plugin::*;
/// struct Counter;
///
/// impl Predictor for Counter {
///     fn load(_: Variables, config: Params) -> Result<Self> {
///         config.check()?;
///         Ok(Self)
///     }
///     fn signature(&self) -> Signature {
///         Signature {
///             inputs: vec![Port::new("count", DataType::Uint32, [])],
///             outputs: vec![Port::text("text", 256)],
///             batch_sizes: vec![1],
///             routes: Vec::new(),
///         }
///     }
///     fn predict(&self, inputs: Vec<NamedTensor>) -> Result<Vec<NamedTensor>> {
///         let mut text = Vec::new();
///         for number in 0..named(&inputs, "count")?.read_u32()?[0].min(100) {
///             let word = format!("{number} ");
///             emit("text", 0, word.as_bytes())?; // sent to the client at once
///             text.extend(word.bytes());
///         }
///         text.resize(256, 0);
///         text.truncate(256);
///         let tensor = Tensor::from_bytes(&descriptor(DataType::Uint8, [1, 256]), &text)?;
///         Ok(vec![NamedTensor { name: "text".to_owned(), tensor }])
///     }
/// }
///
/// saggar_plugin::export!(predictor: Counter);
/// ```
pub trait Predictor: Sized + 'static {
    /// Creates the predictor from these variables. Called once per instance.
    ///
    /// # Errors
    /// After any error, the host refuses the model version.
    fn load(variables: Variables, config: Params) -> Result<Self>;

    /// Returns the inputs, outputs, batch sizes and routes.
    fn signature(&self) -> Signature;

    /// Predicts one batch. Each tensor is `[batch, item...]`, with one of the signature's batch sizes. Outputs that are
    /// known early can be streamed with [`emit`](crate::emit).
    ///
    /// # Errors
    /// After any error, the requests of the batch fail.
    fn predict(&self, inputs: Vec<NamedTensor>) -> Result<Vec<NamedTensor>>;
}

/// A [`Model`] with its compiled graphs. The graph of the smallest batch size is built when the model is loaded. The
/// host requests a larger batch size when enough requests are queued, on another instance than those that are serving
/// requests.
#[derive(Debug)]
pub struct Graphs<M> {
    model: M,
    graphs: RefCell<BTreeMap<u32, Executable>>,
}

impl<M: Model> Graphs<M> {
    /// Returns the model.
    pub fn model(&self) -> &M {
        &self.model
    }

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
            let (what, expected) = ("the first dimension of the inputs".to_owned(), "a batch size of the signature");
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
