//! The routes of predictions as resources.

use saggar_store::AccessAction;

use super::{cancel, create, put, show};
use crate::http_protocol::{HttpProtocol, HttpRoute};

/// Cog's interface.
pub(crate) const COG: HttpProtocol = HttpProtocol { routes };

fn routes() -> Vec<HttpRoute> {
    vec![
        HttpRoute::new("/predictions").post(AccessAction::Predict, create),
        HttpRoute::new("/predictions/{id}").get(AccessAction::ReadPrediction, show).put(AccessAction::Predict, put),
        HttpRoute::new("/predictions/{id}/cancel").post(AccessAction::CancelPrediction, cancel),
    ]
}
