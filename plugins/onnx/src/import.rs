//! Import: turns a file into a configuration and variables.
//!
//! Initializers that a graph uses only as operands become variables, so that the weights never pass through the guest
//! again. Values that rules read while a graph is built (shapes, scales, limits) stay in the configuration, with the
//! nodes.

use std::collections::HashSet;

use prost::Message;
use saggar_plugin::{DataType, Params};

use crate::backend::GraphBackend;
use crate::base64;
use crate::build::{KNOWN_FLOATS_MAX, KNOWN_INTEGERS_MAX, OnnxGraphBuilder};
use crate::elem::ElementType;
use crate::error::{Error, OnnxErrorKind, Result};
use crate::graph::FoldingGraph;
use crate::import_hints;
use crate::model::OnnxModel;
use crate::plan::{self, ConstantsOption, ImportPlan, InputShapes, ShapesOption, TensorPort};
use crate::proto::{GraphProto, NodeProto, TensorProto};
use crate::tensor::{self, ElementLocation};
use crate::value::{BackendOperand, GraphValue};

/// The version of the configuration format. Configurations of other plugins or newer versions are refused.
const CONFIG_FORMAT: u32 = 1;
/// The maximum length of a variable's name in bytes, which is the host's limit.
const NAME_BYTES_MAX: usize = 200;

/// The number of batch sizes that an import builds. Two are enough to check the model; a third takes as long again.
const CHECKED_BATCH_SIZES: usize = 2;

/// The destination of the model's variables, and the source of backends for the graphs that check the model.
pub trait WeightStore {
    /// Creates a variable. Called once for each name.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses the variable.
    fn parameter(&mut self, name: &str, data_type: DataType, shape: &[usize], bytes: Vec<u8>) -> Result<()>;
    /// Returns an empty graph over the variables created so far, to build the model once.
    fn backend(&mut self) -> Box<dyn GraphBackend + '_>;
}

/// The parsed import options.
struct ImportOptions {
    batch: Option<Vec<u32>>,
    shapes: ShapesOption,
    constants: ConstantsOption,
}

/// Imports `file` and returns the configuration.
///
/// Options: `batch`, the batch sizes if the model's batch is open; `shapes`, sizes of dimensions that the model leaves
/// open; `constants`, values of inputs, which are then no longer inputs.
///
/// # Errors
/// Returns any error of this crate, with its place in the model. The variables created so far must then be discarded.
pub fn import(file: &[u8], options: &Params, store: &mut dyn WeightStore) -> Result<Params> {
    let options = ImportOptions {
        batch: options.optional("batch")?,
        shapes: options.get("shapes", ShapesOption::default())?,
        constants: options.get("constants", ConstantsOption::default())?,
    };
    let mut model = OnnxModel::parse(file, false)?;
    freeze_constants(&mut model, &options.constants)?;
    let mut variables = InitializerMover::default();
    variables.move_large(&mut model, store)?;
    // From here on the model refers to variables, which is allowed only in a configuration.
    model.imported = true;
    let shapes = InputShapes::read(model.graph(), &options.shapes)?;
    let Some(inputs) = shapes.ports() else {
        let mut builds = |shapes: &InputShapes, batch: Option<Vec<u32>>| {
            let batch = batch.or_else(|| options.batch.clone());
            shapes
                .ports()
                .is_some_and(|inputs| build_and_plan(&model, inputs, shapes.has_open_batch(), batch, store).is_ok())
        };
        let own = InputShapes::read(model.graph(), &ShapesOption::default())?;
        return Err(import_hints::open_shapes_error(&own, &shapes, &mut builds));
    };
    let (plan, read) = build_and_plan(&model, inputs, shapes.has_open_batch(), options.batch, store)?;
    variables.move_unread(&mut model, &read, store)?;
    let config = Params::new().with("format", CONFIG_FORMAT).with("plan", plan.to_json());
    Ok(config.with("model", base64::encode(&model.proto.encode_to_vec())))
}

/// Restores the model and the plan of a configuration.
///
/// # Errors
/// Returns `Option` if the configuration is invalid, or the errors of [`OnnxModel::parse`].
pub fn restore(config: &Params) -> Result<(OnnxModel, ImportPlan)> {
    let broken = |expected: &str| {
        Error::from(OnnxErrorKind::Option { expected: expected.to_owned() }).at(|| "configuration".to_owned())
    };
    if config.require::<u32>("format")? != CONFIG_FORMAT {
        return Err(broken("one that this version of the plugin wrote"));
    }
    let plan: ImportPlan = config.require("plan")?;
    let bytes = base64::decode(&config.require::<String>("model")?).ok_or_else(|| broken("the text of a model"))?;
    Ok((OnnxModel::parse(&bytes, true)?, plan))
}

/// A built graph: its outputs in order, and the initializers that were read while building.
#[derive(Debug)]
pub struct BuiltGraph {
    /// The outputs by name, as operands of the backend.
    pub outputs: Vec<(String, BackendOperand)>,
    /// The names of the initializers that were read.
    pub read: HashSet<String>,
}

/// Builds the graph for one batch size.
///
/// # Errors
/// Returns any error of this crate, with the name of the node.
pub fn build(
    model: &OnnxModel,
    inputs: &[TensorPort],
    batch: Option<u32>,
    backend: &mut dyn GraphBackend,
) -> Result<BuiltGraph> {
    let mut graph = FoldingGraph::new(backend);
    let mut values = Vec::new();
    for port in inputs {
        let operand = graph.input(&port.name, port.elem, &port.shape(batch));
        values.push((port.name.as_str(), operand.map_err(|e| e.at(|| format!("input `{}`", port.name)))?));
    }
    let mut builder = OnnxGraphBuilder::new(model, graph);
    let results: Vec<GraphValue> =
        builder.build(values).map_err(|error| import_hints::with_source(error, model.graph()))?;
    let read = builder.read_initializers();
    let names = model.graph().output.iter().map(|output| output.name.clone());
    let mut outputs = Vec::new();
    for (name, value) in names.zip(&results) {
        let operand = builder.graph.operand(value).map_err(|e| e.at(|| format!("output `{name}`")))?;
        outputs.push((name, operand));
    }
    Ok(BuiltGraph { outputs, read })
}

/// Builds the model for two batch sizes. Comparing them shows which dimensions follow the batch, and unsupported models
/// are found before anything is published.
fn build_and_plan(
    model: &OnnxModel,
    inputs: Vec<TensorPort>,
    open: bool,
    asked: Option<Vec<u32>>,
    store: &mut dyn WeightStore,
) -> Result<(ImportPlan, HashSet<String>)> {
    if !open {
        check_fixed_batch(&inputs, asked.as_deref())?;
        let BuiltGraph { outputs, read } = build(model, &inputs, None, &mut *store.backend())?;
        let plan = ImportPlan { inputs, outputs: output_ports(&outputs, false), batch: Vec::new() };
        return Ok((batch_of_one(plan), read));
    }
    let batch = plan::batch_sizes(asked)?;
    let mut all_read = HashSet::new();
    let mut first: Option<Vec<TensorPort>> = None;
    for &size in batch.iter().take(CHECKED_BATCH_SIZES) {
        let BuiltGraph { outputs, read } = match build(model, &inputs, Some(size), &mut *store.backend()) {
            Err(reason) if first.is_some() && batch[0] == 1 => {
                return Err(OnnxErrorKind::OneItem { items: size, reason: Box::new(reason) }.into());
            }
            built => built?,
        };
        all_read.extend(read);
        let without = |name: &str| {
            let expected = format!("given for all inputs: the first dimension of output `{name}` is not the batch");
            Err(Error::from(OnnxErrorKind::Option { expected }).at(|| "option `shapes`".to_owned()))
        };
        if let Some((name, _)) = outputs.iter().find(|(_, operand)| operand.shape.first() != Some(&(size as usize))) {
            return without(name);
        }
        let items = output_ports(&outputs, true);
        let known = first.get_or_insert_with(|| items.clone());
        if let Some((port, _)) = items.iter().zip(known.iter()).find(|(a, b)| a != b) {
            return without(&port.name);
        }
    }
    Ok((ImportPlan { inputs, outputs: first.unwrap_or_default(), batch }, all_read))
}

/// Refuses the option `batch` for a model whose batch is not open, unless it asks for a batch of one.
fn check_fixed_batch(inputs: &[TensorPort], asked: Option<&[u32]>) -> Result<()> {
    if asked.is_none_or(|sizes| sizes == [1]) {
        return Ok(());
    }
    let shapes: Vec<String> = inputs.iter().map(|input| format!("`{}` {:?}", input.name, input.item)).collect();
    let expected = format!(
        "left out: the model's shapes are fixed ({}), and batch sizes are for models whose inputs all begin with an open \
         dimension",
        shapes.join(", ")
    );
    Err(Error::from(OnnxErrorKind::Option { expected }).at(|| "option `batch`".to_owned()))
}

fn output_ports(outputs: &[(String, BackendOperand)], batched: bool) -> Vec<TensorPort> {
    let port = |(name, operand): &(String, BackendOperand)| TensorPort {
        name: name.clone(),
        elem: operand.elem,
        item: operand.shape[usize::from(batched)..].to_vec(),
    };
    outputs.iter().map(port).collect()
}

/// Turns a leading dimension of 1 into a batch of one, if every input and output has such a dimension.
fn batch_of_one(plan: ImportPlan) -> ImportPlan {
    let leads = |port: &TensorPort| port.item.first() == Some(&1);
    if plan.inputs.is_empty() || !plan.inputs.iter().chain(&plan.outputs).all(leads) {
        return plan;
    }
    let item = |port: TensorPort| TensorPort { item: port.item[1..].to_vec(), ..port };
    let (inputs, outputs) = (plan.inputs.into_iter().map(item).collect(), plan.outputs.into_iter().map(item).collect());
    ImportPlan { inputs, outputs, batch: vec![1] }
}

/// Turns the inputs that the option `constants` gives values into initializers.
fn freeze_constants(model: &mut OnnxModel, constants: &ConstantsOption) -> Result<()> {
    let at = |name: &str| format!("option `constants`, `{name}`");
    let Some(graph) = &mut model.proto.graph else { return Ok(()) };
    for (name, shape, numbers) in &constants.0 {
        let Some(input) = graph.input.iter().find(|input| input.name == *name) else {
            let expected = "the name of an input".to_owned();
            return Err(Error::from(OnnxErrorKind::Option { expected }).at(|| at(name)));
        };
        let (elem, dims) = plan::declared_type(input)?;
        // An empty array does not give the sizes of its inner dimensions, so the declared shape is used.
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
            return Err(Error::from(OnnxErrorKind::Option { expected }).at(|| at(name)));
        }
        let constant = ConstantsOption::constant(elem, shape, numbers);
        graph.initializer.retain(|tensor| tensor.name != *name);
        graph.initializer.push(tensor::from_constant(name, &constant));
    }
    Ok(())
}

/// The names of the variables created so far.
#[derive(Default)]
struct InitializerMover(HashSet<String>);

impl InitializerMover {
    /// Turns all tensors too large for constant folding into variables, including those of subgraphs and functions.
    fn move_large(&mut self, model: &mut OnnxModel, store: &mut dyn WeightStore) -> Result<()> {
        if let Some(graph) = &mut model.proto.graph {
            self.visit_graph(graph, store)?;
        }
        model.proto.functions.iter_mut().try_for_each(|function| self.visit_nodes(&mut function.node, store))
    }

    fn visit_graph(&mut self, graph: &mut GraphProto, store: &mut dyn WeightStore) -> Result<()> {
        for tensor in &mut graph.initializer {
            let name = tensor.name.clone();
            self.visit_tensor(tensor, &name, store).map_err(|e| e.at(|| format!("initializer `{name}`")))?;
        }
        self.visit_nodes(&mut graph.node, store)
    }

    fn visit_nodes(&mut self, nodes: &mut [NodeProto], store: &mut dyn WeightStore) -> Result<()> {
        for node in nodes {
            let name = node.output.first().cloned().unwrap_or_default();
            let constant = node.op_type == "Constant";
            for attribute in &mut node.attribute {
                if let (Some(tensor), true) = (&mut attribute.t, constant) {
                    self.visit_tensor(tensor, &name, store).map_err(|e| e.at(|| format!("constant `{name}`")))?;
                }
                if let Some(graph) = &mut attribute.g {
                    self.visit_graph(graph, store)?;
                }
            }
        }
        Ok(())
    }

    fn visit_tensor(&mut self, tensor: &mut TensorProto, name: &str, store: &mut dyn WeightStore) -> Result<()> {
        // An unreadable tensor is refused only if a node uses it.
        let Ok(stored) = tensor::read_tensor(tensor, false) else { return Ok(()) };
        let known = if stored.elem.is_float() { KNOWN_FLOATS_MAX } else { KNOWN_INTEGERS_MAX };
        let count: usize = stored.shape.iter().product();
        if count > known && stored.elem != ElementType::Float64 {
            self.make_variable(tensor, name, store)?;
        }
        Ok(())
    }

    /// Turns the small float initializers that no rule has read into variables. Single numbers stay.
    fn move_unread(
        &mut self,
        model: &mut OnnxModel,
        read: &HashSet<String>,
        store: &mut dyn WeightStore,
    ) -> Result<()> {
        let Some(graph) = &mut model.proto.graph else { return Ok(()) };
        let used: HashSet<&str> = graph.node.iter().flat_map(|node| node.input.iter().map(String::as_str)).collect();
        for tensor in &mut graph.initializer {
            let name = tensor.name.clone();
            let small = match tensor::read_tensor(tensor, true) {
                Ok(stored) => {
                    matches!(stored.elem, ElementType::Float32 | ElementType::Float16)
                        && matches!(stored.place, ElementLocation::Bytes(_))
                        && stored.shape.iter().product::<usize>() > 1
                }
                Err(_) => false,
            };
            if small && !read.contains(&name) && used.contains(name.as_str()) {
                self.make_variable(tensor, &name, store).map_err(|e| e.at(|| format!("initializer `{name}`")))?;
            }
        }
        Ok(())
    }

    /// Creates a variable from a tensor and replaces the tensor by a reference to it.
    fn make_variable(&mut self, tensor: &mut TensorProto, name: &str, store: &mut dyn WeightStore) -> Result<()> {
        let name = self.unique_name(name);
        let stored = tensor::read_tensor(tensor, false)?;
        if let ElementLocation::Bytes(bytes) = &stored.place {
            store.parameter(&name, stored.elem.data_type()?, &stored.shape, bytes.to_vec())?;
            let moved = tensor::variable_reference(tensor, &name);
            *tensor = moved;
        }
        Ok(())
    }

    /// Returns a name that no other variable has: the given one if possible.
    fn unique_name(&mut self, name: &str) -> String {
        let end = (0..=name.len().min(NAME_BYTES_MAX)).rev().find(|&end| name.is_char_boundary(end)).unwrap_or(0);
        // The safetensors format reserves the name `__metadata__`.
        let base = if end == 0 || name == "__metadata__" { "tensor" } else { &name[..end] };
        let numbered = |number: usize| if number == 0 { base.to_owned() } else { format!("{base}.{number}") };
        let free = (0..=self.0.len()).map(numbered).find(|name| !self.0.contains(name)).unwrap_or_default();
        self.0.insert(free.clone());
        free
    }
}
