//! From a file to a configuration and variables.
//!
//! Initializers that a graph only needs as operands become variables, so that weights never pass through the guest again.
//! What rules read while a graph is built (shapes, scales, limits) stays in the configuration, with the nodes.

use std::collections::HashSet;

use prost::Message;
use saggar_plugin::{DataType, Params};

use crate::advice;
use crate::backend::Backend;
use crate::base64;
use crate::build::{Builder, FLOATS_KNOWN, INTEGERS_KNOWN};
use crate::elem::Elem;
use crate::error::{Error, Fault, Result};
use crate::graph::Graph;
use crate::model::Model;
use crate::plan::{self, Constants, InputShapes, Plan, Port, Shapes};
use crate::proto::{GraphProto, NodeProto, TensorProto};
use crate::tensor::{self, Place};
use crate::value::{Operand, Value};

/// The form of configurations; another plugin's or a newer one's is refused.
const FORMAT: u32 = 1;
/// Bytes of a variable's name; the host takes no longer ones.
const NAME_BYTES_MAX: usize = 200;

/// Batch sizes that an import builds: a third one would show nothing that two do not, and take as long.
const CHECKED_SIZES: usize = 2;

/// Where an import puts the model's variables, and where it builds the graphs that it checks the model with.
pub trait Store {
    /// Makes a variable. Called once a name.
    ///
    /// # Errors
    /// `Host`.
    fn parameter(&mut self, name: &str, data_type: DataType, shape: &[usize], bytes: Vec<u8>) -> Result<()>;
    /// An empty graph over the variables made so far, to build the model once.
    fn backend(&mut self) -> Box<dyn Backend + '_>;
}

/// What the options say.
struct Options {
    batch: Option<Vec<u32>>,
    shapes: Shapes,
    constants: Constants,
}

/// Imports `file` and gives the configuration.
///
/// Options: `batch`, the batch sizes where the model's batch is open; `shapes`, dimensions that the model leaves open;
/// `constants`, values of inputs that are then no inputs.
///
/// # Errors
/// Any, naming the place; nothing of what was made then counts.
pub fn import(file: &[u8], options: &Params, store: &mut dyn Store) -> Result<Params> {
    let options = Options {
        batch: options.optional("batch")?,
        shapes: options.get("shapes", Shapes::default())?,
        constants: options.get("constants", Constants::default())?,
    };
    let mut model = Model::parse(file, false)?;
    freeze(&mut model, &options.constants)?;
    let mut variables = Variables::default();
    variables.move_large(&mut model, store)?;
    // From here on the model refers to variables, as only a configuration may.
    model.imported = true;
    let shapes = InputShapes::read(model.graph(), &options.shapes)?;
    let Some(inputs) = shapes.ports() else {
        let mut builds = |shapes: &InputShapes, batch: Option<Vec<u32>>| {
            let batch = batch.or_else(|| options.batch.clone());
            shapes.ports().is_some_and(|inputs| checked(&model, inputs, shapes.has_open_batch(), batch, store).is_ok())
        };
        let own = InputShapes::read(model.graph(), &Shapes::default())?;
        return Err(advice::open_shapes(&own, &shapes, &mut builds));
    };
    let (plan, read) = checked(&model, inputs, shapes.has_open_batch(), options.batch, store)?;
    variables.move_unread(&mut model, &read, store)?;
    let config = Params::new().with("format", FORMAT).with("plan", plan.to_json());
    Ok(config.with("model", base64::encode(&model.proto.encode_to_vec())))
}

/// The model and plan of a configuration.
///
/// # Errors
/// `Option` if it is none; as [`Model::parse`].
pub fn restore(config: &Params) -> Result<(Model, Plan)> {
    let broken =
        |expected: &str| Error::from(Fault::Option { expected: expected.to_owned() }).at(|| "configuration".to_owned());
    if config.require::<u32>("format")? != FORMAT {
        return Err(broken("one that this version of the plugin wrote"));
    }
    let plan: Plan = config.require("plan")?;
    let bytes = base64::decode(&config.require::<String>("model")?).ok_or_else(|| broken("the text of a model"))?;
    Ok((Model::parse(&bytes, true)?, plan))
}

/// What a graph gives: its outputs in order, and which initializers were read while it was built.
#[derive(Debug)]
pub struct Built {
    /// By name, as operands of the backend.
    pub outputs: Vec<(String, Operand)>,
    /// Names.
    pub read: HashSet<String>,
}

/// The graph for one batch size.
///
/// # Errors
/// Any, naming the node.
pub fn build(model: &Model, inputs: &[Port], batch: Option<u32>, backend: &mut dyn Backend) -> Result<Built> {
    let mut graph = Graph::new(backend);
    let mut values = Vec::new();
    for port in inputs {
        let made = graph.input(&port.name, port.elem, &port.shape(batch));
        values.push((port.name.as_str(), made.map_err(|e| e.at(|| format!("input `{}`", port.name)))?));
    }
    let mut builder = Builder::new(model, graph);
    let results: Vec<Value> = builder.build(values).map_err(|error| advice::with_source(error, model.graph()))?;
    let read = builder.read();
    let names = model.graph().output.iter().map(|output| output.name.clone());
    let mut outputs = Vec::new();
    for (name, value) in names.zip(&results) {
        let operand = builder.graph.operand(value).map_err(|e| e.at(|| format!("output `{name}`")))?;
        outputs.push((name, operand));
    }
    Ok(Built { outputs, read })
}

/// Builds the model for two batch sizes, which tells what follows the batch from what does not, so that what is not
/// supported is found before anything is published.
fn checked(
    model: &Model,
    inputs: Vec<Port>,
    open: bool,
    asked: Option<Vec<u32>>,
    store: &mut dyn Store,
) -> Result<(Plan, HashSet<String>)> {
    if !open {
        fixed_batch(&inputs, asked.as_deref())?;
        let Built { outputs, read } = build(model, &inputs, None, &mut *store.backend())?;
        let plan = Plan { inputs, outputs: ports(&outputs, false), batch: Vec::new() };
        return Ok((batch_of_one(plan), read));
    }
    let batch = plan::batch_sizes(asked)?;
    let mut all_read = HashSet::new();
    let mut first: Option<Vec<Port>> = None;
    for &size in batch.iter().take(CHECKED_SIZES) {
        let Built { outputs, read } = match build(model, &inputs, Some(size), &mut *store.backend()) {
            Err(reason) if first.is_some() && batch[0] == 1 => {
                return Err(Fault::OneItem { items: size, reason: Box::new(reason) }.into());
            }
            built => built?,
        };
        all_read.extend(read);
        let without = |name: &str| {
            let expected = format!("given for all inputs: the first dimension of output `{name}` is not the batch");
            Err(Error::from(Fault::Option { expected }).at(|| "option `shapes`".to_owned()))
        };
        if let Some((name, _)) = outputs.iter().find(|(_, operand)| operand.shape.first() != Some(&(size as usize))) {
            return without(name);
        }
        let items = ports(&outputs, true);
        let known = first.get_or_insert_with(|| items.clone());
        if let Some((port, _)) = items.iter().zip(known.iter()).find(|(a, b)| a != b) {
            return without(&port.name);
        }
    }
    Ok((Plan { inputs, outputs: first.unwrap_or_default(), batch }, all_read))
}

/// Refuses batch sizes for a model whose batch is not open. A batch of one is what such a model has, if it has one.
fn fixed_batch(inputs: &[Port], asked: Option<&[u32]>) -> Result<()> {
    if asked.is_none_or(|sizes| sizes == [1]) {
        return Ok(());
    }
    let shapes: Vec<String> = inputs.iter().map(|input| format!("`{}` {:?}", input.name, input.item)).collect();
    let expected = format!(
        "left out: the model's shapes are fixed ({}), and batch sizes are for models whose inputs all begin with an open \
         dimension",
        shapes.join(", ")
    );
    Err(Error::from(Fault::Option { expected }).at(|| "option `batch`".to_owned()))
}

fn ports(outputs: &[(String, Operand)], batched: bool) -> Vec<Port> {
    let port = |(name, operand): &(String, Operand)| Port {
        name: name.clone(),
        elem: operand.elem,
        item: operand.shape[usize::from(batched)..].to_vec(),
    };
    outputs.iter().map(port).collect()
}

/// Where every input and output begins with a dimension of 1, that is a batch of one.
fn batch_of_one(plan: Plan) -> Plan {
    let leads = |port: &Port| port.item.first() == Some(&1);
    if plan.inputs.is_empty() || !plan.inputs.iter().chain(&plan.outputs).all(leads) {
        return plan;
    }
    let item = |port: Port| Port { item: port.item[1..].to_vec(), ..port };
    let (inputs, outputs) = (plan.inputs.into_iter().map(item).collect(), plan.outputs.into_iter().map(item).collect());
    Plan { inputs, outputs, batch: vec![1] }
}

/// Makes initializers of the inputs that the option `constants` gives values.
fn freeze(model: &mut Model, constants: &Constants) -> Result<()> {
    let at = |name: &str| format!("option `constants`, `{name}`");
    let Some(graph) = &mut model.proto.graph else { return Ok(()) };
    for (name, shape, numbers) in &constants.0 {
        let Some(input) = graph.input.iter().find(|input| input.name == *name) else {
            let expected = "the name of an input".to_owned();
            return Err(Error::from(Fault::Option { expected }).at(|| at(name)));
        };
        let (elem, dims) = plan::declared(input)?;
        // Arrays without elements do not say how many they would have.
        let known = dims
            .and_then(|dims| dims.iter().map(|dim| usize::try_from(dim.dim_value?).ok()).collect::<Option<Vec<_>>>());
        let empty = known.filter(|shape| numbers.is_empty() && shape.contains(&0));
        let shape = empty.as_ref().unwrap_or(shape);
        let fits = dims.is_none_or(|dims| {
            dims.len() == shape.len()
                && dims.iter().zip(shape).all(|(dim, &n)| dim.dim_value.is_none_or(|d| d == n as i64))
        });
        if !fits {
            let expected = format!("of the input's shape, not {shape:?}");
            return Err(Error::from(Fault::Option { expected }).at(|| at(name)));
        }
        let constant = Constants::constant(elem, shape, numbers);
        graph.initializer.retain(|tensor| tensor.name != *name);
        graph.initializer.push(tensor::from_constant(name, &constant));
    }
    Ok(())
}

/// Names of the variables made so far.
#[derive(Default)]
struct Variables(HashSet<String>);

impl Variables {
    /// Makes variables of all tensors too large to compute with, wherever they are.
    fn move_large(&mut self, model: &mut Model, store: &mut dyn Store) -> Result<()> {
        if let Some(graph) = &mut model.proto.graph {
            self.visit_graph(graph, store)?;
        }
        model.proto.functions.iter_mut().try_for_each(|function| self.visit_nodes(&mut function.node, store))
    }

    fn visit_graph(&mut self, graph: &mut GraphProto, store: &mut dyn Store) -> Result<()> {
        for tensor in &mut graph.initializer {
            let name = tensor.name.clone();
            self.visit(tensor, &name, store).map_err(|e| e.at(|| format!("initializer `{name}`")))?;
        }
        self.visit_nodes(&mut graph.node, store)
    }

    fn visit_nodes(&mut self, nodes: &mut [NodeProto], store: &mut dyn Store) -> Result<()> {
        for node in nodes {
            let name = node.output.first().cloned().unwrap_or_default();
            let constant = node.op_type == "Constant";
            for attribute in &mut node.attribute {
                if let (Some(tensor), true) = (&mut attribute.t, constant) {
                    self.visit(tensor, &name, store).map_err(|e| e.at(|| format!("constant `{name}`")))?;
                }
                if let Some(graph) = &mut attribute.g {
                    self.visit_graph(graph, store)?;
                }
            }
        }
        Ok(())
    }

    fn visit(&mut self, tensor: &mut TensorProto, name: &str, store: &mut dyn Store) -> Result<()> {
        // What cannot be read is refused only where something uses it.
        let Ok(stored) = tensor::read(tensor, false) else { return Ok(()) };
        let known = if stored.elem.is_float() { FLOATS_KNOWN } else { INTEGERS_KNOWN };
        let count: usize = stored.shape.iter().product();
        if count > known && stored.elem != Elem::Float64 {
            self.make(tensor, name, store)?;
        }
        Ok(())
    }

    /// Makes variables of the small float initializers that no rule has read; single numbers stay.
    fn move_unread(&mut self, model: &mut Model, read: &HashSet<String>, store: &mut dyn Store) -> Result<()> {
        let Some(graph) = &mut model.proto.graph else { return Ok(()) };
        let used: HashSet<&str> = graph.node.iter().flat_map(|node| node.input.iter().map(String::as_str)).collect();
        for tensor in &mut graph.initializer {
            let name = tensor.name.clone();
            let small = match tensor::read(tensor, true) {
                Ok(stored) => {
                    matches!(stored.elem, Elem::Float32 | Elem::Float16)
                        && matches!(stored.place, Place::Bytes(_))
                        && stored.shape.iter().product::<usize>() > 1
                }
                Err(_) => false,
            };
            if small && !read.contains(&name) && used.contains(name.as_str()) {
                self.make(tensor, &name, store).map_err(|e| e.at(|| format!("initializer `{name}`")))?;
            }
        }
        Ok(())
    }

    /// Makes a variable of a tensor and leaves a reference to it.
    fn make(&mut self, tensor: &mut TensorProto, name: &str, store: &mut dyn Store) -> Result<()> {
        let name = self.unique(name);
        let stored = tensor::read(tensor, false)?;
        if let Place::Bytes(bytes) = &stored.place {
            store.parameter(&name, stored.elem.data_type()?, &stored.shape, bytes.to_vec())?;
            let moved = tensor::moved(tensor, &name);
            *tensor = moved;
        }
        Ok(())
    }

    /// A name that no other variable has: the given one if possible.
    fn unique(&mut self, name: &str) -> String {
        let end = (0..=name.len().min(NAME_BYTES_MAX)).rev().find(|&end| name.is_char_boundary(end)).unwrap_or(0);
        // Files of weights keep one name for themselves.
        let base = if end == 0 || name == "__metadata__" { "tensor" } else { &name[..end] };
        let numbered = |number: usize| if number == 0 { base.to_owned() } else { format!("{base}.{number}") };
        let free = (0..=self.0.len()).map(numbered).find(|name| !self.0.contains(name)).unwrap_or_default();
        self.0.insert(free.clone());
        free
    }
}
