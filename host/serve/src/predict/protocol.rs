//! The routes of the native prediction protocol.

use saggar_store::AccessAction;

use super::{describe, model_routes, predict_default, predict_named};
use crate::http_protocol::{HttpProtocol, HttpRoute};

/// The native prediction protocol.
pub(crate) const PREDICT: HttpProtocol = HttpProtocol { routes };

fn routes() -> Vec<HttpRoute> {
    vec![
        HttpRoute::new("/").post(AccessAction::Predict, predict_default),
        HttpRoute::new("/predict")
            .get(AccessAction::Predict, describe::describe_default)
            .post(AccessAction::Predict, predict_default),
        HttpRoute::new("/models/{model}/predict")
            .get(AccessAction::Predict, describe::describe_named)
            .post(AccessAction::Predict, predict_named),
        HttpRoute::new("/models/{model}/{*path}")
            .get(AccessAction::Predict, model_routes::predict_named_by_path)
            .post(AccessAction::Predict, model_routes::predict_named_by_path),
    ]
}
