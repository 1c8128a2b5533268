//! `X-Saggar-Keep-Alive`: the idle time for which the model of a prediction stays loaded.
//!
//! Every client that can predict can extend the time. A time shorter than the model's configuration amounts to
//! unloading the model, and requires that right.

use axum::http::HeaderValue;
use axum::http::request::Parts;
use saggar_serving::model_config::KeepAlive;
use saggar_store::AccessAction;

use crate::access::{AccessError, Actor};
use crate::app::AppState;
use crate::audit::AuditAction;
use crate::error::ApiError;
use crate::resource_access::check_model;

/// The header's name.
const KEEP_ALIVE: &str = "x-saggar-keep-alive";

/// The keep-alive time that a client requests, and the client.
#[derive(Debug)]
pub(crate) struct KeepAliveOverride {
    time: KeepAlive,
    actor: Actor,
}

impl KeepAliveOverride {
    /// Reads the header of a request. Returns `None` if it is absent.
    ///
    /// # Errors
    /// Returns `Parameter` if the header is not a valid time.
    pub(crate) fn from_request(parts: &Parts) -> Result<Option<KeepAliveOverride>, ApiError> {
        let Some(value) = parts.headers.get(KEEP_ALIVE) else { return Ok(None) };
        Ok(Some(KeepAliveOverride { time: parse_keep_alive(value)?, actor: Actor::from_extensions(&parts.extensions) }))
    }

    /// Sets the model's keep-alive time.
    ///
    /// # Errors
    /// Returns `Refused` if the time is shorter than the configured one and the client has no right to unload the
    /// model.
    pub(crate) async fn apply(self, app: &AppState, model: &str) -> Result<(), ApiError> {
        let KeepAliveOverride { time, actor } = self;
        if time.is_shorter_than(app.models().status(model)?.config.keep_alive) {
            let may = check_model(app, &actor.rights, AccessAction::UnloadModel, model).await;
            app.audit().record(
                &actor,
                AuditAction::ModelKeepAlive,
                model,
                &format!("X-Saggar-Keep-Alive: {time}"),
                &may,
            );
            may.map_err(|error| match error {
                ApiError::Access(AccessError::Refused(refused)) => {
                    let header = "X-Saggar-Keep-Alive, shorter than the model's own keep_alive";
                    AccessError::Header { header, refused }.into()
                }
                error => error,
            })?;
        }
        app.models().set_keep_alive(model, time);
        Ok(())
    }
}

fn parse_keep_alive(value: &HeaderValue) -> Result<KeepAlive, ApiError> {
    let text = String::from_utf8_lossy(value.as_bytes());
    text.trim().parse().map_err(|_| ApiError::Parameter {
        name: "X-Saggar-Keep-Alive",
        expected: "a time such as 5m or 0s, or forever",
        got: text.chars().take(80).collect(),
    })
}
