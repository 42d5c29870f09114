//! NVMe over Fabrics: its commands, and what discovery returns (NVMe-oF 1.1 §3 to §5, 2.0 §6).
//!
//! A Fabrics command has opcode 7Fh, and its type, FCTYPE, in place of the namespace identifier.
//! Its CDW10 to CDW15 are the bytes 40 to 63 of the entry, as for all commands.

use zerocopy::little_endian::{U16, U32, U64};

use crate::bytes::Reserved;
use crate::opcode::admin;
use crate::sgl::{SglDescriptor, SglKind};
use crate::sqe::Sqe;

/// The NQN of every discovery service (NVMe-oF 1.1 §1.5.2).
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";

/// Log Page Identifier of the discovery log (NVMe-oF 1.1 §5.3).
pub const DISCOVERY_LOG: u8 = 0x70;

/// The longest NQN in bytes (1.4 §7.9).
pub const NQN_MAX_BYTES: usize = 223;

/// CNTLID of Connect for the admin queue: the subsystem chooses the controller (NVMe-oF 1.1 §3.3).
pub const CNTLID_DYNAMIC: u16 = 0xffff;

/// SQHD of a completion if flow control of the submission queue is disabled (NVMe-oF 1.1 §3.3).
pub const SQHD_NONE: u16 = 0xffff;

codes! {
    /// Fabrics Command Type (NVMe-oF 1.1 §3).
    FabricsType(u8), "Fabrics command type" {
        0x00 PropertySet "Property Set",
        0x01 Connect "Connect",
        0x04 PropertyGet "Property Get",
        0x05 AuthenticationSend "Authentication Send",
        0x06 AuthenticationReceive "Authentication Receive",
        0x08 Disconnect "Disconnect",
    }
}

codes! {
    /// Status codes of Fabrics commands, status code type 1 (NVMe-oF 1.1 §2.2.2).
    FabricsStatus(u16), "Fabrics status code" {
        0x180 ConnectIncompatibleFormat "Connect Incompatible Format",
        0x181 ConnectControllerBusy "Connect Controller Busy",
        0x182 ConnectInvalidParameters "Connect Invalid Parameters",
        0x183 ConnectRestartDiscovery "Connect Restart Discovery",
        0x184 ConnectInvalidHost "Connect Invalid Host",
        0x185 InvalidQueueType "Invalid Queue Type",
        0x190 DiscoverRestart "Discover Restart",
        0x191 AuthenticationRequired "Authentication Required",
    }
}

/// SGL Descriptor Sub Types of Fabrics (NVMe-oF 1.1 §2.3).
pub mod sub_type {
    /// Data Block: the address is an offset into the capsule.
    pub const OFFSET: u8 = 1;
    /// Transport Data Block: the transport moves the data.
    pub const TRANSPORT: u8 = 0xa;
}

/// CATTR of Connect (NVMe-oF 1.1 §3.3).
pub mod cattr {
    /// Priority class of the submission queue.
    pub const PRIORITY_MASK: u8 = 3;
    /// Disable SQ Flow Control.
    pub const DISABLE_SQ_FLOW: u8 = 1 << 2;
}

/// TRTYPE of a discovery log entry (NVMe-oF 1.1 §5.3).
pub mod trtype {
    /// TCP.
    pub const TCP: u8 = 3;
}

/// ADRFAM of a discovery log entry (NVMe-oF 1.1 §5.3).
pub mod adrfam {
    /// IPv4.
    pub const IPV4: u8 = 1;
    /// IPv6.
    pub const IPV6: u8 = 2;
}

codes! {
    /// SUBTYPE of a discovery log entry (NVMe-oF 1.1 §5.3, 2.0 §5.16.1.23).
    SubsystemType(u8), "subsystem type" {
        1 Referral "discovery referral",
        2 Nvm "NVM subsystem",
        3 CurrentDiscovery "current discovery subsystem",
    }
}

wire! {
    /// The data of Connect (NVMe-oF 1.1 §3.3).
    pub struct ConnectData, 1024 {
        /// Host Identifier.
        0 pub hostid: [u8; 16],
        /// Controller ID: [`CNTLID_DYNAMIC`], or for an I/O queue that of its admin queue.
        16 pub cntlid: U16,
        18 reserved_18: Reserved<238>,
        /// The subsystem's NQN, ended by a zero byte.
        256 pub subnqn: [u8; 256],
        /// The host's NQN, ended by a zero byte.
        512 pub hostnqn: [u8; 256],
        768 reserved_768: Reserved<256>,
    }

    /// The head of the discovery log page, 70h (NVMe-oF 1.1 §5.3).
    pub struct DiscoveryHeader, 1024 {
        /// Generation Counter: changes with the log.
        0 pub genctr: U64,
        /// Number of Records.
        8 pub numrec: U64,
        /// Record Format.
        16 pub recfmt: U16,
        18 reserved_18: Reserved<1006>,
    }

    /// A record of the discovery log page (NVMe-oF 1.1 §5.3).
    pub struct DiscoveryEntry, 1024 {
        /// Transport Type, one of [`trtype`].
        0 pub trtype: u8,
        /// Address Family, one of [`adrfam`].
        1 pub adrfam: u8,
        /// Subsystem Type, a [`SubsystemType`].
        2 pub subtype: u8,
        /// Transport Requirements: 1:0 secure channel, 2 whether SQ flow control may be disabled.
        3 pub treq: u8,
        /// Port ID.
        4 pub portid: U16,
        /// Controller ID.
        6 pub cntlid: U16,
        /// Admin Max SQ Size.
        8 pub asqsz: U16,
        /// Entry Flags (2.0).
        10 pub eflags: U16,
        12 reserved_12: Reserved<20>,
        /// Transport Service Identifier: the port, as text.
        32 pub trsvcid: [u8; 32],
        64 reserved_64: Reserved<192>,
        /// The subsystem's NQN, ended by a zero byte.
        256 pub subnqn: [u8; 256],
        /// Transport Address, as text.
        512 pub traddr: [u8; 256],
        /// Transport Specific Address Subtype: for TCP byte 0, the security type.
        768 pub tsas: [u8; 256],
    }

    /// The fields of Identify Controller for Fabrics, at its byte 1792 (NVMe-oF 1.1 §4.1).
    pub struct FabricsAttributes, 256 {
        /// I/O Queue Command Capsule Supported Size, in 16 bytes: an entry and its in-capsule data.
        0 pub ioccsz: U32,
        /// I/O Queue Response Capsule Supported Size, in 16 bytes.
        4 pub iorcsz: U32,
        /// In Capsule Data Offset, in 16 bytes, after the entry.
        8 pub icdoff: U16,
        /// Fabrics Controller Attributes: bit 0, a static controller.
        10 pub fcatt: u8,
        /// Maximum SGL Data Block Descriptors; 0: no limit.
        11 pub msdbd: u8,
        /// Optional Fabric Commands Support: bit 0, Disconnect of I/O queues.
        12 pub ofcs: U16,
        14 reserved_14: Reserved<242>,
    }
}

impl FabricsAttributes {
    /// The most in-capsule data of an I/O command, in bytes; 0 if it cannot begin right after the
    /// entry.
    #[must_use]
    pub fn in_capsule_bytes(&self) -> u32 {
        if self.icdoff.get() > 0 {
            return 0;
        }
        self.ioccsz.get().saturating_mul(16).saturating_sub(size_of::<Sqe>() as u32)
    }
}

impl Sqe {
    fn fabrics(kind: FabricsType, cid: u16) -> Self {
        Self::new(admin::FABRICS, cid, u32::from(kind as u8))
    }

    /// FCTYPE of a Fabrics command.
    #[must_use]
    pub const fn fctype(&self) -> u8 {
        self.nsid.get() as u8
    }

    /// Connect (NVMe-oF 1.1 §3.3) of queue `qid` with `entries` entries, with its data in the
    /// capsule; `kato_ms` is for the admin queue.
    #[must_use]
    pub fn connect(cid: u16, qid: u16, entries: u16, cattr: u8, kato_ms: u32) -> Self {
        let mut sqe = Self::fabrics(FabricsType::Connect, cid)
            .with_sgl(SglDescriptor::in_capsule(size_of::<ConnectData>() as u32));
        sqe.cdw10.set(u32::from(qid) << 16);
        sqe.cdw11.set(u32::from(entries.saturating_sub(1)) | u32::from(cattr) << 16);
        sqe.cdw12.set(kato_ms);
        sqe
    }

    /// Property Get (NVMe-oF 1.1 §3.4) of `bytes` (4 or 8) at `offset`.
    #[must_use]
    pub fn property_get(cid: u16, offset: u32, bytes: u8) -> Self {
        let mut sqe =
            Self::fabrics(FabricsType::PropertyGet, cid).with_sgl(SglDescriptor::transport(0));
        sqe.cdw10.set(u32::from(bytes == 8));
        sqe.cdw11.set(offset);
        sqe
    }

    /// Property Set (NVMe-oF 1.1 §3.5) of `bytes` (4 or 8) at `offset`.
    #[must_use]
    pub fn property_set(cid: u16, offset: u32, bytes: u8, value: u64) -> Self {
        let mut sqe =
            Self::fabrics(FabricsType::PropertySet, cid).with_sgl(SglDescriptor::transport(0));
        sqe.cdw10.set(u32::from(bytes == 8));
        sqe.cdw11.set(offset);
        sqe.cdw12.set(value as u32);
        sqe.cdw13.set((value >> 32) as u32);
        sqe
    }
}

/// The protocol of Authentication Send and Receive: SECP of NVMe, with SPSP0 and SPSP1 (Base 2.0
/// §8.13.5).
const AUTHENTICATION_PROTOCOL: u32 = 0xE9 << 24 | 1 << 16 | 1 << 8;

/// AUTHREQ of Connect's completion, in dword 0 (Base 2.0 §6.3).
pub mod authreq {
    /// ATR: the host has to authenticate itself on this queue.
    pub const TRANSACTION: u32 = 1 << 17;
    /// ASCR: and a secure channel has to follow.
    pub const SECURE_CHANNEL: u32 = 1 << 18;
}

impl Sqe {
    /// Authentication Send (Base 2.0 §6.2) of `bytes`, in the capsule.
    #[must_use]
    pub fn authentication_send(cid: u16, bytes: u32) -> Self {
        let sgl = SglDescriptor::in_capsule(bytes);
        Self::authentication(FabricsType::AuthenticationSend, cid, bytes).with_sgl(sgl)
    }

    /// Authentication Receive (Base 2.0 §6.1) of up to `bytes`.
    #[must_use]
    pub fn authentication_receive(cid: u16, bytes: u32) -> Self {
        let sgl = SglDescriptor::transport(bytes);
        Self::authentication(FabricsType::AuthenticationReceive, cid, bytes).with_sgl(sgl)
    }

    fn authentication(kind: FabricsType, cid: u16, bytes: u32) -> Self {
        let mut sqe = Self::fabrics(kind, cid);
        sqe.cdw10.set(AUTHENTICATION_PROTOCOL);
        sqe.cdw11.set(bytes);
        sqe
    }

    /// Returns whether the command is of the protocol that [`authentication_send`] names.
    ///
    /// [`authentication_send`]: Self::authentication_send
    #[must_use]
    pub fn is_nvme_authentication(&self) -> bool {
        self.cdw10.get() == AUTHENTICATION_PROTOCOL
    }
}

command_fields! {
    /// TL of Authentication Send, and AL of Authentication Receive.
    cdw11 [31:0] authentication_bytes: u32,
    /// RECFMT of Connect.
    cdw10 [15:0] recfmt: u16,
    /// QID of Connect.
    cdw10 [31:16] connect_qid: u16,
    /// SQSIZE of Connect, 0's based.
    cdw11 [15:0] connect_sqsize: u16,
    /// CATTR of Connect, see [`cattr`].
    cdw11 [23:16] cattr: u8,
    /// KATO of Connect, in ms.
    cdw12 [31:0] connect_kato_ms: u32,
    /// Whether a property has eight bytes, not four.
    cdw10 [0] property_is_long: bool,
    /// OFST of a property.
    cdw11 [31:0] property_offset: u32,
}

impl SglDescriptor {
    /// Describes `length` bytes at the beginning of the capsule's data (NVMe-oF 1.1 §2.3).
    #[must_use]
    pub fn in_capsule(length: u32) -> Self {
        let mut descriptor = Self::new(SglKind::DataBlock, 0, length);
        descriptor.identifier |= sub_type::OFFSET;
        descriptor
    }

    /// Describes `length` bytes that the transport moves (NVMe-oF 1.1 §2.3).
    #[must_use]
    pub fn transport(length: u32) -> Self {
        let mut descriptor = Self::new(SglKind::TransportDataBlock, 0, length);
        descriptor.identifier |= sub_type::TRANSPORT;
        descriptor
    }
}

/// An NQN's text: the bytes before the first zero. `None` if it is empty, longer than
/// [`NQN_MAX_BYTES`], or has unprintable characters.
#[must_use]
pub fn nqn(field: &[u8; 256]) -> Option<&str> {
    let end = field.iter().position(|&byte| byte == 0)?;
    let text = core::str::from_utf8(&field[..end]).ok()?;
    is_nqn(text).then_some(text)
}

/// Whether `text` can be an NQN: 1 to [`NQN_MAX_BYTES`] printable bytes without a blank.
#[must_use]
pub fn is_nqn(text: &str) -> bool {
    (1..=NQN_MAX_BYTES).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Fills a field with text ended by a zero byte; longer text is cut.
pub fn set_zero_ended(field: &mut [u8], text: &str) {
    field.fill(0);
    let length = text.len().min(field.len() - 1);
    field[..length].copy_from_slice(&text.as_bytes()[..length]);
}
