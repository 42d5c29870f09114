//! The Error Information log (1.4 §5.14.1.1).

use std::collections::VecDeque;

use meantime_nvme_spec::log::ErrorLogEntry;
use meantime_nvme_spec::status::Status;
use zerocopy::IntoBytes;

/// The number of entries of the Error Information log (ELPE + 1).
pub(super) const ERROR_ENTRIES: usize = 64;

/// The latest errors.
#[derive(Default)]
pub(super) struct ErrorLog {
    entries: VecDeque<ErrorLogEntry>,
    pub(super) count: u64,
}

impl ErrorLog {
    /// Adds the entry of a failed command when its completion is written.
    #[cold]
    pub(super) fn record(&mut self, sqid: u16, cid: u16, status: Status, phase: bool) {
        self.count += 1;
        let mut entry = ErrorLogEntry::default();
        entry.error_count.set(self.count);
        entry.sqid.set(sqid);
        entry.cid.set(cid);
        entry.status_phase.set(status.bits() << 1 | u16::from(phase));
        entry.parameter_error_location.set(ErrorLogEntry::NO_LOCATION);
        if self.entries.len() == ERROR_ENTRIES {
            self.entries.pop_back();
        }
        self.entries.push_front(entry);
    }

    /// Returns the log page, with the latest error first. Unused entries are zero.
    pub(super) fn page(&self) -> Vec<u8> {
        let mut page = Vec::with_capacity(ERROR_ENTRIES * size_of::<ErrorLogEntry>());
        for entry in &self.entries {
            page.extend_from_slice(entry.as_bytes());
        }
        page.resize(ERROR_ENTRIES * size_of::<ErrorLogEntry>(), 0);
        page
    }
}
