//! Who may ask for what: every request passes here before its handler.
//!
//! A [`ListenPolicy`] is where requests come in. An open one asks for no key and instead keeps web pages of others out
//! ([`browser`]); a guarded one wants a key with the scope of what the route does ([`route_scopes`]) whose rate and quota are not used
//! up. Which jobs are there for the request is decided in [`sight`], and which models and datasets in [`things`]; answers
//! that go on for long ask [`pass`] again and again.
//! Through the open door of this machine nothing is allocated and nothing locked.

mod access_error;
mod actor;
mod keyring;
mod origin_check;
mod rate_limiter;
mod reauthorize;
pub(crate) mod resource_access;
pub(crate) mod route_scopes;
mod visibility;

use std::sync::Arc;

use axum::extract::Request;
use axum::http::{HeaderMap, Method, header};
use saggar_metrics::MetricsRegistry;
use saggar_store::AccessAction;
use saggar_store::clock::Clock;
use saggar_store::keys::{KeyFile, KeyRecord, KeyUsageFile};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use crate::connection::{ConnectionActivity, wait_for_shutdown};
use crate::limits::{KEY_USAGE_SAVE_INTERVAL, KEYS_POLL};
use crate::program_version;

pub use access_error::AccessError;
pub use actor::{Actor, Principal};
pub(crate) use reauthorize::StreamAuthorization;
pub(crate) use visibility::{ProjectScope, VisibleJob};

use keyring::{ActiveKey, Keyring};
use route_scopes::{RouteRequirement, RouteScopes};

/// Who can come to a door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposure {
    /// This process: tests.
    InProcess,
    /// Who may open the socket's file.
    UnixSocket,
    /// Programs of this machine, and web pages in its browsers.
    Loopback,
    /// Other machines.
    Network,
}

/// Where requests come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenPolicy {
    /// Who can come.
    pub exposure: Exposure,
    /// Whether a key is needed.
    pub requires_key: bool,
}

impl ListenPolicy {
    /// For requests that this process makes.
    pub(crate) const IN_PROCESS: ListenPolicy = ListenPolicy { exposure: Exposure::InProcess, requires_key: false };
}

/// The keys of a server and what they were used for.
#[derive(Debug)]
pub struct AccessControl {
    keyring: Keyring,
    route_scopes: RouteScopes,
    /// Names by which clients of this machine may call the server, besides its own.
    hosts: Vec<String>,
    metrics: Arc<MetricsRegistry>,
}

impl AccessControl {
    /// The keys of `key_file`, and what they used as `usage` has it. A file that cannot be read now is tried again when it
    /// changes; until then there are no keys, and a guarded door lets nobody in.
    pub fn new(
        file: KeyFile,
        usage: KeyUsageFile,
        clock: Arc<dyn Clock>,
        metrics: Arc<MetricsRegistry>,
    ) -> AccessControl {
        AccessControl {
            keyring: Keyring::new(file, usage, clock),
            route_scopes: RouteScopes::new(),
            hosts: Vec::new(),
            metrics,
        }
    }

    /// With further names by which clients may call the server on this machine: those that a proxy in front passes on.
    #[must_use]
    pub fn with_hosts(mut self, hosts: Vec<String>) -> AccessControl {
        self.hosts = hosts;
        self
    }

    /// The file of keys.
    pub(crate) fn key_file(&self) -> &KeyFile {
        self.keyring.file()
    }

    /// Takes over what the file says now.
    pub(crate) fn reload_keys(&self) {
        self.keyring.reload();
    }

    /// Follows the file and saves what was used, until the server stops.
    pub(crate) async fn run_key_loop(self: Arc<Self>, mut shutdown: watch::Receiver<bool>) {
        let (mut look, mut save) = (interval(KEYS_POLL), interval(KEY_USAGE_SAVE_INTERVAL));
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        save.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let work: fn(&Keyring) = tokio::select! {
                _ = look.tick() => Keyring::reload,
                _ = save.tick() => Keyring::save_usage,
                () = wait_for_shutdown(&mut shutdown) => return,
            };
            let access = Arc::clone(&self);
            // Files may be slow. A panic is told of by the hook of panics, and the next tick tries again.
            let _ = tokio::task::spawn_blocking(move || work(&access.keyring)).await;
        }
    }

    /// Writes down what was used, if anything was since the last time.
    pub(crate) fn save_key_usage(&self) {
        self.keyring.save_usage();
    }

    /// Lets the request in, with its [`Actor`] where that is not a client of this machine, or tells why not.
    pub(crate) fn admit(
        &self,
        door: ListenPolicy,
        route: Option<&str>,
        request: &mut Request,
    ) -> Result<(), AccessError> {
        if door.exposure == Exposure::InProcess {
            return Ok(());
        }
        self.authorize(door, route, request).inspect_err(|error| self.count_refusal(error))
    }

    fn authorize(&self, door: ListenPolicy, route: Option<&str>, request: &mut Request) -> Result<(), AccessError> {
        origin_check::check_head(request)?;
        program_version::check_client_version(request.method(), request.headers())?;
        if !door.requires_key {
            return self.admit_without_key(door, request);
        }
        match self.route_scopes.requirement(route, request.method()) {
            RouteRequirement::Nothing => Ok(()),
            RouteRequirement::Page if wants_page(request.headers()) => Ok(()),
            RouteRequirement::Metrics if door.exposure != Exposure::Network => self.admit_without_key(door, request),
            RouteRequirement::Page | RouteRequirement::Key => self.admit_with_key(None, request),
            RouteRequirement::Metrics => self.admit_with_key(Some(AccessAction::ReadMetrics), request),
            RouteRequirement::Effect(effect) => self.admit_with_key(Some(effect), request),
        }
    }

    fn admit_without_key(&self, door: ListenPolicy, request: &mut Request) -> Result<(), AccessError> {
        let who = match door.exposure {
            Exposure::InProcess => return Ok(()),
            Exposure::Loopback => {
                origin_check::check_host(request, &self.hosts)?;
                return origin_check::check_origin(request);
            }
            Exposure::Network => {
                origin_check::check_origin(request)?;
                Principal::Anyone
            }
            Exposure::UnixSocket => Principal::Socket,
        };
        request.extensions_mut().insert(who);
        Ok(())
    }

    /// Lets in who has a key whose scopes include that of the effect. Whose project a thing is, its handler asks.
    fn admit_with_key(&self, effect: Option<AccessAction>, request: &mut Request) -> Result<(), AccessError> {
        let holder = self.authenticate(request.headers())?;
        let rights = holder.scope.rights();
        let name = || holder.record.name.clone();
        if let Some(scope) = effect.map(AccessAction::scope).filter(|scope| !rights.has_scope(*scope)) {
            return Err(AccessError::Scope { scope, name: name() });
        }
        // One page for all projects.
        if let (Some(AccessAction::ReadMetrics), Some(projects)) = (effect, rights.projects()) {
            return Err(AccessError::AllProjects { name: name(), projects: projects.join(", ") });
        }
        self.keyring.count_request(&holder)?;
        if let Some(connection) = request.extensions().get::<Arc<ConnectionActivity>>() {
            connection.mark_authenticated();
        }
        request.extensions_mut().insert(Principal::Key(Arc::clone(&holder.name)));
        request.extensions_mut().insert(holder.scope.clone());
        request.extensions_mut().insert(StreamAuthorization::from_key(&holder));
        Ok(())
    }

    /// Whose key the request carries.
    fn authenticate(&self, headers: &HeaderMap) -> Result<Arc<ActiveKey>, AccessError> {
        let mut sent = headers.get_all(header::AUTHORIZATION).iter();
        let (Some(value), None) = (sent.next(), sent.next()) else {
            return Err(AccessError::NoKey);
        };
        let value = value.to_str().map_err(|_| AccessError::UnknownKey)?;
        let (scheme, text) = value.split_once(' ').ok_or(AccessError::NoKey)?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(AccessError::NoKey);
        }
        self.keyring.authenticate(text.trim())
    }

    fn count_refusal(&self, error: &AccessError) {
        let families = &self.metrics.families;
        if let Some(reason) = error.failure_reason() {
            debug_assert!(AccessError::FAILURE_REASONS.contains(&reason), "{reason}");
            families.auth_failures.with_label_values(&[reason]).inc();
        }
        if let Some(reason) = error.rejection_reason() {
            debug_assert!(AccessError::REJECTION_REASONS.contains(&reason), "{reason}");
            families.requests_rejected.with_label_values(&[reason]).inc();
        }
    }

    /// Every key with what it used in its quota's time.
    pub(crate) fn list_keys(&self) -> Vec<(KeyRecord, u64)> {
        self.keyring.list_keys()
    }
}

/// Whether a browser asks for a page to show.
fn wants_page(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    accept.is_some_and(|accept| accept.contains("text/html"))
}

/// Whether requests of this method change nothing.
pub(crate) fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE)
}
