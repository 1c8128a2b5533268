//! Data types by the names that the protocol has for them.

use saggar_plugin::ModelPort;
use saggar_tensor::DType;

/// The types that ports of models have. The protocol's others (`FP64`, `BF16`) are those of no port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OipDatatype {
    Number(DType),
    /// A truth value: a byte that is 1 or 0.
    Bool,
    /// A text: as many bytes as each has.
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

    /// Whether an input of this type takes data that a client says is of type `name`. Truth values and bytes are the same
    /// on the wire, and models from before there were truth values declare bytes for them.
    pub(super) fn accepts(self, name: &str) -> bool {
        let either = matches!(self, OipDatatype::Bool | OipDatatype::Number(DType::U8));
        self.name() == name || either && ["BOOL", "UINT8"].contains(&name)
    }

    /// The protocol's name.
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

    /// Whether JSON has a form for it. Half floats are exchanged in binary only.
    pub(super) fn has_json(self) -> bool {
        self != OipDatatype::Number(DType::F16)
    }

    /// The name in a model's configuration.
    pub(super) fn config_name(self) -> String {
        match self {
            OipDatatype::Bytes => "TYPE_STRING".to_owned(),
            other @ (OipDatatype::Number(_) | OipDatatype::Bool) => format!("TYPE_{}", other.name()),
        }
    }
}

/// An item's shape in the protocol's eyes: a text is one element.
pub(super) fn item_dims(port: &ModelPort) -> &[usize] {
    if port.text_bytes_max().is_some() { &[1] } else { port.item.shape.dims() }
}
