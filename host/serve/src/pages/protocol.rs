//! The routes of the console's files and of the documentation.

use super::{console, docs};
use crate::access::route_scopes::RouteRequirement;
use crate::http_protocol::{HttpProtocol, HttpRoute};

/// The pages for people.
pub(crate) const PAGES: HttpProtocol = HttpProtocol { routes };

fn routes() -> Vec<HttpRoute> {
    vec![
        HttpRoute::new("/console/{fingerprint}/{*name}").get(RouteRequirement::Nothing, console::console_asset),
        HttpRoute::new("/docs").get(RouteRequirement::Nothing, docs::docs_index),
        HttpRoute::new("/docs/{*path}").get(RouteRequirement::Nothing, docs::docs_page),
    ]
}
