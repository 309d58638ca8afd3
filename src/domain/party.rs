//! The account or address to which the use of a shared resource is attributed.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
};

use super::ids::AccountId;

/// An account, or an address before authentication.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Party {
    Account(AccountId),
    Address(Address),
    Operator,
}

/// An IPv4 address, or an IPv6 network of 64 bits, which belongs to one subscriber.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(IpAddr);

impl From<IpAddr> for Address {
    fn from(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
            address @ IpAddr::V4(_) => address,
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            IpAddr::V4(address) => address.fmt(f),
            IpAddr::V6(address) => write!(f, "{address}/64"),
        }
    }
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Account(account) => write!(f, "account {account}"),
            Self::Address(address) => write!(f, "address {address}"),
            Self::Operator => f.write_str("operator"),
        }
    }
}

impl From<AccountId> for Party {
    fn from(account: AccountId) -> Self {
        Self::Account(account)
    }
}

impl From<Address> for Party {
    fn from(address: Address) -> Self {
        Self::Address(address)
    }
}

/// A range of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    pub base: IpAddr,
    /// Length of its prefix in bits.
    pub prefix: u8,
}

impl Network {
    /// Parses an address, or a network such as `10.0.0.0/8`.
    pub fn parse(text: &str) -> Option<Self> {
        let (base, prefix) = match text.split_once('/') {
            Some((base, prefix)) => (base, Some(prefix.parse().ok()?)),
            None => (text, None),
        };
        let base: IpAddr = base.parse().ok()?;
        let most = if base.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.unwrap_or(most);
        (prefix <= most).then_some(Self { base, prefix })
    }

    pub fn contains(&self, address: IpAddr) -> bool {
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

    #[test]
    fn a_network_of_64_bits_is_one_address() {
        let address = |text: &str| Address::from(text.parse::<IpAddr>().unwrap());
        for (one, other, same) in [
            ("2001:db8::1", "2001:db8::ffff:0:0:2", true),
            ("2001:db8::1", "2001:db8:0:1::1", false),
            ("1.2.3.4", "::ffff:1.2.3.4", true),
            ("1.2.3.4", "1.2.3.5", false),
        ] {
            assert_eq!(address(one) == address(other), same, "{one} {other}");
        }
        assert_eq!(address("2001:db8::7").to_string(), "2001:db8::/64");
        assert_eq!(
            Party::from(address("::ffff:1.2.3.4")).to_string(),
            "address 1.2.3.4"
        );
    }
}
