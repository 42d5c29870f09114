//! PDUs of NVMe/TCP (NVMe/TCP Transport 1.0 §3.6), which host and target exchange on the wire.
//!
//! ```text
//! byte  0  PDU type      1  flags     2  HLEN: bytes of the header, without its digest
//!       3  PDO: where the data begins; 0 without data
//!       4  PLEN: bytes of all of it
//!       8  specific to the type, up to HLEN
//!          HDGST, 4 bytes, if header digests were agreed on
//!          padding up to PDO, data
//!          DDGST, 4 bytes, if data digests were agreed on and there is data
//! ```

use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32};

use crate::bytes::Reserved;
use crate::cqe::Cqe;
use crate::sqe::Sqe;

/// The port of NVMe over Fabrics (NVMe/TCP 1.0 §3.3).
pub const PORT: u16 = 4420;

/// Bytes of a digest, CRC32C.
pub const DIGEST_BYTES: usize = 4;

/// The most in-capsule data of the admin queue, and of Connect (NVMe-oF 1.1 §4.1, NVMe/TCP 1.0
/// §3.4.2).
pub const ADMIN_CAPSULE_BYTES: usize = 8192;

/// The least that MAXH2CDATA may be (NVMe/TCP 1.0 §3.6.2.3).
pub const MAXH2CDATA_MIN: u32 = 4096;

/// PFV of version 1.0.
pub const PFV_1_0: u16 = 0;

codes! {
    /// PDU type (NVMe/TCP 1.0 §3.6.1).
    PduType(u8), "PDU type" {
        0x00 IcReq "ICReq",
        0x01 IcResp "ICResp",
        0x02 HostTermReq "H2CTermReq",
        0x03 TargetTermReq "C2HTermReq",
        0x04 CapsuleCmd "CapsuleCmd",
        0x05 CapsuleResp "CapsuleResp",
        0x06 H2cData "H2CData",
        0x07 C2hData "C2HData",
        0x09 R2t "R2T",
    }
}

/// Flags of a PDU (NVMe/TCP 1.0 §3.6.1).
pub mod flags {
    /// A header digest follows the header.
    pub const HDGST: u8 = 1 << 0;
    /// A data digest follows the data.
    pub const DDGST: u8 = 1 << 1;
    /// The last data PDU of the transfer.
    pub const LAST: u8 = 1 << 2;
    /// The command has succeeded: no response follows.
    pub const SUCCESS: u8 = 1 << 3;
}

/// DGST of ICReq and ICResp.
pub mod dgst {
    /// Header digests.
    pub const HEADER: u8 = 1 << 0;
    /// Data digests.
    pub const DATA: u8 = 1 << 1;
}

codes! {
    /// Fatal Error Status of a TermReq (NVMe/TCP 1.0 §3.6.2.4).
    FatalError(u16), "fatal error status" {
        1 InvalidHeader "invalid PDU header field",
        2 Sequence "PDU sequence error",
        3 HeaderDigest "header digest error",
        4 DataRange "data transfer out of range",
        5 TransferLimit "data transfer or R2T limit exceeded",
        6 Unsupported "unsupported parameter",
    }
}

wire! {
    /// What every PDU begins with.
    pub struct CommonHeader, 8, Copy {
        /// A [`PduType`].
        0 pub kind: u8,
        /// See [`flags`].
        1 pub flags: u8,
        /// HLEN: bytes of the header, without its digest.
        2 pub hlen: u8,
        /// PDO: where the data begins; 0 without data.
        3 pub pdo: u8,
        /// PLEN: bytes of the PDU.
        4 pub plen: U32,
    }

    /// ICReq (§3.6.2.2), ICResp (§3.6.2.3).
    pub struct InitializeConnection, 128, Copy {
        /// Common header.
        0 pub common: CommonHeader,
        /// PDU Format Version.
        8 pub pfv: U16,
        /// HPDA or CPDA: PDO is a multiple of four times this plus one.
        10 pub pda: u8,
        /// Digests, see [`dgst`].
        11 pub dgst: u8,
        /// Of ICReq MAXR2T, 0's based; of ICResp MAXH2CDATA, in bytes.
        12 pub limit: U32,
        16 reserved_16: Reserved<112>,
    }

    /// H2CTermReq (§3.6.2.4), C2HTermReq (§3.6.2.5), before the offending header.
    pub struct TermReq, 24, Copy {
        /// Common header.
        0 pub common: CommonHeader,
        /// A [`FatalError`].
        8 pub fes: U16,
        /// Fatal Error Information: the offset of the wrong field, or the wrong digest.
        10 pub fei: [u8; 4],
        14 reserved_14: Reserved<10>,
    }

    /// CapsuleCmd (§3.6.2.6).
    pub struct CapsuleCmd, 72, Copy {
        /// Common header.
        0 pub common: CommonHeader,
        /// The entry.
        8 pub sqe: [u8; 64],
    }

    /// CapsuleResp (§3.6.2.7).
    pub struct CapsuleResp, 24, Copy {
        /// Common header.
        0 pub common: CommonHeader,
        /// The entry.
        8 pub cqe: [u8; 16],
    }

    /// H2CData (§3.6.2.8), C2HData (§3.6.2.9).
    pub struct DataHeader, 24, Copy {
        /// Common header.
        0 pub common: CommonHeader,
        /// CCCID: the command's identifier.
        8 pub cccid: U16,
        /// TTAG of the R2T that it answers. Reserved in C2HData.
        10 pub ttag: U16,
        /// DATAO: where in the command's data it belongs.
        12 pub datao: U32,
        /// DATAL: bytes.
        16 pub datal: U32,
        20 reserved_20: Reserved<4>,
    }

    /// R2T (§3.6.2.10).
    pub struct R2t, 24, Copy {
        /// Common header.
        0 pub common: CommonHeader,
        /// CCCID: the command's identifier.
        8 pub cccid: U16,
        /// TTAG, to be returned in H2CData.
        10 pub ttag: U16,
        /// R2TO: where in the command's data.
        12 pub r2to: U32,
        /// R2TL: bytes.
        16 pub r2tl: U32,
        20 reserved_20: Reserved<4>,
    }
}

impl CommonHeader {
    /// A header of `kind` with `hlen` bytes, without digests, followed by `data_bytes` of data. In
    /// a TermReq, PDO is reserved.
    #[must_use]
    pub const fn new(kind: PduType, hlen: u8, data_bytes: u32) -> Self {
        let ends = matches!(kind, PduType::HostTermReq | PduType::TargetTermReq);
        let pdo = if data_bytes > 0 && !ends { hlen } else { 0 };
        let plen = U32::new(hlen as u32 + data_bytes);
        Self { kind: kind as u8, flags: 0, hlen, pdo, plen }
    }

    /// Adds the digests that `dgst` selects: the header grows and its flags are set. PDUs that
    /// begin or end a connection have no digests.
    #[must_use]
    pub const fn with_digests(mut self, dgst: u8) -> Self {
        if self.kind <= PduType::TargetTermReq as u8 {
            return self;
        }
        let mut plen = self.plen.get();
        if dgst & dgst::HEADER != 0 {
            self.flags |= flags::HDGST;
            plen += DIGEST_BYTES as u32;
            if self.pdo > 0 {
                self.pdo += DIGEST_BYTES as u8;
            }
        }
        if dgst & dgst::DATA != 0 && self.pdo > 0 {
            self.flags |= flags::DDGST;
            plen += DIGEST_BYTES as u32;
        }
        self.plen = U32::new(plen);
        self
    }

    /// Whether one of [`flags`] is set.
    #[must_use]
    pub const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

impl CapsuleCmd {
    /// A capsule with `sqe`, followed by `data_bytes` of data.
    #[must_use]
    pub fn new(sqe: &Sqe, data_bytes: u32) -> Self {
        let mut pdu = Self {
            common: CommonHeader::new(PduType::CapsuleCmd, 72, data_bytes),
            ..Self::default()
        };
        pdu.sqe.copy_from_slice(sqe.as_bytes());
        pdu
    }

    /// The entry.
    #[must_use]
    pub fn sqe(&self) -> Sqe {
        zerocopy::transmute!(self.sqe)
    }
}

impl CapsuleResp {
    /// A capsule with `cqe`.
    #[must_use]
    pub fn new(cqe: &Cqe) -> Self {
        let mut pdu =
            Self { common: CommonHeader::new(PduType::CapsuleResp, 24, 0), ..Self::default() };
        pdu.cqe.copy_from_slice(cqe.as_bytes());
        pdu
    }

    /// The entry.
    #[must_use]
    pub fn cqe(&self) -> Cqe {
        zerocopy::transmute!(self.cqe)
    }
}

/// Bytes of the header of a PDU type, without digest; `None` for a type that is not known.
#[must_use]
pub const fn header_bytes(kind: PduType) -> u8 {
    match kind {
        PduType::IcReq | PduType::IcResp => 128,
        PduType::CapsuleCmd => 72,
        _ => 24,
    }
}
