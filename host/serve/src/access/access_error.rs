//! Why a request is not let in.

use saggar_store::AccessDenied;
use saggar_store::keys::KeyScope;
use thiserror::Error;

use crate::program_version::ProgramVersion;

/// Why a request is not let in.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AccessError {
    /// No key was sent.
    #[error("a key is needed here")]
    NoKey,
    /// A key that is none of ours, or no longer. It is not said which.
    #[error("the key is not known here")]
    UnknownKey,
    /// A key whose time is over.
    #[error("the key {name} has expired")]
    ExpiredKey {
        /// The key's name.
        name: String,
    },
    /// A key that may not do this.
    #[error("the key {name} lacks the scope {scope}")]
    Scope {
        /// What it lacks.
        scope: KeyScope,
        /// The key's name.
        name: String,
    },
    /// A key that is limited to other projects.
    #[error("the key {name} is for jobs of {}, not of {project}", if projects.is_empty() { "no project" } else { projects })]
    Project {
        /// The key's name.
        name: String,
        /// The project that was asked for.
        project: String,
        /// Those that it may name.
        projects: String,
    },
    /// A key that may not do this to this thing.
    #[error(transparent)]
    Refused(#[from] AccessDenied),
    /// A header that asks for what the key may not do to this thing.
    #[error("{header}: {refused}")]
    Header {
        /// The header, and what it asks for.
        header: &'static str,
        /// Why not.
        refused: AccessDenied,
    },
    /// A key of some projects, where all are shown.
    #[error("the key {name} is for {projects}, and the metrics are of every project")]
    AllProjects {
        /// The key's name.
        name: String,
        /// Those that it is for.
        projects: String,
    },
    /// Too many requests in a short time.
    #[error("the key {name} may make {rate} requests")]
    Rate {
        /// The key's name.
        name: String,
        /// Its rate, as people write it.
        rate: String,
        /// When the next one is let in.
        retry_seconds: u64,
    },
    /// The quota is used up.
    #[error("the key {name} has used its quota of {quota} requests")]
    Quota {
        /// The key's name.
        name: String,
        /// Its quota, as people write it.
        quota: String,
        /// When the next day or month begins.
        retry_seconds: u64,
    },
    /// A command that may mean other things than this server by what it sends.
    #[error("the command is saggar {client}, and this server is saggar {server}: nothing was changed")]
    VersionSkew {
        /// The command's version.
        client: ProgramVersion,
        /// This server's.
        server: ProgramVersion,
    },
    /// A name that stands for another machine: a web page may have had it point here.
    #[error("this server answers to localhost, not to {host:?}")]
    ForeignHost {
        /// The name.
        host: String,
    },
    /// A web page of another site wants to change something.
    #[error("a web page of {origin:?} may not do this")]
    CrossSite {
        /// The site.
        origin: String,
    },
    /// A request that does not say, or says twice, whom it is for.
    #[error("host: expected one name or address, perhaps with a port")]
    BadHost,
    /// A body whose length proxies in front may see otherwise.
    #[error("transfer-encoding: only `chunked` is taken")]
    TransferEncoding,
}

impl AccessError {
    /// The reasons of [`failure_reason`](AccessError::failure).
    pub(crate) const FAILURE_REASONS: [&str; 4] = ["missing", "unknown", "expired", "scope"];
    /// The reasons of [`rejection_reason`](AccessError::rejection).
    pub(crate) const REJECTION_REASONS: [&str; 5] = ["rate", "quota", "cross_site", "bad_head", "version_skew"];

    /// The reason under which it counts as a failure of a client to prove itself.
    pub(crate) fn failure_reason(&self) -> Option<&'static str> {
        match self {
            AccessError::NoKey => Some("missing"),
            AccessError::UnknownKey => Some("unknown"),
            AccessError::ExpiredKey { .. } => Some("expired"),
            AccessError::Scope { .. } | AccessError::AllProjects { .. } => Some("scope"),
            _ => None,
        }
    }

    /// The reason under which it counts as a request that is not taken whoever sends it, or that is one too many.
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
