//! Checks that any bytes are refused as a request of gRPC for a prediction, or decoded to inputs that fit the model.

use saggar_plugin::{ModelPort, ModelSignature};
use saggar_serve::oip;
use saggar_tensor::{DType, Descriptor, Shape};

/// Decodes `message` for models of every data type.
///
/// # Panics
/// If the decoded inputs do not fit the model.
pub(crate) fn check(message: &[u8]) {
    for (dtype, semantics) in [
        (DType::F32, None),
        (DType::F16, None),
        (DType::I64, None),
        (DType::U64, None),
        (DType::I32, None),
        (DType::I8, None),
        (DType::U8, Some("boolean")),
        (DType::U8, Some("text")),
    ] {
        let Ok(inputs) = oip::decode_infer_message(&signature_of(dtype, semantics), message) else { continue };
        for tensor in &inputs.tensors {
            assert_eq!(tensor.bytes.len(), tensor.descriptor.bytes());
            assert_eq!(tensor.descriptor.shape.dims()[0], inputs.items.unwrap_or(1));
        }
    }
}

/// A signature of vectors of two elements, or of texts of two bytes.
fn signature_of(dtype: DType, semantics: Option<&str>) -> ModelSignature {
    let port = |name: &str, dtype: DType, dims: &[usize]| ModelPort {
        name: name.to_owned(),
        item: Descriptor::new(dtype, Shape::new(dims).expect("a small shape")),
        semantics: None,
        classes: Vec::new(),
        default: None,
        preprocessing: None,
    };
    ModelSignature {
        inputs: vec![ModelPort { semantics: semantics.map(str::to_owned), ..port("x", dtype, &[2]) }],
        outputs: vec![port("y", DType::F32, &[])],
        batch_sizes: vec![1],
        routes: Vec::new(),
        handlers: Vec::new(),
    }
}
