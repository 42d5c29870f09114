//! The Error Information log (1.4 §5.14.1.1), and the details of a failed command until its
//! completion is written.

use std::collections::VecDeque;

use meantime_spec::log::ErrorLogEntry;
use meantime_spec::sqe::Sqe;
use meantime_spec::status::{Status, StatusCode};
use zerocopy::IntoBytes;

use super::failure::Failure;
use crate::store::has_blocks;

/// Entries of the Error Information log (ELPE + 1).
pub(super) const ERROR_ENTRIES: usize = 64;

/// The most failed commands whose details are kept until completion.
const MAX_NOTES: usize = 256;

/// The latest errors.
#[derive(Default)]
pub(super) struct ErrorLog {
    entries: VecDeque<ErrorLogEntry>,
    pub(super) count: u64,
    /// Failed commands that are not complete yet, without count and status.
    notes: VecDeque<ErrorLogEntry>,
}

/// The parameter that a status code refers to, if it is always the same (1.4 §4.2, §5, §6: byte and
/// bit of the entry).
fn location_of(status: Status) -> u16 {
    use StatusCode as S;
    let Ok(code) = status.code() else { return ErrorLogEntry::NO_LOCATION };
    let (byte, bit) = match code {
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
        _ => return ErrorLogEntry::NO_LOCATION,
    };
    ErrorLogEntry::location(byte, bit)
}

impl ErrorLog {
    /// Keeps the details of `sqe`, which failed, until its completion is written.
    #[cold]
    pub(super) fn note(&mut self, sqid: u16, sqe: &Sqe, failure: &Failure) {
        if self.notes.len() == MAX_NOTES {
            self.notes.pop_front();
        }
        let slba = (sqid != 0 && has_blocks(sqe)).then(|| sqe.slba());
        let mut note = ErrorLogEntry::default();
        note.sqid.set(sqid);
        note.cid.set(sqe.cid());
        note.nsid.set(sqe.nsid.get());
        note.lba.set(failure.lba.or(slba).unwrap_or(0));
        let location = failure.location.unwrap_or_else(|| location_of(failure.status));
        note.parameter_error_location.set(location);
        self.notes.push_back(note);
    }

    /// Adds the log entry of a failed command when its completion is written.
    #[cold]
    pub(super) fn record(&mut self, sqid: u16, cid: u16, status: Status, phase: bool) {
        let is_it = |note: &ErrorLogEntry| (note.sqid.get(), note.cid.get()) == (sqid, cid);
        let noted = self.notes.iter().rposition(is_it).and_then(|at| self.notes.remove(at));
        let mut entry = noted.unwrap_or_else(|| {
            let mut entry = ErrorLogEntry::default();
            entry.parameter_error_location.set(location_of(status));
            entry
        });
        self.count += 1;
        entry.error_count.set(self.count);
        entry.sqid.set(sqid);
        entry.cid.set(cid);
        entry.status_phase.set(status.bits() << 1 | u16::from(phase));
        if self.entries.len() == ERROR_ENTRIES {
            self.entries.pop_back();
        }
        self.entries.push_front(entry);
    }

    /// Drops the details of commands that will never complete.
    pub(super) fn forget_commands(&mut self) {
        self.notes.clear();
    }

    /// The log page: the latest error first, unused entries zero.
    pub(super) fn page(&self) -> Vec<u8> {
        let mut page = Vec::with_capacity(ERROR_ENTRIES * size_of::<ErrorLogEntry>());
        for entry in &self.entries {
            page.extend_from_slice(entry.as_bytes());
        }
        page.resize(ERROR_ENTRIES * size_of::<ErrorLogEntry>(), 0);
        page
    }
}
