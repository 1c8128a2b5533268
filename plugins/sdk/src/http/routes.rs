//! The routes of a plugin's handlers.

use std::fmt;

use crate::bindings::http_handler as raw;
use crate::bindings::http_handler::HttpMethod;
use crate::bindings::tensors;
use crate::error::Result;
use crate::loaded::with_loaded;

use super::request::HttpRequest;
use super::response::HttpResponse;

type HttpHandler<P> = Box<dyn Fn(&P, &HttpRequest) -> Result<HttpResponse>>;

/// The paths that a plugin answers with its own code. Handlers get the loaded predictor `P`: a
/// [`Predictor`](crate::Predictor), or the [`Graphs`](crate::Graphs) of a [`Model`](crate::Model).
///
/// ```no_run
/// use saggar_plugin::{
///     DataType, Graph, Graphs, HttpRequest, HttpResponse, HttpRoutes, Inputs, Json, Model, NamedTensor, Operand, Params,
///     Port, Predictor, Result, Tensor, Variables, descriptor, named,
/// };
///
/// struct Double;
///
/// impl Model for Double {
///     fn load(_: &Variables, _: &Params) -> Result<Self> {
///         Ok(Self)
///     }
///     fn inputs(&self) -> Vec<Port> {
///         vec![Port::new("x", DataType::Float32, [])]
///     }
///     fn outputs(&self) -> Vec<Port> {
///         vec![Port::new("y", DataType::Float32, [])]
///     }
///     fn predict(&self, _: &Graph, inputs: &Inputs) -> Result<Vec<(&'static str, Operand)>> {
///         Ok(vec![("y", inputs.get("x")?.mul_scalar(2.0)?)])
///     }
/// }
///
/// fn routes() -> HttpRoutes<Graphs<Double>> {
///     HttpRoutes::new()
///         .get("/hello/{name}", |_, request| Ok(format!("Hello, {}!", request.parameter("name")?)))
///         .post("/double", double)
///         .describe("Doubles the number `x`")
/// }
///
/// fn double(model: &Graphs<Double>, request: &HttpRequest) -> Result<Json> {
///     let x: f32 = request.field("x")?;
///     let tensor = Tensor::from_bytes(&descriptor(DataType::Float32, [1]), &x.to_le_bytes())?;
///     let outputs = model.predict(vec![NamedTensor { name: "x".to_owned(), tensor }])?;
///     Ok(Json::from(named(&outputs, "y")?.read_f32()?[0] as f64))
/// }
///
/// saggar_plugin::export!(predict: Double);
/// saggar_plugin::export!(http: routes);
/// ```
pub struct HttpRoutes<P> {
    routes: Vec<HttpRoute<P>>,
}

struct HttpRoute<P> {
    method: HttpMethod,
    path: String,
    description: String,
    handler: HttpHandler<P>,
}

impl<P> fmt::Debug for HttpRoutes<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.routes.iter().map(|route| (route.method, &route.path))).finish()
    }
}

impl<P> Default for HttpRoutes<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P> HttpRoutes<P> {
    /// Returns routes without any.
    pub fn new() -> Self {
        Self { routes: Vec::new() }
    }

    /// Adds a handler of `GET`, and `HEAD`. A segment of the path can be a parameter: `/hello/{name}`.
    #[must_use]
    pub fn get<R: Into<HttpResponse>>(
        self,
        path: &str,
        handler: impl Fn(&P, &HttpRequest) -> Result<R> + 'static,
    ) -> Self {
        self.with(HttpMethod::Get, path, handler)
    }

    /// Adds a handler of `POST`.
    #[must_use]
    pub fn post<R: Into<HttpResponse>>(
        self,
        path: &str,
        handler: impl Fn(&P, &HttpRequest) -> Result<R> + 'static,
    ) -> Self {
        self.with(HttpMethod::Post, path, handler)
    }

    /// Adds a handler of any method.
    #[must_use]
    pub fn with<R: Into<HttpResponse>>(
        mut self,
        method: HttpMethod,
        path: &str,
        handler: impl Fn(&P, &HttpRequest) -> Result<R> + 'static,
    ) -> Self {
        let handler: HttpHandler<P> = Box::new(move |predictor, request| handler(predictor, request).map(Into::into));
        self.routes.push(HttpRoute { method, path: path.to_owned(), description: String::new(), handler });
        self
    }

    /// Describes the route that was added last, in a sentence for `/openapi.json`.
    #[must_use]
    pub fn describe(mut self, description: &str) -> Self {
        if let Some(route) = self.routes.last_mut() {
            route.description = description.to_owned();
        }
        self
    }
}

/// Returns the routes in the host's form. Called by [`export!`](crate::export).
///
/// # Panics
/// The exported predictor is not a `P`. The host then refuses the model version.
pub fn list_http_routes<P: 'static>(routes: fn() -> HttpRoutes<P>) -> Vec<raw::HandlerRoute> {
    with_loaded(|_: &P| ());
    let raw = |HttpRoute { method, path, description, .. }| raw::HandlerRoute { method, path, description };
    routes().routes.into_iter().map(raw).collect()
}

/// Runs the handler of a route. Called by [`export!`](crate::export).
///
/// # Errors
/// Returns the error of the handler.
///
/// # Panics
/// There is no such route.
pub fn run_http_handler<P: 'static>(
    routes: fn() -> HttpRoutes<P>,
    route: u32,
    request: raw::HttpRequest,
) -> std::result::Result<Option<raw::HttpResponse>, tensors::Error> {
    let routes = routes().routes;
    let route = &routes[route as usize];
    let response = with_loaded(|predictor: &P| (route.handler)(predictor, &HttpRequest(request)))?;
    Ok(response.into_raw())
}
