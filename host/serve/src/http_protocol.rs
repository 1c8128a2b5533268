//! The parts of which a protocol of the HTTP interface consists. Each protocol is a directory, whose file `protocol.rs`
//! has a constant of [`HttpProtocol`]. The constants are listed in [`crate::server`].

use axum::handler::Handler;
use axum::http::Method;
use axum::routing::{MethodRouter, any};

use crate::access::route_scopes::RouteRequirement;
use crate::app::AppState;
use crate::handler_output::HandlerOutput;
use crate::openapi::described_response::{DescribeResponses, DescribedResponse};
use crate::openapi::operation::OperationArea;

/// A protocol.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HttpProtocol {
    /// Returns its routes, in the order of the index.
    pub(crate) routes: fn() -> Vec<HttpRoute>,
    /// The areas of the OpenAPI document that describe the routes.
    pub(crate) areas: &'static [OperationArea],
}

/// A path, with the handler of each method, what the method requires on a protected listener, and the responses that the
/// type of the handler describes.
#[derive(Debug)]
pub(crate) struct HttpRoute {
    pub(crate) path: &'static str,
    pub(crate) handlers: MethodRouter<AppState>,
    pub(crate) requirements: Vec<(Method, RouteRequirement)>,
    pub(crate) responses: Vec<(Method, DescribeResponses)>,
}

impl HttpRoute {
    /// Creates a route without methods.
    pub(crate) fn new(path: &'static str) -> HttpRoute {
        HttpRoute { path, handlers: MethodRouter::new(), requirements: Vec::new(), responses: Vec::new() }
    }

    /// Adds the method `GET`, which also answers `HEAD`.
    pub(crate) fn get<H, T: 'static>(self, requirement: impl Into<RouteRequirement>, handler: H) -> HttpRoute
    where
        H: Handler<T, AppState> + HandlerOutput<T, Output: DescribedResponse>,
    {
        self.with_method::<H, T>(Method::GET, requirement.into(), |handlers| handlers.get(handler))
    }

    /// Adds the method `POST`.
    pub(crate) fn post<H, T: 'static>(self, requirement: impl Into<RouteRequirement>, handler: H) -> HttpRoute
    where
        H: Handler<T, AppState> + HandlerOutput<T, Output: DescribedResponse>,
    {
        self.with_method::<H, T>(Method::POST, requirement.into(), |handlers| handlers.post(handler))
    }

    /// Adds the method `PUT`.
    pub(crate) fn put<H, T: 'static>(self, requirement: impl Into<RouteRequirement>, handler: H) -> HttpRoute
    where
        H: Handler<T, AppState> + HandlerOutput<T, Output: DescribedResponse>,
    {
        self.with_method::<H, T>(Method::PUT, requirement.into(), |handlers| handlers.put(handler))
    }

    /// Adds the method `DELETE`.
    pub(crate) fn delete<H, T: 'static>(self, requirement: impl Into<RouteRequirement>, handler: H) -> HttpRoute
    where
        H: Handler<T, AppState> + HandlerOutput<T, Output: DescribedResponse>,
    {
        self.with_method::<H, T>(Method::DELETE, requirement.into(), |handlers| handlers.delete(handler))
    }

    /// Adds the method `PATCH`.
    pub(crate) fn patch<H, T: 'static>(self, requirement: impl Into<RouteRequirement>, handler: H) -> HttpRoute
    where
        H: Handler<T, AppState> + HandlerOutput<T, Output: DescribedResponse>,
    {
        self.with_method::<H, T>(Method::PATCH, requirement.into(), |handlers| handlers.patch(handler))
    }

    /// Passes every method to one handler. Methods that are not in `requirements` require `admin`.
    pub(crate) fn any<H: Handler<T, AppState>, T: 'static>(
        self,
        requirements: &[(Method, RouteRequirement)],
        handler: H,
    ) -> HttpRoute {
        HttpRoute { handlers: any(handler), requirements: requirements.to_vec(), ..self }
    }

    fn with_method<H: HandlerOutput<T, Output: DescribedResponse>, T>(
        mut self,
        method: Method,
        requirement: RouteRequirement,
        add: impl FnOnce(MethodRouter<AppState>) -> MethodRouter<AppState>,
    ) -> HttpRoute {
        self.requirements.push((method.clone(), requirement));
        self.responses.push((method, H::Output::responses));
        HttpRoute { handlers: add(self.handlers), ..self }
    }
}
