//! The routes of notebooks.

use super::proxy;
use crate::access::route_scopes::RouteRequirement;
use crate::http_protocol::{HttpProtocol, HttpRoute};

/// The pages of notebooks.
pub(crate) const NOTEBOOKS: HttpProtocol = HttpProtocol { routes, areas: &[] };

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
