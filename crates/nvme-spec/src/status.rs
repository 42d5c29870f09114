//! Status field of a completion (1.4 §4.6.1, 2.0 §3.3.3.2.1).
//!
//! ```text
//!  14   13  12:11  10:8  7:0
//! DNR    M   CRD   SCT    SC      (the phase tag, below bit 0 on the wire, is not part of it)
//! ```

use core::fmt;

use crate::UnknownCode;

bitfields! {
    /// The 15-bit status field, without the phase tag.
    Status(u16) {
        /// Status Code, within its type.
        [7:0] sc with_sc: u8,
        /// Status Code Type, see [`sct`].
        [10:8] sct with_sct: u8,
        /// Command Retry Delay: 0 none, else which of Identify Controller's CRDT1 to CRDT3 to wait
        /// before a retry.
        [12:11] crd with_crd: u8,
        /// More: further information is in the Error Information log page.
        [13] more with_more: bool,
        /// Do Not Retry: the same command would fail again.
        [14] dnr with_dnr_bit: bool,
    }
}

/// Status Code Types (1.4 §4.6.1.1).
pub mod sct {
    /// Generic command status.
    pub const GENERIC: u8 = 0;
    /// Command specific status.
    pub const COMMAND_SPECIFIC: u8 = 1;
    /// Media and data integrity errors.
    pub const MEDIA: u8 = 2;
    /// Path related status.
    pub const PATH: u8 = 3;
    /// Vendor specific.
    pub const VENDOR_SPECIFIC: u8 = 7;
}

impl Status {
    /// Successful completion.
    pub const SUCCESS: Self = Self(0);

    /// Combines a type of 0 to 7 and a code.
    #[inline]
    #[must_use]
    pub const fn new(sct: u8, sc: u8) -> Self {
        Self(0).with_sct(sct).with_sc(sc)
    }

    /// The status field for a status code.
    #[inline]
    #[must_use]
    pub const fn from_code(code: StatusCode) -> Self {
        Self(code as u16)
    }

    /// Takes the 15 bits; bit 15 of `bits` is dropped.
    #[inline]
    #[must_use]
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits & 0x7fff)
    }

    /// The 15 bits.
    #[inline]
    #[must_use]
    pub const fn bits(self) -> u16 {
        self.0 & 0x7fff
    }

    /// Sets Do Not Retry.
    #[inline]
    #[must_use]
    pub const fn with_dnr(self) -> Self {
        self.with_dnr_bit(true)
    }

    /// Whether type and code are both 0; the other bits then have no meaning.
    #[inline]
    #[must_use]
    pub const fn is_success(self) -> bool {
        self.0 & 0x7ff == 0
    }

    /// The status code, if it is one of the specification's.
    ///
    /// # Errors
    /// Fails if it is reserved or vendor specific.
    pub fn code(self) -> Result<StatusCode, UnknownCode> {
        StatusCode::try_from(self.0 & 0x7ff)
    }

    /// Whether this is `code`, whatever CRD, M and DNR say.
    #[inline]
    #[must_use]
    pub const fn is(self, code: StatusCode) -> bool {
        self.0 & 0x7ff == code as u16
    }
}

impl From<StatusCode> for Status {
    fn from(code: StatusCode) -> Self {
        Self::from_code(code)
    }
}

impl TryFrom<Status> for StatusCode {
    type Error = UnknownCode;

    fn try_from(status: Status) -> Result<Self, UnknownCode> {
        status.code()
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match (self.code(), self.sct()) {
            (Ok(code), _) => code.name(),
            (_, sct::GENERIC) => "unknown generic status",
            (_, sct::COMMAND_SPECIFIC) => "unknown command specific status",
            (_, sct::MEDIA) => "unknown media or data integrity error",
            (_, sct::PATH) => "unknown path related status",
            (_, sct::VENDOR_SPECIFIC) => "vendor specific status",
            _ => "status of a reserved type",
        };
        write!(f, "{name} (sct {:x}h sc {:02x}h", self.sct(), self.sc())?;
        if self.crd() != 0 {
            write!(f, ", retry delay {}", self.crd())?;
        }
        f.write_str(if self.more() { ", more" } else { "" })?;
        f.write_str(if self.dnr() { ", do not retry)" } else { ")" })
    }
}

codes! {
    /// Status codes of the base specification and the NVM command set, type in bits 10:8, code in
    /// bits 7:0 (1.4 §4.6.1.2, 2.0 §3.3.3.2.1, NVM 1.0 §3.1). Those of Fabrics, and of 2.0's zoned
    /// and key value command sets, which reuse numbers, are not among them.
    StatusCode(u16), "status code" {
        0x000 SuccessfulCompletion "Successful Completion",
        0x001 InvalidCommandOpcode "Invalid Command Opcode",
        0x002 InvalidFieldInCommand "Invalid Field in Command",
        0x003 CommandIdConflict "Command ID Conflict",
        0x004 DataTransferError "Data Transfer Error",
        0x005 CommandsAbortedPowerLoss "Commands Aborted due to Power Loss Notification",
        0x006 InternalError "Internal Error",
        0x007 CommandAbortedByRequest "Command Abort Requested",
        0x008 CommandAbortedSqDeletion "Command Aborted due to SQ Deletion",
        0x009 CommandAbortedFailedFused "Command Aborted due to Failed Fused Command",
        0x00a CommandAbortedMissingFused "Command Aborted due to Missing Fused Command",
        0x00b InvalidNamespaceOrFormat "Invalid Namespace or Format",
        0x00c CommandSequenceError "Command Sequence Error",
        0x00d InvalidSglSegmentDescriptor "Invalid SGL Segment Descriptor",
        0x00e InvalidNumberOfSglDescriptors "Invalid Number of SGL Descriptors",
        0x00f DataSglLengthInvalid "Data SGL Length Invalid",
        0x010 MetadataSglLengthInvalid "Metadata SGL Length Invalid",
        0x011 SglDescriptorTypeInvalid "SGL Descriptor Type Invalid",
        0x012 InvalidUseOfControllerMemoryBuffer "Invalid Use of Controller Memory Buffer",
        0x013 PrpOffsetInvalid "PRP Offset Invalid",
        0x014 AtomicWriteUnitExceeded "Atomic Write Unit Exceeded",
        0x015 OperationDenied "Operation Denied",
        0x016 SglOffsetInvalid "SGL Offset Invalid",
        0x018 HostIdentifierInconsistentFormat "Host Identifier Inconsistent Format",
        0x019 KeepAliveTimerExpired "Keep Alive Timer Expired",
        0x01a KeepAliveTimeoutInvalid "Keep Alive Timeout Invalid",
        0x01b CommandAbortedPreemptAndAbort "Command Aborted due to Preempt and Abort",
        0x01c SanitizeFailed "Sanitize Failed",
        0x01d SanitizeInProgress "Sanitize In Progress",
        0x01e SglDataBlockGranularityInvalid "SGL Data Block Granularity Invalid",
        0x01f CommandNotSupportedForQueueInCmb "Command Not Supported for Queue in CMB",
        0x020 NamespaceIsWriteProtected "Namespace is Write Protected",
        0x021 CommandInterrupted "Command Interrupted",
        0x022 TransientTransportError "Transient Transport Error",
        /// New in 2.0.
        0x023 CommandProhibitedByLockdown "Command Prohibited by Command and Feature Lockdown",
        /// New in 2.0.
        0x024 AdminCommandMediaNotReady "Admin Command Media Not Ready",
        0x080 LbaOutOfRange "LBA Out of Range",
        0x081 CapacityExceeded "Capacity Exceeded",
        0x082 NamespaceNotReady "Namespace Not Ready",
        0x083 ReservationConflict "Reservation Conflict",
        0x084 FormatInProgress "Format In Progress",

        0x100 CompletionQueueInvalid "Completion Queue Invalid",
        0x101 InvalidQueueIdentifier "Invalid Queue Identifier",
        0x102 InvalidQueueSize "Invalid Queue Size",
        0x103 AbortCommandLimitExceeded "Abort Command Limit Exceeded",
        0x105 AsynchronousEventRequestLimitExceeded "Asynchronous Event Request Limit Exceeded",
        0x106 InvalidFirmwareSlot "Invalid Firmware Slot",
        0x107 InvalidFirmwareImage "Invalid Firmware Image",
        0x108 InvalidInterruptVector "Invalid Interrupt Vector",
        0x109 InvalidLogPage "Invalid Log Page",
        0x10a InvalidFormat "Invalid Format",
        0x10b FirmwareActivationRequiresConventionalReset
            "Firmware Activation Requires Conventional Reset",
        0x10c InvalidQueueDeletion "Invalid Queue Deletion",
        0x10d FeatureIdentifierNotSaveable "Feature Identifier Not Saveable",
        0x10e FeatureNotChangeable "Feature Not Changeable",
        0x10f FeatureNotNamespaceSpecific "Feature Not Namespace Specific",
        0x110 FirmwareActivationRequiresSubsystemReset
            "Firmware Activation Requires NVM Subsystem Reset",
        0x111 FirmwareActivationRequiresControllerReset
            "Firmware Activation Requires Controller Level Reset",
        0x112 FirmwareActivationRequiresMaximumTimeViolation
            "Firmware Activation Requires Maximum Time Violation",
        0x113 FirmwareActivationProhibited "Firmware Activation Prohibited",
        0x114 OverlappingRange "Overlapping Range",
        0x115 NamespaceInsufficientCapacity "Namespace Insufficient Capacity",
        0x116 NamespaceIdentifierUnavailable "Namespace Identifier Unavailable",
        0x118 NamespaceAlreadyAttached "Namespace Already Attached",
        0x119 NamespaceIsPrivate "Namespace Is Private",
        0x11a NamespaceNotAttached "Namespace Not Attached",
        0x11b ThinProvisioningNotSupported "Thin Provisioning Not Supported",
        0x11c ControllerListInvalid "Controller List Invalid",
        0x11d DeviceSelfTestInProgress "Device Self-test In Progress",
        0x11e BootPartitionWriteProhibited "Boot Partition Write Prohibited",
        0x11f InvalidControllerIdentifier "Invalid Controller Identifier",
        0x120 InvalidSecondaryControllerState "Invalid Secondary Controller State",
        0x121 InvalidNumberOfControllerResources "Invalid Number of Controller Resources",
        0x122 InvalidResourceIdentifier "Invalid Resource Identifier",
        0x123 SanitizeProhibitedWhilePmrEnabled
            "Sanitize Prohibited While Persistent Memory Region is Enabled",
        0x124 AnaGroupIdentifierInvalid "ANA Group Identifier Invalid",
        0x125 AnaAttachFailed "ANA Attach Failed",
        /// New in 2.0, as are the codes up to 12Dh.
        0x126 InsufficientCapacity "Insufficient Capacity",
        0x127 NamespaceAttachmentLimitExceeded "Namespace Attachment Limit Exceeded",
        0x128 ProhibitionOfCommandExecutionNotSupported
            "Prohibition of Command Execution Not Supported",
        0x129 IoCommandSetNotSupported "I/O Command Set Not Supported",
        0x12a IoCommandSetNotEnabled "I/O Command Set Not Enabled",
        0x12b IoCommandSetCombinationRejected "I/O Command Set Combination Rejected",
        0x12c InvalidIoCommandSet "Invalid I/O Command Set",
        0x12d IdentifierUnavailable "Identifier Unavailable",
        0x180 ConflictingAttributes "Conflicting Attributes",
        0x181 InvalidProtectionInformation "Invalid Protection Information",
        0x182 AttemptedWriteToReadOnlyRange "Attempted Write to Read Only Range",
        /// New with 2.0 (NVM 1.0).
        0x183 CommandSizeLimitExceeded "Command Size Limit Exceeded",

        0x280 WriteFault "Write Fault",
        0x281 UnrecoveredReadError "Unrecovered Read Error",
        0x282 EndToEndGuardCheckError "End-to-end Guard Check Error",
        0x283 EndToEndApplicationTagCheckError "End-to-end Application Tag Check Error",
        0x284 EndToEndReferenceTagCheckError "End-to-end Reference Tag Check Error",
        0x285 CompareFailure "Compare Failure",
        0x286 AccessDenied "Access Denied",
        0x287 DeallocatedOrUnwrittenLogicalBlock "Deallocated or Unwritten Logical Block",
        /// New with 2.0 (NVM 1.0).
        0x288 EndToEndStorageTagCheckError "End-to-End Storage Tag Check Error",

        0x300 InternalPathError "Internal Path Error",
        0x301 AsymmetricAccessPersistentLoss "Asymmetric Access Persistent Loss",
        0x302 AsymmetricAccessInaccessible "Asymmetric Access Inaccessible",
        0x303 AsymmetricAccessTransition "Asymmetric Access Transition",
        0x360 ControllerPathingError "Controller Pathing Error",
        0x370 HostPathingError "Host Pathing Error",
        0x371 CommandAbortedByHost "Command Aborted By Host",
    }
}
