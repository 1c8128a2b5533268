//! Who does something, for handlers that write it down.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::Extensions;
use axum::http::request::Parts;
use saggar_store::AccessRights;

use super::visibility::ProjectScope;
use crate::request_middleware::RequestId;

/// Whose request it is. A request without this extension came from this machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Principal {
    /// A program of this machine, through a door that asks for no key.
    Loopback,
    /// Who may open the server's socket file.
    Socket,
    /// Anybody: the server was told to be insecure.
    Anyone,
    /// The holder of the key of this name.
    Key(Arc<str>),
    /// The user at the command line.
    Cli,
    /// Somebody who had no key when a job was submitted, or a schedule set.
    Nobody,
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Principal::Loopback => f.write_str("loopback"),
            Principal::Socket => f.write_str("socket"),
            Principal::Anyone => f.write_str("anyone"),
            // Keys are named by users, who may name one `loopback`.
            Principal::Key(name) => write!(f, "key:{name}"),
            Principal::Cli => f.write_str("cli"),
            Principal::Nobody => f.write_str("no_key"),
        }
    }
}

/// Who asks, with which rights, and in which request. Handlers take it as an argument, or make it of a request's extensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    /// Whose request it is.
    pub principal: Principal,
    /// The request; empty where there is none.
    pub request_id: String,
    /// What they may do.
    pub rights: AccessRights,
}

impl Actor {
    /// The actor of a request with these extensions.
    pub fn from_extensions(extensions: &Extensions) -> Actor {
        let who = extensions.get::<Principal>().cloned().unwrap_or(Principal::Loopback);
        let request_id = extensions.get::<RequestId>().map_or_else(String::new, |id| id.0.clone());
        Actor { principal: who, request_id, rights: ProjectScope::from_extensions(extensions).rights().clone() }
    }

    /// Whoever has these rights, in no request: a job, or a schedule.
    pub(crate) fn from_rights(rights: &AccessRights) -> Actor {
        let who = rights.key().map_or(Principal::Nobody, |name| Principal::Key(name.into()));
        Actor { principal: who, request_id: String::new(), rights: rights.clone() }
    }

    /// The user at the command line, who needs no server.
    pub fn cli() -> Actor {
        Actor { principal: Principal::Cli, request_id: String::new(), rights: AccessRights::default() }
    }
}

impl<S: Sync> FromRequestParts<S> for Actor {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Actor, Infallible> {
        Ok(Actor::from_extensions(&parts.extensions))
    }
}
