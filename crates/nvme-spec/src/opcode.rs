//! Opcodes: admin (1.4 §5, 2.0 §5) and I/O of the NVM command set (1.4 §6, NVM 1.0 §3).

macro_rules! opcodes {
    ($(
        $(#[$meta:meta])*
        $name:ident, $module:ident, $what:literal {
            $(
                $(#[doc = $doc:literal])*
                $value:literal $variant:ident $byte:ident $words:literal,
            )*
        }
    )*) => {$(
        codes! {
            $(#[$meta])*
            $name(u8), $what {
                $( $(#[doc = $doc])* $value $variant $words, )*
            }
        }

        #[doc = concat!("[`", stringify!($name), "`] as plain bytes.")]
        pub mod $module {
            $(
                #[doc = concat!($words, ".")]
                pub const $byte: u8 = $value;
            )*
        }
    )*};
}

opcodes! {
    /// Admin command opcodes (1.4 §5, 2.0 §5).
    AdminOpcode, admin, "admin command opcode" {
        0x00 DeleteIoSq DELETE_IO_SQ "Delete I/O Submission Queue",
        0x01 CreateIoSq CREATE_IO_SQ "Create I/O Submission Queue",
        0x02 GetLogPage GET_LOG_PAGE "Get Log Page",
        0x04 DeleteIoCq DELETE_IO_CQ "Delete I/O Completion Queue",
        0x05 CreateIoCq CREATE_IO_CQ "Create I/O Completion Queue",
        0x06 Identify IDENTIFY "Identify",
        0x08 Abort ABORT "Abort",
        0x09 SetFeatures SET_FEATURES "Set Features",
        0x0a GetFeatures GET_FEATURES "Get Features",
        0x0c AsyncEventRequest ASYNC_EVENT_REQUEST "Asynchronous Event Request",
        0x0d NamespaceManagement NAMESPACE_MANAGEMENT "Namespace Management",
        0x10 FirmwareCommit FIRMWARE_COMMIT "Firmware Commit",
        0x11 FirmwareImageDownload FIRMWARE_IMAGE_DOWNLOAD "Firmware Image Download",
        0x14 DeviceSelfTest DEVICE_SELF_TEST "Device Self-test",
        0x15 NamespaceAttachment NAMESPACE_ATTACHMENT "Namespace Attachment",
        0x18 KeepAlive KEEP_ALIVE "Keep Alive",
        0x19 DirectiveSend DIRECTIVE_SEND "Directive Send",
        0x1a DirectiveReceive DIRECTIVE_RECEIVE "Directive Receive",
        0x1c VirtualizationManagement VIRTUALIZATION_MANAGEMENT "Virtualization Management",
        0x1d NvmeMiSend NVME_MI_SEND "NVMe-MI Send",
        0x1e NvmeMiReceive NVME_MI_RECEIVE "NVMe-MI Receive",
        /// New in 2.0.
        0x20 CapacityManagement CAPACITY_MANAGEMENT "Capacity Management",
        /// New in 2.0.
        0x24 Lockdown LOCKDOWN "Lockdown",
        0x7c DoorbellBufferConfig DOORBELL_BUFFER_CONFIG "Doorbell Buffer Config",
        0x7f Fabrics FABRICS "Fabrics Commands",
        0x80 FormatNvm FORMAT_NVM "Format NVM",
        0x81 SecuritySend SECURITY_SEND "Security Send",
        0x82 SecurityReceive SECURITY_RECEIVE "Security Receive",
        0x84 Sanitize SANITIZE "Sanitize",
        0x86 GetLbaStatus GET_LBA_STATUS "Get LBA Status",
    }

    /// I/O command opcodes of the NVM command set (1.4 §6, NVM 1.0 §3).
    IoOpcode, io, "I/O command opcode" {
        0x00 Flush FLUSH "Flush",
        0x01 Write WRITE "Write",
        0x02 Read READ "Read",
        0x04 WriteUncorrectable WRITE_UNCORRECTABLE "Write Uncorrectable",
        0x05 Compare COMPARE "Compare",
        0x08 WriteZeroes WRITE_ZEROES "Write Zeroes",
        0x09 DatasetManagement DATASET_MANAGEMENT "Dataset Management",
        0x0c Verify VERIFY "Verify",
        0x0d ReservationRegister RESERVATION_REGISTER "Reservation Register",
        0x0e ReservationReport RESERVATION_REPORT "Reservation Report",
        0x11 ReservationAcquire RESERVATION_ACQUIRE "Reservation Acquire",
        0x15 ReservationRelease RESERVATION_RELEASE "Reservation Release",
        /// New with 2.0 (NVM 1.0).
        0x19 Copy COPY "Copy",
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
