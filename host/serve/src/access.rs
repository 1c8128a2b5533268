//! Who may ask for what: every request passes here before its handler.
//!
//! A [`Door`] is where requests come in. An open one asks for no key and instead keeps web pages of others out
//! ([`browser`]); a guarded one wants a key with the scope of what the route does ([`needs`]) whose rate and quota are not used
//! up. Which jobs are there for the request is decided in [`sight`], and which models and datasets in [`things`]; answers
//! that go on for long ask [`pass`] again and again.
//! Through the open door of this machine nothing is allocated and nothing locked.

mod actor;
mod browser;
mod keyring;
pub(crate) mod needs;
mod pass;
mod refusal;
mod sight;
mod spent;
pub(crate) mod things;

use std::sync::Arc;

use axum::extract::Request;
use axum::http::{HeaderMap, Method, header};
use saggar_metrics::Metrics;
use saggar_store::Effect;
use saggar_store::clock::Clock;
use saggar_store::keys::{KeyFile, KeyRecord, UsageFile};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use crate::connection::{ConnectionActivity, told};
use crate::limits::{KEY_USAGE_SAVE, KEYS_POLL};
use crate::version;

pub use actor::{Actor, Who};
pub(crate) use pass::Pass;
pub use refusal::AccessError;
pub(crate) use sight::{SeenJob, Sight};

use keyring::{Holder, Keyring};
use needs::{Need, Needs};

/// Who can come to a door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// This process: tests.
    Inside,
    /// Who may open the socket's file.
    Socket,
    /// Programs of this machine, and web pages in its browsers.
    Loopback,
    /// Other machines.
    Network,
}

/// Where requests come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Door {
    /// Who can come.
    pub reach: Reach,
    /// Whether a key is needed.
    pub guarded: bool,
}

impl Door {
    /// For requests that this process makes.
    pub(crate) const INSIDE: Door = Door { reach: Reach::Inside, guarded: false };
}

/// The keys of a server and what they were used for.
#[derive(Debug)]
pub struct Access {
    keyring: Keyring,
    needs: Needs,
    /// Names by which clients of this machine may call the server, besides its own.
    hosts: Vec<String>,
    metrics: Arc<Metrics>,
}

impl Access {
    /// The keys of `file`, and what they used as `usage` has it. A file that cannot be read now is tried again when it
    /// changes; until then there are no keys, and a guarded door lets nobody in.
    pub fn new(file: KeyFile, usage: UsageFile, clock: Arc<dyn Clock>, metrics: Arc<Metrics>) -> Access {
        Access { keyring: Keyring::new(file, usage, clock), needs: Needs::new(), hosts: Vec::new(), metrics }
    }

    /// With further names by which clients may call the server on this machine: those that a proxy in front passes on.
    #[must_use]
    pub fn with_hosts(mut self, hosts: Vec<String>) -> Access {
        self.hosts = hosts;
        self
    }

    /// The file of keys.
    pub(crate) fn file(&self) -> &KeyFile {
        self.keyring.file()
    }

    /// Takes over what the file says now.
    pub(crate) fn refresh(&self) {
        self.keyring.refresh();
    }

    /// Follows the file and saves what was used, until the server stops.
    pub(crate) async fn keep(self: Arc<Self>, mut shutdown: watch::Receiver<bool>) {
        let (mut look, mut save) = (interval(KEYS_POLL), interval(KEY_USAGE_SAVE));
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        save.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let work: fn(&Keyring) = tokio::select! {
                _ = look.tick() => Keyring::refresh,
                _ = save.tick() => Keyring::save,
                () = told(&mut shutdown) => return,
            };
            let access = Arc::clone(&self);
            // Files may be slow. A panic is told of by the hook of panics, and the next tick tries again.
            let _ = tokio::task::spawn_blocking(move || work(&access.keyring)).await;
        }
    }

    /// Writes down what was used, if anything was since the last time.
    pub(crate) fn save(&self) {
        self.keyring.save();
    }

    /// Lets the request in, with its [`Actor`] where that is not a client of this machine, or tells why not.
    pub(crate) fn admit(&self, door: Door, route: Option<&str>, request: &mut Request) -> Result<(), AccessError> {
        if door.reach == Reach::Inside {
            return Ok(());
        }
        self.check(door, route, request).inspect_err(|error| self.count(error))
    }

    fn check(&self, door: Door, route: Option<&str>, request: &mut Request) -> Result<(), AccessError> {
        browser::check_head(request)?;
        version::check(request.method(), request.headers())?;
        if !door.guarded {
            return self.admit_freely(door, request);
        }
        match self.needs.of(route, request.method()) {
            Need::Nothing => Ok(()),
            Need::Page if wants_page(request.headers()) => Ok(()),
            Need::Metrics if door.reach != Reach::Network => self.admit_freely(door, request),
            Need::Page | Need::Key => self.admit_holder(None, request),
            Need::Metrics => self.admit_holder(Some(Effect::ReadMetrics), request),
            Need::Effect(effect) => self.admit_holder(Some(effect), request),
        }
    }

    fn admit_freely(&self, door: Door, request: &mut Request) -> Result<(), AccessError> {
        let who = match door.reach {
            Reach::Inside => return Ok(()),
            Reach::Loopback => {
                browser::check_host(request, &self.hosts)?;
                return browser::check_origin(request);
            }
            Reach::Network => {
                browser::check_origin(request)?;
                Who::Anyone
            }
            Reach::Socket => Who::Socket,
        };
        request.extensions_mut().insert(who);
        Ok(())
    }

    /// Lets in who has a key whose scopes include that of the effect. Whose project a thing is, its handler asks.
    fn admit_holder(&self, effect: Option<Effect>, request: &mut Request) -> Result<(), AccessError> {
        let holder = self.holder(request.headers())?;
        let rights = holder.sight.rights();
        let name = || holder.record.name.clone();
        if let Some(scope) = effect.map(Effect::scope).filter(|scope| !rights.has(*scope)) {
            return Err(AccessError::Scope { scope, name: name() });
        }
        // One page for all projects.
        if let (Some(Effect::ReadMetrics), Some(projects)) = (effect, rights.projects()) {
            return Err(AccessError::AllProjects { name: name(), projects: projects.join(", ") });
        }
        self.keyring.spend(&holder)?;
        if let Some(connection) = request.extensions().get::<Arc<ConnectionActivity>>() {
            connection.show_key();
        }
        request.extensions_mut().insert(Who::Key(Arc::clone(&holder.name)));
        request.extensions_mut().insert(holder.sight.clone());
        request.extensions_mut().insert(Pass::of(&holder));
        Ok(())
    }

    /// Whose key the request carries.
    fn holder(&self, headers: &HeaderMap) -> Result<Arc<Holder>, AccessError> {
        let mut sent = headers.get_all(header::AUTHORIZATION).iter();
        let (Some(value), None) = (sent.next(), sent.next()) else {
            return Err(AccessError::NoKey);
        };
        let value = value.to_str().map_err(|_| AccessError::UnknownKey)?;
        let (scheme, text) = value.split_once(' ').ok_or(AccessError::NoKey)?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(AccessError::NoKey);
        }
        self.keyring.find(text.trim())
    }

    fn count(&self, error: &AccessError) {
        let families = &self.metrics.families;
        if let Some(reason) = error.failure() {
            debug_assert!(AccessError::FAILURES.contains(&reason), "{reason}");
            families.auth_failures.with_label_values(&[reason]).inc();
        }
        if let Some(reason) = error.rejection() {
            debug_assert!(AccessError::REJECTIONS.contains(&reason), "{reason}");
            families.requests_rejected.with_label_values(&[reason]).inc();
        }
    }

    /// Every key with what it used in its quota's time.
    pub(crate) fn list(&self) -> Vec<(KeyRecord, u64)> {
        self.keyring.list()
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
