//! Model status for TensorFlow Serving's clients: the states of a model's versions, and its signature.

use std::collections::BTreeMap;

use saggar_plugin::ModelPort;
use saggar_rest::tfs::{
    TfsDimension, TfsErrorStatus, TfsMetadata, TfsMetadataDocument, TfsModelSpec, TfsShape, TfsSignature,
    TfsSignatures, TfsTensor, TfsVersionStatus,
};
use saggar_serving::{LiveVersion, VersionState, VersionStatus};
use saggar_tensor::DType;
use serde_json::Map;

use super::request::SIGNATURE;

/// Returns the status of versions: `AVAILABLE`, or the state and error of a version that is not.
pub(super) fn version_statuses<'v>(versions: impl Iterator<Item = &'v VersionStatus>) -> Vec<TfsVersionStatus> {
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
        TfsVersionStatus {
            version: version.version.to_string(),
            state: state.to_owned(),
            status: TfsErrorStatus { error_code: code.to_owned(), error_message: message.to_owned() },
        }
    };
    versions.map(version).collect()
}

/// Returns the inputs and outputs of a version.
pub(super) fn signature_metadata(serving: &LiveVersion) -> TfsMetadataDocument {
    let signature = serving.predictor().signature();
    let batch = !signature.batch_sizes.is_empty();
    let ports =
        |ports: &[ModelPort]| ports.iter().map(|port| (port.name.clone(), tensor_signature(port, batch))).collect();
    let (name, version) = (serving.model.clone(), serving.version.to_string());
    let described = TfsSignature {
        inputs: ports(&signature.inputs),
        outputs: ports(&signature.outputs),
        method_name: "tensorflow/serving/predict".to_owned(),
        defaults: Map::new(),
    };
    let signature_def = BTreeMap::from([(SIGNATURE.to_owned(), described)]);
    TfsMetadataDocument {
        model_spec: TfsModelSpec { name, signature_name: String::new(), version },
        metadata: TfsMetadata { signature_def: TfsSignatures { signature_def } },
    }
}

fn tensor_signature(port: &ModelPort, batch: bool) -> TfsTensor {
    let is_text = port.text_bytes_max().is_some();
    let item = if is_text { &[][..] } else { port.item.shape.dims() };
    let batch = batch.then(|| "-1".to_owned());
    let dims = batch.into_iter().chain(item.iter().map(usize::to_string));
    let dtype = if is_text { "DT_STRING" } else { tensorflow_dtype(port.item.dtype) };
    TfsTensor {
        dtype: dtype.to_owned(),
        tensor_shape: TfsShape {
            dim: dims.map(|size| TfsDimension { size, name: String::new() }).collect(),
            unknown_rank: false,
        },
        name: format!("{}:0", port.name),
    }
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
