//! Identify Controller (1.4 §5.15.2.2, 2.0 §5.17.2.1).

use zerocopy::little_endian::{U16, U32, U128};

use crate::bytes::{Reserved, set_text, text};
use crate::fabrics::FabricsAttributes;
use crate::regs::Vs;

wire! {
    /// Identify Controller data structure, CNS 01h.
    pub struct IdentifyController, 4096 {
        /// PCI Vendor ID.
        0 pub vid: U16,
        /// PCI Subsystem Vendor ID.
        2 pub ssvid: U16,
        /// Serial Number, ASCII.
        4 pub sn: [u8; 20],
        /// Model Number, ASCII.
        24 pub mn: [u8; 40],
        /// Firmware Revision, ASCII.
        64 pub fr: [u8; 8],
        72 unused_72: Reserved<4>,
        /// Controller Multi-Path I/O and Namespace Sharing Capabilities.
        76 pub cmic: u8,
        /// Maximum Data Transfer Size: 2^MDTS units of CAP.MPSMIN; 0 no limit.
        77 pub mdts: u8,
        /// Controller ID.
        78 pub cntlid: U16,
        /// Version, laid out as [`Vs`].
        80 pub ver: U32,
        84 unused_84: Reserved<12>,
        /// Controller Attributes, bits of [`ctratt`].
        96 pub ctratt: U32,
        100 unused_100: Reserved<11>,
        /// Controller Type, one of [`controller_type`].
        111 pub cntrltype: u8,
        /// FRU Globally Unique Identifier.
        112 pub fguid: [u8; 16],
        /// Command Retry Delay Time 1, in 100 ms.
        128 pub crdt1: U16,
        /// Command Retry Delay Time 2, in 100 ms.
        130 pub crdt2: U16,
        /// Command Retry Delay Time 3, in 100 ms.
        132 pub crdt3: U16,
        134 unused_134: Reserved<122>,
        /// Optional Admin Command Support, bits of [`oacs`].
        256 pub oacs: U16,
        /// Abort Command Limit, 0's based.
        258 pub acl: u8,
        /// Asynchronous Event Request Limit, 0's based.
        259 pub aerl: u8,
        /// Firmware Updates: bit 0 slot 1 read only, 3:1 number of slots, bit 4 activation without
        /// reset.
        260 pub frmw: u8,
        /// Log Page Attributes, bits of [`lpa`].
        261 pub lpa: u8,
        /// Error Log Page Entries, 0's based.
        262 pub elpe: u8,
        /// Number of Power States Support, 0's based.
        263 pub npss: u8,
        /// Admin Vendor Specific Command Configuration.
        264 pub avscc: u8,
        /// Autonomous Power State Transition Attributes; bit 0 supported.
        265 pub apsta: u8,
        /// Warning Composite Temperature Threshold, in kelvin.
        266 pub wctemp: U16,
        /// Critical Composite Temperature Threshold, in kelvin.
        268 pub cctemp: U16,
        270 unused_270: Reserved<10>,
        /// Total NVM Capacity, in bytes.
        280 pub tnvmcap: U128,
        296 unused_296: Reserved<24>,
        /// Keep Alive Support: granularity in 100 ms; 0 not supported.
        320 pub kas: U16,
        322 unused_322: Reserved<190>,
        /// Submission Queue Entry Size, powers of two: 3:0 required, 7:4 maximum; 66h.
        512 pub sqes: u8,
        /// Completion Queue Entry Size, powers of two: 3:0 required, 7:4 maximum; 44h.
        513 pub cqes: u8,
        /// Maximum Outstanding Commands; 0 not reported.
        514 pub maxcmd: U16,
        /// Number of Namespaces: the greatest valid NSID.
        516 pub nn: U32,
        /// Optional NVM Command Support, bits of [`oncs`].
        520 pub oncs: U16,
        /// Fused Operation Support, bits of [`fuses`].
        522 pub fuses: U16,
        /// Format NVM Attributes, bit 0: a format applies to all namespaces.
        524 pub fna: u8,
        /// Volatile Write Cache, see [`vwc`].
        525 pub vwc: u8,
        /// Atomic Write Unit Normal, in logical blocks, 0's based.
        526 pub awun: U16,
        /// Atomic Write Unit Power Fail, in logical blocks, 0's based.
        528 pub awupf: U16,
        530 unused_530: Reserved<2>,
        /// Atomic Compare & Write Unit, in logical blocks, 0's based.
        532 pub acwu: U16,
        /// Optional Copy Formats Supported (2.0).
        534 pub ocfs: U16,
        /// SGL Support; 1:0 zero if none.
        536 pub sgls: U32,
        540 unused_540: Reserved<228>,
        /// NVM Subsystem NVMe Qualified Name, UTF-8, ended by a zero byte.
        768 pub subnqn: [u8; 256],
        1024 reserved_1024: Reserved<768>,
        /// NVMe over Fabrics' fields.
        1792 pub fabrics: FabricsAttributes,
        /// Power State Descriptors; those up to NPSS count.
        2048 pub psd: [PowerStateDescriptor; 32],
        /// Vendor specific.
        3072 pub vendor_specific: [u8; 1024],
    }
}

/// CNTRLTYPE: Controller Type; 0 is not reported.
pub mod controller_type {
    /// An I/O controller.
    pub const IO: u8 = 1;
    /// A discovery controller.
    pub const DISCOVERY: u8 = 2;
}

/// OACS: Optional Admin Command Support.
pub mod oacs {
    /// Security Send and Security Receive.
    pub const SECURITY: u16 = 1 << 0;
    /// Format NVM.
    pub const FORMAT: u16 = 1 << 1;
    /// Firmware Commit and Firmware Image Download.
    pub const FIRMWARE: u16 = 1 << 2;
    /// Namespace Management and Namespace Attachment.
    pub const NAMESPACE_MANAGEMENT: u16 = 1 << 3;
    /// Device Self-test.
    pub const DEVICE_SELF_TEST: u16 = 1 << 4;
    /// Directive Send and Directive Receive.
    pub const DIRECTIVES: u16 = 1 << 5;
    /// NVMe-MI Send and NVMe-MI Receive.
    pub const NVME_MI: u16 = 1 << 6;
    /// Virtualization Management.
    pub const VIRTUALIZATION_MANAGEMENT: u16 = 1 << 7;
    /// Doorbell Buffer Config.
    pub const DOORBELL_BUFFER_CONFIG: u16 = 1 << 8;
    /// Get LBA Status.
    pub const GET_LBA_STATUS: u16 = 1 << 9;
    /// Command and Feature Lockdown (2.0).
    pub const LOCKDOWN: u16 = 1 << 10;
}

/// LPA: Log Page Attributes.
pub mod lpa {
    /// The Commands Supported and Effects log page.
    pub const COMMANDS_SUPPORTED: u8 = 1 << 1;
    /// Extended data for Get Log Page: 32-bit NUMD, and an offset.
    pub const EXTENDED_DATA: u8 = 1 << 2;
    /// The Persistent Event log page.
    pub const PERSISTENT_EVENT: u8 = 1 << 4;
}

/// ONCS: Optional NVM Command Support.
pub mod oncs {
    /// Compare.
    pub const COMPARE: u16 = 1 << 0;
    /// Write Uncorrectable.
    pub const WRITE_UNCORRECTABLE: u16 = 1 << 1;
    /// Dataset Management.
    pub const DATASET_MANAGEMENT: u16 = 1 << 2;
    /// Write Zeroes.
    pub const WRITE_ZEROES: u16 = 1 << 3;
    /// Save in Set Features, Select in Get Features.
    pub const SAVE_SELECT: u16 = 1 << 4;
    /// Reservations.
    pub const RESERVATIONS: u16 = 1 << 5;
    /// The Timestamp feature.
    pub const TIMESTAMP: u16 = 1 << 6;
    /// Verify.
    pub const VERIFY: u16 = 1 << 7;
    /// Copy (2.0).
    pub const COPY: u16 = 1 << 8;
}

/// CTRATT: Controller Attributes.
pub mod ctratt {
    /// Every command restarts the Keep Alive Timer.
    pub const TRAFFIC_BASED_KEEP_ALIVE: u32 = 1 << 6;
}

/// FUSES: Fused Operation Support.
pub mod fuses {
    /// Compare and Write.
    pub const COMPARE_AND_WRITE: u16 = 1 << 0;
}

/// VWC: Volatile Write Cache.
pub mod vwc {
    /// There is a volatile write cache: without Flush or FUA, a completed write may be lost with
    /// power.
    pub const PRESENT: u8 = 1 << 0;
    /// The bits that define what Flush does with NSID FFFFFFFFh.
    pub const FLUSH_ALL_MASK: u8 = 0x6;
    /// It flushes all namespaces.
    pub const FLUSH_ALL_SUPPORTED: u8 = 3 << 1;
}

/// APSTA: Autonomous Power State Transition Attributes.
pub mod apsta {
    /// Autonomous power state transitions are supported.
    pub const SUPPORTED: u8 = 1 << 0;
}

/// Flags of a power state descriptor, its byte 3.
pub mod power_flags {
    /// Max Power Scale: MP is in 0.0001 W.
    pub const MXPS: u8 = 1 << 0;
    /// Non-Operational State: no I/O command is processed in it.
    pub const NOPS: u8 = 1 << 1;
}

impl IdentifyController {
    /// The supported power states: the descriptors up to NPSS, at most as many as fit.
    pub fn power_states(&self) -> impl Iterator<Item = &PowerStateDescriptor> {
        self.psd.iter().take(usize::from(self.npss) + 1)
    }

    /// Model Number, without padding.
    #[must_use]
    pub fn model(&self) -> &str {
        text(&self.mn)
    }

    /// Serial Number, without padding.
    #[must_use]
    pub fn serial(&self) -> &str {
        text(&self.sn)
    }

    /// Firmware Revision, without padding.
    #[must_use]
    pub fn firmware(&self) -> &str {
        text(&self.fr)
    }

    /// NVM Subsystem NVMe Qualified Name.
    #[must_use]
    pub fn subsystem_nqn(&self) -> &str {
        text(&self.subnqn)
    }

    /// Sets the Model Number, cut or padded.
    pub fn set_model(&mut self, model: &str) {
        set_text(&mut self.mn, model);
    }

    /// Sets the Serial Number, cut or padded.
    pub fn set_serial(&mut self, serial: &str) {
        set_text(&mut self.sn, serial);
    }

    /// Sets the Firmware Revision, cut or padded.
    pub fn set_firmware(&mut self, firmware: &str) {
        set_text(&mut self.fr, firmware);
    }

    /// Sets the NVM Subsystem NVMe Qualified Name: ended by a zero byte, so cut to 255.
    pub fn set_subsystem_nqn(&mut self, nqn: &str) {
        self.subnqn.fill(0);
        let length = nqn.len().min(self.subnqn.len() - 1);
        set_text(&mut self.subnqn[..length], nqn);
    }

    /// Version.
    #[must_use]
    pub const fn version(&self) -> Vs {
        Vs(self.ver.get())
    }

    /// The most bytes one command may transfer, given CAP.MPSMIN; `None` if there is no limit.
    #[must_use]
    pub const fn mdts_bytes(&self, mpsmin: u8) -> Option<u64> {
        // A sum of 64 or more is beyond any transfer, hence no limit either.
        let shift = 12 + mpsmin as u32 + self.mdts as u32;
        if self.mdts == 0 { None } else { 1_u64.checked_shl(shift) }
    }
}

wire! {
    /// Power State Descriptor (1.4 §5.15.2.2, 2.0 §5.17.2.1).
    pub struct PowerStateDescriptor, 32, Copy {
        /// Maximum Power, in 0.01 W, or 0.0001 W if MXPS.
        0 pub mp: U16,
        2 reserved_2: Reserved<1>,
        /// Bit 0 Max Power Scale (MXPS), bit 1 Non-Operational State (NOPS).
        3 pub flags: u8,
        /// Entry Latency, in microseconds.
        4 pub enlat: U32,
        /// Exit Latency, in microseconds.
        8 pub exlat: U32,
        12 unused_12: Reserved<20>,
    }
}

impl PowerStateDescriptor {
    /// Describes a state that takes at most `max_power_10mw` × 10 mW, and its latencies of entry
    /// and exit in µs.
    #[must_use]
    pub fn new(max_power_10mw: u16, enlat_us: u32, exlat_us: u32, non_operational: bool) -> Self {
        let mut state = Self::default();
        state.mp.set(max_power_10mw);
        state.enlat.set(enlat_us);
        state.exlat.set(exlat_us);
        state.flags = if non_operational { power_flags::NOPS } else { 0 };
        state
    }

    /// Maximum Power, in 0.0001 W.
    #[must_use]
    pub const fn max_power_100uw(&self) -> u32 {
        self.mp.get() as u32 * if self.flags & 1 != 0 { 1 } else { 100 }
    }

    /// Whether the controller processes no I/O commands in this state.
    #[must_use]
    pub const fn non_operational(&self) -> bool {
        self.flags & 2 != 0
    }
}
