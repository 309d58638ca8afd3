//! Whose address a request comes from.

use std::net::{IpAddr, SocketAddr};

use http::HeaderMap;

/// The address of the client behind `peer`. Each proxy appends the peer that it saw, to the last
/// line of `X-Forwarded-For` or as a line of its own: read from the right, as far as the proxies
/// are trusted.
pub fn client(peer: IpAddr, headers: &HeaderMap, trusted: &[Network]) -> IpAddr {
    let mut address = peer.to_canonical();
    if !is_trusted(address, trusted) {
        return address;
    }
    let lines = headers.get_all("x-forwarded-for").into_iter();
    let lines: Vec<&str> = lines.map(|line| line.to_str().unwrap_or("")).collect();
    for hop in lines.iter().rev().flat_map(|line| line.rsplit(',')) {
        if !is_trusted(address, trusted) {
            break;
        }
        let Some(hop) = parse(hop) else { break };
        address = hop.to_canonical();
    }
    address
}

/// Whether an address is that of a trusted proxy.
pub fn is_trusted(address: IpAddr, trusted: &[Network]) -> bool {
    trusted
        .iter()
        .any(|net| net.contains(address.to_canonical()))
}

/// An address of the header, with or without a port.
fn parse(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let plain = text.trim_start_matches('[').trim_end_matches(']');
    let with_port = || text.parse::<SocketAddr>().ok().map(|a| a.ip());
    plain.parse().ok().or_else(with_port)
}

/// A network whose `X-Forwarded-For` is believed.
#[derive(Debug, Clone, Copy)]
pub struct Network {
    pub base: IpAddr,
    /// Length of its prefix in bits.
    pub prefix: u8,
}

impl Network {
    fn contains(&self, address: IpAddr) -> bool {
        let (difference, bits) = match (self.base, address) {
            (IpAddr::V4(base), IpAddr::V4(address)) => {
                (u128::from(base.to_bits() ^ address.to_bits()), 32_u32)
            }
            (IpAddr::V6(base), IpAddr::V6(address)) => (base.to_bits() ^ address.to_bits(), 128),
            _ => return false,
        };
        let shift = bits.saturating_sub(self.prefix.into());
        difference.checked_shr(shift).unwrap_or(0) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_contains_its_addresses() {
        let net = |base: &str, prefix| Network {
            base: base.parse().unwrap(),
            prefix,
        };
        for (net, address, expected) in [
            (net("10.0.0.0", 8), "10.255.0.1", true),
            (net("10.0.0.0", 8), "11.0.0.1", false),
            (net("0.0.0.0", 0), "1.2.3.4", true),
            (net("127.0.0.1", 32), "127.0.0.2", false),
            (net("fd00::", 8), "fd12::1", true),
            (net("::1", 128), "::1", true),
            (net("::1", 128), "127.0.0.1", false),
        ] {
            assert_eq!(
                net.contains(address.parse().unwrap()),
                expected,
                "{net:?} {address}"
            );
        }
    }
}
