//! The maximum number of connections: each uses a file descriptor, and the server needs some for its own files.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::limits::{CONNECTIONS_MAX, DESCRIPTORS_RESERVED, DESCRIPTORS_WANTED_MAX, LISTENER_CONNECTIONS_OWN};

/// The maximum number of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionCapacity {
    /// For all listeners and peers together.
    pub(crate) connections_max: usize,
    /// For one peer.
    pub(crate) peer_connections_max: usize,
}

impl Default for ConnectionCapacity {
    fn default() -> ConnectionCapacity {
        ConnectionCapacity::from_connections(CONNECTIONS_MAX)
    }
}

impl ConnectionCapacity {
    /// Returns the capacity of a process that can have `descriptors` files open.
    pub(crate) fn from_descriptors(descriptors: usize) -> ConnectionCapacity {
        let for_connections = descriptors.saturating_sub(DESCRIPTORS_RESERVED).max(descriptors / 4);
        ConnectionCapacity::from_connections(for_connections.clamp(1, CONNECTIONS_MAX))
    }

    /// Returns a capacity in which one peer can have half of all connections.
    pub(crate) fn from_connections(connections_max: usize) -> ConnectionCapacity {
        ConnectionCapacity { connections_max, peer_connections_max: connections_max.div_ceil(2) }
    }

    /// Returns how many connections are reserved for each of `listeners` listeners.
    pub(super) fn reserved_per_listener(self, listeners: usize) -> usize {
        LISTENER_CONNECTIONS_OWN.min(self.connections_max / (2 * listeners.max(1)))
    }
}

/// Returns how many connections this process can have at once. First raises its limit of open files as far as the
/// system allows, up to `DESCRIPTORS_WANTED_MAX`.
pub fn connections_max() -> usize {
    for_this_process().connections_max
}

/// Raises the limit of open files of this process and returns the resulting capacity.
pub(crate) fn for_this_process() -> ConnectionCapacity {
    let descriptors = raise_descriptor_limit();
    let capacity = descriptors.map_or_else(ConnectionCapacity::default, ConnectionCapacity::from_descriptors);
    tracing::debug!(descriptors, connections_max = capacity.connections_max, "open files");
    capacity
}

/// Raises the limit and returns it, or `None` if there is no limit.
fn raise_descriptor_limit() -> Option<usize> {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(DESCRIPTORS_WANTED_MAX, |most| most.min(DESCRIPTORS_WANTED_MAX));
    let current = limit.current?;
    if current < wanted && setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit }).is_ok() {
        return usize::try_from(wanted).ok();
    }
    usize::try_from(current).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_left_for_the_servers_own_files() {
        let of = |descriptors| ConnectionCapacity::from_descriptors(descriptors).connections_max;
        assert_eq!([0, 4, 256, 512, 1024, 1 << 20].map(of), [1, 1, 64, 256, 768, CONNECTIONS_MAX]);
    }

    #[test]
    fn reserved_connections_take_at_most_half() {
        let capacity = ConnectionCapacity::from_connections(100);
        assert_eq!([1, 2, 10, 100].map(|listeners| capacity.reserved_per_listener(listeners)), [32, 25, 5, 0]);
        assert_eq!(capacity.peer_connections_max, 50);
    }
}
