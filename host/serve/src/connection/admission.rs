//! Connection admission: which connections are accepted, and which one is evicted when the limit is reached.
//!
//! Each listener has some reserved connections; all listeners share the rest. No peer can have more than its share of
//! all connections. At the limit, an idle connection is evicted: first those that need a key and never showed one, the
//! longest idle first. Connections with a running request are not evicted, unless they are unauthenticated.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::sleep;

use super::activity::{ConnectionActivity, PeerAddress};
use super::file_descriptors::ConnectionCapacity;
use crate::limits::{EVICTION_PAUSE, UNAUTHENTICATED_REQUEST_TIME_MAX};

/// All connections of a server.
#[derive(Clone, Debug)]
pub(super) struct ConnectionAdmission {
    shared: Arc<AdmissionState>,
    /// The number of connections reserved for each listener.
    own: usize,
}

#[derive(Debug)]
struct AdmissionState {
    open: Mutex<OpenConnections>,
    pool: Arc<Semaphore>,
    peer_connections_max: usize,
}

#[derive(Debug, Default)]
struct OpenConnections {
    next: u64,
    connections: HashMap<u64, ConnectionEntry>,
    /// The number of connections of each peer that were not evicted.
    peers: HashMap<PeerAddress, usize>,
}

#[derive(Debug)]
struct ConnectionEntry {
    activity: Arc<ConnectionActivity>,
    /// The listener whose reserved place it has; `None` for a shared place.
    own_of: Option<usize>,
}

impl OpenConnections {
    fn release_peer(&mut self, peer: Option<PeerAddress>) {
        let Some(peer) = peer else { return };
        if let Some(count) = self.peers.get_mut(&peer) {
            *count -= 1;
            if *count == 0 {
                self.peers.remove(&peer);
            }
        }
    }

    /// Evicts one of the connections that `may_go` accepts. Returns whether there was one.
    fn evict(&mut self, may_go: impl Fn(&ConnectionEntry) -> bool) -> bool {
        let candidates = self.connections.values().filter(|entry| !entry.activity.is_evicted() && may_go(entry));
        let ranked = candidates
            .filter_map(|entry| Some((eviction_rank(&entry.activity)?, entry.activity.last_activity(), entry)));
        let Some((_, _, entry)) = ranked.min_by_key(|(rank, changed, _)| (*rank, *changed)) else { return false };
        let activity = Arc::clone(&entry.activity);
        if activity.evict() {
            self.release_peer(activity.peer());
        }
        true
    }
}

/// Returns the order in which connections are evicted, or `None` if the connection must stay.
fn eviction_rank(activity: &ConnectionActivity) -> Option<u8> {
    match (activity.requests_running() == 0, activity.is_authenticated()) {
        (true, false) => Some(0),
        (false, false) => (activity.last_activity().elapsed() > UNAUTHENTICATED_REQUEST_TIME_MAX).then_some(1),
        (true, true) => Some(2),
        (false, true) => None,
    }
}

impl ConnectionAdmission {
    /// Creates the admission for a server with `listeners` listeners.
    pub(super) fn new(capacity: ConnectionCapacity, listeners: usize) -> ConnectionAdmission {
        let own = capacity.reserved_per_listener(listeners);
        let shared = AdmissionState {
            open: Mutex::default(),
            pool: Arc::new(Semaphore::new(capacity.connections_max - own * listeners)),
            peer_connections_max: capacity.peer_connections_max,
        };
        ConnectionAdmission { shared: Arc::new(shared), own }
    }

    /// Returns the admission of listener number `listener`. Each connection holds `open` for as long as it lasts.
    pub(super) fn for_listener(&self, listener: usize, guarded: bool, open: mpsc::Sender<()>) -> ListenerAdmission {
        let (shared, own) = (Arc::clone(&self.shared), Arc::new(Semaphore::new(self.own)));
        ListenerAdmission { shared, listener, guarded, own, open }
    }

    /// Returns the number of connections.
    pub(super) fn count(&self) -> usize {
        self.shared.lock_open().connections.len()
    }
}

impl AdmissionState {
    fn lock_open(&self) -> MutexGuard<'_, OpenConnections> {
        self.open.lock()
    }
}

/// The admission of one listener.
#[derive(Debug)]
pub(super) struct ListenerAdmission {
    shared: Arc<AdmissionState>,
    listener: usize,
    guarded: bool,
    own: Arc<Semaphore>,
    open: mpsc::Sender<()>,
}

impl ListenerAdmission {
    /// Admits a connection as soon as there is room, or returns `None` if its peer has reached its limit and all its
    /// connections are busy.
    pub(super) async fn admit(&self, peer: Option<PeerAddress>) -> Option<AdmittedConnection> {
        let counted = self.count_peer(peer)?;
        let (permit, own_of) = self.acquire_permit().await;
        let activity = Arc::new(ConnectionActivity::new(peer, self.guarded));
        let mut open = self.shared.lock_open();
        let number = open.next;
        open.next += 1;
        open.connections.insert(number, ConnectionEntry { activity: Arc::clone(&activity), own_of });
        counted.disarm();
        let (shared, open) = (Arc::clone(&self.shared), self.open.clone());
        Some(AdmittedConnection { activity, shared, number, _permit: permit, _open: open })
    }

    /// Counts one more connection of the peer. At the peer's limit, evicts one of its idle connections.
    fn count_peer(&self, peer: Option<PeerAddress>) -> Option<PeerCountGuard<'_>> {
        if let Some(peer) = peer {
            let mut open = self.shared.lock_open();
            let many = open.peers.get(&peer).is_some_and(|count| *count >= self.shared.peer_connections_max);
            // A proxy on this machine carries the connections of many clients.
            if many && !peer.is_loopback() && !open.evict(|entry| entry.activity.peer() == Some(peer)) {
                return None;
            }
            *open.peers.entry(peer).or_default() += 1;
        }
        Some(PeerCountGuard { shared: &self.shared, peer })
    }

    async fn acquire_permit(&self) -> (OwnedSemaphorePermit, Option<usize>) {
        loop {
            if let Ok(permit) = Arc::clone(&self.own).try_acquire_owned() {
                return (permit, Some(self.listener));
            }
            if let Ok(permit) = Arc::clone(&self.shared.pool).try_acquire_owned() {
                return (permit, None);
            }
            // Evicting a connection in another listener's reserve would not help.
            self.shared.lock_open().evict(|entry| entry.own_of.is_none_or(|listener| listener == self.listener));
            tokio::select! {
                Ok(permit) = Arc::clone(&self.own).acquire_owned() => return (permit, Some(self.listener)),
                Ok(permit) = Arc::clone(&self.shared.pool).acquire_owned() => return (permit, None),
                () = sleep(EVICTION_PAUSE) => {}
            }
        }
    }
}

/// A peer with one connection counted in advance. Dropping it undoes the count, for example if the server stops
/// meanwhile.
struct PeerCountGuard<'a> {
    shared: &'a AdmissionState,
    peer: Option<PeerAddress>,
}

impl PeerCountGuard<'_> {
    /// Keeps the count, since the connection exists now.
    fn disarm(mut self) {
        self.peer = None;
    }
}

impl Drop for PeerCountGuard<'_> {
    fn drop(&mut self) {
        if self.peer.is_some() {
            self.shared.lock_open().release_peer(self.peer);
        }
    }
}

/// An admitted connection. Dropping it frees its place.
#[derive(Debug)]
pub(super) struct AdmittedConnection {
    activity: Arc<ConnectionActivity>,
    shared: Arc<AdmissionState>,
    number: u64,
    _permit: OwnedSemaphorePermit,
    _open: mpsc::Sender<()>,
}

impl AdmittedConnection {
    pub(super) fn activity(&self) -> &Arc<ConnectionActivity> {
        &self.activity
    }
}

impl Drop for AdmittedConnection {
    fn drop(&mut self) {
        let mut open = self.shared.lock_open();
        open.connections.remove(&self.number);
        // An evicted connection is no longer counted.
        if !self.activity.is_evicted() {
            open.release_peer(self.activity.peer());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;
    use crate::connection::activity::RunningRequest;

    fn peer(last: u8) -> Option<PeerAddress> {
        Some(PeerAddress::from_ip(std::net::Ipv4Addr::new(192, 0, 2, last).into()))
    }

    /// Returns the admissions of `N` listeners that require keys.
    fn listener_admissions<const N: usize>(connections_max: usize) -> [ListenerAdmission; N] {
        let admission = ConnectionAdmission::new(ConnectionCapacity::from_connections(connections_max), N);
        let (open, _) = mpsc::channel(1);
        std::array::from_fn(|number| admission.for_listener(number, true, open.clone()))
    }

    /// Admits connections of these peers, one after the other.
    async fn admit(entrance: &ListenerAdmission, peers: impl IntoIterator<Item = u8>) -> Vec<AdmittedConnection> {
        let mut admitted = Vec::new();
        for last in peers {
            admitted.push(entrance.admit(peer(last)).await.unwrap());
            // So that each one has a different start time.
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        admitted
    }

    /// Returns whether one more connection is admitted soon. Connections that are evicted close.
    async fn is_admitted(entrance: &ListenerAdmission, others: &mut Vec<AdmittedConnection>, last: u8) -> bool {
        let mut waiting = Box::pin(entrance.admit(peer(last)));
        for _ in 0..5 {
            if let Ok(admitted) = timeout(Duration::from_millis(20), waiting.as_mut()).await {
                return admitted.is_some();
            }
            others.retain(|other| !other.activity.is_evicted());
        }
        false
    }

    #[tokio::test]
    async fn the_longest_idle_connection_is_evicted_unauthenticated_ones_first() {
        let [entrance] = listener_admissions(4);
        let mut open = admit(&entrance, 1..=4).await;
        open[0].activity.mark_authenticated();
        assert!(is_admitted(&entrance, &mut open, 5).await);
        let left: Vec<_> = open.iter().map(|one| one.activity.peer()).collect();
        assert_eq!(left, [peer(1), peer(3), peer(4)]);
    }

    #[tokio::test]
    async fn a_connection_with_a_running_request_is_not_evicted() {
        let [entrance] = listener_admissions(2);
        let mut open = admit(&entrance, 1..=2).await;
        let running: Vec<_> = open.iter().map(|one| RunningRequest::begin(&one.activity)).collect();
        assert!(!is_admitted(&entrance, &mut open, 3).await);
        assert_eq!(open.len(), 2);
        drop(running);
        assert!(is_admitted(&entrance, &mut open, 3).await);
    }

    #[tokio::test]
    async fn each_listener_has_reserved_connections() {
        let [first, second] = listener_admissions(8);
        // Two of the listener's reserve and four shared ones.
        let mut open = admit(&first, 1..=6).await;
        let _running: Vec<_> = open.iter().map(|one| RunningRequest::begin(&one.activity)).collect();
        assert!(!is_admitted(&first, &mut open, 7).await);
        let others = admit(&second, 8..=9).await;
        assert_eq!((open.len(), others.len()), (6, 2));
    }

    #[tokio::test]
    async fn a_peer_is_limited_to_half_and_evicts_its_own_connections() {
        let [entrance] = listener_admissions(8);
        let open = admit(&entrance, [1; 4]).await;
        let mut running: Vec<_> = open.iter().map(|one| RunningRequest::begin(&one.activity)).collect();
        assert!(entrance.admit(peer(1)).await.is_none());
        let _other = entrance.admit(peer(2)).await.unwrap();
        running.remove(1);
        let more = entrance.admit(peer(1)).await.unwrap();
        running.push(RunningRequest::begin(&more.activity));
        assert!(open[1].activity.is_evicted());
        assert!(entrance.admit(peer(1)).await.is_none(), "the evicted connection's place is counted already");
        drop(open);
        assert!(entrance.admit(peer(1)).await.is_some());
    }

    #[tokio::test]
    async fn loopback_has_no_peer_limit() {
        let [entrance] = listener_admissions(4);
        let local = Some(PeerAddress::from_ip([127, 0, 0, 1].into()));
        for _ in 0..4 {
            let admitted = entrance.admit(local).await.unwrap();
            std::mem::forget(RunningRequest::begin(&admitted.activity));
            std::mem::forget(admitted);
        }
    }
}
