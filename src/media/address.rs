//! Determines which IP addresses are public.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::LazyLock,
};

use crate::domain::party::Network;

/// Address ranges that are not public: the special-purpose registries of IANA, and addresses at
/// which clouds serve credentials. The IPv6 ranges are inside `2000::/3`, outside of which no
/// address is public.
const SPECIAL: [&str; 24] = [
    "0.0.0.0/8",         // this network
    "10.0.0.0/8",        // private
    "100.64.0.0/10",     // carriers' NAT; Alibaba's metadata
    "127.0.0.0/8",       // loopback
    "168.63.129.16/32",  // Azure's wire server
    "169.254.0.0/16",    // link-local; most clouds' metadata
    "172.16.0.0/12",     // private
    "192.0.0.0/24",      // protocol assignments; Oracle's metadata
    "192.0.2.0/24",      // documentation
    "192.31.196.0/24",   // AS112
    "192.52.193.0/24",   // multicast relays
    "192.88.99.0/24",    // 6to4 relays
    "192.168.0.0/16",    // private
    "192.175.48.0/24",   // AS112
    "198.18.0.0/15",     // benchmarks
    "198.51.100.0/24",   // documentation
    "203.0.113.0/24",    // documentation
    "224.0.0.0/3",       // multicast, reserved, broadcast
    "2001::/23",         // protocols; Teredo carries IPv4
    "2001:db8::/32",     // documentation
    "2002::/16",         // 6to4 carries IPv4
    "2620:4f:8000::/48", // AS112
    "3ffe::/16",         // the former 6bone
    "3fff::/20",         // documentation
];

/// The parsed ranges. If one cannot be parsed, no address counts as public.
static NETWORKS: LazyLock<Option<Vec<Network>>> =
    LazyLock::new(|| SPECIAL.into_iter().map(Network::parse).collect());

/// Whether an address belongs to the public internet. Unknown ranges do not: of IPv6 only
/// `2000::/3`, and the two forms that embed an IPv4 address (IPv4-mapped, and the NAT64 prefix,
/// through which IPv6-only networks reach IPv4 hosts), which are checked as that address.
pub fn is_public(address: IpAddr) -> bool {
    let (address, is_global) = match address {
        IpAddr::V4(_) => (address, true),
        IpAddr::V6(own) => match carried_v4(own) {
            Some(carried) => (carried.into(), true),
            None => (address, own.to_bits() >> 125 == 1),
        },
    };
    let is_special = |all: &Vec<Network>| all.iter().any(|network| network.contains(address));
    is_global && NETWORKS.as_ref().is_some_and(|all| !is_special(all))
}

/// Returns the IPv4 address in `::ffff:0:0/96` and `64:ff9b::/96`.
fn carried_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let nat64 = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0).to_bits();
    address.to_ipv4_mapped().or_else(|| {
        let low = u32::try_from(address.to_bits() ^ nat64).ok()?;
        Some(Ipv4Addr::from_bits(low))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(addresses: &str, public: bool) {
        for text in addresses.split_whitespace() {
            let address: IpAddr = text.parse().unwrap();
            assert_eq!(is_public(address), public, "{text}");
        }
    }

    #[test]
    fn public() {
        check(
            "1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255
             128.0.0.1 168.63.129.15 168.63.129.17 169.253.255.255 169.255.0.0 172.15.255.255
             172.32.0.0 191.255.255.255 192.0.1.0 192.0.3.0 192.167.255.255 192.169.0.0
             198.17.255.255 198.20.0.0 203.0.112.255 203.0.114.0 223.255.255.255
             2606:4700:4700::1111 2001:4860:4860::8888 2001:200::1 2a00:1450::1 2003::1
             2400:cb00::1 ::ffff:8.8.8.8 64:ff9b::8.8.8.8 3ffd::1",
            true,
        );
    }

    #[test]
    fn not_public_v4() {
        check(
            "0.0.0.0 0.1.2.3 10.0.0.0 10.255.255.255 100.64.0.0 100.100.100.200 100.127.255.255
             127.0.0.1 127.255.255.254 168.63.129.16 169.254.0.1 169.254.169.254 169.254.170.2
             172.16.0.0 172.31.255.255 192.0.0.1 192.0.0.192 192.0.2.1 192.88.99.1 192.168.0.1
             192.168.255.255 198.18.0.1 198.19.255.255 198.51.100.7 203.0.113.9 224.0.0.1
             239.255.255.250 240.0.0.1 255.255.255.255",
            false,
        );
    }

    #[test]
    fn not_public_v6() {
        check(
            ":: ::1 ::127.0.0.1 ::8.8.8.8 ::ffff:127.0.0.1 ::ffff:10.0.0.1
             ::ffff:169.254.169.254 ::ffff:0:8.8.8.8 64:ff9b::127.0.0.1 64:ff9b::10.1.2.3
             64:ff9b::169.254.169.254 64:ff9b:1::8.8.8.8 64:ff9b:0:1::8.8.8.8 100::1
             2001::1 2001:0:53aa:64c:: 2001:10::1 2001:20::1 2001:1ff:ffff::1 2001:db8::1
             2002:7f00:1:: 2002:a00:1:: 2002:808:808:: 3ffe::1 3fff::1 3fff:fff::1
             4000::1 5f00::1 fc00::1 fd00:ec2::254 fd12:3456::1 fdff::1 fe80::1
             fe80::a9fe:a9fe febf::1 fec0::1 ff02::1 ff0e::1",
            false,
        );
    }
}
