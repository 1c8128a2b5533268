//! Access control: every request is checked here before its handler runs.
//!
//! A [`ListenPolicy`] describes a listener. An open listener requires no key but refuses requests from other sites' web
//! pages ([`origin_check`]). A protected one requires a key with the scope of the route ([`route_scopes`]) whose rate
//! limit and quota are not exhausted. Which jobs a request can see is decided in [`visibility`]; the rights on models and
//! datasets need the state of the server, so `resource_access` checks them. Long-running responses check repeatedly with
//! [`reauthorize`]. For open local listeners nothing is allocated and no lock is taken.

mod access_error;
mod actor;
mod client_version;
mod keyring;
mod origin_check;
mod rate_limiter;
mod reauthorize;
pub(crate) mod route_scopes;
mod visibility;

use std::sync::Arc;

use axum::extract::Request;
use axum::http::{HeaderMap, Method, header};
use saggar_clock::{Clock, UnixMillis};
use saggar_metrics::MetricsRegistry;
use saggar_serving::shutdown::wait_for_shutdown;
use saggar_store::AccessAction;
use saggar_store::keys::{KeyFile, KeyRecord, KeyUsageFile};
use saggar_store::records::JobRecords;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use crate::connection::ConnectionActivity;
use crate::limits::{KEY_USAGE_SAVE_INTERVAL, KEY_USAGE_SHARE_INTERVAL, KEYS_POLL};

pub use access_error::AccessError;
pub use actor::{Actor, Principal};
pub(crate) use reauthorize::StreamAuthorization;
pub(crate) use visibility::ProjectScope;

use keyring::{ActiveKey, Keyring};
use route_scopes::RouteRequirement;

/// The clients that can reach a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposure {
    /// This process, in tests.
    InProcess,
    /// Users who can open the socket's file.
    UnixSocket,
    /// Programs of this machine, and web pages in its browsers.
    Loopback,
    /// Other machines.
    Network,
}

/// The access policy of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenPolicy {
    /// The clients that can reach it.
    pub exposure: Exposure,
    /// Whether a key is required.
    pub requires_key: bool,
}

impl ListenPolicy {
    /// The policy for requests that this process makes.
    pub(crate) const IN_PROCESS: ListenPolicy = ListenPolicy { exposure: Exposure::InProcess, requires_key: false };
}

/// The keys of a server and their usage.
#[derive(Debug)]
pub struct AccessControl {
    keyring: Keyring,
    /// Additional host names by which local clients can address the server.
    hosts: Vec<String>,
    metrics: Arc<MetricsRegistry>,
}

impl AccessControl {
    /// Loads the keys of `file` and their saved usage. An unreadable file is retried when it changes. Until then there
    /// are no keys, and protected listeners refuse all requests.
    pub fn new(
        file: KeyFile,
        usage: KeyUsageFile,
        clock: Arc<dyn Clock>,
        metrics: Arc<MetricsRegistry>,
    ) -> AccessControl {
        AccessControl { keyring: Keyring::new(file, usage, clock), hosts: Vec::new(), metrics }
    }

    /// Adds host names by which local clients can address the server, such as those that a reverse proxy passes on.
    #[must_use]
    pub fn with_hosts(mut self, hosts: Vec<String>) -> AccessControl {
        self.hosts = hosts;
        self
    }

    /// Counts the requests of each key on all servers of these records.
    #[must_use]
    pub fn with_shared_usage(mut self, records: Arc<dyn JobRecords>) -> AccessControl {
        self.keyring = self.keyring.with_shared_usage(records);
        self
    }

    /// Returns the key file.
    pub(crate) fn key_file(&self) -> &KeyFile {
        self.keyring.file()
    }

    /// Reloads the key file, and before that fetches the keys that other servers have changed. Can wait for the database.
    pub(crate) fn reload_keys(&self) {
        self.keyring.refresh();
    }

    /// Reloads the key file when it changes, and saves and shares the usage of keys, until the server stops.
    pub(crate) async fn run_key_loop(self: Arc<Self>, mut shutdown: watch::Receiver<bool>) {
        let (mut look, mut save) = (interval(KEYS_POLL), interval(KEY_USAGE_SAVE_INTERVAL));
        let mut share = interval(KEY_USAGE_SHARE_INTERVAL);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        share.set_missed_tick_behavior(MissedTickBehavior::Delay);
        save.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let work: fn(&Keyring) = tokio::select! {
                _ = look.tick() => Keyring::refresh,
                _ = save.tick() => Keyring::save_usage,
                _ = share.tick() => Keyring::share_usage,
                () = wait_for_shutdown(&mut shutdown) => return,
            };
            let access = Arc::clone(&self);
            // File access can be slow. A panic is logged by the panic hook, and the next tick retries.
            let _ = tokio::task::spawn_blocking(move || work(&access.keyring)).await;
        }
    }

    /// Shares the usage of keys with other servers, and saves it if it has changed.
    pub(crate) fn save_key_usage(&self) {
        self.keyring.share_usage();
        self.keyring.save_usage();
    }

    /// Admits the request, with an [`Actor`] if it is not from a local client, or returns the reason for refusing it.
    /// `requirement` returns what the route requires, and is called on protected listeners.
    pub(crate) fn admit(
        &self,
        door: ListenPolicy,
        requirement: impl FnOnce(&Method) -> RouteRequirement,
        request: &mut Request,
    ) -> Result<(), AccessError> {
        if door.exposure == Exposure::InProcess {
            return Ok(());
        }
        self.authorize(door, requirement, request).inspect_err(|error| self.count_refusal(error))
    }

    fn authorize(
        &self,
        door: ListenPolicy,
        requirement: impl FnOnce(&Method) -> RouteRequirement,
        request: &mut Request,
    ) -> Result<(), AccessError> {
        origin_check::check_head(request)?;
        client_version::check_client_version(request.method(), request.headers())?;
        let requirement = requirement(request.method());
        if !door.requires_key {
            return match requirement {
                RouteRequirement::SecretEffect(effect) if door.exposure != Exposure::InProcess => {
                    self.admit_with_key(Some(effect), request)
                }
                _ => self.admit_without_key(door, request),
            };
        }
        match requirement {
            RouteRequirement::Nothing => Ok(()),
            RouteRequirement::Page if wants_page(request.headers()) => Ok(()),
            RouteRequirement::Metrics if door.exposure != Exposure::Network => self.admit_without_key(door, request),
            RouteRequirement::Page | RouteRequirement::Key => self.admit_with_key(None, request),
            RouteRequirement::Metrics => self.admit_with_key(Some(AccessAction::ReadMetrics), request),
            RouteRequirement::Effect(effect) | RouteRequirement::SecretEffect(effect) => {
                self.admit_with_key(Some(effect), request)
            }
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

    /// Admits a request with a key whose scopes include that of the action. The handler checks the project of the
    /// resource.
    fn admit_with_key(&self, effect: Option<AccessAction>, request: &mut Request) -> Result<(), AccessError> {
        let holder = self.authenticate(request.headers())?;
        let rights = holder.scope.rights();
        let name = || holder.record.name.clone();
        if let Some(scope) = effect.map(AccessAction::scope).filter(|scope| !rights.has_scope(*scope)) {
            return Err(AccessError::Scope { scope, name: name() });
        }
        // The metrics page and the audit log cover all projects.
        if let (Some(AccessAction::ReadMetrics | AccessAction::ReadAudit), Some(projects)) = (effect, rights.projects())
        {
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

    /// Counts a request that arrives on a stream after the first one, against the rate limit and the quota of the
    /// stream's key.
    ///
    /// # Errors
    /// Returns `UnknownKey` if the key is not valid any more, `Rate` or `Quota`.
    pub(crate) fn count_stream_request(
        &self,
        authorization: &StreamAuthorization,
        now_ms: UnixMillis,
    ) -> Result<(), AccessError> {
        let counted = match authorization.current_key(now_ms) {
            Ok(Some(holder)) => self.keyring.count_request(&holder),
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        counted.inspect_err(|error| self.count_refusal(error))
    }

    /// Returns the key that the request carries.
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

    /// Returns every key with its usage in the current quota period.
    pub(crate) fn list_keys(&self) -> Vec<(KeyRecord, u64)> {
        self.keyring.list_keys()
    }
}

/// Returns whether a browser requests a page to display.
fn wants_page(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    accept.is_some_and(|accept| accept.contains("text/html"))
}
