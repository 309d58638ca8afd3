//! Whose address a request comes from.

use std::net::{IpAddr, SocketAddr};

use http::HeaderMap;

use crate::domain::party::Network;

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
