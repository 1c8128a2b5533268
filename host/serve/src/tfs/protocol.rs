//! The routes of TensorFlow Serving's interface. Each accepts every method, because the handler distinguishes methods
//! and answers unsupported ones with TensorFlow Serving's error.

use axum::http::Method;
use saggar_store::AccessAction;

use super::handle;
use crate::access::route_scopes::RouteRequirement;
use crate::http_protocol::{HttpProtocol, HttpRoute};

/// TensorFlow Serving's REST interface.
pub(crate) const TENSORFLOW_SERVING: HttpProtocol = HttpProtocol { routes };

fn routes() -> Vec<HttpRoute> {
    vec![
        HttpRoute::new("/v1/").any(&[(Method::GET, RouteRequirement::Key)], handle),
        HttpRoute::new("/v1/{*path}").any(
            &[
                (Method::GET, RouteRequirement::Key),
                (Method::POST, AccessAction::Predict.into()),
                (Method::OPTIONS, RouteRequirement::Nothing),
            ],
            handle,
        ),
        HttpRoute::new("/V1/{*path}").any(
            &[
                (Method::GET, RouteRequirement::Key),
                (Method::POST, AccessAction::Predict.into()),
                (Method::OPTIONS, RouteRequirement::Nothing),
            ],
            handle,
        ),
    ]
}
