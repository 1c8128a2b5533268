//! The routes of predictions as resources.

use saggar_store::AccessAction;

use super::operations::operations;
use super::{cancel, create, put, show};
use crate::http_protocol::{HttpProtocol, HttpRoute};
use crate::openapi::operation::OperationArea;

/// Cog's interface.
pub(crate) const COG: HttpProtocol =
    HttpProtocol { routes, areas: &[OperationArea { tag: "predictions", operations }] };

fn routes() -> Vec<HttpRoute> {
    vec![
        HttpRoute::new("/predictions").post(AccessAction::Predict, create),
        HttpRoute::new("/predictions/{id}").get(AccessAction::ReadPrediction, show).put(AccessAction::Predict, put),
        HttpRoute::new("/predictions/{id}/cancel").post(AccessAction::CancelPrediction, cancel),
    ]
}
