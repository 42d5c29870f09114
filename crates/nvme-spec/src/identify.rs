//! Identify data structures (1.4 §5.15, 2.0 §5.17), 4096 bytes each.

mod controller;
mod lists;
mod namespace;

pub use controller::{
    IdentifyController, PowerStateDescriptor, apsta, controller_type, ctratt, fuses, lpa, oacs,
    oncs, power_flags, vwc,
};
pub use lists::{ActiveNamespaceList, NamespaceIdDescriptor, NamespaceIdDescriptors, nidt};
pub use namespace::{IdentifyNamespace, IndependentNamespace, LbaFormat, dlfeat, nsfeat, nstat};

/// Bytes of every Identify data structure.
pub const SIZE: usize = 4096;

/// Command Set Identifier of Identify, for some structures (2.0 §5.17.1).
pub mod csi {
    /// NVM.
    pub const NVM: u8 = 0;
}

/// Controller or Namespace Structure: which structure Identify returns (1.4 §5.15.1, 2.0 §5.17.1).
pub mod cns {
    /// Identify Namespace of NSID; NSID FFFFFFFFh: what all namespaces have in common.
    pub const NAMESPACE: u8 = 0x00;
    /// Identify Controller.
    pub const CONTROLLER: u8 = 0x01;
    /// Active namespaces with identifiers above NSID.
    pub const ACTIVE_NAMESPACE_LIST: u8 = 0x02;
    /// Namespace Identification Descriptor list of NSID.
    pub const NAMESPACE_ID_DESCRIPTORS: u8 = 0x03;
    /// I/O command set specific Identify Namespace (2.0).
    pub const NAMESPACE_OF_COMMAND_SET: u8 = 0x05;
    /// I/O command set specific Identify Controller (2.0).
    pub const CONTROLLER_OF_COMMAND_SET: u8 = 0x06;
    /// I/O command set independent Identify Namespace (2.0).
    pub const NAMESPACE_INDEPENDENT: u8 = 0x08;
}
