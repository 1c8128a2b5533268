//! Which connections are let in, and which one goes when there are as many as there may be.
//!
//! Every listener has some connections of its own; the others are for whoever comes first. No peer can have more than a
//! share of all. Where there is none left, one that does nothing makes room: first one that never showed a key and needed
//! one, the longest idle of those. Connections with a request that runs are left alone, unless it is a stranger's.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::sleep;

use super::activity::{ConnectionActivity, PeerAddress};
use super::descriptors::Capacity;
use crate::limits::{EVICTION_PAUSE, STRANGER_REQUEST_TIME_MAX};

/// All connections of a server.
#[derive(Clone, Debug)]
pub(super) struct Admission {
    shared: Arc<Shared>,
    /// Connections that each listener has of its own.
    own: usize,
}

#[derive(Debug)]
struct Shared {
    open: Mutex<Open>,
    pool: Arc<Semaphore>,
    peer_connections_max: usize,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    connections: HashMap<u64, Entry>,
    /// Connections of each peer that were not told to go.
    peers: HashMap<PeerAddress, usize>,
}

#[derive(Debug)]
struct Entry {
    activity: Arc<ConnectionActivity>,
    /// The listener whose own place it has; `None` for one of those that all share.
    own_of: Option<usize>,
}

impl Open {
    fn leave_peer(&mut self, peer: Option<PeerAddress>) {
        let Some(peer) = peer else { return };
        if let Some(count) = self.peers.get_mut(&peer) {
            *count -= 1;
            if *count == 0 {
                self.peers.remove(&peer);
            }
        }
    }

    /// Tells one of those that `may_go` says to make room. Returns whether there was one.
    fn evict(&mut self, may_go: impl Fn(&Entry) -> bool) -> bool {
        let candidates = self.connections.values().filter(|entry| !entry.activity.is_evicted() && may_go(entry));
        let ranked = candidates.filter_map(|entry| Some((rank(&entry.activity)?, entry.activity.changed(), entry)));
        let Some((_, _, entry)) = ranked.min_by_key(|(rank, changed, _)| (*rank, *changed)) else { return false };
        let activity = Arc::clone(&entry.activity);
        if activity.evict() {
            self.leave_peer(activity.peer());
        }
        true
    }
}

/// In which order connections go; `None` of one that stays.
fn rank(activity: &ConnectionActivity) -> Option<u8> {
    match (activity.running() == 0, activity.is_known()) {
        (true, false) => Some(0),
        (false, false) => (activity.changed().elapsed() > STRANGER_REQUEST_TIME_MAX).then_some(1),
        (true, true) => Some(2),
        (false, true) => None,
    }
}

impl Admission {
    /// For a server with so many listeners.
    pub(super) fn new(capacity: Capacity, listeners: usize) -> Admission {
        let own = capacity.own_of_each(listeners);
        let shared = Shared {
            open: Mutex::default(),
            pool: Arc::new(Semaphore::new(capacity.connections_max - own * listeners)),
            peer_connections_max: capacity.peer_connections_max,
        };
        Admission { shared: Arc::new(shared), own }
    }

    /// The way in by the listener of this number. `open` is held by each connection as long as it lasts.
    pub(super) fn entrance(&self, listener: usize, guarded: bool, open: mpsc::Sender<()>) -> ConnectionEntrance {
        let (shared, own) = (Arc::clone(&self.shared), Arc::new(Semaphore::new(self.own)));
        ConnectionEntrance { shared, listener, guarded, own, open }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.shared.open().connections.len()
    }
}

impl Shared {
    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The way in by one listener.
#[derive(Debug)]
pub(super) struct ConnectionEntrance {
    shared: Arc<Shared>,
    listener: usize,
    guarded: bool,
    own: Arc<Semaphore>,
    open: mpsc::Sender<()>,
}

impl ConnectionEntrance {
    /// Lets a connection in as soon as there is room, or returns `None` if its peer has as many as it may and all of them
    /// are busy.
    pub(super) async fn admit(&self, peer: Option<PeerAddress>) -> Option<Admitted> {
        let counted = self.count_peer(peer)?;
        let (permit, own_of) = self.permit().await;
        let activity = Arc::new(ConnectionActivity::new(peer, self.guarded));
        let mut open = self.shared.open();
        let number = open.next;
        open.next += 1;
        open.connections.insert(number, Entry { activity: Arc::clone(&activity), own_of });
        counted.pass_on();
        let (shared, open) = (Arc::clone(&self.shared), self.open.clone());
        Some(Admitted { activity, shared, number, _permit: permit, _open: open })
    }

    /// Counts one more of the peer's, for which one of its idle ones may have to go.
    fn count_peer(&self, peer: Option<PeerAddress>) -> Option<CountedPeer<'_>> {
        if let Some(peer) = peer {
            let mut open = self.shared.open();
            let many = open.peers.get(&peer).is_some_and(|count| *count >= self.shared.peer_connections_max);
            // A proxy on this machine speaks for everybody.
            if many && !peer.is_loopback() && !open.evict(|entry| entry.activity.peer() == Some(peer)) {
                return None;
            }
            *open.peers.entry(peer).or_default() += 1;
        }
        Some(CountedPeer { shared: &self.shared, peer })
    }

    async fn permit(&self) -> (OwnedSemaphorePermit, Option<usize>) {
        loop {
            if let Ok(permit) = Arc::clone(&self.own).try_acquire_owned() {
                return (permit, Some(self.listener));
            }
            if let Ok(permit) = Arc::clone(&self.shared.pool).try_acquire_owned() {
                return (permit, None);
            }
            // What another listener has of its own would not help.
            self.shared.open().evict(|entry| entry.own_of.is_none_or(|listener| listener == self.listener));
            tokio::select! {
                Ok(permit) = Arc::clone(&self.own).acquire_owned() => return (permit, Some(self.listener)),
                Ok(permit) = Arc::clone(&self.shared.pool).acquire_owned() => return (permit, None),
                () = sleep(EVICTION_PAUSE) => {}
            }
        }
    }
}

/// A peer that one connection more is counted for. Dropping it, as when the server stops meanwhile, takes that back.
struct CountedPeer<'a> {
    shared: &'a Shared,
    peer: Option<PeerAddress>,
}

impl CountedPeer<'_> {
    /// From now on the connection counts.
    fn pass_on(mut self) {
        self.peer = None;
    }
}

impl Drop for CountedPeer<'_> {
    fn drop(&mut self) {
        if self.peer.is_some() {
            self.shared.open().leave_peer(self.peer);
        }
    }
}

/// A connection that was let in. It makes room when it is dropped.
#[derive(Debug)]
pub(super) struct Admitted {
    activity: Arc<ConnectionActivity>,
    shared: Arc<Shared>,
    number: u64,
    _permit: OwnedSemaphorePermit,
    _open: mpsc::Sender<()>,
}

impl Admitted {
    pub(super) fn activity(&self) -> &Arc<ConnectionActivity> {
        &self.activity
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut open = self.shared.open();
        open.connections.remove(&self.number);
        // One that was told to go is not counted any more.
        if !self.activity.is_evicted() {
            open.leave_peer(self.activity.peer());
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
        Some(PeerAddress::of(std::net::Ipv4Addr::new(192, 0, 2, last).into()))
    }

    /// The ways in by so many listeners that ask for keys.
    fn entrances<const N: usize>(connections_max: usize) -> [ConnectionEntrance; N] {
        let admission = Admission::new(Capacity::of_connections(connections_max), N);
        let (open, _) = mpsc::channel(1);
        std::array::from_fn(|number| admission.entrance(number, true, open.clone()))
    }

    /// Connections of these peers, one after the other.
    async fn admit(entrance: &ConnectionEntrance, peers: impl IntoIterator<Item = u8>) -> Vec<Admitted> {
        let mut admitted = Vec::new();
        for last in peers {
            admitted.push(entrance.admit(peer(last)).await.unwrap());
            // A moment of its own for each.
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        admitted
    }

    /// Whether one more is let in soon. Whoever is told to go does.
    async fn is_admitted(entrance: &ConnectionEntrance, others: &mut Vec<Admitted>, last: u8) -> bool {
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
    async fn the_longest_idle_connection_makes_room_and_strangers_go_first() {
        let [entrance] = entrances(4);
        let mut open = admit(&entrance, 1..=4).await;
        open[0].activity.show_key();
        assert!(is_admitted(&entrance, &mut open, 5).await);
        let left: Vec<_> = open.iter().map(|one| one.activity.peer()).collect();
        assert_eq!(left, [peer(1), peer(3), peer(4)]);
    }

    #[tokio::test]
    async fn a_connection_with_a_request_stays() {
        let [entrance] = entrances(2);
        let mut open = admit(&entrance, 1..=2).await;
        let running: Vec<_> = open.iter().map(|one| RunningRequest::begin(&one.activity)).collect();
        assert!(!is_admitted(&entrance, &mut open, 3).await);
        assert_eq!(open.len(), 2);
        drop(running);
        assert!(is_admitted(&entrance, &mut open, 3).await);
    }

    #[tokio::test]
    async fn each_listener_has_connections_of_its_own() {
        let [first, second] = entrances(8);
        // Two of its own and four that both share.
        let mut open = admit(&first, 1..=6).await;
        let _running: Vec<_> = open.iter().map(|one| RunningRequest::begin(&one.activity)).collect();
        assert!(!is_admitted(&first, &mut open, 7).await);
        let others = admit(&second, 8..=9).await;
        assert_eq!((open.len(), others.len()), (6, 2));
    }

    #[tokio::test]
    async fn a_peer_has_half_and_its_own_connections_go_for_more() {
        let [entrance] = entrances(8);
        let open = admit(&entrance, [1; 4]).await;
        let mut running: Vec<_> = open.iter().map(|one| RunningRequest::begin(&one.activity)).collect();
        assert!(entrance.admit(peer(1)).await.is_none());
        let _other = entrance.admit(peer(2)).await.unwrap();
        running.remove(1);
        let more = entrance.admit(peer(1)).await.unwrap();
        running.push(RunningRequest::begin(&more.activity));
        assert!(open[1].activity.is_evicted());
        assert!(entrance.admit(peer(1)).await.is_none(), "it counts for the one that goes");
        drop(open);
        assert!(entrance.admit(peer(1)).await.is_some());
    }

    #[tokio::test]
    async fn this_machine_may_have_all_of_them() {
        let [entrance] = entrances(4);
        let local = Some(PeerAddress::of([127, 0, 0, 1].into()));
        for _ in 0..4 {
            let admitted = entrance.admit(local).await.unwrap();
            std::mem::forget(RunningRequest::begin(&admitted.activity));
            std::mem::forget(admitted);
        }
    }
}
