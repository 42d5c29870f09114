//! Log pages (1.4 §5.14).

use meantime_nvme_spec::bytes::set_text;
use meantime_nvme_spec::log::{
    CommandEffects, CommandsSupportedLog, FirmwareSlotLog, SmartLog, lid,
};
use meantime_nvme_spec::opcode::{AdminOpcode, IoOpcode};
use meantime_nvme_spec::sqe::{NSID_BROADCAST, Sqe};
use meantime_nvme_spec::status::StatusCode;
use zerocopy::IntoBytes;

use super::Controller;
use super::features::COMPOSITE_KELVIN;
use super::identify::FIRMWARE;
use super::outcome::{Checked, Outcome, invalid_if, refused};

/// Converts to SMART's unit of data, 1000 × 512 bytes, rounded up.
fn data_units(bytes: u64) -> u128 {
    u128::from(bytes.div_ceil(512 * 1000))
}

/// Returns the effects of an I/O command, or `None` if there is no such command.
fn io_effects(opcode: IoOpcode) -> Option<CommandEffects> {
    let supported = CommandEffects(0).with_csupp(true);
    match opcode {
        IoOpcode::Flush | IoOpcode::Read | IoOpcode::Compare | IoOpcode::Verify => Some(supported),
        IoOpcode::Write
        | IoOpcode::WriteUncorrectable
        | IoOpcode::WriteZeroes
        | IoOpcode::DatasetManagement => Some(supported.with_lbcc(true)),
        _ => None,
    }
}

impl Controller {
    pub(super) fn get_log_page(&mut self, sqe: &Sqe) -> Checked {
        let page = match sqe.lid() {
            lid::ERROR_INFORMATION => self.errors.page(),
            lid::SMART => self.smart().as_bytes().to_vec(),
            lid::FIRMWARE_SLOT => Self::firmware_slots().as_bytes().to_vec(),
            lid::COMMANDS_SUPPORTED => self.commands_supported().as_bytes().to_vec(),
            _ => {
                let rule = "a log page this controller does not have";
                return Err(refused(StatusCode::InvalidLogPage, rule));
            }
        };
        // LPA bit 0 is clear, so no log page is per namespace.
        let of_one = !matches!(sqe.nsid.get(), 0 | NSID_BROADCAST);
        invalid_if(of_one, "log page of a namespace, though LPA offers none")?;
        let offset = sqe.log_page_offset();
        let beyond = offset & 3 != 0 || offset > page.len() as u64;
        invalid_if(beyond, "log page offset beyond the page, or no dword")?;
        let len = sqe.numd_dwords() * 4;
        // Without an MDTS the general bound still limits the answer.
        let max =
            if self.config.mdts_bytes == 0 { 1 << 20 } else { u64::from(self.config.mdts_bytes) };
        invalid_if(len > max, "transfer beyond MDTS")?;
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
        log.power_cycles.set(u128::from(self.power_cycles));
        log.unsafe_shutdowns.set(u128::from(self.unsafe_shutdowns));
        log.media_errors.set(u128::from(counters.media_errors));
        log.error_log_entries.set(u128::from(self.errors.count));
        log
    }

    fn firmware_slots() -> FirmwareSlotLog {
        let mut log = FirmwareSlotLog::default();
        log.afi = 1;
        set_text(&mut log.frs[0], FIRMWARE);
        log
    }

    /// Returns the effects of an admin command, or `None` if there is no such command.
    fn admin_effects(&self, opcode: AdminOpcode) -> Option<CommandEffects> {
        let supported = CommandEffects(0).with_csupp(true);
        match opcode {
            AdminOpcode::DeleteIoSq
            | AdminOpcode::CreateIoSq
            | AdminOpcode::GetLogPage
            | AdminOpcode::DeleteIoCq
            | AdminOpcode::CreateIoCq
            | AdminOpcode::Identify
            | AdminOpcode::Abort
            | AdminOpcode::SetFeatures
            | AdminOpcode::GetFeatures
            | AdminOpcode::AsyncEventRequest
            | AdminOpcode::KeepAlive => Some(supported),
            AdminOpcode::DoorbellBufferConfig => self.config.shadow_doorbells.then_some(supported),
            _ => None,
        }
    }

    fn commands_supported(&self) -> CommandsSupportedLog {
        let mut log = CommandsSupportedLog::default();
        for &opcode in AdminOpcode::ALL {
            log.admin[opcode as usize].set(self.admin_effects(opcode).unwrap_or_default().0);
        }
        for &opcode in IoOpcode::ALL {
            log.io[opcode as usize].set(io_effects(opcode).unwrap_or_default().0);
        }
        log
    }
}
