//! Log pages (1.4 §5.14).

use std::collections::VecDeque;

use meantime_spec::bytes::set_text;
use meantime_spec::log::{ErrorLogEntry, FirmwareSlotLog, SmartLog, lid};
use meantime_spec::sqe::{NSID_BROADCAST, Sqe};
use meantime_spec::status::{Status, StatusCode};
use zerocopy::IntoBytes;

use super::Controller;
use super::complete::Outcome;
use super::features::COMPOSITE_KELVIN;

/// Entries of the Error Information log (ELPE + 1).
pub(super) const ERROR_ENTRIES: usize = 64;

/// The latest errors.
#[derive(Default)]
pub(super) struct ErrorLog {
    entries: VecDeque<(u64, u16, u16, Status)>,
    count: u64,
}

impl ErrorLog {
    #[cold]
    pub(super) fn record(&mut self, sqid: u16, cid: u16, status: Status) {
        self.count += 1;
        if self.entries.len() == ERROR_ENTRIES {
            self.entries.pop_back();
        }
        self.entries.push_front((self.count, sqid, cid, status));
    }

    /// The page: the latest first, unused entries zero.
    fn page(&self) -> Vec<u8> {
        let mut page = Vec::with_capacity(ERROR_ENTRIES * size_of::<ErrorLogEntry>());
        for &(count, sqid, cid, status) in &self.entries {
            let mut entry = ErrorLogEntry::default();
            entry.error_count.set(count);
            entry.sqid.set(sqid);
            entry.cid.set(cid);
            entry.status_phase.set(status.bits() << 1);
            entry.parameter_error_location.set(0xffff);
            page.extend_from_slice(entry.as_bytes());
        }
        page.resize(ERROR_ENTRIES * size_of::<ErrorLogEntry>(), 0);
        page
    }
}

/// SMART's unit of data: 1000 × 512 bytes, rounded up.
fn data_units(bytes: u64) -> u128 {
    u128::from(bytes.div_ceil(512 * 1000))
}

impl Controller {
    pub(super) fn get_log_page(&mut self, sqe: &Sqe) -> Result<Outcome, Status> {
        let invalid = StatusCode::InvalidFieldInCommand;
        let page = match sqe.lid() {
            lid::ERROR_INFORMATION => self.errors.page(),
            lid::SMART => self.smart().as_bytes().to_vec(),
            lid::FIRMWARE_SLOT => self.firmware_slots().as_bytes().to_vec(),
            _ => {
                let reason = "a log page this controller does not have";
                return Err(self.refuse(0, sqe.cid(), StatusCode::InvalidLogPage, reason));
            }
        };
        // LPA bit 0 is clear: no log page is per namespace.
        if sqe.nsid.get() != 0 && sqe.nsid.get() != NSID_BROADCAST {
            return Err(self.refuse(
                0,
                sqe.cid(),
                invalid,
                "log page of a namespace, though LPA offers none",
            ));
        }
        let offset = sqe.log_page_offset();
        if offset & 3 != 0 || offset > page.len() as u64 {
            return Err(self.refuse(0, sqe.cid(), invalid, "log page offset beyond the page, or no dword"));
        }
        let len = sqe.numd_dwords() * 4;
        // Without an MDTS the general bound still keeps the answer within reason.
        let max = if self.config.mdts_bytes == 0 { 1 << 20 } else { u64::from(self.config.mdts_bytes) };
        if len > max {
            return Err(self.refuse(0, sqe.cid(), invalid, "transfer beyond MDTS"));
        }
        self.answer(sqe, &page[offset as usize..], len as usize)?;
        if !sqe.rae() {
            self.clear_events(sqe.lid());
        }
        Ok(Outcome::OK)
    }

    fn smart(&self) -> SmartLog {
        let counters = self.counters.snapshot();
        let mut log = SmartLog::default();
        log.critical_warning = self.features.critical_warning();
        log.composite_temperature.set(COMPOSITE_KELVIN);
        log.available_spare = 100;
        log.available_spare_threshold = 10;
        log.data_units_read.set(data_units(counters.read_bytes));
        log.data_units_written.set(data_units(counters.written_bytes));
        log.host_read_commands.set(u128::from(counters.reads));
        log.host_write_commands.set(u128::from(counters.writes));
        log.power_cycles.set(1);
        log.error_log_entries.set(u128::from(self.errors.count));
        log
    }

    fn firmware_slots(&self) -> FirmwareSlotLog {
        let mut log = FirmwareSlotLog::default();
        log.afi = 1;
        set_text(&mut log.frs[0], &self.config.firmware);
        log
    }
}
