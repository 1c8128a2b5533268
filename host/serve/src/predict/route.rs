//! Paths that models declare: `POST /models/NAME/dim/0.5`, or `POST /dim/0.5` where the model is the default one. What
//! stands in the path, and what the route gives by itself, are inputs like those of the body.

use axum::extract::{Path, Request, State};
use axum::http::{Method, Uri};
use axum::response::Response;
use saggar_plugin::{ModelPort, Route, Signature};

use super::decode::{Input, Inputs};
use super::reference::Reference;
use super::{Answering, answer, text};
use crate::app::App;
use crate::error::ApiError;
use crate::models::Serving;

/// A request by one of the model's own paths.
#[derive(Debug)]
pub(super) struct Routed {
    /// The model's inputs but those that the path gives.
    pub(super) rest: Signature,
    /// One item of each input that the path gives.
    pub(super) given: Vec<(String, Vec<u8>)>,
}

/// `/models/{model}/{*path}`, with any path that the model declares.
pub(crate) async fn by_name(
    State(app): State<App>,
    Path((model, path)): Path<(String, String)>,
    request: Request,
) -> Result<Response, ApiError> {
    let reference = Reference::parse(&model)?;
    by_path(&app, Some(&reference), &path, request).await
}

/// Any other path, which the default model may declare.
pub(crate) async fn by_default(State(app): State<App>, request: Request) -> Result<Response, ApiError> {
    let uri = request.uri().clone();
    if !matches!(*request.method(), Method::POST | Method::GET) {
        return Err(missing(&uri));
    }
    let decoded = text::percent_decoded(uri.path()).ok_or_else(|| missing(&uri))?;
    let path = decoded.strip_prefix('/').unwrap_or(&decoded).to_owned();
    // Where no model is ready, nobody declares anything.
    let Ok(serving) = app.models().find(None) else { return Err(missing(&uri)) };
    if find(&serving, &path).is_none() {
        return Err(missing(&uri));
    }
    by_path(&app, None, &path, request).await
}

fn missing(uri: &Uri) -> ApiError {
    ApiError::NoRoute { path: uri.path().chars().take(200).collect() }
}

fn find<'s>(serving: &'s Serving, path: &str) -> Option<&'s Route> {
    let segments = segments(path);
    serving.predictor().signature().routes.iter().find(|route| route.matches(&segments).is_some())
}

fn segments(path: &str) -> Vec<&str> {
    if path.is_empty() { Vec::new() } else { path.split('/').collect() }
}

async fn by_path(app: &App, reference: Option<&Reference>, path: &str, request: Request) -> Result<Response, ApiError> {
    app.models().check(reference)?;
    answer(app, reference, request, Answering::ByPath(path)).await
}

impl Routed {
    /// What a request by `path` gives.
    ///
    /// # Errors
    /// `NoRoute` where the model does not declare the path; whatever is wrong with a value in it.
    pub(super) fn of(serving: &Serving, path: &str) -> Result<Routed, ApiError> {
        let signature = serving.predictor().signature();
        let segments = segments(path);
        let found = signature.routes.iter().find_map(|route| Some((route, route.matches(&segments)?)));
        let (route, in_path) = found.ok_or_else(|| {
            let path: String = path.chars().take(200).collect();
            ApiError::NoRoute { path: format!("/models/{}/{path}", serving.model) }
        })?;
        let mut given = route.given.clone();
        for (name, value) in in_path {
            let Some(port) = signature.inputs.iter().find(|port| port.name == name) else { continue };
            given.push((name.to_owned(), item(port, value)?));
        }
        let inputs = signature.inputs.iter().filter(|port| !given.iter().any(|(name, _)| *name == port.name));
        let rest = Signature { inputs: inputs.cloned().collect(), ..signature.clone() };
        Ok(Routed { rest, given })
    }

    /// Whether a request needs no body.
    pub(super) fn is_whole(&self) -> bool {
        self.rest.inputs.iter().all(|port| port.default.is_some())
    }

    /// The inputs of a request without a body.
    ///
    /// # Errors
    /// `Missing` for an input that the path does not give.
    pub(super) fn alone(&self) -> Result<Inputs, ApiError> {
        Ok(Inputs::new(&self.rest, Vec::new())?)
    }
}

/// An item of the port, as it stands in a path.
fn item(port: &ModelPort, value: &str) -> Result<Vec<u8>, ApiError> {
    let input = match port.text_bytes() {
        Some(bytes_max) => Input::text(port, bytes_max, value.as_bytes())?,
        None => {
            // A port of one element is written as a number, whatever its rank.
            let number = ModelPort {
                item: saggar_tensor::Descriptor::new(port.item.dtype, saggar_tensor::Shape::scalar()),
                ..port.clone()
            };
            Input::json(&number, value.as_bytes())?
        }
    };
    Ok(input.into_bytes())
}
