//! The inputs of a request as tensors: random ones of the shapes and data types that a model declares, or the JSON of a
//! request file.

use saggar_rest::models::PortDocument;
use saggar_tensor::DType;
use saggar_tensor::interp::float16;
use serde_json::{Map, Value};

use super::super::counter_random::CounterRandom;

/// Random integers wider than a byte are below this, so that they are valid classes and tokens of most models.
const INTEGER_BOUND: usize = 10;
/// Maximum bytes of a random text.
const TEXT_BYTES_MAX: usize = 16;

/// What the elements of an input are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ElementType {
    Number(DType),
    Boolean,
    /// A text of at most this number of bytes.
    Text(usize),
}

/// One input of a request.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TensorInput {
    pub(super) name: String,
    /// The name of the data type in the Open Inference Protocol.
    pub(super) datatype: &'static str,
    /// The shape with the dimension of items first.
    pub(super) shape: Vec<usize>,
    /// The elements, dense and little-endian; of texts, each with its length before it in four bytes.
    pub(super) bytes: Vec<u8>,
    /// The value in the JSON of `/predict`.
    pub(super) json: Value,
}

impl ElementType {
    fn of_port(port: &PortDocument) -> Result<ElementType, String> {
        let Some(dtype) = DType::from_name(&port.dtype) else {
            let PortDocument { name, dtype, .. } = port;
            return Err(format!("the input `{name}` has the data type {dtype}, which this version cannot send"));
        };
        Ok(match (dtype, port.semantics.as_deref(), port.shape.as_slice()) {
            (DType::U8, Some("text"), &[bytes]) => ElementType::Text(bytes),
            (DType::U8, Some("boolean"), _) => ElementType::Boolean,
            _ => ElementType::Number(dtype),
        })
    }

    fn protocol_name(self) -> &'static str {
        match self {
            ElementType::Number(DType::F32) => "FP32",
            ElementType::Number(DType::F16) => "FP16",
            ElementType::Number(DType::I64) => "INT64",
            ElementType::Number(DType::U64) => "UINT64",
            ElementType::Number(DType::I32) => "INT32",
            ElementType::Number(DType::U32) => "UINT32",
            ElementType::Number(DType::I8) => "INT8",
            ElementType::Number(DType::U8) => "UINT8",
            ElementType::Boolean => "BOOL",
            ElementType::Text(_) => "BYTES",
        }
    }

    fn random_value(self, random: &mut CounterRandom) -> Value {
        match self {
            // Three decimals, as clients send measured numbers.
            ElementType::Number(DType::F32 | DType::F16) => (random.next_below(1000) as f64 / 1000.0).into(),
            ElementType::Number(DType::U8) => random.next_below(256).into(),
            ElementType::Number(DType::I8) => (random.next_below(256) as i64 - 128).into(),
            ElementType::Number(DType::I64 | DType::U64 | DType::I32 | DType::U32) => {
                random.next_below(INTEGER_BOUND).into()
            }
            ElementType::Boolean => random.next_below(2).into(),
            ElementType::Text(bytes_max) => {
                let letter = |_| char::from(b'a' + random.next_below(26) as u8);
                (0..bytes_max.min(TEXT_BYTES_MAX)).map(letter).collect::<String>().into()
            }
        }
    }

    /// Appends the element to dense bytes.
    fn encode(self, value: &Value, bytes: &mut Vec<u8>) -> Result<(), String> {
        let float = || value.as_f64().ok_or_else(|| format!("{value} is no number"));
        match self {
            ElementType::Number(DType::F32) => bytes.extend((float()? as f32).to_le_bytes()),
            ElementType::Number(DType::F16) => bytes.extend(float16::to_bits(float()?).to_le_bytes()),
            ElementType::Number(DType::I64) => bytes.extend(integer::<i64>(value)?.to_le_bytes()),
            ElementType::Number(DType::U64) => bytes.extend(integer::<u64>(value)?.to_le_bytes()),
            ElementType::Number(DType::I32) => bytes.extend(integer::<i32>(value)?.to_le_bytes()),
            ElementType::Number(DType::U32) => bytes.extend(integer::<u32>(value)?.to_le_bytes()),
            ElementType::Number(DType::I8) => bytes.extend(integer::<i8>(value)?.to_le_bytes()),
            ElementType::Number(DType::U8) => bytes.push(integer(value)?),
            ElementType::Boolean => match (value.as_bool(), value.as_u64()) {
                (Some(truth), _) => bytes.push(truth.into()),
                (None, Some(number @ 0..=1)) => bytes.push(number as u8),
                (None, _) => return Err(format!("{value} is neither true nor false")),
            },
            ElementType::Text(_) => {
                let text = value.as_str().ok_or_else(|| format!("{value} is no text"))?;
                bytes.extend((text.len() as u32).to_le_bytes());
                bytes.extend(text.as_bytes());
            }
        }
        Ok(())
    }
}

/// Returns the integer, which can also be written as `3.0`.
fn integer<T: TryFrom<i128>>(value: &Value) -> Result<T, String> {
    let whole = || value.as_f64().filter(|number| number.fract() == 0.0).map(|number| number as i128);
    let number = value.as_i64().map(i128::from).or_else(|| value.as_u64().map(i128::from)).or_else(whole);
    let number = number.and_then(|number| T::try_from(number).ok());
    number.ok_or_else(|| format!("{value} is no integer of the input's data type"))
}

impl TensorInput {
    /// Returns a random value of this input for `items` items.
    ///
    /// # Errors
    /// Returns a text if the data type cannot be sent.
    pub(super) fn random(port: &PortDocument, items: usize, random: &mut CounterRandom) -> Result<TensorInput, String> {
        let element = ElementType::of_port(port)?;
        let dims: Vec<usize> = if items == 1 { Vec::new() } else { vec![items] };
        let item_dims: &[usize] = if let ElementType::Text(_) = element { &[] } else { &port.shape };
        let json = nested_random(&[&dims, item_dims].concat(), element, random);
        TensorInput::from_json(port, &json)
    }

    /// Returns the input with this value: an item, or a list of items.
    ///
    /// # Errors
    /// Returns a text if the value does not fit the port.
    pub(super) fn from_json(port: &PortDocument, json: &Value) -> Result<TensorInput, String> {
        let element = ElementType::of_port(port)?;
        let refuse = |reason: String| format!("the input `{}`: {reason}", port.name);
        let item_dims: &[usize] = if let ElementType::Text(_) = element { &[] } else { &port.shape };
        let mut given = Vec::new();
        let mut innermost = json;
        while let Value::Array(items) = innermost {
            given.push(items.len());
            let Some(first) = items.first() else { break };
            innermost = first;
        }
        let items = match given.len().checked_sub(item_dims.len()) {
            Some(0) => 1,
            Some(1) => given[0],
            _ => {
                return Err(refuse(format!(
                    "its value has the shape {given:?}, and the model's items have {item_dims:?}"
                )));
            }
        };
        let mut bytes = Vec::new();
        encode_nested(json, &given, element, &mut bytes).map_err(refuse)?;
        if given[given.len() - item_dims.len()..] != *item_dims {
            return Err(refuse(format!("its value has the shape {given:?}, and the model's items have {item_dims:?}")));
        }
        // A text is one element, in the protocol's shape `[items, 1]`.
        let shape = match element {
            ElementType::Text(_) => vec![items, 1],
            _ => [&[items], item_dims].concat(),
        };
        Ok(TensorInput { name: port.name.clone(), datatype: element.protocol_name(), shape, bytes, json: json.clone() })
    }
}

fn nested_random(dims: &[usize], element: ElementType, random: &mut CounterRandom) -> Value {
    match dims.split_first() {
        None => element.random_value(random),
        Some((&length, rest)) => (0..length).map(|_| nested_random(rest, element, random)).collect(),
    }
}

fn encode_nested(value: &Value, dims: &[usize], element: ElementType, bytes: &mut Vec<u8>) -> Result<(), String> {
    let Some((&length, rest)) = dims.split_first() else { return element.encode(value, bytes) };
    match value {
        Value::Array(items) if items.len() == length => {
            items.iter().try_for_each(|item| encode_nested(item, rest, element, bytes))
        }
        _ => Err("its lists have different lengths".to_owned()),
    }
}

/// Returns random inputs for every input that the model requires. Inputs with a default are left out.
///
/// # Errors
/// Returns a text if a data type cannot be sent.
pub(super) fn random_inputs(
    ports: &[PortDocument],
    items: usize,
    random: &mut CounterRandom,
) -> Result<Vec<TensorInput>, String> {
    let required = ports.iter().filter(|port| port.default.is_none());
    required.map(|port| TensorInput::random(port, items, random)).collect()
}

/// Returns the inputs with these values by name.
///
/// # Errors
/// Returns a text if the model has no such input, or a value does not fit.
pub(super) fn inputs_from_json(
    ports: &[PortDocument],
    values: &Map<String, Value>,
) -> Result<Vec<TensorInput>, String> {
    let input = |(name, value): (&String, &Value)| match ports.iter().find(|port| port.name == *name) {
        Some(port) => TensorInput::from_json(port, value),
        None => {
            let known: Vec<&str> = ports.iter().map(|port| port.name.as_str()).collect();
            Err(format!("the model has no input `{name}`; it has {}", known.join(", ")))
        }
    };
    values.iter().map(input).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn port(name: &str, dtype: &str, shape: &[usize], semantics: Option<&str>) -> PortDocument {
        PortDocument {
            name: name.to_owned(),
            dtype: dtype.to_owned(),
            shape: shape.to_vec(),
            semantics: semantics.map(str::to_owned),
            ..PortDocument::default()
        }
    }

    #[test]
    fn random_inputs_have_the_declared_shapes_and_types() {
        let with_default = PortDocument { default: Some(1.0), ..port("temperature", "float32", &[], None) };
        let ports = [port("x", "float32", &[2, 3], None), port("mask", "uint8", &[4], Some("boolean")), with_default];
        let inputs = |seed, items| random_inputs(&ports, items, &mut CounterRandom::new(seed, 0)).unwrap();
        let one = inputs(1, 1);
        let described: Vec<_> =
            one.iter().map(|it| (it.name.as_str(), it.datatype, it.shape.clone(), it.bytes.len())).collect();
        assert_eq!(described, [("x", "FP32", vec![1, 2, 3], 24), ("mask", "BOOL", vec![1, 4], 4)]);
        assert!(one[0].json.as_array().unwrap().len() == 2, "one item has no dimension of items: {}", one[0].json);
        assert!(one[1].bytes.iter().all(|byte| *byte < 2));
        assert_eq!((one[0].clone(), inputs(1, 1)[0].clone()), (inputs(1, 1)[0].clone(), one[0].clone()));
        assert_ne!(one[0], inputs(2, 1)[0]);
        assert_eq!(inputs(1, 5)[0].shape, [5, 2, 3]);
        let text = TensorInput::random(&port("prompt", "uint8", &[64], Some("text")), 2, &mut CounterRandom::new(1, 0));
        let text = text.unwrap();
        assert_eq!((text.datatype, text.shape, text.bytes.len()), ("BYTES", vec![2, 1], 2 * (4 + 16)));
    }

    #[test]
    fn values_of_a_file_are_encoded_or_refused_with_the_reason() {
        let x = port("x", "int32", &[2], None);
        let input = |value| TensorInput::from_json(&x, &value);
        assert_eq!(input(json!([1, -2])).unwrap().bytes, [1, 0, 0, 0, 254, 255, 255, 255]);
        assert_eq!(input(json!([[1, 2], [3, 4.0]])).unwrap().shape, [2, 2]);
        for (value, reason) in [
            (json!([1, 2, 3]), "shape [3]"),
            (json!(1), "shape []"),
            (json!([[1, 2], [3]]), "different lengths"),
            (json!([1, "a"]), "\"a\" is no integer"),
            (json!([1, 3_000_000_000u32]), "no integer of"),
            (json!([]), "shape [0]"),
        ] {
            let refused = input(value).unwrap_err();
            assert!(refused.contains(reason) && refused.contains("`x`"), "{refused}");
        }
        let values = json!({ "y": 1 });
        let refused = inputs_from_json(&[x], values.as_object().unwrap()).unwrap_err();
        assert_eq!(refused, "the model has no input `y`; it has x");
        assert!(TensorInput::random(&port("x", "float8", &[], None), 1, &mut CounterRandom::new(1, 0)).is_err());
    }
}
