//! Opcodes: admin (1.4 §5, 2.0 §5) and I/O of the NVM command set (1.4 §6, NVM 1.0 §3).

codes! {
    /// Admin command opcodes (1.4 §5, 2.0 §5).
    AdminOpcode(u8), "admin command opcode" {
        0x00 DeleteIoSq "Delete I/O Submission Queue",
        0x01 CreateIoSq "Create I/O Submission Queue",
        0x02 GetLogPage "Get Log Page",
        0x04 DeleteIoCq "Delete I/O Completion Queue",
        0x05 CreateIoCq "Create I/O Completion Queue",
        0x06 Identify "Identify",
        0x08 Abort "Abort",
        0x09 SetFeatures "Set Features",
        0x0a GetFeatures "Get Features",
        0x0c AsyncEventRequest "Asynchronous Event Request",
        0x0d NamespaceManagement "Namespace Management",
        0x10 FirmwareCommit "Firmware Commit",
        0x11 FirmwareImageDownload "Firmware Image Download",
        0x14 DeviceSelfTest "Device Self-test",
        0x15 NamespaceAttachment "Namespace Attachment",
        0x18 KeepAlive "Keep Alive",
        0x19 DirectiveSend "Directive Send",
        0x1a DirectiveReceive "Directive Receive",
        0x1c VirtualizationManagement "Virtualization Management",
        0x1d NvmeMiSend "NVMe-MI Send",
        0x1e NvmeMiReceive "NVMe-MI Receive",
        /// New in 2.0.
        0x20 CapacityManagement "Capacity Management",
        /// New in 2.0.
        0x24 Lockdown "Lockdown",
        0x7c DoorbellBufferConfig "Doorbell Buffer Config",
        0x7f Fabrics "Fabrics Commands",
        0x80 FormatNvm "Format NVM",
        0x81 SecuritySend "Security Send",
        0x82 SecurityReceive "Security Receive",
        0x84 Sanitize "Sanitize",
        0x86 GetLbaStatus "Get LBA Status",
    }

    /// I/O command opcodes of the NVM command set (1.4 §6, NVM 1.0 §3).
    IoOpcode(u8), "I/O command opcode" {
        0x00 Flush "Flush",
        0x01 Write "Write",
        0x02 Read "Read",
        0x04 WriteUncorrectable "Write Uncorrectable",
        0x05 Compare "Compare",
        0x08 WriteZeroes "Write Zeroes",
        0x09 DatasetManagement "Dataset Management",
        0x0c Verify "Verify",
        0x0d ReservationRegister "Reservation Register",
        0x0e ReservationReport "Reservation Report",
        0x11 ReservationAcquire "Reservation Acquire",
        0x15 ReservationRelease "Reservation Release",
        /// New with 2.0 (NVM 1.0).
        0x19 Copy "Copy",
    }
}

/// Bits 1:0 of every standard opcode: which way its data goes (1.4 §4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DataTransfer {
    /// No data transfer (00b).
    None,
    /// Host to controller (01b).
    HostToController,
    /// Controller to host (10b).
    ControllerToHost,
    /// Bidirectional (11b).
    Bidirectional,
}

impl DataTransfer {
    /// The direction `opcode` implies.
    #[must_use]
    pub const fn of(opcode: u8) -> Self {
        match opcode & 3 {
            0 => Self::None,
            1 => Self::HostToController,
            2 => Self::ControllerToHost,
            _ => Self::Bidirectional,
        }
    }
}

macro_rules! consts {
    ($of:ident: $($name:ident $variant:ident,)*) => {
        $(
            #[doc = concat!("[`", stringify!($of), "::", stringify!($variant), "`](super::", stringify!($of), ").")]
            pub const $name: u8 = super::$of::$variant as u8;
        )*
    };
}

/// [`AdminOpcode`] as plain bytes.
pub mod admin {
    consts! {
        AdminOpcode:
        DELETE_IO_SQ DeleteIoSq,
        CREATE_IO_SQ CreateIoSq,
        GET_LOG_PAGE GetLogPage,
        DELETE_IO_CQ DeleteIoCq,
        CREATE_IO_CQ CreateIoCq,
        IDENTIFY Identify,
        ABORT Abort,
        SET_FEATURES SetFeatures,
        GET_FEATURES GetFeatures,
        ASYNC_EVENT_REQUEST AsyncEventRequest,
        NAMESPACE_MANAGEMENT NamespaceManagement,
        FIRMWARE_COMMIT FirmwareCommit,
        FIRMWARE_IMAGE_DOWNLOAD FirmwareImageDownload,
        DEVICE_SELF_TEST DeviceSelfTest,
        NAMESPACE_ATTACHMENT NamespaceAttachment,
        KEEP_ALIVE KeepAlive,
        DIRECTIVE_SEND DirectiveSend,
        DIRECTIVE_RECEIVE DirectiveReceive,
        VIRTUALIZATION_MANAGEMENT VirtualizationManagement,
        NVME_MI_SEND NvmeMiSend,
        NVME_MI_RECEIVE NvmeMiReceive,
        CAPACITY_MANAGEMENT CapacityManagement,
        LOCKDOWN Lockdown,
        DOORBELL_BUFFER_CONFIG DoorbellBufferConfig,
        FABRICS Fabrics,
        FORMAT_NVM FormatNvm,
        SECURITY_SEND SecuritySend,
        SECURITY_RECEIVE SecurityReceive,
        SANITIZE Sanitize,
        GET_LBA_STATUS GetLbaStatus,
    }
}

/// [`IoOpcode`] as plain bytes.
pub mod io {
    consts! {
        IoOpcode:
        FLUSH Flush,
        WRITE Write,
        READ Read,
        WRITE_UNCORRECTABLE WriteUncorrectable,
        COMPARE Compare,
        WRITE_ZEROES WriteZeroes,
        DATASET_MANAGEMENT DatasetManagement,
        VERIFY Verify,
        RESERVATION_REGISTER ReservationRegister,
        RESERVATION_REPORT ReservationReport,
        RESERVATION_ACQUIRE ReservationAcquire,
        RESERVATION_RELEASE ReservationRelease,
        COPY Copy,
    }
}
