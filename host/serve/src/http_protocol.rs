//! The parts of which a protocol of the HTTP interface consists. Each protocol is a directory, whose file `protocol.rs`
//! has a constant of [`HttpProtocol`]. The constants are listed in [`crate::server`].

use axum::handler::Handler;
use axum::http::Method;
use axum::routing::{MethodRouter, any};

use crate::access::route_scopes::RouteRequirement;
use crate::app::AppState;

/// A protocol.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HttpProtocol {
    /// Returns its routes, in the order of the index.
    pub(crate) routes: fn() -> Vec<HttpRoute>,
}

/// A path, with the handler of each method and what the method requires on a protected listener.
#[derive(Debug)]
pub(crate) struct HttpRoute {
    pub(crate) path: &'static str,
    pub(crate) handlers: MethodRouter<AppState>,
    pub(crate) requirements: Vec<(Method, RouteRequirement)>,
}

impl HttpRoute {
    /// Creates a route without methods.
    pub(crate) fn new(path: &'static str) -> HttpRoute {
        HttpRoute { path, handlers: MethodRouter::new(), requirements: Vec::new() }
    }

    /// Adds the method `GET`, which also answers `HEAD`.
    pub(crate) fn get<H: Handler<T, AppState>, T: 'static>(
        self,
        requirement: impl Into<RouteRequirement>,
        handler: H,
    ) -> HttpRoute {
        self.with_method(Method::GET, requirement.into(), |handlers| handlers.get(handler))
    }

    /// Adds the method `POST`.
    pub(crate) fn post<H: Handler<T, AppState>, T: 'static>(
        self,
        requirement: impl Into<RouteRequirement>,
        handler: H,
    ) -> HttpRoute {
        self.with_method(Method::POST, requirement.into(), |handlers| handlers.post(handler))
    }

    /// Adds the method `PUT`.
    pub(crate) fn put<H: Handler<T, AppState>, T: 'static>(
        self,
        requirement: impl Into<RouteRequirement>,
        handler: H,
    ) -> HttpRoute {
        self.with_method(Method::PUT, requirement.into(), |handlers| handlers.put(handler))
    }

    /// Adds the method `DELETE`.
    pub(crate) fn delete<H: Handler<T, AppState>, T: 'static>(
        self,
        requirement: impl Into<RouteRequirement>,
        handler: H,
    ) -> HttpRoute {
        self.with_method(Method::DELETE, requirement.into(), |handlers| handlers.delete(handler))
    }

    /// Passes every method to one handler. Methods that are not in `requirements` require `admin`.
    pub(crate) fn any<H: Handler<T, AppState>, T: 'static>(
        self,
        requirements: &[(Method, RouteRequirement)],
        handler: H,
    ) -> HttpRoute {
        HttpRoute { handlers: any(handler), requirements: requirements.to_vec(), ..self }
    }

    fn with_method(
        mut self,
        method: Method,
        requirement: RouteRequirement,
        add: impl FnOnce(MethodRouter<AppState>) -> MethodRouter<AppState>,
    ) -> HttpRoute {
        self.requirements.push((method, requirement));
        HttpRoute { handlers: add(self.handlers), ..self }
    }
}
