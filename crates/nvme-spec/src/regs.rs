//! Controller registers (1.4 §3.1, 2.0 §3.1.3), memory-mapped from the start of BAR0.

use core::fmt;

/// What a 32-bit register reads as once its controller has gone from the bus: no register is
/// legally all ones.
pub const GONE: u32 = 0xffff_ffff;

// Offsets in bytes (1.4 §3.1, 2.0 §3.1.3).

/// Controller Capabilities, 64 bits.
pub const CAP: u32 = 0x00;
/// Version.
pub const VS: u32 = 0x08;
/// Interrupt Mask Set; not to be touched while MSI-X is in use.
pub const INTMS: u32 = 0x0c;
/// Interrupt Mask Clear; not to be touched while MSI-X is in use.
pub const INTMC: u32 = 0x10;
/// Controller Configuration.
pub const CC: u32 = 0x14;
/// Controller Status.
pub const CSTS: u32 = 0x1c;
/// NVM Subsystem Reset: writing [`NSSR_RESET`] resets.
pub const NSSR: u32 = 0x20;
/// Admin Queue Attributes.
pub const AQA: u32 = 0x24;
/// Admin Submission Queue Base Address, 64 bits, page-aligned.
pub const ASQ: u32 = 0x28;
/// Admin Completion Queue Base Address, 64 bits, page-aligned.
pub const ACQ: u32 = 0x30;
/// Controller Memory Buffer Location.
pub const CMBLOC: u32 = 0x38;
/// Controller Memory Buffer Memory Space Control, 64 bits.
pub const CMBMSC: u32 = 0x50;
/// Controller Memory Buffer Status.
pub const CMBSTS: u32 = 0x58;
/// Persistent Memory Region Capabilities.
pub const PMRCAP: u32 = 0xe00;
/// The first doorbell, that of the admin submission queue.
pub const DOORBELLS: u32 = 0x1000;

/// The value that, written to [`NSSR`], resets the NVM subsystem: "NVMe" (1.4 §3.1.7).
pub const NSSR_RESET: u32 = 0x4e56_4d65;

/// Offset of the doorbell `index`, 0 that of the admin submission queue; `u32::MAX` if it is beyond
/// 32 bits.
const fn doorbell(index: u64, dstrd: u8) -> u32 {
    let offset = DOORBELLS as u64 + (index << (2 + (dstrd & 0xf)));
    if offset > u32::MAX as u64 { u32::MAX } else { offset as u32 }
}

/// Offset of submission queue `qid`'s tail doorbell: 1000h + (2y × (4 << DSTRD)) (1.4 §3.1.24).
/// Only a large queue identifier with an absurd stride reaches beyond 32 bits; the offset is then
/// `u32::MAX`, outside of any BAR.
#[inline]
#[must_use]
pub const fn sq_tail_doorbell(qid: u16, dstrd: u8) -> u32 {
    doorbell(2 * qid as u64, dstrd)
}

/// Offset of completion queue `qid`'s head doorbell: 1000h + ((2y + 1) × (4 << DSTRD)) (1.4
/// §3.1.25); `u32::MAX` as for [`sq_tail_doorbell`].
#[inline]
#[must_use]
pub const fn cq_head_doorbell(qid: u16, dstrd: u8) -> u32 {
    doorbell(2 * qid as u64 + 1, dstrd)
}

bitfields! {
    /// Controller Capabilities (1.4 §3.1.1, 2.0 §3.1.3.1).
    Cap(u64) {
        /// Maximum Queue Entries Supported, 0's based; at least 1.
        [15:0] mqes with_mqes: u16,
        /// Contiguous Queues Required.
        [16] cqr with_cqr: bool,
        /// Arbitration Mechanism Supported: bit 0 weighted round robin with urgent, bit 1 vendor
        /// specific.
        [18:17] ams with_ams: u8,
        /// Timeout: the worst wait for CSTS.RDY to follow CC.EN, in 500 ms units.
        [31:24] to with_to: u8,
        /// Doorbell Stride: doorbells are 2^(2 + DSTRD) bytes apart.
        [35:32] dstrd with_dstrd: u8,
        /// NVM Subsystem Reset Supported.
        [36] nssrs with_nssrs: bool,
        /// Command Sets Supported: bit 0 NVM, bit 6 one or more I/O command sets (2.0), bit 7 admin
        /// only.
        [44:37] css with_css: u8,
        /// Boot Partition Support.
        [45] bps with_bps: bool,
        /// Controller Power Scope (2.0).
        [47:46] cps with_cps: u8,
        /// Memory Page Size Minimum: 2^(12 + MPSMIN) bytes.
        [51:48] mpsmin with_mpsmin: u8,
        /// Memory Page Size Maximum: 2^(12 + MPSMAX) bytes.
        [55:52] mpsmax with_mpsmax: u8,
        /// Persistent Memory Region Supported.
        [56] pmrs with_pmrs: bool,
        /// Controller Memory Buffer Supported.
        [57] cmbs with_cmbs: bool,
        /// NVM Subsystem Shutdown Supported (2.0).
        [58] nsss with_nsss: bool,
        /// Controller Ready Modes Supported (2.0): bit 0 with media, bit 1 independent of media.
        [60:59] crms with_crms: u8,
    }

    /// Controller Configuration (1.4 §3.1.5, 2.0 §3.1.3.5).
    Cc(u32) {
        /// Enable.
        [0] en with_en: bool,
        /// I/O Command Set Selected: 0 NVM, 6 all supported (2.0), 7 admin only.
        [6:4] css with_css: u8,
        /// Memory Page Size: 2^(12 + MPS) bytes.
        [10:7] mps with_mps: u8,
        /// Arbitration Mechanism Selected: 0 round robin, 1 weighted round robin with urgent.
        [13:11] ams with_ams: u8,
        /// Shutdown Notification, one of [`shn`].
        [15:14] shn with_shn: u8,
        /// I/O Submission Queue Entry Size: 2^IOSQES bytes; 6 for the NVM command set.
        [19:16] iosqes with_iosqes: u8,
        /// I/O Completion Queue Entry Size: 2^IOCQES bytes; 4 for the NVM command set.
        [23:20] iocqes with_iocqes: u8,
        /// Controller Ready Independent of Media Enable (2.0).
        [24] crime with_crime: bool,
    }

    /// Controller Status (1.4 §3.1.6, 2.0 §3.1.3.6).
    Csts(u32) {
        /// Ready.
        [0] rdy with_rdy: bool,
        /// Controller Fatal Status.
        [1] cfs with_cfs: bool,
        /// Shutdown Status, one of [`shst`].
        [3:2] shst with_shst: u8,
        /// NVM Subsystem Reset Occurred.
        [4] nssro with_nssro: bool,
        /// Processing Paused.
        [5] pp with_pp: bool,
        /// Shutdown Type (2.0): set if the NVM subsystem, not this controller alone, is shutting
        /// down.
        [6] st with_st: bool,
    }
}

impl Cap {
    /// The most entries a queue may have: MQES + 1.
    #[inline]
    #[must_use]
    pub const fn max_queue_entries(self) -> u32 {
        self.mqes() as u32 + 1
    }

    /// TO in milliseconds. 2.0: if CRMS is not 0, CRTO can say more than this field holds.
    #[inline]
    #[must_use]
    pub const fn timeout_ms(self) -> u32 {
        self.to() as u32 * 500
    }

    /// The distance between doorbells, in bytes.
    #[inline]
    #[must_use]
    pub const fn doorbell_stride(self) -> u32 {
        4 << self.dstrd()
    }

    /// The smallest memory page size the controller supports, in bytes.
    #[inline]
    #[must_use]
    pub const fn min_page_size(self) -> u32 {
        4096 << self.mpsmin()
    }

    /// The largest memory page size the controller supports, in bytes.
    #[inline]
    #[must_use]
    pub const fn max_page_size(self) -> u32 {
        4096 << self.mpsmax()
    }
}

/// CAP.CSS bit: the NVM command set.
pub const CAP_CSS_NVM: u8 = 1 << 0;

/// CC.CSS: the NVM command set.
pub const CC_CSS_NVM: u8 = 0;

/// CAP.AMS bit: weighted round robin with urgent priority class.
pub const CAP_AMS_WEIGHTED_ROUND_ROBIN: u8 = 1 << 0;

/// Arbitration Mechanism Selected, CC.AMS (1.4 §3.1.5).
pub mod ams {
    /// Round robin.
    pub const ROUND_ROBIN: u8 = 0;
    /// Weighted round robin with urgent priority class.
    pub const WEIGHTED_ROUND_ROBIN: u8 = 1;
    /// Vendor specific.
    pub const VENDOR_SPECIFIC: u8 = 7;
}

impl Cc {
    /// The memory page size selected, in bytes.
    #[inline]
    #[must_use]
    pub const fn page_size(self) -> u32 {
        4096 << self.mps()
    }
}

/// Shutdown Notification, CC.SHN (1.4 §3.1.5).
pub mod shn {
    /// No notification; no effect.
    pub const NONE: u8 = 0;
    /// Normal shutdown notification.
    pub const NORMAL: u8 = 1;
    /// Abrupt shutdown notification.
    pub const ABRUPT: u8 = 2;
}

/// Shutdown Status, CSTS.SHST (1.4 §3.1.6).
pub mod shst {
    /// Normal operation, no shutdown has been requested.
    pub const NORMAL: u8 = 0;
    /// Shutdown processing occurring.
    pub const OCCURRING: u8 = 1;
    /// Shutdown processing complete.
    pub const COMPLETE: u8 = 2;
}

impl Csts {
    /// Whether the register reads as all ones: the controller is gone, and no bit has a meaning.
    #[inline]
    #[must_use]
    pub const fn is_gone(self) -> bool {
        self.0 == GONE
    }
}

bitfields! {
    /// Version (1.4 §3.1.2). Identify Controller's VER has the same layout.
    #[derive(PartialOrd, Ord)]
    Vs(u32) {
        /// Major Version Number.
        [31:16] major with_major: u16,
        /// Minor Version Number.
        [15:8] minor with_minor: u8,
        /// Tertiary Version Number.
        [7:0] tertiary with_tertiary: u8,
    }
}

impl Vs {
    /// Combines the three version numbers.
    #[must_use]
    pub const fn new(major: u16, minor: u8, tertiary: u8) -> Self {
        Self(0).with_major(major).with_minor(minor).with_tertiary(tertiary)
    }
}

impl fmt::Display for Vs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major(), self.minor())?;
        if self.tertiary() != 0 { write!(f, ".{}", self.tertiary()) } else { Ok(()) }
    }
}

/// Admin Queue Attributes (1.4 §3.1.8): 27:16 ACQS, 11:0 ASQS, both 0's based on the wire, 2 to
/// 4096 entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Aqa(
    /// The value as on the wire, in host byte order.
    pub u32,
);

impl Aqa {
    /// Encodes the sizes in entries.
    /// # Panics
    /// Panics unless both are 2 to 4096.
    #[must_use]
    pub const fn new(asq_entries: u32, acq_entries: u32) -> Self {
        assert!(
            asq_entries >= 2 && asq_entries <= 4096,
            "admin submission queue size out of range"
        );
        assert!(
            acq_entries >= 2 && acq_entries <= 4096,
            "admin completion queue size out of range"
        );
        Self((acq_entries - 1) << 16 | (asq_entries - 1))
    }

    /// Admin Submission Queue Size, in entries (1 to 4096; 1 is invalid).
    #[inline]
    #[must_use]
    pub const fn asqs(self) -> u32 {
        (self.0 & 0xfff) + 1
    }

    /// Admin Completion Queue Size, in entries (1 to 4096; 1 is invalid).
    #[inline]
    #[must_use]
    pub const fn acqs(self) -> u32 {
        (self.0 >> 16 & 0xfff) + 1
    }
}
