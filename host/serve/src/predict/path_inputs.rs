//! Inputs in the path of a request, for routes that models declare.

use saggar_plugin::{ModelPort, ModelRoute, ModelSignature};
use saggar_serving::{LiveVersion, PredictionInputs};

use super::decode::{PredictionInput, assemble_inputs};
use super::json_inputs;
use crate::error::ApiError;

/// The inputs of a request to a route that the model declares.
#[derive(Debug)]
pub(super) struct PathInputs {
    /// The signature without the inputs that the path sets.
    pub(super) rest: ModelSignature,
    /// One item of each input that the path sets.
    pub(super) given: Vec<(String, Vec<u8>)>,
}

/// Returns the route of this path, if the model declares it.
pub(super) fn find_route<'s>(serving: &'s LiveVersion, path: &str) -> Option<&'s ModelRoute> {
    let segments = path_segments(path);
    serving.predictor().signature().routes.iter().find(|route| route.match_path(&segments).is_some())
}

/// Splits a path without its first slash.
pub(super) fn path_segments(path: &str) -> Vec<&str> {
    if path.is_empty() { Vec::new() } else { path.split('/').collect() }
}

impl PathInputs {
    /// Returns the inputs that a request to `path` sets.
    ///
    /// # Errors
    /// Returns `NoRoute` if the model does not declare the path, or the error of a value in it.
    pub(super) fn from_path(serving: &LiveVersion, path: &str) -> Result<PathInputs, ApiError> {
        let signature = serving.predictor().signature();
        let segments = path_segments(path);
        let found = signature.routes.iter().find_map(|route| Some((route, route.match_path(&segments)?)));
        let (route, in_path) = found.ok_or_else(|| {
            let path: String = path.chars().take(200).collect();
            ApiError::NoRoute { path: format!("/models/{}/{path}", serving.model) }
        })?;
        let mut given = route.fixed_inputs.clone();
        for (name, value) in in_path {
            let Some(port) = signature.inputs.iter().find(|port| port.name == name) else { continue };
            given.push((name.to_owned(), decode_path_item(port, value)?));
        }
        let inputs = signature.inputs.iter().filter(|port| !given.iter().any(|(name, _)| *name == port.name));
        let rest = ModelSignature { inputs: inputs.cloned().collect(), ..signature.clone() };
        Ok(PathInputs { rest, given })
    }

    /// Returns whether a request needs no body.
    pub(super) fn needs_no_body(&self) -> bool {
        self.rest.inputs.iter().all(|port| port.default.is_some())
    }

    /// Returns the inputs of a request without a body.
    ///
    /// # Errors
    /// Returns `Missing` for an input that the path does not set.
    pub(super) fn without_body(&self) -> Result<PredictionInputs, ApiError> {
        Ok(assemble_inputs(&self.rest, Vec::new())?)
    }
}

/// Decodes an item of the port from a path segment.
fn decode_path_item(port: &ModelPort, value: &str) -> Result<Vec<u8>, ApiError> {
    let input = match port.text_bytes_max() {
        Some(bytes_max) => PredictionInput::from_text(port, bytes_max, value.as_bytes())?,
        None => {
            // A port of one element is written as a number, whatever its rank.
            let number = ModelPort {
                item: saggar_tensor::Descriptor::new(port.item.dtype, saggar_tensor::Shape::scalar()),
                ..port.clone()
            };
            json_inputs::decode_json_input(&number, value.as_bytes())?
        }
    };
    Ok(input.into_bytes())
}
