//! How the ranks of one attempt on several hosts find each other: the address of rank 0, and the credentials of the others.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use saggar_store::records::MeetingPoint;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The environment variable with the [`RankCredentials`] of a rank as JSON.
pub const RANK_CREDENTIALS_VARIABLE: &str = "SAGGAR_RANK_CREDENTIALS";

/// Where rank 0 of an attempt on several hosts listens, if it runs on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankNetwork {
    /// The address of this host as the others reach it.
    pub address: IpAddr,
    /// The ports that it may use; any free one if `None`.
    pub ports: Option<RankPorts>,
}

impl Default for RankNetwork {
    /// Returns the network of hosts that are all on this machine.
    fn default() -> RankNetwork {
        RankNetwork { address: Ipv4Addr::LOCALHOST.into(), ports: None }
    }
}

/// A range of ports: `20000-20099`, or one port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RankPorts {
    first: u16,
    last: u16,
}

/// Text that is not a range of ports.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("invalid ports {0:?}: expected a port or a range, such as 20000 or 20000-20099")]
pub struct ParseRankPortsError(String);

impl RankPorts {
    /// Returns the ports, in the order in which they are tried.
    pub(crate) fn ports(self) -> impl Iterator<Item = u16> {
        self.first..=self.last
    }
}

impl FromStr for RankPorts {
    type Err = ParseRankPortsError;

    fn from_str(text: &str) -> Result<RankPorts, ParseRankPortsError> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let ports = first.parse().ok().zip(last.parse().ok()).map(|(first, last)| RankPorts { first, last });
        let valid = ports.filter(|ports| ports.first > 0 && ports.first <= ports.last);
        valid.ok_or_else(|| ParseRankPortsError(text.to_owned()))
    }
}

impl fmt::Display for RankPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last { write!(f, "{}", self.first) } else { write!(f, "{}-{}", self.first, self.last) }
    }
}

impl TryFrom<String> for RankPorts {
    type Error = ParseRankPortsError;

    fn try_from(text: String) -> Result<RankPorts, ParseRankPortsError> {
        text.parse()
    }
}

impl From<RankPorts> for String {
    fn from(ports: RankPorts) -> String {
        ports.to_string()
    }
}

/// What the process of a rank needs to reach rank 0 on another host. Passed in the environment, never as an argument.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankCredentials {
    /// The attempt and the rank.
    #[serde(flatten)]
    pub identity: RankIdentity,
    /// The device of the rank on its host.
    pub device: String,
    /// Where rank 0 listens.
    pub meeting_point: MeetingPoint,
}

/// A rank of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RankIdentity {
    /// The job's identifier.
    pub job: String,
    /// The attempt.
    pub attempt: u32,
    /// The epoch of the attempt's lease.
    pub epoch: u64,
    /// The rank, from 1.
    pub rank: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_ranges_round_trip_as_text() {
        for text in ["20000", "20000-20099", "1-65535"] {
            assert_eq!(text.parse::<RankPorts>().unwrap().to_string(), text);
        }
        for text in ["", "0", "0-5", "9-8", "70000", "1-2-3", "a"] {
            assert!(text.parse::<RankPorts>().is_err(), "{text}");
        }
        assert_eq!("7-9".parse::<RankPorts>().unwrap().ports().collect::<Vec<_>>(), [7, 8, 9]);
    }

    #[test]
    fn rank_credentials_are_not_printed() {
        let meeting_point =
            MeetingPoint { address: "10.0.0.1:5".to_owned(), key_sha256: "k".to_owned(), token: "hunter2".to_owned() };
        let identity = RankIdentity { job: "j".to_owned(), attempt: 1, epoch: 2, rank: 3 };
        let credentials = RankCredentials { identity, device: "cpu".to_owned(), meeting_point };
        let text = serde_json::to_string(&credentials).unwrap();
        assert_eq!(serde_json::from_str::<RankCredentials>(&text).unwrap(), credentials);
        assert!(text.contains("hunter2") && !format!("{credentials:?}").contains("hunter2"));
    }
}
