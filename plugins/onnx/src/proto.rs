//! The messages of the ONNX file format that the importer reads, written by hand so that building needs no protobuf
//! compiler.
//!
//! Field numbers are those of `onnx.proto3`. The decoder skips fields that are not listed. Decoding bounds every length
//! by the available bytes, and nesting at 100 levels.

use prost::Message;

/// A file: a graph, the operator sets that it uses, and local functions.
#[derive(Clone, PartialEq, Message)]
pub struct ModelProto {
    /// The version of the format.
    #[prost(int64, tag = "1")]
    pub ir_version: i64,
    /// The name of the tool that wrote the file.
    #[prost(string, tag = "2")]
    pub producer_name: String,
    /// The model's graph.
    #[prost(message, optional, tag = "7")]
    pub graph: Option<GraphProto>,
    /// The operator sets that the nodes use, with their versions.
    #[prost(message, repeated, tag = "8")]
    pub opset_import: Vec<OperatorSetIdProto>,
    /// The operators that the file defines.
    #[prost(message, repeated, tag = "25")]
    pub functions: Vec<FunctionProto>,
}

/// One version of one operator set.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct OperatorSetIdProto {
    /// The domain. Empty or `ai.onnx` is the standard one.
    #[prost(string, tag = "1")]
    pub domain: String,
    /// The version.
    #[prost(int64, tag = "2")]
    pub version: i64,
}

/// An operator defined by nodes.
#[derive(Clone, PartialEq, Message)]
pub struct FunctionProto {
    /// The operator's name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The names of its parameters.
    #[prost(string, repeated, tag = "4")]
    pub input: Vec<String>,
    /// The names of its results.
    #[prost(string, repeated, tag = "5")]
    pub output: Vec<String>,
    /// The names of its attributes without defaults.
    #[prost(string, repeated, tag = "6")]
    pub attribute: Vec<String>,
    /// The nodes of its body, in order.
    #[prost(message, repeated, tag = "7")]
    pub node: Vec<NodeProto>,
    /// The operator sets of its nodes.
    #[prost(message, repeated, tag = "9")]
    pub opset_import: Vec<OperatorSetIdProto>,
    /// The operator's domain.
    #[prost(string, tag = "10")]
    pub domain: String,
    /// Its attributes with their defaults.
    #[prost(message, repeated, tag = "11")]
    pub attribute_proto: Vec<AttributeProto>,
}

/// A graph: nodes, initializers, inputs and outputs.
#[derive(Clone, PartialEq, Message)]
pub struct GraphProto {
    /// The nodes in topological order.
    #[prost(message, repeated, tag = "1")]
    pub node: Vec<NodeProto>,
    /// The graph's name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// The tensors that are part of the model.
    #[prost(message, repeated, tag = "5")]
    pub initializer: Vec<TensorProto>,
    /// The inputs. Before version 4 of the format, initializers are listed too.
    #[prost(message, repeated, tag = "11")]
    pub input: Vec<ValueInfoProto>,
    /// The outputs.
    #[prost(message, repeated, tag = "12")]
    pub output: Vec<ValueInfoProto>,
    /// Sparse initializers, which are refused.
    #[prost(message, repeated, tag = "15")]
    pub sparse_initializer: Vec<SkippedMessage>,
}

/// A message of which only the presence matters.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct SkippedMessage {}

/// One operator applied to named values.
#[derive(Clone, PartialEq, Message)]
pub struct NodeProto {
    /// The names of the operands. An empty name is an omitted operand.
    #[prost(string, repeated, tag = "1")]
    pub input: Vec<String>,
    /// The names of the results. An empty name is an unused result.
    #[prost(string, repeated, tag = "2")]
    pub output: Vec<String>,
    /// The node's name, often empty.
    #[prost(string, tag = "3")]
    pub name: String,
    /// The operator.
    #[prost(string, tag = "4")]
    pub op_type: String,
    /// The attributes.
    #[prost(message, repeated, tag = "5")]
    pub attribute: Vec<AttributeProto>,
    /// The operator's domain.
    #[prost(string, tag = "7")]
    pub domain: String,
}

/// A named attribute. `kind` selects the field that holds the value.
#[derive(Clone, PartialEq, Message)]
pub struct AttributeProto {
    /// The attribute's name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// A float.
    #[prost(float, tag = "2")]
    pub f: f32,
    /// An integer.
    #[prost(int64, tag = "3")]
    pub i: i64,
    /// A string.
    #[prost(bytes = "vec", tag = "4")]
    pub s: Vec<u8>,
    /// A tensor.
    #[prost(message, optional, tag = "5")]
    pub t: Option<TensorProto>,
    /// A graph: a branch or a body.
    #[prost(message, optional, tag = "6")]
    pub g: Option<GraphProto>,
    /// A list of floats.
    #[prost(float, repeated, tag = "7")]
    pub floats: Vec<f32>,
    /// A list of integers.
    #[prost(int64, repeated, tag = "8")]
    pub ints: Vec<i64>,
    /// A list of strings.
    #[prost(bytes = "vec", repeated, tag = "9")]
    pub strings: Vec<Vec<u8>>,
    /// The kind of the attribute, which selects the field; 0 in old files.
    #[prost(int32, tag = "20")]
    pub kind: i32,
    /// In a function, the attribute of the calling node whose value this attribute takes.
    #[prost(string, tag = "21")]
    pub ref_attr_name: String,
}

/// A tensor with its elements, in the field of their type or in `raw_data`.
#[derive(Clone, PartialEq, Message)]
pub struct TensorProto {
    /// The dimensions.
    #[prost(int64, repeated, tag = "1")]
    pub dims: Vec<i64>,
    /// The number of the element type.
    #[prost(int32, tag = "2")]
    pub data_type: i32,
    /// Elements of `float`.
    #[prost(float, repeated, tag = "4")]
    pub float_data: Vec<f32>,
    /// Elements of small integer types, of `bool` and of `float16` (its bits).
    #[prost(int32, repeated, tag = "5")]
    pub int32_data: Vec<i32>,
    /// Strings.
    #[prost(bytes = "vec", repeated, tag = "6")]
    pub string_data: Vec<Vec<u8>>,
    /// Elements of `int64`.
    #[prost(int64, repeated, tag = "7")]
    pub int64_data: Vec<i64>,
    /// The tensor's name.
    #[prost(string, tag = "8")]
    pub name: String,
    /// Elements of any fixed-size type, little-endian.
    #[prost(bytes = "vec", tag = "9")]
    pub raw_data: Vec<u8>,
    /// Elements of `double`.
    #[prost(double, repeated, tag = "10")]
    pub double_data: Vec<f64>,
    /// Elements of `uint32` and `uint64`.
    #[prost(uint64, repeated, tag = "11")]
    pub uint64_data: Vec<u64>,
    /// The location of external elements.
    #[prost(message, repeated, tag = "13")]
    pub external_data: Vec<StringStringEntryProto>,
    /// 1 if the elements are external.
    #[prost(int32, tag = "14")]
    pub data_location: i32,
}

/// A key and a value.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct StringStringEntryProto {
    /// The key.
    #[prost(string, tag = "1")]
    pub key: String,
    /// The value.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// A named value and its type.
#[derive(Clone, PartialEq, Message)]
pub struct ValueInfoProto {
    /// The name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The type.
    #[prost(message, optional, tag = "2")]
    pub r#type: Option<TypeProto>,
}

/// A type. Without `tensor_type` it is a sequence, a map or another type that is not a dense tensor.
#[derive(Clone, PartialEq, Message)]
pub struct TypeProto {
    /// The type of a dense tensor.
    #[prost(message, optional, tag = "1")]
    pub tensor_type: Option<TensorTypeProto>,
}

/// The type of a dense tensor.
#[derive(Clone, PartialEq, Message)]
pub struct TensorTypeProto {
    /// The number of the element type.
    #[prost(int32, tag = "1")]
    pub elem_type: i32,
    /// The dimensions. `None` if not even their number is known.
    #[prost(message, optional, tag = "2")]
    pub shape: Option<TensorShapeProto>,
}

/// The dimensions, known or unknown.
#[derive(Clone, PartialEq, Message)]
pub struct TensorShapeProto {
    /// The dimensions, outermost first.
    #[prost(message, repeated, tag = "1")]
    pub dim: Vec<DimensionProto>,
}

/// One dimension: a number, a symbol, or unknown if both are absent.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct DimensionProto {
    /// The size.
    #[prost(int64, optional, tag = "1")]
    pub dim_value: Option<i64>,
    /// The symbol.
    #[prost(string, optional, tag = "2")]
    pub dim_param: Option<String>,
}
