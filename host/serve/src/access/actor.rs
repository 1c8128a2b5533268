//! The actor of a request, for handlers and the audit log.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::Extensions;
use axum::http::request::Parts;
use saggar_store::AccessRights;

use super::visibility::ProjectScope;
use crate::request_id::RequestId;

/// The originator of a request. A request without this extension came from this machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Principal {
    /// A program of this machine, through a listener that requires no key.
    Loopback,
    /// A user who can open the server's socket file.
    Socket,
    /// Any client: the server runs in insecure mode.
    Anyone,
    /// The holder of the key of this name.
    Key(Arc<str>),
    /// The user at the command line.
    Cli,
    /// A client without a key who submitted a job or set a schedule.
    Nobody,
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Principal::Loopback => f.write_str("loopback"),
            Principal::Socket => f.write_str("socket"),
            Principal::Anyone => f.write_str("anyone"),
            // The prefix distinguishes a key that a user named `loopback`.
            Principal::Key(name) => write!(f, "key:{name}"),
            Principal::Cli => f.write_str("cli"),
            Principal::Nobody => f.write_str("no_key"),
        }
    }
}

/// The originator of a request with its rights and request ID. Handlers take it as an argument or create it from a
/// request's extensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    /// The originator.
    pub principal: Principal,
    /// The request ID, or empty outside a request.
    pub request_id: String,
    /// The rights.
    pub rights: AccessRights,
}

impl Actor {
    /// Returns the actor of a request with these extensions.
    pub fn from_extensions(extensions: &Extensions) -> Actor {
        let who = extensions.get::<Principal>().cloned().unwrap_or(Principal::Loopback);
        let request_id = extensions.get::<RequestId>().map_or_else(String::new, |id| id.0.clone());
        Actor { principal: who, request_id, rights: ProjectScope::from_extensions(extensions).rights().clone() }
    }

    /// Returns the actor with these rights outside a request: a job or a schedule.
    pub(crate) fn from_rights(rights: &AccessRights) -> Actor {
        let who = rights.key().map_or(Principal::Nobody, |name| Principal::Key(name.into()));
        Actor { principal: who, request_id: String::new(), rights: rights.clone() }
    }

    /// Returns the user at the command line, who needs no server.
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
