//! The activity of one connection, by which connections are chosen for eviction when the limit is reached.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The prefix length of an IPv6 site: a host with one of its addresses has all of them (RFC 6177).
const SITE_BITS: u32 = 64;

/// A peer whose connections are counted together: an IPv4 address, or the IPv6 addresses of one site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PeerAddress(IpAddr);

impl PeerAddress {
    /// Returns the peer with this address.
    pub(crate) fn from_ip(address: IpAddr) -> PeerAddress {
        PeerAddress(match address.to_canonical() {
            IpAddr::V6(address) if !address.is_loopback() => {
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << SITE_BITS)))
            }
            address => address,
        })
    }

    /// Returns whether the peer is this machine.
    pub(crate) fn is_loopback(self) -> bool {
        self.0.is_loopback()
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The requests of a connection, and its peer. Each request carries it as an extension.
#[derive(Debug)]
pub(crate) struct ConnectionActivity {
    peer: Option<PeerAddress>,
    opened: Instant,
    begun: AtomicUsize,
    running: AtomicUsize,
    /// Milliseconds from `opened` until the last request started or ended.
    changed_ms: AtomicU64,
    /// Whether a request was authenticated by a key, or no key is required.
    known: AtomicBool,
    evicted: AtomicBool,
    eviction: Notify,
    tunnel: Mutex<Option<ConnectionTunnel>>,
}

/// What a connection does after its last response: it continues with another protocol.
struct ConnectionTunnel(Pin<Box<dyn Future<Output = ()> + Send>>);

impl fmt::Debug for ConnectionTunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ConnectionTunnel(..)")
    }
}

impl ConnectionActivity {
    /// Creates the activity of a connection opened now. `guarded` means that a key is required.
    pub(super) fn new(peer: Option<PeerAddress>, guarded: bool) -> ConnectionActivity {
        ConnectionActivity {
            peer,
            opened: Instant::now(),
            begun: AtomicUsize::new(0),
            running: AtomicUsize::new(0),
            changed_ms: AtomicU64::new(0),
            known: AtomicBool::new(!guarded),
            evicted: AtomicBool::new(false),
            eviction: Notify::new(),
            tunnel: Mutex::default(),
        }
    }

    /// Returns the peer, or `None` for a socket file.
    pub(crate) fn peer(&self) -> Option<PeerAddress> {
        self.peer
    }

    /// Makes the connection continue with this tunnel once its response, which says so, is sent. The tunnel counts as the
    /// connection does, and is dropped when the connection has to end.
    pub(crate) fn set_tunnel(&self, tunnel: Pin<Box<dyn Future<Output = ()> + Send>>) {
        *self.tunnel.lock() = Some(ConnectionTunnel(tunnel));
    }

    /// Returns the tunnel that the connection continues with, or `None`.
    pub(super) fn take_tunnel(&self) -> Option<Pin<Box<dyn Future<Output = ()> + Send>>> {
        self.tunnel.lock().take().map(|tunnel| tunnel.0)
    }

    /// Records that a request was authenticated by its key.
    pub(crate) fn mark_authenticated(&self) {
        self.known.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_authenticated(&self) -> bool {
        self.known.load(Ordering::Relaxed)
    }

    /// Returns the number of requests since the connection was opened.
    pub(super) fn requests_started(&self) -> usize {
        self.begun.load(Ordering::Relaxed)
    }

    /// Returns the number of requests whose responses have not been sent completely.
    pub(super) fn requests_running(&self) -> usize {
        self.running.load(Ordering::Acquire)
    }

    /// Returns when the last request started or ended, or when the connection was opened.
    pub(super) fn last_activity(&self) -> Instant {
        self.opened + Duration::from_millis(self.changed_ms.load(Ordering::Relaxed))
    }

    fn touch(&self) {
        let ms = u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.changed_ms.store(ms, Ordering::Relaxed);
    }

    /// Asks the connection to close in favor of another one. Returns whether this is the first time.
    pub(super) fn evict(&self) -> bool {
        let first = !self.evicted.swap(true, Ordering::AcqRel);
        if first {
            self.eviction.notify_one();
        }
        first
    }

    pub(super) fn is_evicted(&self) -> bool {
        self.evicted.load(Ordering::Acquire)
    }

    /// Waits until the connection is evicted. Only one task may wait, and it is notified once.
    pub(super) async fn wait_for_eviction(&self) {
        self.eviction.notified().await;
    }
}

/// A request whose response has not been sent completely.
#[derive(Debug)]
pub(super) struct RunningRequest(Arc<ConnectionActivity>);

impl RunningRequest {
    pub(super) fn begin(activity: &Arc<ConnectionActivity>) -> RunningRequest {
        activity.begun.fetch_add(1, Ordering::Relaxed);
        activity.running.fetch_add(1, Ordering::AcqRel);
        activity.touch();
        RunningRequest(Arc::clone(activity))
    }
}

impl Drop for RunningRequest {
    fn drop(&mut self) {
        self.0.touch();
        self.0.running.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_ipv6_site_are_one_peer() {
        let peer = |text: &str| PeerAddress::from_ip(text.parse().unwrap());
        assert_eq!(peer("2001:db8:1:2::1"), peer("2001:db8:1:2:ffff::9"));
        assert_ne!(peer("2001:db8:1:2::1"), peer("2001:db8:1:3::1"));
        assert_eq!(peer("::ffff:192.0.2.1"), peer("192.0.2.1"));
        assert_ne!(peer("192.0.2.1"), peer("192.0.2.2"));
        assert!(peer("::1").is_loopback() && peer("127.9.9.9").is_loopback() && !peer("::2").is_loopback());
    }
}
