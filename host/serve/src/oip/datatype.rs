//! Data types and their names in the protocol.

use saggar_plugin::ModelPort;
use saggar_tensor::DType;

/// The data types of models' ports. The protocol's other types, such as `FP64` and `BF16`, are not supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OipDatatype {
    Number(DType),
    /// A boolean: a byte that is 1 or 0.
    Bool,
    /// A text of variable length.
    Bytes,
}

impl OipDatatype {
    pub(super) fn from_port(port: &ModelPort) -> OipDatatype {
        if port.text_bytes_max().is_some() {
            OipDatatype::Bytes
        } else if port.is_boolean() {
            OipDatatype::Bool
        } else {
            OipDatatype::Number(port.item.dtype)
        }
    }

    /// Returns whether an input of this type accepts data declared as `name`. `BOOL` and `UINT8` are interchangeable:
    /// they are the same in the binary form, and older models declare bytes for booleans.
    pub(super) fn accepts(self, name: &str) -> bool {
        let either = matches!(self, OipDatatype::Bool | OipDatatype::Number(DType::U8));
        self.name() == name || either && ["BOOL", "UINT8"].contains(&name)
    }

    /// Returns the protocol's name.
    pub(super) fn name(self) -> &'static str {
        match self {
            OipDatatype::Number(DType::F32) => "FP32",
            OipDatatype::Number(DType::F16) => "FP16",
            OipDatatype::Number(DType::I64) => "INT64",
            OipDatatype::Number(DType::U64) => "UINT64",
            OipDatatype::Number(DType::I32) => "INT32",
            OipDatatype::Number(DType::U32) => "UINT32",
            OipDatatype::Number(DType::I8) => "INT8",
            OipDatatype::Number(DType::U8) => "UINT8",
            OipDatatype::Bool => "BOOL",
            OipDatatype::Bytes => "BYTES",
        }
    }

    /// Returns whether the type can be exchanged as JSON. Half floats are exchanged in binary only.
    pub(super) fn has_json(self) -> bool {
        self != OipDatatype::Number(DType::F16)
    }

    /// Returns the name used in a model's configuration.
    pub(super) fn config_name(self) -> String {
        match self {
            OipDatatype::Bytes => "TYPE_STRING".to_owned(),
            other @ (OipDatatype::Number(_) | OipDatatype::Bool) => format!("TYPE_{}", other.name()),
        }
    }
}

/// Returns an item's shape as the protocol describes it: a text is one element.
pub(super) fn item_dims(port: &ModelPort) -> &[usize] {
    if port.text_bytes_max().is_some() { &[1] } else { port.item.shape.dims() }
}
