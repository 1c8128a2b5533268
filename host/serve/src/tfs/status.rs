//! Model status for TensorFlow Serving's clients: the states of a model's versions, and its signature.

use saggar_plugin::{ModelPort, ModelSignature};
use saggar_serving::{LiveVersion, VersionState, VersionStatus};
use saggar_tensor::DType;
use serde_json::{Map, Value, json};

use super::request::SIGNATURE;

/// Returns the status of versions: `AVAILABLE`, or the state and error of a version that is not.
pub(super) fn version_statuses<'v>(versions: impl Iterator<Item = &'v VersionStatus>) -> Value {
    let version = |version: &VersionStatus| {
        let (state, code) = match version.state {
            VersionState::Loading => ("LOADING", "OK"),
            VersionState::Ready => ("AVAILABLE", "OK"),
            VersionState::Draining => ("UNLOADING", "OK"),
            VersionState::Unloaded => ("END", "OK"),
            VersionState::Failed => ("END", "INTERNAL"),
        };
        // A version that is intact but not loaded is not reported as an error.
        let message = if version.unserved.is_some() { "" } else { &version.reason };
        json!({
            "version": version.version.to_string(),
            "state": state,
            "status": { "error_code": code, "error_message": message },
        })
    };
    json!({ "model_version_status": versions.map(version).collect::<Vec<Value>>() })
}

/// Returns the inputs and outputs of a version.
pub(super) fn signature_metadata(serving: &LiveVersion) -> Value {
    let signature = serving.predictor().signature();
    let batch = !signature.batch_sizes.is_empty();
    let ports = |ports: &[ModelPort]| -> Map<String, Value> {
        ports.iter().map(|port| (port.name.clone(), tensor_signature(port, batch))).collect()
    };
    let ModelSignature { inputs, outputs, .. } = signature;
    json!({
        "model_spec": { "name": serving.model, "signature_name": "", "version": serving.version.to_string() },
        "metadata": { "signature_def": { "signature_def": { SIGNATURE: {
            "inputs": ports(inputs),
            "outputs": ports(outputs),
            "method_name": "tensorflow/serving/predict",
            "defaults": {},
        } } } },
    })
}

fn tensor_signature(port: &ModelPort, batch: bool) -> Value {
    let is_text = port.text_bytes_max().is_some();
    let item = if is_text { &[][..] } else { port.item.shape.dims() };
    let batch = batch.then(|| "-1".to_owned());
    let dims = batch.into_iter().chain(item.iter().map(usize::to_string));
    let dim: Vec<Value> = dims.map(|size| json!({ "size": size, "name": "" })).collect();
    let dtype = if is_text { "DT_STRING" } else { tensorflow_dtype(port.item.dtype) };
    json!({
        "dtype": dtype,
        "tensor_shape": { "dim": dim, "unknown_rank": false },
        "name": format!("{}:0", port.name),
    })
}

fn tensorflow_dtype(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "DT_FLOAT",
        DType::F16 => "DT_HALF",
        DType::I64 => "DT_INT64",
        DType::U64 => "DT_UINT64",
        DType::I32 => "DT_INT32",
        DType::U32 => "DT_UINT32",
        DType::I8 => "DT_INT8",
        DType::U8 => "DT_UINT8",
    }
}
