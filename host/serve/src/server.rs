//! The assembled server: the list of its protocols, and the router that they make.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::middleware;
use saggar_clock::Clock;
use saggar_rest::deprecations::DEPRECATIONS;
use tokio::sync::watch;

use crate::access::ListenPolicy;
use crate::access::route_scopes::RouteScopes;
use crate::api::jobs::submit;
use crate::api::protocol::MANAGEMENT;
use crate::app::{AppState, InterfaceIndex};
use crate::app_parts::AppParts;
use crate::cog::protocol::COG;
use crate::error::ApiError;
use crate::grpc_protocol::GRPC;
use crate::http_protocol::{HttpProtocol, HttpRoute};
use crate::initial_series;
use crate::mlflow::protocol::MLFLOW;
use crate::mlflow::ui::protocol::MLFLOW_UI;
use crate::notebooks::protocol::NOTEBOOKS;
use crate::oip::protocol::OPEN_INFERENCE;
use crate::openapi::described_response::HandlerResponses;
use crate::pages::protocol::PAGES;
use crate::pipeline_port::ServerPipelinePort;
use crate::predict::model_routes;
use crate::predict::protocol::PREDICT;
use crate::request_middleware::{AuthLayer, admit_and_observe};
use crate::tfs::protocol::TENSORFLOW_SERVING;

/// Every protocol, in the order of the index and of the OpenAPI document.
pub(crate) const PROTOCOLS: [HttpProtocol; 10] =
    [PAGES, PREDICT, COG, TENSORFLOW_SERVING, OPEN_INFERENCE, GRPC, MANAGEMENT, MLFLOW, MLFLOW_UI, NOTEBOOKS];

/// Returns the routes of all protocols. Two protocols can have methods of the same path.
pub(crate) fn all_routes() -> impl Iterator<Item = HttpRoute> {
    PROTOCOLS.into_iter().flat_map(|protocol| (protocol.routes)())
}

/// Returns the paths of all routes, in the order of the index.
pub(crate) fn route_paths() -> Vec<&'static str> {
    let mut seen = BTreeSet::new();
    let mut paths: Vec<&'static str> = all_routes().map(|route| route.path).filter(|path| seen.insert(*path)).collect();
    // The index begins with its own path.
    paths.sort_by_key(|path| *path != "/");
    paths
}

/// Returns every path with each of its methods.
#[cfg(test)]
pub(crate) fn route_methods() -> impl Iterator<Item = (&'static str, axum::http::Method)> {
    all_routes().flat_map(|route| route.requirements.into_iter().map(move |(method, _)| (route.path, method)))
}

/// Returns whether a path is a method of gRPC, whose requests and responses are not JSON.
#[cfg(test)]
pub(crate) fn is_grpc_path(path: &str) -> bool {
    (GRPC.routes)().iter().any(|route| route.path == path)
}

/// Returns the table of requirements of all routes.
pub(crate) fn route_scopes() -> RouteScopes {
    RouteScopes::new(all_routes().flat_map(|route| {
        let path = route.path;
        route.requirements.into_iter().map(move |(method, requirement)| (path, method, requirement))
    }))
}

/// Returns the responses that the types of all handlers describe.
pub(crate) fn handler_responses() -> HandlerResponses {
    HandlerResponses::new(all_routes().flat_map(|route| {
        let path = route.path;
        route.responses.into_iter().map(move |(method, describe)| (method, path, describe))
    }))
}

impl AppState {
    /// Creates a server from `parts`. Streaming responses end when `shutdown` is true.
    pub fn new(parts: AppParts, clock: Arc<dyn Clock>, shutdown: watch::Receiver<bool>) -> AppState {
        let areas = PROTOCOLS.iter().flat_map(|protocol| protocol.areas).copied().collect();
        let index = InterfaceIndex { route_paths: route_paths(), areas, responses: handler_responses() };
        let app = AppState::from_parts(parts, index, clock, shutdown);
        initial_series::create_initial_series(&app.metrics().families);
        app.jobs().set_spec_resolver(submit::scheduled_spec_resolver(&app));
        app.pipelines().set_port(Arc::new(ServerPipelinePort::new(&app)));
        let audit = app.audit().clone();
        app.jobs().set_effect_log(Box::new(move |effect| audit.record_effect(effect)));
        let lifecycle = Arc::downgrade(app.lifecycle());
        app.jobs().set_publication_notes(Box::new(move |model, version| {
            lifecycle.upgrade().map(|lifecycle| lifecycle.publication_notes(model, version)).unwrap_or_default()
        }));
        app
    }

    /// Returns the server as a service for requests from this process, which need no key.
    pub fn router(&self) -> Router {
        self.router_for(ListenPolicy::IN_PROCESS)
    }

    /// Returns the server as a service for requests that arrive under `policy`: its routes, wrapped in the admission
    /// and metrics layer.
    pub(crate) fn router_for(&self, policy: ListenPolicy) -> Router {
        let entrance = AuthLayer {
            policy,
            access: Arc::clone(self.access()),
            scopes: Arc::new(route_scopes()),
            metrics: Arc::clone(self.metrics()),
            memory: self.parts().memory.clone(),
            observer: self.parts().observer.clone(),
            deprecations: DEPRECATIONS,
        };
        let router = all_routes().fold(Router::new(), |router, route| router.route(route.path, route.handlers));
        router
            .fallback(model_routes::predict_default_by_path)
            .method_not_allowed_fallback(method_not_allowed)
            // Handlers read bodies with `BodyReader`, each with its own limit.
            .layer(DefaultBodyLimit::disable())
            .layer(middleware::from_fn_with_state(entrance, admit_and_observe))
            .with_state(self.clone())
    }
}

async fn method_not_allowed(request: Request) -> ApiError {
    let path = request.uri().path().chars().take(200).collect();
    ApiError::Method { method: request.method().as_str().chars().take(40).collect(), path, allow: String::new() }
}
