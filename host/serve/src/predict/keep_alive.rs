//! `X-Saggar-Keep-Alive`: how long the model of a prediction is to stay loaded when nobody asks for it.
//!
//! Whoever may predict may have a model stay longer. To have it unloaded sooner than its settings say is to unload it, and
//! takes the rights to do that.

use axum::http::HeaderValue;
use axum::http::request::Parts;
use saggar_store::AccessAction;

use crate::access::resource_access::check_model;
use crate::access::{AccessError, Actor};
use crate::app::AppState;
use crate::audit::AuditAction;
use crate::error::ApiError;
use crate::models::model_config::KeepAlive;

/// The header.
const KEEP_ALIVE: &str = "x-saggar-keep-alive";

/// What a client says of how long a model stays, and who says it.
#[derive(Debug)]
pub(crate) struct KeepAliveOverride {
    time: KeepAlive,
    actor: Actor,
}

impl KeepAliveOverride {
    /// What the head of a request says, or `None` where it has no such header.
    ///
    /// # Errors
    /// `Parameter` where the header has no time.
    pub(crate) fn from_request(parts: &Parts) -> Result<Option<KeepAliveOverride>, ApiError> {
        let Some(value) = parts.headers.get(KEEP_ALIVE) else { return Ok(None) };
        Ok(Some(KeepAliveOverride { time: parse_keep_alive(value)?, actor: Actor::from_extensions(&parts.extensions) }))
    }

    /// Has the model stay for that long from now on.
    ///
    /// # Errors
    /// `Refused` where that is shorter than the model's settings say and who asks may not unload it.
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
