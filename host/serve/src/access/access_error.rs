//! The reasons for which a request is refused by access control.

use saggar_store::AccessDenied;
use saggar_store::keys::KeyScope;
use thiserror::Error;

use crate::program_version::ProgramVersion;

/// The reason for which a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AccessError {
    /// No key was sent.
    #[error("a key is needed here")]
    NoKey,
    /// The key is unknown or revoked. The error does not say which.
    #[error("the key is not known here")]
    UnknownKey,
    /// The key has expired.
    #[error("the key {name} has expired")]
    ExpiredKey {
        /// The key's name.
        name: String,
    },
    /// The key lacks a scope.
    #[error("the key {name} lacks the scope {scope}")]
    Scope {
        /// The missing scope.
        scope: KeyScope,
        /// The key's name.
        name: String,
    },
    /// The key is limited to other projects.
    #[error("the key {name} is for jobs of {}, not of {project}", if projects.is_empty() { "no project" } else { projects })]
    Project {
        /// The key's name.
        name: String,
        /// The requested project.
        project: String,
        /// The projects of the key.
        projects: String,
    },
    /// The key does not permit this action on this resource.
    #[error(transparent)]
    Refused(#[from] AccessDenied),
    /// A header requests an action that the key does not permit on this resource.
    #[error("{header}: {refused}")]
    Header {
        /// The header and the requested action.
        header: &'static str,
        /// The reason.
        refused: AccessDenied,
    },
    /// The key is limited to projects, but the response covers all of them.
    #[error("the key {name} is for {projects}, and the metrics are of every project")]
    AllProjects {
        /// The key's name.
        name: String,
        /// The projects of the key.
        projects: String,
    },
    /// A request to a notebook without its token.
    #[error("the notebook {job} needs its token")]
    NotebookToken {
        /// The notebook's job.
        job: String,
    },
    /// Too many requests in a short time.
    #[error("the key {name} may make {rate} requests")]
    Rate {
        /// The key's name.
        name: String,
        /// Its rate limit as text.
        rate: String,
        /// Seconds until the next request is admitted.
        retry_seconds: u64,
    },
    /// The quota is used up.
    #[error("the key {name} has used its quota of {quota} requests")]
    Quota {
        /// The key's name.
        name: String,
        /// Its quota as text.
        quota: String,
        /// Seconds until the next day or month begins.
        retry_seconds: u64,
    },
    /// The command's version is incompatible with this server's, so that its request could have another meaning.
    #[error("the command is saggar {client}, and this server is saggar {server}: nothing was changed")]
    VersionSkew {
        /// The command's version.
        client: ProgramVersion,
        /// This server's.
        server: ProgramVersion,
    },
    /// The host name is not one of this server's. A web page can have made it resolve to this machine (DNS rebinding).
    #[error("this server answers to localhost, not to {host:?}")]
    ForeignHost {
        /// The host name.
        host: String,
    },
    /// A web page of another site attempts a change.
    #[error("a web page of {origin:?} may not do this")]
    CrossSite {
        /// The origin.
        origin: String,
    },
    /// The request has no or several host names.
    #[error("host: expected one name or address, perhaps with a port")]
    BadHost,
    /// A body whose length a proxy could interpret differently.
    #[error("transfer-encoding: only `chunked` is taken")]
    TransferEncoding,
}

impl AccessError {
    /// The reasons of [`failure_reason`](AccessError::failure_reason).
    pub(crate) const FAILURE_REASONS: [&str; 4] = ["missing", "unknown", "expired", "scope"];
    /// The reasons of [`rejection_reason`](AccessError::rejection_reason).
    pub(crate) const REJECTION_REASONS: [&str; 5] = ["rate", "quota", "cross_site", "bad_head", "version_skew"];

    /// Returns the reason under which this counts as an authentication failure, or `None`.
    pub(crate) fn failure_reason(&self) -> Option<&'static str> {
        match self {
            AccessError::NoKey => Some("missing"),
            AccessError::UnknownKey => Some("unknown"),
            AccessError::ExpiredKey { .. } => Some("expired"),
            AccessError::Scope { .. } | AccessError::AllProjects { .. } => Some("scope"),
            _ => None,
        }
    }

    /// Returns the reason under which this counts as a rejected request, which does not depend on the client's rights,
    /// or `None`.
    pub(crate) fn rejection_reason(&self) -> Option<&'static str> {
        match self {
            AccessError::Rate { .. } => Some("rate"),
            AccessError::Quota { .. } => Some("quota"),
            AccessError::ForeignHost { .. } | AccessError::CrossSite { .. } => Some("cross_site"),
            AccessError::BadHost | AccessError::TransferEncoding => Some("bad_head"),
            AccessError::VersionSkew { .. } => Some("version_skew"),
            _ => None,
        }
    }
}
