//! The routes of the native prediction protocol.

use saggar_store::AccessAction;

use super::operations::operations;
use super::{describe, model_routes, predict_default, predict_named};
use crate::http_protocol::{HttpProtocol, HttpRoute};
use crate::openapi::operation::OperationArea;

/// The native prediction protocol.
pub(crate) const PREDICT: HttpProtocol =
    HttpProtocol { routes, areas: &[OperationArea { tag: "predict", operations }] };

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
            .post(AccessAction::Predict, model_routes::predict_named_by_path)
            .put(AccessAction::Predict, model_routes::predict_named_by_path)
            .delete(AccessAction::Predict, model_routes::predict_named_by_path)
            .patch(AccessAction::Predict, model_routes::predict_named_by_path),
    ]
}
