//! The addresses that a host's name can resolve to. The check is part of resolving the name, so that the address that
//! was checked is the one that is connected to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

/// A resolver that refuses names of private addresses.
#[derive(Debug, Default)]
pub(crate) struct PublicResolver(DefaultResolver);

/// The error of a name that resolves to a private address.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the private address {0}")]
pub(crate) struct PrivateAddressError(pub(crate) IpAddr);

impl Resolver for PublicResolver {
    fn resolve(&self, uri: &Uri, config: &Config, timeout: NextTimeout) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let resolved = self.0.resolve(uri, config, timeout)?;
        match resolved.iter().map(|address| address.ip()).find(|address| is_private(*address)) {
            Some(address) => Err(ureq::Error::Other(Box::new(PrivateAddressError(address)))),
            None => Ok(resolved),
        }
    }
}

/// Returns whether an address is not one of the public internet.
pub(crate) fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_private_v4(address),
        IpAddr::V6(address) => is_private_v6(address),
    }
}

fn is_private_v4(address: Ipv4Addr) -> bool {
    let [first, second, third, _] = address.octets();
    address.is_loopback()
        || address.is_private()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_unspecified()
        || address.is_broadcast()
        || address.is_documentation()
        || first == 0
        || first >= 240
        // Shared addresses of providers (RFC 6598), protocol assignments (RFC 6890), and benchmarks (RFC 2544).
        || (first == 100 && (64..128).contains(&second))
        || (first == 192 && second == 0 && third == 0)
        || (first == 198 && (18..20).contains(&second))
}

fn is_private_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    // IPv4 addresses in IPv6: mapped, compatible, translated (RFC 6052) and 6to4 (RFC 3056).
    let low = || {
        let [.., a, b] = segments;
        Ipv4Addr::from((u32::from(a) << 16) | u32::from(b))
    };
    let embedded = match segments {
        [0, 0, 0, 0, 0, 0xffff, ..] | [0, 0, 0, 0, 0, 0, ..] | [0x64, 0xff9b, ..] => Some(low()),
        [0x2002, a, b, ..] => Some(Ipv4Addr::from((u32::from(a) << 16) | u32::from(b))),
        _ => None,
    };
    address.is_loopback()
        || address.is_unspecified()
        || address.is_multicast()
        || embedded.is_some_and(is_private_v4)
        // Unique local (RFC 4193), link-local and the former site-local addresses.
        || (segments[0] & 0xfe00) == 0xfc00
        || (segments[0] & 0xffc0) == 0xfe80
        || (segments[0] & 0xffc0) == 0xfec0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_the_internet_are_public() {
        for text in ["1.1.1.1", "93.184.216.34", "100.63.0.1", "2606:4700::1111", "64:ff9b::101:101"] {
            assert!(!is_private(text.parse().unwrap()), "{text}");
        }
        for text in [
            "127.0.0.1",
            "127.1.2.3",
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "0.1.2.3",
            "224.0.0.1",
            "255.255.255.255",
            "240.0.0.1",
            "192.0.0.8",
            "198.18.0.1",
            "::",
            "::1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "fc00::1",
            "fd12::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(is_private(text.parse().unwrap()), "{text}");
        }
    }
}
