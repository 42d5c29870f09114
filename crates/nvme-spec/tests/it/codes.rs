//! Every code decodes to itself, and every other number to an error.

use std::collections::HashSet;

use meantime_nvme_spec::log::{AsyncEvent, AsyncEventCode};
use meantime_nvme_spec::opcode::{self, AdminOpcode, DataTransfer, IoOpcode};
use meantime_nvme_spec::status::{Status, StatusCode, sct};

#[test]
fn every_status_code_round_trips() {
    let mut names = HashSet::new();
    for &code in StatusCode::ALL {
        for status in
            [Status::from(code), Status::from(code).with_dnr().with_crd(3).with_more(true)]
        {
            assert_eq!(StatusCode::try_from(status), Ok(code));
            assert_eq!((status.sct(), status.sc()), ((code as u16 >> 8) as u8, code as u8));
            assert!(status.is(code));
            assert_eq!(status.is_success(), code == StatusCode::SuccessfulCompletion);
            assert!(status.to_string().starts_with(code.name()));
        }
        assert!(names.insert(code.name()), "{} twice", code.name());
    }
    assert!(StatusCode::ALL.is_sorted());
    assert_eq!(
        StatusCode::ALL.len(),
        41 + 44 + 4 + 9 + 7,
        "generic, command, NVM command, media, path"
    );
}

#[test]
fn every_status_field_decodes_or_errs() {
    let mut known = 0;
    for bits in 0..=0x7fff {
        let status = Status::from_bits(bits);
        assert_eq!(status.bits(), bits);
        assert!(!status.to_string().is_empty());
        assert_eq!(status.to_string().contains("do not retry"), bits & 0x4000 != 0);
        match StatusCode::try_from(status) {
            Ok(code) => {
                assert_eq!(code as u16, bits & 0x7ff);
                known += 1;
            }
            Err(error) => assert_eq!(error.value, u32::from(bits & 0x7ff)),
        }
    }
    assert_eq!(known, 16 * StatusCode::ALL.len(), "CRD, M and DNR are apart from the code");
}

#[test]
fn status_codes_typed_from_the_specification() {
    for (code, kind, sc) in [
        (StatusCode::InvalidFieldInCommand, sct::GENERIC, 0x02),
        (StatusCode::CommandIdConflict, sct::GENERIC, 0x03),
        (StatusCode::CommandAbortedByRequest, sct::GENERIC, 0x07),
        (StatusCode::CommandAbortedSqDeletion, sct::GENERIC, 0x08),
        (StatusCode::InvalidNamespaceOrFormat, sct::GENERIC, 0x0b),
        (StatusCode::PrpOffsetInvalid, sct::GENERIC, 0x13),
        (StatusCode::LbaOutOfRange, sct::GENERIC, 0x80),
        (StatusCode::InvalidQueueSize, sct::COMMAND_SPECIFIC, 0x02),
        (StatusCode::AsynchronousEventRequestLimitExceeded, sct::COMMAND_SPECIFIC, 0x05),
        (StatusCode::InvalidInterruptVector, sct::COMMAND_SPECIFIC, 0x08),
        (StatusCode::InvalidQueueDeletion, sct::COMMAND_SPECIFIC, 0x0c),
        (StatusCode::WriteFault, sct::MEDIA, 0x80),
        (StatusCode::UnrecoveredReadError, sct::MEDIA, 0x81),
        (StatusCode::CompareFailure, sct::MEDIA, 0x85),
        (StatusCode::DeallocatedOrUnwrittenLogicalBlock, sct::MEDIA, 0x87),
        (StatusCode::CommandAbortedByHost, sct::PATH, 0x71),
    ] {
        assert_eq!(Status::new(kind, sc).code(), Ok(code));
    }
    assert_eq!(Status::new(7, 0xff).to_string(), "vendor specific status (sct 7h sc ffh)");
    assert_eq!(
        Status::new(0, 0x7f).with_crd(2).to_string(),
        "unknown generic status (sct 0h sc 7fh, retry delay 2)"
    );
}

#[test]
fn every_opcode_decodes_or_errs() {
    let admin = (0..=u8::MAX)
        .filter(|&byte| AdminOpcode::try_from(byte).is_ok_and(|code| code as u8 == byte));
    assert_eq!(admin.count(), AdminOpcode::ALL.len());
    let io =
        (0..=u8::MAX).filter(|&byte| IoOpcode::try_from(byte).is_ok_and(|code| code as u8 == byte));
    assert_eq!(io.count(), IoOpcode::ALL.len());
    assert_eq!(
        AdminOpcode::try_from(0x03).expect_err("reserved").to_string(),
        "0x3 is no known admin command opcode"
    );
}

#[test]
fn opcodes_typed_from_the_specification() {
    use opcode::{admin, io};
    assert_eq!([io::FLUSH, io::WRITE, io::READ, io::COMPARE], [0x00, 0x01, 0x02, 0x05]);
    assert_eq!([io::WRITE_ZEROES, io::DATASET_MANAGEMENT, io::VERIFY], [0x08, 0x09, 0x0c]);
    assert_eq!([admin::DELETE_IO_SQ, admin::CREATE_IO_SQ, admin::GET_LOG_PAGE], [0x00, 0x01, 0x02]);
    assert_eq!([admin::DELETE_IO_CQ, admin::CREATE_IO_CQ, admin::IDENTIFY], [0x04, 0x05, 0x06]);
    assert_eq!([admin::ABORT, admin::SET_FEATURES, admin::GET_FEATURES], [0x08, 0x09, 0x0a]);
    assert_eq!([admin::ASYNC_EVENT_REQUEST, admin::DOORBELL_BUFFER_CONFIG], [0x0c, 0x7c]);
    assert_eq!(DataTransfer::of(io::WRITE), DataTransfer::HostToController);
    assert_eq!(DataTransfer::of(io::READ), DataTransfer::ControllerToHost);
    assert_eq!(DataTransfer::of(io::FLUSH), DataTransfer::None);
}

#[test]
fn every_async_event_round_trips() {
    for &code in AsyncEventCode::ALL {
        let event = AsyncEvent::new(code, 2).expect("a type of the specification");
        assert_eq!(AsyncEvent::try_from(event.to_dw0()), Ok(event));
        assert_eq!(event.code(), Ok(code));
    }
}
