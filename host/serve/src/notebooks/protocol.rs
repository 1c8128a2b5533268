//! The routes of notebooks.

use super::proxy;
use crate::access::route_scopes::RouteRequirement;
use crate::http_protocol::{HttpProtocol, HttpRoute};
use crate::openapi::operation::{OpenApiOperation, OperationArea};
use crate::openapi::operation_response::SchemaSource;

/// The pages of notebooks.
pub(crate) const NOTEBOOKS: HttpProtocol =
    HttpProtocol { routes, areas: &[OperationArea { tag: "notebooks", operations }] };

fn routes() -> Vec<HttpRoute> {
    // The token of the notebook admits a request.
    let open = || RouteRequirement::Nothing;
    let route = |path| {
        HttpRoute::new(path)
            .get(open(), proxy::forward)
            .post(open(), proxy::forward)
            .put(open(), proxy::forward)
            .patch(open(), proxy::forward)
            .delete(open(), proxy::forward)
    };
    ["/notebooks/{notebook}", "/notebooks/{notebook}/", "/notebooks/{notebook}/{*path}"].map(route).into()
}

/// JupyterLab's interface is its own, so only what the server adds is described.
fn operations() -> Vec<OpenApiOperation> {
    let of_path = |path: &'static str| {
        [
            OpenApiOperation::get(path, "A page, a file or a WebSocket of a notebook's JupyterLab"),
            OpenApiOperation::post(path, "A request to a notebook's JupyterLab"),
            OpenApiOperation::put(path, "A request to a notebook's JupyterLab"),
            OpenApiOperation::patch(path, "A request to a notebook's JupyterLab"),
            OpenApiOperation::delete(path, "A request to a notebook's JupyterLab"),
        ]
    };
    let paths = ["/notebooks/{notebook}", "/notebooks/{notebook}/", "/notebooks/{notebook}/{path}"];
    let answered = |operation: OpenApiOperation| {
        operation.with_content(200, "application/octet-stream", SchemaSource::Binary).with_errors(&[403, 404, 413, 503])
    };
    paths.into_iter().flat_map(of_path).map(answered).collect()
}
