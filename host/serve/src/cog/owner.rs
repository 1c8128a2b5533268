//! The key that a prediction belongs to.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::Extensions;
use axum::http::request::Parts;
use saggar_store::records::PredictionKey;

use crate::access::ProjectScope;

/// The identifier of the key that requested a prediction, or `None` if no key was required. A later key with the name
/// of a revoked one has a different identifier.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct PredictionOwner(Option<String>);

impl PredictionOwner {
    /// Returns the owner of predictions that the request with these extensions creates.
    pub(super) fn from_extensions(extensions: &Extensions) -> PredictionOwner {
        PredictionOwner(ProjectScope::from_extensions(extensions).rights().key_id().map(str::to_owned))
    }

    /// Returns the key of the records of a prediction of this owner.
    pub(super) fn record_key(&self, id: &str) -> PredictionKey {
        PredictionKey { owner: self.0.clone().unwrap_or_default(), id: id.to_owned() }
    }

    /// Returns the map key of a prediction of this owner. Identifiers of keys and predictions never contain a `/`.
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
