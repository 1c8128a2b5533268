//! The inputs and outputs of a model: concrete shapes, and whether their first dimension is the batch.

use saggar_plugin::{FromJson, Json};

use crate::elem::ElementType;
use crate::error::{Error, OnnxErrorKind, Result};
use crate::proto::{DimensionProto, GraphProto, ValueInfoProto};
use crate::value::{ConstantElements, ConstantTensor, checked_size};

/// The batch sizes of a model whose batch is open, unless the option `batch` gives others.
const DEFAULT_BATCH_SIZES: [u32; 3] = [1, 8, 32];
/// The maximum number of batch sizes. Each has a separate graph.
const BATCH_SIZES_MAX: usize = 16;

/// An input or output.
#[derive(Debug, Clone, PartialEq)]
pub struct TensorPort {
    /// The name.
    pub name: String,
    /// The element type.
    pub elem: ElementType,
    /// The shape, without the batch if the model has one.
    pub item: Vec<usize>,
}

/// The inputs, outputs and batch sizes of a model. A model without batch sizes has no batch.
#[derive(Debug, Clone, PartialEq)]
pub struct ImportPlan {
    /// The inputs in the model's order, without those that are initializers.
    pub inputs: Vec<TensorPort>,
    /// The outputs in the model's order.
    pub outputs: Vec<TensorPort>,
    /// The batch sizes, ascending.
    pub batch: Vec<u32>,
}

impl TensorPort {
    /// Returns the shape in a batch of this size, or without a batch.
    pub fn shape(&self, batch: Option<u32>) -> Vec<usize> {
        batch.into_iter().map(|size| size as usize).chain(self.item.iter().copied()).collect()
    }
}

/// The option `shapes`: the dimensions of inputs by name. `None` keeps the model's dimension.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ShapesOption(pub Vec<(String, Vec<Option<i64>>)>);

impl FromJson for ShapesOption {
    const EXPECTED: &'static str = "an object of arrays of sizes, null for dimensions that stay as in the model";
    fn from_json(value: &Json) -> Option<Self> {
        let Json::Object(members) = value else { return None };
        let shapes = members.iter().map(|(name, dims)| match dims {
            Json::Array(dims) => {
                let dims = dims.iter().map(|dim| match dim {
                    Json::Null => Some(None),
                    dim => i64::from_json(dim).filter(|dim| *dim >= 0).map(Some),
                });
                Some((name.clone(), dims.collect::<Option<_>>()?))
            }
            _ => None,
        });
        shapes.collect::<Option<_>>().map(Self)
    }
}

/// The option `constants`: values of inputs by name, as nested arrays of numbers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ConstantsOption(pub Vec<(String, Vec<usize>, Vec<f64>)>);

impl FromJson for ConstantsOption {
    const EXPECTED: &'static str = "an object of numbers or even arrays of them";
    fn from_json(value: &Json) -> Option<Self> {
        let Json::Object(members) = value else { return None };
        let values = members.iter().map(|(name, value)| {
            let mut numbers = Vec::new();
            let shape = flatten_numbers(value, &mut numbers)?;
            Some((name.clone(), shape, numbers))
        });
        values.collect::<Option<_>>().map(Self)
    }
}

/// Returns the shape of nested arrays and appends their numbers to `numbers`. Returns `None` if the arrays are uneven.
fn flatten_numbers(value: &Json, numbers: &mut Vec<f64>) -> Option<Vec<usize>> {
    match value {
        Json::Number(number) => {
            numbers.push(*number);
            Some(Vec::new())
        }
        Json::Bool(truth) => {
            numbers.push(f64::from(u8::from(*truth)));
            Some(Vec::new())
        }
        Json::Array(items) => {
            let mut inner = None;
            for item in items {
                let shape = flatten_numbers(item, numbers)?;
                if *inner.get_or_insert_with(|| shape.clone()) != shape {
                    return None;
                }
            }
            Some([&[items.len()], &inner.unwrap_or_default()[..]].concat())
        }
        _ => None,
    }
}

impl ConstantsOption {
    /// Returns the constant for an input of type `elem`.
    pub fn constant(elem: ElementType, shape: &[usize], numbers: &[f64]) -> ConstantTensor {
        let numbers =
            ConstantTensor::new(ElementType::Float64, shape.to_vec(), ConstantElements::Float(numbers.to_vec()));
        crate::fold::cast(&numbers, elem)
    }
}

/// Formats an input's name for errors.
pub fn input_place(input: &ValueInfoProto) -> String {
    format!("input `{}`", input.name)
}

/// Returns the type and the dimensions that the model declares.
///
/// # Errors
/// Returns `Unsupported` if the value is not a tensor or its type is not supported.
pub fn declared_type(input: &ValueInfoProto) -> Result<(ElementType, Option<&[DimensionProto]>)> {
    let tensor = input.r#type.as_ref().and_then(|of| of.tensor_type.as_ref());
    let tensor = tensor.ok_or_else(|| Error::unsupported("a value that is no tensor"))?;
    Ok((ElementType::from_number(tensor.elem_type)?, tensor.shape.as_ref().map(|shape| shape.dim.as_slice())))
}

/// A dimension of an input, after the options are applied.
#[derive(Debug, Clone, PartialEq)]
pub enum InputDimension {
    /// A dimension of this size.
    Known(usize),
    /// A dimension that the model leaves open, with its name, which can be empty.
    Open(String),
}

/// An input and its dimensions.
#[derive(Debug, Clone, PartialEq)]
pub struct InputShape {
    /// The name.
    pub name: String,
    /// The element type.
    pub elem: ElementType,
    /// The dimensions, including the batch.
    pub dims: Vec<InputDimension>,
}

/// The inputs of a graph in the model's order, without those that are initializers.
#[derive(Debug, Clone, PartialEq)]
pub struct InputShapes(pub Vec<InputShape>);

impl InputShapes {
    /// Reads the shapes from a graph and the option `shapes`.
    ///
    /// # Errors
    /// Returns `Unsupported` or `Invalid` for a value that cannot be an input; `Option` if the option does not fit the
    /// model.
    pub fn read(graph: &GraphProto, shapes: &ShapesOption) -> Result<Self> {
        let free = graph.input.iter().filter(|input| graph.initializer.iter().all(|tensor| tensor.name != input.name));
        let free: Vec<&ValueInfoProto> = free.collect();
        for (name, _) in &shapes.0 {
            if !free.iter().any(|input| input.name == *name) {
                let names: Vec<&str> = free.iter().map(|input| input.name.as_str()).collect();
                let expected = format!("shapes of inputs; there is no `{name}` among {}", names.join(", "));
                return Err(Error::from(OnnxErrorKind::Option { expected }).at(|| "option `shapes`".to_owned()));
            }
        }
        let read = |input: &&ValueInfoProto| {
            let given = shapes.0.iter().find(|(name, _)| *name == input.name).map(|(_, dims)| dims.as_slice());
            let (elem, dims) = resolve_dims(input, given).map_err(|e| e.at(|| input_place(input)))?;
            Ok(InputShape { name: input.name.clone(), elem, dims })
        };
        free.iter().map(read).collect::<Result<_>>().map(Self)
    }

    /// Returns whether the first dimension of every input is open. That dimension is the batch.
    pub fn has_open_batch(&self) -> bool {
        !self.0.is_empty() && self.0.iter().all(|input| matches!(input.dims.first(), Some(InputDimension::Open(_))))
    }

    /// Returns the inputs without their batch, if they have one. Returns `None` if another dimension is open.
    pub fn ports(&self) -> Option<Vec<TensorPort>> {
        let batched = usize::from(self.has_open_batch());
        let port = |input: &InputShape| {
            let known = |dim: &InputDimension| if let InputDimension::Known(size) = dim { Some(*size) } else { None };
            let item = input.dims[batched..].iter().map(known).collect::<Option<_>>()?;
            Some(TensorPort { name: input.name.clone(), elem: input.elem, item })
        };
        self.0.iter().map(port).collect()
    }
}

fn resolve_dims(input: &ValueInfoProto, given: Option<&[Option<i64>]>) -> Result<(ElementType, Vec<InputDimension>)> {
    let (elem, own) = declared_type(input)?;
    elem.data_type()?;
    let own = own.map(|dims| {
        let dim = |dim: &DimensionProto| match (dim.dim_value, &dim.dim_param) {
            (Some(value), _) if value >= 0 => checked_size(value, "a dimension").map(InputDimension::Known),
            (_, name) => Ok(InputDimension::Open(name.clone().unwrap_or_default())),
        };
        dims.iter().map(dim).collect::<Result<Vec<_>>>()
    });
    let option = |expected: String| {
        Error::from(OnnxErrorKind::Option { expected }).at(|| format!("option `shapes`, `{}`", input.name))
    };
    let own = own.transpose()?;
    let Some(given) = given else {
        return Ok((
            elem,
            own.ok_or_else(|| option("given: the model does not say how many dimensions there are".to_owned()))?,
        ));
    };
    let own = own.unwrap_or_else(|| vec![InputDimension::Open(String::new()); given.len()]);
    if own.len() != given.len() {
        return Err(option(format!("of {} dimensions", own.len())));
    }
    let mut dims = Vec::new();
    for (own, given) in own.into_iter().zip(given) {
        dims.push(match (own, given) {
            (own, None) => own,
            (InputDimension::Known(own), Some(given)) if own as i64 != *given => {
                return Err(option(format!("{own}, not {given}: the model has that dimension fixed")));
            }
            (_, Some(given)) => InputDimension::Known(checked_size(*given, "a dimension")?),
        });
    }
    Ok((elem, dims))
}

/// Returns the requested batch sizes, or the default ones.
///
/// # Errors
/// Returns `Option` unless the sizes ascend, begin at 1 or more and are within the limit.
pub fn batch_sizes(asked: Option<Vec<u32>>) -> Result<Vec<u32>> {
    let sizes = asked.unwrap_or_else(|| DEFAULT_BATCH_SIZES.to_vec());
    let ascending = sizes.windows(2).all(|pair| pair[0] < pair[1]);
    if sizes.is_empty() || sizes.len() > BATCH_SIZES_MAX || sizes[0] == 0 || !ascending {
        let expected = format!("1 to {BATCH_SIZES_MAX} ascending sizes of at least 1");
        return Err(Error::from(OnnxErrorKind::Option { expected }).at(|| "option `batch`".to_owned()));
    }
    Ok(sizes)
}

impl ImportPlan {
    /// Returns the plan as part of a configuration.
    pub fn to_json(&self) -> Json {
        let ports = |ports: &[TensorPort]| {
            let port = |port: &TensorPort| {
                let item = port.item.iter().map(|&dim| dim as u32).collect::<Vec<_>>();
                let members = vec![
                    ("name".to_owned(), Json::from(port.name.as_str())),
                    ("elem".to_owned(), Json::from(port.elem.number())),
                    ("item".to_owned(), Json::from(item)),
                ];
                Json::Object(members)
            };
            Json::Array(ports.iter().map(port).collect())
        };
        Json::Object(vec![
            ("inputs".to_owned(), ports(&self.inputs)),
            ("outputs".to_owned(), ports(&self.outputs)),
            ("batch".to_owned(), Json::from(self.batch.clone())),
        ])
    }
}

impl FromJson for ImportPlan {
    const EXPECTED: &'static str = "a plan that an import wrote";
    fn from_json(value: &Json) -> Option<Self> {
        let member = |value: &Json, name: &str| match value {
            Json::Object(members) => members.iter().find(|(other, _)| other == name).map(|(_, value)| value.clone()),
            _ => None,
        };
        let ports = |name: &str| {
            let Json::Array(ports) = member(value, name)? else { return None };
            let port = |port: &Json| {
                let item = Vec::<u32>::from_json(&member(port, "item")?)?;
                Some(TensorPort {
                    name: String::from_json(&member(port, "name")?)?,
                    elem: ElementType::from_number(i32::from_json(&member(port, "elem")?)?).ok()?,
                    item: item.into_iter().map(|dim| dim as usize).collect(),
                })
            };
            ports.iter().map(port).collect::<Option<Vec<_>>>()
        };
        Some(Self {
            inputs: ports("inputs")?,
            outputs: ports("outputs")?,
            batch: Vec::from_json(&member(value, "batch")?)?,
        })
    }
}
