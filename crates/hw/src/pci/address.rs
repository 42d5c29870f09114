//! The address of a PCI function, as Linux writes it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Domain, bus, device and function: `0000:01:00.0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PciAddress {
    /// Domain (segment). Of 32 bits: some hosts have domains beyond FFFFh.
    pub domain: u32,
    /// Bus.
    pub bus: u8,
    /// Device on the bus, up to 31.
    pub device: u8,
    /// Function of the device, up to 7.
    pub function: u8,
}

/// The text is not a PCI address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no PCI address; give domain:bus:device.function, e.g. 0000:01:00.0 (`lspci -D`, \
     or `meantime devices`)"
)]
pub struct PciAddressError {
    /// The text.
    pub text: String,
}

impl FromStr for PciAddress {
    type Err = PciAddressError;

    /// Parses `0000:01:00.0`, or `01:00.0` in domain 0; hexadecimal digits in either case.
    fn from_str(text: &str) -> Result<Self, PciAddressError> {
        parse(text).ok_or_else(|| PciAddressError { text: text.to_owned() })
    }
}

fn parse(text: &str) -> Option<PciAddress> {
    let (rest, function) = text.rsplit_once('.')?;
    let (rest, device) = rest.rsplit_once(':')?;
    let (domain, bus) = rest.rsplit_once(':').unwrap_or(("0000", rest));
    let address = PciAddress {
        domain: hex(domain, 4..=8)?,
        bus: hex(bus, 2..=2)? as u8,
        device: hex(device, 2..=2)? as u8,
        function: hex(function, 1..=1)? as u8,
    };
    (address.device < 32 && address.function < 8).then_some(address)
}

fn hex(text: &str, digits: std::ops::RangeInclusive<usize>) -> Option<u32> {
    // Otherwise a sign would be accepted as a digit.
    let all = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    (all && digits.contains(&text.len())).then(|| u32::from_str_radix(text, 16).ok())?
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_lspci_writes() {
        let address = |domain, bus, device, function| PciAddress { domain, bus, device, function };
        for (text, expected) in [
            ("0000:01:00.0", address(0, 1, 0, 0)),
            ("01:00.0", address(0, 1, 0, 0)),
            ("0001:FF:1f.7", address(1, 0xff, 0x1f, 7)),
            ("10000:e1:00.0", address(0x10000, 0xe1, 0, 0)),
        ] {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
        assert_eq!(address(0x10000, 0xe1, 0x0a, 3).to_string(), "10000:e1:0a.3");
    }

    #[test]
    fn refuses_everything_else() {
        for text in [
            "",
            "01:00",
            "0000:01:00",
            "0:01:00.0",
            "0000:1:00.0",
            "0000:01:20.0",
            "0000:01:00.8",
            "0000:01:00.00",
            "0000:01:+0.0",
            "+000:01:00.0",
            "nvme0",
            "0000:01:00.0 ",
            "123456789:01:00.0",
            "/sys/0000:01:00.0",
        ] {
            assert!(text.parse::<PciAddress>().is_err(), "{text}");
        }
    }
}
