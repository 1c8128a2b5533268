//! The address at which other hosts reach this one, if no option says it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs, UdpSocket};

use saggar_jobs::RankNetwork;

use crate::args::{DatabaseArgs, RankNetworkArgs};

/// The port of PostgreSQL.
const DATABASE_PORT: u16 = 5432;
/// An address of no machine (RFC 5737), to which the default route leads.
const ELSEWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 9);

/// Returns where rank 0 of an attempt with several hosts listens on this host. Without an address, it is the one from which
/// the host reaches the database. If the database is on this machine, it is the one of the default route.
pub(in crate::commands) fn rank_network(args: &RankNetworkArgs, database: &DatabaseArgs) -> RankNetwork {
    let ports = args.rank_ports;
    let own = || {
        let database = database.database.as_ref().and_then(|url| database_address(url.as_postgres().ok()?));
        let to_database = database.and_then(address_towards).filter(|address| !address.is_loopback());
        to_database.or_else(|| address_towards(ELSEWHERE))
    };
    let address = args.advertise.or_else(own).unwrap_or(Ipv4Addr::LOCALHOST.into());
    RankNetwork { address, ports }
}

/// Returns the address of the machine in a database's URL.
fn database_address(url: &str) -> Option<SocketAddr> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?']).next()?;
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let resolved = host.to_socket_addrs().or_else(|_| (host, DATABASE_PORT).to_socket_addrs());
    resolved.ok()?.next()
}

/// Returns the address of this machine from which packets to another one leave. Sends none.
fn address_towards(other: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr =
        if other.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { std::net::Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(other).ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|address| !address.is_unspecified())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_of_a_database_is_found_in_its_url() {
        for (url, address) in [
            ("postgres://a:b%40c@127.0.0.1:6000/d?sslmode=require", "127.0.0.1:6000"),
            ("postgresql://a@127.0.0.1/d", "127.0.0.1:5432"),
            ("postgres://[::1]:7000", "[::1]:7000"),
        ] {
            assert_eq!(database_address(url), Some(address.parse().unwrap()), "{url}");
        }
        assert_eq!(database_address("postgres:///d"), None);
    }

    #[test]
    fn a_given_address_is_used() {
        let args = RankNetworkArgs { advertise: Some([10, 1, 2, 3].into()), rank_ports: Some("7-9".parse().unwrap()) };
        let network = rank_network(&args, &DatabaseArgs::default());
        assert_eq!((network.address, network.ports.unwrap().to_string()), ([10, 1, 2, 3].into(), "7-9".to_owned()));
    }
}
