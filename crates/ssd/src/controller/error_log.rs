//! The Error Information log (1.4 §5.14.1.1), and the details of a failed command until its
//! completion is written.

use std::collections::VecDeque;

use meantime_spec::log::ErrorLogEntry;
use meantime_spec::opcode::IoOpcode;
use meantime_spec::sqe::Sqe;
use meantime_spec::status::{Status, StatusCode};
use zerocopy::IntoBytes;

use super::Controller;

/// Entries of the Error Information log (ELPE + 1).
pub(super) const ERROR_ENTRIES: usize = 64;

/// The most failed commands whose details are kept until they complete.
const MAX_NOTES: usize = 256;

/// Details of a failed command, besides its status.
#[derive(Clone, Copy)]
struct Note {
    sqid: u16,
    cid: u16,
    nsid: u32,
    lba: u64,
    location: u16,
}

/// What is wrong with the current command.
#[derive(Clone, Copy, Default)]
pub(super) struct Wrong {
    /// The parameter, as the log has it.
    location: Option<u16>,
    /// The first block that met the error.
    lba: Option<u64>,
}

/// The latest errors.
#[derive(Default)]
pub(super) struct ErrorLog {
    entries: VecDeque<ErrorLogEntry>,
    pub(super) count: u64,
    notes: VecDeque<Note>,
    pub(super) wrong: Wrong,
}

/// The parameter that a status code refers to, if it is always the same (1.4 §4.2, §5, §6: byte and
/// bit of the entry).
fn location_of(status: Status) -> Option<u16> {
    use StatusCode as S;
    let (byte, bit) = match status.code().ok()? {
        S::InvalidCommandOpcode => (0, 0),
        S::CommandIdConflict => (2, 0),
        S::InvalidNamespaceOrFormat | S::FeatureNotNamespaceSpecific => (4, 0),
        S::PrpOffsetInvalid
        | S::DataTransferError
        | S::InvalidSglSegmentDescriptor
        | S::InvalidNumberOfSglDescriptors
        | S::DataSglLengthInvalid
        | S::SglDescriptorTypeInvalid
        | S::InvalidUseOfControllerMemoryBuffer => (24, 0),
        S::LbaOutOfRange | S::InvalidQueueIdentifier | S::InvalidLogPage | S::InvalidFormat => {
            (40, 0)
        }
        S::InvalidQueueSize => (42, 0),
        S::FeatureIdentifierNotSaveable => (43, 7),
        S::CompletionQueueInvalid | S::InvalidInterruptVector => (46, 0),
        _ => return None,
    };
    Some(ErrorLogEntry::location(byte, bit))
}

/// The first block that a command names, if it names blocks.
fn slba_of(sqe: &Sqe) -> Option<u64> {
    match IoOpcode::try_from(sqe.opcode()).ok()? {
        IoOpcode::Read
        | IoOpcode::Write
        | IoOpcode::WriteUncorrectable
        | IoOpcode::Compare
        | IoOpcode::WriteZeroes
        | IoOpcode::Verify => Some(sqe.slba()),
        _ => None,
    }
}

impl ErrorLog {
    /// Keeps the details of `sqe`, which failed with `status`, until its completion is written.
    #[cold]
    fn note(&mut self, sqid: u16, sqe: &Sqe, status: Status) {
        let Wrong { location, lba } = std::mem::take(&mut self.wrong);
        if self.notes.len() == MAX_NOTES {
            self.notes.pop_front();
        }
        let slba = if sqid == 0 { None } else { slba_of(sqe) };
        self.notes.push_back(Note {
            sqid,
            cid: sqe.cid(),
            nsid: sqe.nsid.get(),
            lba: lba.or(slba).unwrap_or(0),
            location: location.or(location_of(status)).unwrap_or(ErrorLogEntry::NO_LOCATION),
        });
    }

    /// The completion of a command that failed is written.
    #[cold]
    pub(super) fn record(&mut self, sqid: u16, cid: u16, status: Status, phase: bool) {
        self.count += 1;
        let mut entry = ErrorLogEntry::default();
        entry.error_count.set(self.count);
        entry.sqid.set(sqid);
        entry.cid.set(cid);
        entry.status_phase.set(status.bits() << 1 | u16::from(phase));
        let location = location_of(status).unwrap_or(ErrorLogEntry::NO_LOCATION);
        entry.parameter_error_location.set(location);
        if let Some(at) = self.notes.iter().rposition(|note| (note.sqid, note.cid) == (sqid, cid))
            && let Some(note) = self.notes.remove(at)
        {
            entry.nsid.set(note.nsid);
            entry.lba.set(note.lba);
            entry.parameter_error_location.set(note.location);
        }
        if self.entries.len() == ERROR_ENTRIES {
            self.entries.pop_back();
        }
        self.entries.push_front(entry);
    }

    /// Drops the details of commands that will never complete.
    pub(super) fn forget_commands(&mut self) {
        self.notes.clear();
        self.wrong = Wrong::default();
    }

    /// The page: the latest first, unused entries zero.
    pub(super) fn page(&self) -> Vec<u8> {
        let mut page = Vec::with_capacity(ERROR_ENTRIES * size_of::<ErrorLogEntry>());
        for entry in &self.entries {
            page.extend_from_slice(entry.as_bytes());
        }
        page.resize(ERROR_ENTRIES * size_of::<ErrorLogEntry>(), 0);
        page
    }
}

impl Controller {
    /// Sets the parameter of the next refusal: from `bit` of `byte` of the entry on.
    pub(super) fn at(&mut self, byte: u8, bit: u8) -> &mut Self {
        self.errors.wrong.location = Some(ErrorLogEntry::location(byte, bit));
        self
    }

    /// Whether the current command's faulty parameter is set.
    pub(super) fn is_located(&self) -> bool {
        self.errors.wrong.location.is_some()
    }

    /// Sets the first block on which the current command fails.
    pub(super) fn at_lba(&mut self, lba: u64) {
        self.errors.wrong.lba = Some(lba);
    }

    /// The current command fails.
    pub(super) fn note_error(&mut self, qid: u16, sqe: &Sqe, status: Status) {
        self.errors.note(qid, sqe, status);
    }
}
