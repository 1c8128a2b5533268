//! Checks that any text is refused as the body of a prediction request, or decoded to inputs that fit the model, by
//! every protocol; and that the protocols decode the same tensor from the same JSON value.

use bytes::Bytes;
use saggar_plugin::{ModelPort, ModelSignature};
use saggar_serve::predict::json_inputs::decode_json;
use saggar_serve::{cog, oip, tfs};
use saggar_serving::PredictionInputs;
use saggar_tensor::{DType, Descriptor, Shape};

/// Decodes `text` as a body of every protocol, and as the tensor within one.
///
/// # Panics
/// If the decoded inputs do not fit the model, or the protocols disagree.
pub(crate) fn check(text: &str) {
    for (dtype, semantics, datatype) in [
        (DType::F32, None, "FP32"),
        (DType::F16, None, "FP16"),
        (DType::I64, Some("class"), "INT64"),
        (DType::U64, None, "UINT64"),
        (DType::I32, None, "INT32"),
        (DType::I8, None, "INT8"),
        (DType::U8, Some("boolean"), "BOOL"),
        (DType::U8, Some("text"), "BYTES"),
    ] {
        let signature = signature_with_input(dtype, semantics);
        for inputs in [
            decode_json(&signature, text.as_bytes()).ok(),
            cog::decode_prediction_body(&signature, &Bytes::copy_from_slice(text.as_bytes())).ok(),
            oip::decode_infer_body(&signature, text.as_bytes()).ok(),
            tfs::decode_predict_body(&signature, text.as_bytes()).ok(),
            tfs::decode_classify_body(&signature, text.as_bytes()).ok(),
        ] {
            inputs.iter().for_each(assert_consistent);
        }
        check_agreement(&signature, datatype, text);
    }
}

/// Decodes `text` as the tensor in a body of every protocol.
fn check_agreement(signature: &ModelSignature, datatype: &str, text: &str) {
    let Ok(native) = decode_json(signature, format!("{{\"x\": {text}}}").as_bytes()) else { return };
    let input = format!("{{\"input\": {{\"x\": {text}}}}}");
    let cog = cog::decode_prediction_body(signature, &Bytes::from(input)).expect("the same decoder");
    assert_eq!(cog, native, "{text}");
    if signature.inputs[0].item.dtype != DType::F32 || text.contains(['t', 'f', '}']) {
        // The protocols differ in booleans, and in integers that are written as floats.
        return;
    }
    let tfs = tfs::decode_predict_body(signature, format!("{{\"inputs\": {{\"x\": {text}}}}}").as_bytes());
    assert_eq!(tfs.expect("plain numbers"), native, "{text}");
    if let Some(items) = native.items {
        let infer = format!(
            "{{\"inputs\":[{{\"name\":\"x\",\"shape\":[{items},2],\"datatype\":\"{datatype}\",\"data\":{text}}}]}}"
        );
        assert_eq!(oip::decode_infer_body(signature, infer.as_bytes()).expect("plain numbers"), native, "{text}");
    }
}

fn assert_consistent(inputs: &PredictionInputs) {
    for tensor in &inputs.tensors {
        assert_eq!(tensor.bytes.len(), tensor.descriptor.bytes());
        assert_eq!(tensor.descriptor.shape.dims()[0], inputs.items.unwrap_or(1));
    }
}

/// A signature of vectors of two elements, or of texts of two bytes, beside an input with a default.
fn signature_with_input(dtype: DType, semantics: Option<&str>) -> ModelSignature {
    let port = |name: &str, dtype: DType, dims: &[usize]| ModelPort {
        name: name.to_owned(),
        item: Descriptor::new(dtype, Shape::new(dims).expect("a small shape")),
        semantics: None,
        classes: Vec::new(),
        default: None,
        preprocessing: None,
    };
    let classes = vec!["cat".to_owned(), "dog".to_owned()];
    let x = ModelPort { semantics: semantics.map(str::to_owned), classes, ..port("x", dtype, &[2]) };
    let scale = ModelPort { default: Some(1.0), ..port("scale", DType::F32, &[]) };
    ModelSignature {
        inputs: vec![x, scale],
        outputs: vec![port("y", DType::F32, &[])],
        batch_sizes: vec![1],
        routes: Vec::new(),
        handlers: Vec::new(),
    }
}
