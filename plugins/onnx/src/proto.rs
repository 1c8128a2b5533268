//! The messages of the ONNX file format that an importer reads, kept by hand.
//!
//! Field numbers are those of `onnx.proto3`; what is left out is skipped by the decoder. Kept by hand so that building
//! needs no protobuf compiler. Decoding bounds every length by the bytes that are there and nesting at 100 levels.

use prost::Message;

/// A file: a graph, the operator sets it is written in, and local functions.
#[derive(Clone, PartialEq, Message)]
pub struct ModelProto {
    /// Version of the format.
    #[prost(int64, tag = "1")]
    pub ir_version: i64,
    /// Name of the tool that wrote it.
    #[prost(string, tag = "2")]
    pub producer_name: String,
    /// What the model computes.
    #[prost(message, optional, tag = "7")]
    pub graph: Option<GraphProto>,
    /// Which version of which operator set the nodes mean.
    #[prost(message, repeated, tag = "8")]
    pub opset_import: Vec<OperatorSetIdProto>,
    /// Operators that the file defines itself.
    #[prost(message, repeated, tag = "25")]
    pub functions: Vec<FunctionProto>,
}

/// One version of one operator set.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct OperatorSetIdProto {
    /// Empty or `ai.onnx` is the standard one.
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
    /// Names of its parameters.
    #[prost(string, repeated, tag = "4")]
    pub input: Vec<String>,
    /// Names of its results.
    #[prost(string, repeated, tag = "5")]
    pub output: Vec<String>,
    /// Names of its attributes without defaults.
    #[prost(string, repeated, tag = "6")]
    pub attribute: Vec<String>,
    /// What it computes, in order.
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

/// Nodes in order, and what they begin with and end in.
#[derive(Clone, PartialEq, Message)]
pub struct GraphProto {
    /// In topological order.
    #[prost(message, repeated, tag = "1")]
    pub node: Vec<NodeProto>,
    /// The graph's name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Tensors that are part of the model.
    #[prost(message, repeated, tag = "5")]
    pub initializer: Vec<TensorProto>,
    /// What it takes; before version 4 of the format initializers are listed too.
    #[prost(message, repeated, tag = "11")]
    pub input: Vec<ValueInfoProto>,
    /// What it gives.
    #[prost(message, repeated, tag = "12")]
    pub output: Vec<ValueInfoProto>,
    /// Sparse initializers, which are refused.
    #[prost(message, repeated, tag = "15")]
    pub sparse_initializer: Vec<SkippedMessage>,
}

/// A message that only its presence matters of.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct SkippedMessage {}

/// One operator applied to named values.
#[derive(Clone, PartialEq, Message)]
pub struct NodeProto {
    /// Names of operands; an empty one is an operand left out.
    #[prost(string, repeated, tag = "1")]
    pub input: Vec<String>,
    /// Names of results; an empty one is not wanted.
    #[prost(string, repeated, tag = "2")]
    pub output: Vec<String>,
    /// The node's name, often empty.
    #[prost(string, tag = "3")]
    pub name: String,
    /// The operator.
    #[prost(string, tag = "4")]
    pub op_type: String,
    /// Attributes.
    #[prost(message, repeated, tag = "5")]
    pub attribute: Vec<AttributeProto>,
    /// The operator's domain.
    #[prost(string, tag = "7")]
    pub domain: String,
}

/// A named attribute; which field holds the value follows from `kind`.
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
    /// Text.
    #[prost(bytes = "vec", tag = "4")]
    pub s: Vec<u8>,
    /// A tensor.
    #[prost(message, optional, tag = "5")]
    pub t: Option<TensorProto>,
    /// A graph: a branch or a body.
    #[prost(message, optional, tag = "6")]
    pub g: Option<GraphProto>,
    /// Floats.
    #[prost(float, repeated, tag = "7")]
    pub floats: Vec<f32>,
    /// Integers.
    #[prost(int64, repeated, tag = "8")]
    pub ints: Vec<i64>,
    /// Texts.
    #[prost(bytes = "vec", repeated, tag = "9")]
    pub strings: Vec<Vec<u8>>,
    /// Which field counts; 0 in old files.
    #[prost(int32, tag = "20")]
    pub kind: i32,
    /// In a function: the attribute of the calling node that this one stands for.
    #[prost(string, tag = "21")]
    pub ref_attr_name: String,
}

/// A tensor with its elements, in the field of their type or in `raw_data`.
#[derive(Clone, PartialEq, Message)]
pub struct TensorProto {
    /// Dimensions.
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
    /// Texts.
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
    /// Where the elements are, if they are not here.
    #[prost(message, repeated, tag = "13")]
    pub external_data: Vec<StringStringEntryProto>,
    /// 1 where they are elsewhere.
    #[prost(int32, tag = "14")]
    pub data_location: i32,
}

/// A pair of texts.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct StringStringEntryProto {
    /// What it is.
    #[prost(string, tag = "1")]
    pub key: String,
    /// Its value.
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

/// A type; without `tensor_type` it is a sequence, a map or another type that is no dense tensor.
#[derive(Clone, PartialEq, Message)]
pub struct TypeProto {
    /// Dense tensors.
    #[prost(message, optional, tag = "1")]
    pub tensor_type: Option<TensorTypeProto>,
}

/// The type of a dense tensor.
#[derive(Clone, PartialEq, Message)]
pub struct TensorTypeProto {
    /// The number of the element type.
    #[prost(int32, tag = "1")]
    pub elem_type: i32,
    /// Dimensions; none where not even their number is known.
    #[prost(message, optional, tag = "2")]
    pub shape: Option<TensorShapeProto>,
}

/// Dimensions, known or not.
#[derive(Clone, PartialEq, Message)]
pub struct TensorShapeProto {
    /// Outermost first.
    #[prost(message, repeated, tag = "1")]
    pub dim: Vec<DimensionProto>,
}

/// One dimension: a number, a symbol, or unknown where both are absent.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct DimensionProto {
    /// The size.
    #[prost(int64, optional, tag = "1")]
    pub dim_value: Option<i64>,
    /// The symbol.
    #[prost(string, optional, tag = "2")]
    pub dim_param: Option<String>,
}
