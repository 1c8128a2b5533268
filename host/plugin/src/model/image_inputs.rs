//! Image inputs that the host preprocesses: clients send pixels, and the plugin gets what the version declares.

use std::sync::Arc;

use saggar_store::{ImageInputs, ImagePreprocessing};
use saggar_tensor::{DType, Descriptor, Shape};

use super::model_port::ModelPort;
use super::named_tensor::NamedTensor;
use super::signature::{ModelSignature, check_port};
use crate::error::PluginError;

/// Returns a plugin's signature as clients see it: inputs with preprocessing are images of `uint8` pixels.
///
/// # Errors
/// `BadSignature` if the plugin lacks a declared input, or its data type or shape is not that of the declaration.
pub(super) fn client_signature(
    mut signature: ModelSignature,
    inputs: &ImageInputs,
) -> Result<ModelSignature, PluginError> {
    for (name, preprocessing) in inputs {
        let names = || signature.inputs.iter().map(|port| port.name.as_str()).collect::<Vec<_>>().join(", ");
        let Some(place) = signature.inputs.iter().position(|port| port.name == *name) else {
            return Err(PluginError::signature(format!(
                "the version declares the preprocessing of an input {name}, and the plugin's inputs are {}: declare it \
                 for one of them",
                names()
            )));
        };
        let port = &mut signature.inputs[place];
        *port = client_port(port, preprocessing)?;
    }
    Ok(signature)
}

fn client_port(port: &ModelPort, preprocessing: &ImagePreprocessing) -> Result<ModelPort, PluginError> {
    let (name, expected) = (&port.name, preprocessing.input_item());
    if port.item != expected {
        return Err(PluginError::signature(format!(
            "input {name} is {}, and the preprocessing that the version declares for it gives {expected}: declare the \
             size, colours and layout of the input, or change the input",
            port.item
        )));
    }
    let port = ModelPort {
        item: preprocessing.pixels_item(),
        semantics: Some("image".to_owned()),
        preprocessing: Some(Arc::new(preprocessing.clone())),
        ..port.clone()
    };
    check_port("input", &port)?;
    Ok(port)
}

/// Returns what the plugin gets of a client's tensor: that tensor, or its images preprocessed.
///
/// # Errors
/// `BadInput` if the result would be too large for a tensor.
pub(super) fn preprocess(tensor: NamedTensor, inputs: &ImageInputs) -> Result<NamedTensor, PluginError> {
    let Some(preprocessing) = inputs.get(&tensor.name).filter(|_| tensor.descriptor.dtype == DType::U8) else {
        return Ok(tensor);
    };
    let NamedTensor { name, descriptor, bytes } = tensor;
    let item_dims = preprocessing.pixels_item().shape.rank();
    let batch = &descriptor.shape.dims()[..descriptor.shape.rank() - item_dims];
    let dims = [batch, preprocessing.input_item().shape.dims()].concat();
    let shape = Shape::new(dims).map_err(|error| PluginError::BadInput {
        name: name.clone(),
        expected: "fewer images".to_owned(),
        given: error.to_string(),
    })?;
    let bytes = preprocessing.normalize(&bytes);
    Ok(NamedTensor { name, descriptor: Descriptor::new(DType::F32, shape), bytes })
}
