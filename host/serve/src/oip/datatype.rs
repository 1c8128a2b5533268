//! Data types by the names that the protocol has for them.

use saggar_plugin::ModelPort;
use saggar_tensor::DType;

/// The types that ports of models have. The protocol's others (`BOOL`, `FP64`, `BF16`) are those of no port: truth values
/// are `UINT8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Datatype {
    Number(DType),
    /// A text: as many bytes as each has.
    Bytes,
}

impl Datatype {
    pub(super) fn of(port: &ModelPort) -> Datatype {
        if port.text_bytes().is_some() { Datatype::Bytes } else { Datatype::Number(port.item.dtype) }
    }

    /// The protocol's name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Datatype::Number(DType::F32) => "FP32",
            Datatype::Number(DType::F16) => "FP16",
            Datatype::Number(DType::I64) => "INT64",
            Datatype::Number(DType::U64) => "UINT64",
            Datatype::Number(DType::I32) => "INT32",
            Datatype::Number(DType::U32) => "UINT32",
            Datatype::Number(DType::I8) => "INT8",
            Datatype::Number(DType::U8) => "UINT8",
            Datatype::Bytes => "BYTES",
        }
    }

    /// Whether JSON has a form for it. Half floats are exchanged in binary only.
    pub(super) fn has_json(self) -> bool {
        self != Datatype::Number(DType::F16)
    }

    /// The name in a model's configuration.
    pub(super) fn configured(self) -> String {
        match self {
            Datatype::Bytes => "TYPE_STRING".to_owned(),
            number @ Datatype::Number(_) => format!("TYPE_{}", number.name()),
        }
    }
}

/// An item's shape in the protocol's eyes: a text is one element.
pub(super) fn item_dims(port: &ModelPort) -> &[usize] {
    if port.text_bytes().is_some() { &[1] } else { port.item.shape.dims() }
}
