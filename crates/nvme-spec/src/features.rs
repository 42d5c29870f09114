//! Features (1.4 §5.21.1, 2.0 §5.27.1): what Set Features takes in CDW11 and Get Features returns
//! in DW0.

use zerocopy::little_endian::{U16, U32, U64};

use crate::bytes::Reserved;

/// Feature Identifiers (1.4 §5.21.1, 2.0 §5.27.1).
pub mod fid {
    /// Arbitration.
    pub const ARBITRATION: u8 = 0x01;
    /// Power Management.
    pub const POWER_MANAGEMENT: u8 = 0x02;
    /// Temperature Threshold.
    pub const TEMPERATURE_THRESHOLD: u8 = 0x04;
    /// Error Recovery.
    pub const ERROR_RECOVERY: u8 = 0x05;
    /// Volatile Write Cache.
    pub const VOLATILE_WRITE_CACHE: u8 = 0x06;
    /// Number of Queues.
    pub const NUMBER_OF_QUEUES: u8 = 0x07;
    /// Interrupt Coalescing.
    pub const INTERRUPT_COALESCING: u8 = 0x08;
    /// Interrupt Vector Configuration.
    pub const INTERRUPT_VECTOR_CONFIG: u8 = 0x09;
    /// Write Atomicity Normal.
    pub const WRITE_ATOMICITY: u8 = 0x0a;
    /// Asynchronous Event Configuration.
    pub const ASYNC_EVENT_CONFIG: u8 = 0x0b;
    /// Autonomous Power State Transition.
    pub const AUTONOMOUS_POWER_STATE_TRANSITION: u8 = 0x0c;
    /// Timestamp.
    pub const TIMESTAMP: u8 = 0x0e;
    /// Keep Alive Timer.
    pub const KEEP_ALIVE_TIMER: u8 = 0x0f;
    /// Non-Operational Power State Config.
    pub const NON_OPERATIONAL_POWER_STATE_CONFIG: u8 = 0x11;
    /// Host Behavior Support.
    pub const HOST_BEHAVIOR_SUPPORT: u8 = 0x16;
}

/// Which value Get Features returns (1.4 §5.13).
pub mod sel {
    /// The current value.
    pub const CURRENT: u8 = 0;
    /// The default value.
    pub const DEFAULT: u8 = 1;
    /// The saved value.
    pub const SAVED: u8 = 2;
    /// What the feature can do: whether it is saveable, per namespace and changeable.
    pub const CAPABILITIES: u8 = 3;
}

bitfields! {
    /// Arbitration, 01h (1.4 §5.21.1.1).
    Arbitration(u32) {
        /// Arbitration Burst: 2^AB commands; 7 no limit.
        [2:0] ab with_ab: u8,
        /// Low Priority Weight, 0's based.
        [15:8] lpw with_lpw: u8,
        /// Medium Priority Weight, 0's based.
        [23:16] mpw with_mpw: u8,
        /// High Priority Weight, 0's based.
        [31:24] hpw with_hpw: u8,
    }

    /// Power Management, 02h (1.4 §5.21.1.2).
    PowerManagement(u32) {
        /// Power State.
        [4:0] ps with_ps: u8,
        /// Workload Hint.
        [7:5] wh with_wh: u8,
    }

    /// Temperature Threshold, 04h (1.4 §5.21.1.4).
    TemperatureThreshold(u32) {
        /// Temperature Threshold, in kelvin.
        [15:0] tmpth with_tmpth: u16,
        /// Threshold Temperature Select: 0 composite, 1 to 8 that sensor, 15 all (set only).
        [19:16] tmpsel with_tmpsel: u8,
        /// Threshold Type Select: 0 over, 1 under temperature.
        [21:20] thsel with_thsel: u8,
    }

    /// Error Recovery, 05h (1.4 §5.21.1.5), per namespace.
    ErrorRecovery(u32) {
        /// Time Limited Error Recovery, in 100 ms; 0 no limit.
        [15:0] tler with_tler: u16,
        /// Deallocated or Unwritten Logical Block Error Enable.
        [16] dulbe with_dulbe: bool,
    }

    /// Volatile Write Cache, 06h (1.4 §5.21.1.6).
    VolatileWriteCache(u32) {
        /// Volatile Write Cache Enable.
        [0] wce with_wce: bool,
    }

    /// Number of Queues, 07h (1.4 §5.21.1.7): requested in CDW11, allocated in DW0.
    NumberOfQueues(u32) {
        /// Number of I/O Submission Queues, 0's based; FFFFh is invalid.
        [15:0] nsq with_nsq: u16,
        /// Number of I/O Completion Queues, 0's based; FFFFh is invalid.
        [31:16] ncq with_ncq: u16,
    }

    /// Interrupt Coalescing, 08h (1.4 §5.21.1.8); not for the admin queue.
    InterruptCoalescing(u32) {
        /// Aggregation Threshold: completions per interrupt, 0's based.
        [7:0] thr with_thr: u8,
        /// Aggregation Time, in 100 µs; 0 no delay.
        [15:8] time with_time: u8,
    }

    /// Interrupt Vector Configuration, 09h (1.4 §5.21.1.9).
    InterruptVectorConfig(u32) {
        /// Interrupt Vector.
        [15:0] iv with_iv: u16,
        /// Coalescing Disable.
        [16] cd with_cd: bool,
    }

    /// Write Atomicity Normal, 0Ah (1.4 §5.21.1.10).
    WriteAtomicity(u32) {
        /// Disable Normal: only the power fail units (AWUPF, NAWUPF) hold.
        [0] dn with_dn: bool,
    }

    /// Asynchronous Event Configuration, 0Bh (1.4 §5.21.1.11): which events are reported.
    AsyncEventConfig(u32) {
        /// SMART / Health Critical Warnings, bits as in the log page.
        [7:0] smart with_smart: u8,
        /// Namespace Attribute Notices.
        [8] namespace_attribute with_namespace_attribute: bool,
    }

    /// Autonomous Power State Transition, 0Ch (1.4 §5.21.1.12); its data is 32 [`ApstEntry`]s.
    AutonomousPowerStateTransition(u32) {
        /// Autonomous Power State Transition Enable.
        [0] apste with_apste: bool,
    }

    /// Keep Alive Timer, 0Fh (1.4 §5.21.1.15).
    KeepAliveTimer(u32) {
        /// Keep Alive Timeout, in milliseconds; 0 disables.
        [31:0] kato with_kato: u32,
    }
}

impl Arbitration {
    /// The value of Arbitration Burst that stands for no limit.
    pub const NO_LIMIT: u8 = 7;

    /// How many commands may be taken from one submission queue in its turn; `None` if there is no
    /// limit.
    #[must_use]
    pub const fn burst(self) -> Option<u32> {
        if self.ab() == Self::NO_LIMIT { None } else { Some(1 << self.ab()) }
    }

    /// Weights of the high, medium and low priority class, in commands, counted from 1.
    #[must_use]
    pub const fn weights(self) -> [u32; 3] {
        [self.hpw() as u32 + 1, self.mpw() as u32 + 1, self.lpw() as u32 + 1]
    }
}

impl NumberOfQueues {
    /// Encodes the numbers of I/O submission and completion queues, counted from 1.
    ///
    /// # Panics
    /// Panics unless both are 1 to 65535.
    #[must_use]
    pub const fn new(sq: u16, cq: u16) -> Self {
        assert!(sq >= 1 && cq >= 1, "number of queues out of range");
        Self(0).with_nsq(sq - 1).with_ncq(cq - 1)
    }

    /// The number of I/O submission queues, counted from 1.
    #[must_use]
    pub const fn sq(self) -> u32 {
        self.nsq() as u32 + 1
    }

    /// The number of I/O completion queues, counted from 1.
    #[must_use]
    pub const fn cq(self) -> u32 {
        self.ncq() as u32 + 1
    }
}

wire! {
    /// One of the 32 entries of Autonomous Power State Transition's data, by power state (1.4
    /// §5.21.1.12).
    pub struct ApstEntry, 8, Copy {
        0 bits: U64,
    }
}

impl ApstEntry {
    /// The controller enters power state `itps` (0 to 31) after `itpt_ms` (24 bits) of idleness; a
    /// time of 0 disables the transition.
    ///
    /// # Panics
    /// Panics if either is wider than its field.
    #[must_use]
    pub const fn new(itps: u8, itpt_ms: u32) -> Self {
        assert!(itps < 32 && itpt_ms < 1 << 24, "idle transition out of range");
        Self { bits: U64::new((itpt_ms as u64) << 8 | (itps as u64) << 3) }
    }

    /// Idle Transition Power State (7:3).
    #[must_use]
    pub const fn itps(self) -> u8 {
        (self.bits.get() >> 3 & 0x1f) as u8
    }

    /// Idle Time Prior to Transition (31:8), in milliseconds.
    #[must_use]
    pub const fn itpt_ms(self) -> u32 {
        (self.bits.get() >> 8 & 0xff_ffff) as u32
    }
}

wire! {
    /// Autonomous Power State Transition's data (1.4 §5.21.1.12): for each power state, the
    /// transition that follows idleness.
    pub struct ApstTable, 256, Copy {
        /// The entries, that of power state 0 first.
        0 pub entries: [ApstEntry; 32],
    }
}

wire! {
    /// Host Behavior Support's data, 16h (1.4 §5.21.1.22).
    pub struct HostBehaviorSupport, 512, Copy {
        /// Advanced Command Retry Enable: 1 if the host looks at a status's CRD and knows Command
        /// Interrupted, else 0.
        0 pub acre: u8,
        1 reserved_1: Reserved<511>,
    }
}

impl HostBehaviorSupport {
    /// Turns Advanced Command Retry on or off.
    #[must_use]
    pub fn new(advanced_command_retry: bool) -> Self {
        Self { acre: u8::from(advanced_command_retry), ..Self::default() }
    }
}

wire! {
    /// Timestamp's data (1.4 §5.21.1.14).
    pub struct Timestamp, 8, Copy {
        0 low: U32,
        4 high: U16,
        /// Returned by Get Features: bit 0 Synch (the timestamp may have stopped counting), 3:1
        /// origin (0 reset, 1 Set Features).
        6 pub attributes: u8,
        7 reserved: u8,
    }
}

impl Timestamp {
    /// Encodes the low 48 bits of `ms`, milliseconds since 1970-01-01 00:00 UTC.
    #[must_use]
    pub const fn new(ms: u64, attributes: u8) -> Self {
        Self {
            low: U32::new(ms as u32),
            high: U16::new((ms >> 32) as u16),
            attributes,
            reserved: 0,
        }
    }

    /// Milliseconds since 1970-01-01 00:00 UTC, or since the reset.
    #[must_use]
    pub const fn ms(self) -> u64 {
        self.low.get() as u64 | (self.high.get() as u64) << 32
    }
}
