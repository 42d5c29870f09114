//! PCI functions: their addresses.

mod address;

pub use address::{PciAddress, PciAddressError};
