//! The key that a prediction belongs to.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::Extensions;
use axum::http::request::Parts;

use crate::access::ProjectScope;

/// The identifier of the key that a prediction was asked for with, or `None` where no key was needed. A key that is made later
/// under the name of a revoked one has another identifier.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct PredictionOwner(Option<String>);

impl PredictionOwner {
    /// The owner of what the request with these extensions makes.
    pub(super) fn from_extensions(extensions: &Extensions) -> PredictionOwner {
        PredictionOwner(ProjectScope::from_extensions(extensions).rights().key_id().map(str::to_owned))
    }

    /// The map key of a prediction of this owner. No identifier of a key or a prediction has a `/`.
    pub(super) fn store_key(&self, id: &str) -> String {
        format!("{}/{id}", self.0.as_deref().unwrap_or_default())
    }
}

impl<S: Sync> FromRequestParts<S> for PredictionOwner {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<PredictionOwner, Infallible> {
        Ok(PredictionOwner::from_extensions(&parts.extensions))
    }
}
