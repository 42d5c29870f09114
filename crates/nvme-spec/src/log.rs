//! Log pages (1.4 §5.14.1, 2.0 §5.16.1) and the completion of Asynchronous Event Request (1.4
//! §5.2).

use zerocopy::little_endian::{U16, U32, U64, U128};

use crate::UnknownCode;
use crate::bytes::{Reserved, text};
use crate::status::Status;

/// Log Page Identifiers (1.4 §5.14.1, 2.0 §5.16.1).
pub mod lid {
    /// Error Information.
    pub const ERROR_INFORMATION: u8 = 0x01;
    /// SMART / Health Information.
    pub const SMART: u8 = 0x02;
    /// Firmware Slot Information.
    pub const FIRMWARE_SLOT: u8 = 0x03;
    /// Commands Supported and Effects.
    pub const COMMANDS_SUPPORTED: u8 = 0x05;
    /// Device Self-test.
    pub const DEVICE_SELF_TEST: u8 = 0x06;
    /// Asymmetric Namespace Access.
    pub const ANA: u8 = 0x0c;
    /// Persistent Event Log.
    pub const PERSISTENT_EVENT: u8 = 0x0d;
}

wire! {
    /// Error Information Log Entry (1.4 §5.14.1.1); the page holds ELPE + 1 of them, the latest
    /// first.
    pub struct ErrorLogEntry, 64, Copy {
        /// Error Count: a unique number for each error; 0 marks an unused entry.
        0 pub error_count: U64,
        /// Submission Queue ID; FFFFh if the error is not of a particular command.
        8 pub sqid: U16,
        /// Command ID; FFFFh if the error is not of a particular command.
        10 pub cid: U16,
        /// Bits 15:1 the status field, bit 0 the phase tag it was posted with.
        12 pub status_phase: U16,
        /// Parameter Error Location: 7:0 byte, 10:8 bit of the command; FFFFh if none.
        14 pub parameter_error_location: U16,
        /// The first LBA that met the error.
        16 pub lba: U64,
        /// Namespace.
        24 pub nsid: U32,
        /// Vendor Specific Information Available: a log page identifier of 80h or more, or 0.
        28 pub vendor_specific_log_page: u8,
        /// Transport Type.
        29 pub trtype: u8,
        30 unused_30: Reserved<34>,
    }
}

impl ErrorLogEntry {
    /// Parameter Error Location if no parameter caused the error.
    pub const NO_LOCATION: u16 = 0xffff;

    /// Parameter Error Location of `bit` (0 to 7) of `byte` (0 to 63) of the command.
    #[must_use]
    pub const fn location(byte: u8, bit: u8) -> u16 {
        (bit as u16 & 7) << 8 | byte as u16
    }

    /// The byte of the command, and the bit in it, where the wrong parameter begins; `None` if no
    /// parameter caused the error.
    #[must_use]
    pub const fn parameter(&self) -> Option<(u8, u8)> {
        let location = self.parameter_error_location.get();
        if location == Self::NO_LOCATION {
            None
        } else {
            Some((location as u8, (location >> 8 & 7) as u8))
        }
    }

    /// The status field.
    #[must_use]
    pub const fn status(&self) -> Status {
        Status(self.status_phase.get() >> 1)
    }
}

wire! {
    /// SMART / Health Information (1.4 §5.14.1.2).
    pub struct SmartLog, 512 {
        /// Critical Warning, bits of [`critical_warning`].
        0 pub critical_warning: u8,
        /// Composite Temperature, in kelvin.
        1 pub composite_temperature: U16,
        /// Available Spare, in percent.
        3 pub available_spare: u8,
        /// Available Spare Threshold, in percent.
        4 pub available_spare_threshold: u8,
        /// Percentage Used of the life expected; may exceed 100, 255 stands for more.
        5 pub percentage_used: u8,
        6 unused_6: Reserved<26>,
        /// Data Units Read, in 1000 × 512 bytes, rounded up.
        32 pub data_units_read: U128,
        /// Data Units Written, in 1000 × 512 bytes, rounded up.
        48 pub data_units_written: U128,
        /// Host Read Commands completed.
        64 pub host_read_commands: U128,
        /// Host Write Commands completed.
        80 pub host_write_commands: U128,
        /// Controller Busy Time, in minutes.
        96 pub controller_busy_time: U128,
        /// Power Cycles.
        112 pub power_cycles: U128,
        /// Power On Hours.
        128 pub power_on_hours: U128,
        /// Unsafe Shutdowns: power was lost without a shutdown notification.
        144 pub unsafe_shutdowns: U128,
        /// Media and Data Integrity Errors.
        160 pub media_errors: U128,
        /// Number of Error Information Log Entries over the controller's life.
        176 pub error_log_entries: U128,
        192 unused_192: Reserved<8>,
        /// Temperature Sensors 1 to 8, in kelvin; 0 not there.
        200 pub temperature_sensors: [U16; 8],
        216 unused_216: Reserved<12>,
        /// Total Time For Thermal Management Temperature 2, in seconds.
        228 pub tmt2_total_time: U32,
        232 reserved_232: Reserved<280>,
    }
}

/// Critical Warning of the SMART / Health log page.
pub mod critical_warning {
    /// The available spare has fallen below its threshold.
    pub const SPARE: u8 = 1 << 0;
    /// A temperature is beyond a threshold.
    pub const TEMPERATURE: u8 = 1 << 1;
    /// Reliability is degraded.
    pub const RELIABILITY: u8 = 1 << 2;
    /// The medium has become read only.
    pub const READ_ONLY: u8 = 1 << 3;
    /// The volatile memory backup device has failed.
    pub const VOLATILE_BACKUP: u8 = 1 << 4;
    /// The Persistent Memory Region has become read only or unreliable.
    pub const PERSISTENT_MEMORY_REGION: u8 = 1 << 5;
}

wire! {
    /// Firmware Slot Information (1.4 §5.14.1.3).
    pub struct FirmwareSlotLog, 512 {
        /// Active Firmware Info: 2:0 active slot, 6:4 slot to be active after the next reset (0 not
        /// indicated).
        0 pub afi: u8,
        1 reserved_1: Reserved<7>,
        /// Firmware Revision for Slots 1 to 7, ASCII; zero if empty.
        8 pub frs: [[u8; 8]; 7],
        64 reserved_64: Reserved<448>,
    }
}

impl FirmwareSlotLog {
    /// The firmware revision in `slot` (1 to 7); `None` if there is no such slot or it is empty.
    #[must_use]
    pub fn revision(&self, slot: u8) -> Option<&str> {
        let revision = self.frs.get(usize::from(slot).checked_sub(1)?)?;
        Some(text(revision)).filter(|revision| !revision.is_empty())
    }
}

bitfields! {
    /// Commands Supported and Effects data structure (1.4 §5.14.1.5).
    CommandEffects(u32) {
        /// Command Supported.
        [0] csupp with_csupp: bool,
        /// Logical Block Content Change.
        [1] lbcc with_lbcc: bool,
        /// Namespace Capability Change.
        [2] ncc with_ncc: bool,
        /// Namespace Inventory Change.
        [3] nic with_nic: bool,
        /// Controller Capability Change.
        [4] ccc with_ccc: bool,
        /// Command Submission and Execution: 0 no restriction, 1 alone in its namespace, 2 alone.
        [18:16] cse with_cse: u8,
        /// UUID Selection Supported.
        [19] uuid_selection with_uuid_selection: bool,
        /// Command Scope (2.0).
        [31:20] csp with_csp: u16,
    }
}

/// CSE, Command Submission and Execution (1.4 §5.14.1.5).
pub mod cse {
    /// The command runs only when no other command to any namespace is outstanding.
    pub const ALONE: u8 = 2;
}

wire! {
    /// Commands Supported and Effects (1.4 §5.14.1.5), each entry laid out as [`CommandEffects`].
    pub struct CommandsSupportedLog, 4096 {
        /// Admin commands, by opcode.
        0 pub admin: [U32; 256],
        /// I/O commands, by opcode.
        1024 pub io: [U32; 256],
        2048 reserved_2048: Reserved<2048>,
    }
}

impl CommandsSupportedLog {
    /// The effects of an admin command.
    #[must_use]
    pub fn admin_effects(&self, opcode: u8) -> CommandEffects {
        CommandEffects(self.admin[usize::from(opcode)].get())
    }

    /// The effects of an I/O command.
    #[must_use]
    pub fn io_effects(&self, opcode: u8) -> CommandEffects {
        CommandEffects(self.io[usize::from(opcode)].get())
    }
}

codes! {
    /// Asynchronous Event Type (1.4 §5.2.1).
    AsyncEventKind(u8), "asynchronous event type" {
        0 Error "Error status",
        1 Smart "SMART / Health status",
        2 Notice "Notice",
        6 CommandSet "I/O Command Set specific status",
        7 VendorSpecific "Vendor specific",
    }

    /// Asynchronous events, type in bits 10:8, information in bits 7:0 (1.4 §5.2.1).
    AsyncEventCode(u16), "asynchronous event" {
        0x000 WriteToInvalidDoorbell "Write to Invalid Doorbell Register",
        0x001 InvalidDoorbellWriteValue "Invalid Doorbell Write Value",
        0x002 DiagnosticFailure "Diagnostic Failure",
        0x003 PersistentInternalError "Persistent Internal Error",
        0x004 TransientInternalError "Transient Internal Error",
        0x005 FirmwareImageLoadError "Firmware Image Load Error",
        0x100 ReliabilityDegraded "NVM subsystem Reliability",
        0x101 TemperatureThreshold "Temperature Threshold",
        0x102 SpareBelowThreshold "Spare Below Threshold",
        0x200 NamespaceAttributeChanged "Namespace Attribute Changed",
        0x201 FirmwareActivationStarting "Firmware Activation Starting",
        0x202 TelemetryLogChanged "Telemetry Log Changed",
        0x203 AnaChange "Asymmetric Namespace Access Change",
        0x204 PredictableLatencyEvent "Predictable Latency Event Aggregate Log Change",
        0x205 LbaStatusInformationAlert "LBA Status Information Alert",
        0x206 EnduranceGroupEvent "Endurance Group Event Aggregate Log Page Change",
        0x600 ReservationLogPageAvailable "Reservation Log Page Available",
        0x601 SanitizeCompleted "Sanitize Operation Completed",
        0x602 SanitizeCompletedUnexpectedDeallocation
            "Sanitize Operation Completed With Unexpected Deallocation",
    }
}

/// DW0 of a completed Asynchronous Event Request (1.4 §5.2.1): 2:0 type, 15:8 information, 23:16
/// log page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AsyncEvent {
    /// Asynchronous Event Type.
    pub kind: AsyncEventKind,
    /// Asynchronous Event Information; depends on the type.
    pub info: u8,
    /// Log Page Identifier: reading that page clears the event.
    pub log_page: u8,
}

impl AsyncEvent {
    /// The event `code`, to be cleared by reading `log_page`.
    ///
    /// # Errors
    /// Never fails for the codes of the specification.
    pub fn new(code: AsyncEventCode, log_page: u8) -> Result<Self, UnknownCode> {
        let [kind, info] = u16::from(code).to_be_bytes();
        Ok(Self { kind: kind.try_into()?, info, log_page })
    }

    /// DW0 of the completion.
    #[must_use]
    pub const fn to_dw0(self) -> u32 {
        self.kind as u32 | (self.info as u32) << 8 | (self.log_page as u32) << 16
    }

    /// The event.
    ///
    /// # Errors
    /// Fails if type and information together are reserved or vendor specific.
    pub fn code(self) -> Result<AsyncEventCode, UnknownCode> {
        u16::from_be_bytes([self.kind as u8, self.info]).try_into()
    }
}

impl TryFrom<u32> for AsyncEvent {
    type Error = UnknownCode;

    fn try_from(dw0: u32) -> Result<Self, UnknownCode> {
        let [kind, info, log_page, _] = dw0.to_le_bytes();
        Ok(Self { kind: AsyncEventKind::try_from(kind & 7)?, info, log_page })
    }
}
