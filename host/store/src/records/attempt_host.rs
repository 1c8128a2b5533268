//! The hosts of an attempt whose ranks are on several hosts, and the meeting point of its ranks.
//!
//! All hosts of an attempt are chosen in the transaction that claims its job, so an attempt has all of them or does not
//! start. The host of part 0 owns the lease. The others read their parts at intervals; a part is over when the job has
//! another attempt or another epoch.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A host of an attempt, and the slots that the attempt holds there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttemptHost {
    /// The identifier of the host's state directory. Empty if a process of a batch job is to take the part.
    pub host_id: String,
    /// The host's name; the name of the batch job until a process has taken the part.
    pub host: String,
    /// The pool whose slots the attempt holds there.
    pub pool: String,
    /// The device of the ranks on this host.
    pub device: String,
}

/// Where the ranks of an attempt on other hosts reach rank 0, and how each side recognizes the other.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeetingPoint {
    /// The address and port of rank 0: `10.0.0.5:40123`.
    pub address: String,
    /// The SHA-256 of the public key of rank 0, a SubjectPublicKeyInfo in DER form, as hexadecimal digits.
    pub key_sha256: String,
    /// The secret that admits each other rank once.
    pub token: String,
}

/// Does not print the token.
impl fmt::Debug for MeetingPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MeetingPoint").field("address", &self.address).finish_non_exhaustive()
    }
}

/// A part of a running attempt that another host leads.
#[derive(Clone, Debug, PartialEq)]
pub struct HostPart {
    /// The job's identifier.
    pub job: String,
    /// The job's name.
    pub name: String,
    /// The attempt.
    pub attempt: u32,
    /// The epoch under which the attempt was claimed.
    pub epoch: u64,
    /// The number of the part, from 1.
    pub part: u32,
    /// The number of hosts of the attempt.
    pub hosts: u32,
    /// The device of the ranks.
    pub device: String,
    /// The job's specification.
    pub spec: String,
    /// Where the ranks meet; `None` until rank 0 listens.
    pub meeting_point: Option<MeetingPoint>,
}
