//! HTTP handlers: paths that a plugin answers with its own code, beside predictions.
//!
//! Export them with `export!(http: routes)`, together with a model.

pub(crate) mod request;
pub(crate) mod response;
pub(crate) mod routes;
