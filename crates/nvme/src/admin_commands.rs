//! The commands that callers ask of a controller: features, and log pages and identification that
//! the driver itself does not need (NVMe Base 1.4 §5.13 to §5.15, §5.21).

use meantime_nvme_spec::features::{InterruptCoalescing, fid, sel};
use meantime_nvme_spec::identify::{NamespaceIdDescriptors, cns, nidt};
use meantime_nvme_spec::log::{
    CommandsSupportedLog, ErrorLogEntry, FirmwareSlotLog, SmartLog, lid,
};
use meantime_nvme_spec::sqe::{NSID_BROADCAST, Sqe};
use zerocopy::FromBytes;

use super::controller::Controller;
use super::error::{Error, Result};
use super::identified::Identified;

/// A namespace's globally unique identifiers, as far as it has them (1.4 §5.15.2, CNS 03h).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NamespaceIds {
    /// IEEE Extended Unique Identifier.
    pub eui64: Option<[u8; 8]>,
    /// Namespace Globally Unique Identifier.
    pub nguid: Option<[u8; 16]>,
    /// Namespace UUID.
    pub uuid: Option<[u8; 16]>,
}

impl NamespaceIds {
    /// Parses the list of descriptors. Skips a descriptor whose length does not match its type, and
    /// one of all zeroes, which stands for no identifier.
    fn of(list: &[u8]) -> Self {
        fn id<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
            bytes.try_into().ok().filter(|id| *id != [0; N])
        }
        let mut ids = Self::default();
        for (kind, bytes) in NamespaceIdDescriptors::new(list) {
            match kind {
                nidt::EUI64 => ids.eui64 = id(bytes),
                nidt::NGUID => ids.nguid = id(bytes),
                nidt::UUID => ids.uuid = id(bytes),
                _ => {}
            }
        }
        ids
    }
}

/// Admin commands that only read, for controllers of this driver and of the kernel's.
pub trait AdminQueries: Send + Sync {
    /// What Identify reported.
    fn identified(&self) -> &Identified;

    /// Executes `sqe`, whose name is `command`: an admin command that only reads, and transfers
    /// `bytes` of data to the host, at most 4,096. Returns CQE.DW0 and the data.
    ///
    /// # Errors
    /// Returns [`Error::Admin`] with the controller's status, or why there is none.
    fn query(&self, command: &'static str, sqe: Sqe, bytes: usize) -> Result<(u32, Vec<u8>)>;

    /// Whether events that a log page tells of stay asserted although the page is read (RAE),
    /// because another driver waits for them.
    fn retains_events(&self) -> bool {
        false
    }

    /// Reads feature `fid` (NVMe Base 1.4 §5.13).
    ///
    /// # Errors
    /// Returns the controller's error, e.g. *Invalid Field in Command* for an unsupported feature.
    fn get_feature(&self, fid: u8, nsid: u32) -> Result<u32> {
        self.get_feature_of(sel::CURRENT, fid, nsid)
    }

    /// Reads feature `fid` as `sel` says, a constant of
    /// [`sel`](meantime_nvme_spec::features::sel).
    ///
    /// # Errors
    /// Returns the controller's error.
    fn get_feature_of(&self, sel: u8, fid: u8, nsid: u32) -> Result<u32> {
        Ok(self.query("Get Features", Sqe::get_features(0, nsid, fid, sel, 0), 0)?.0)
    }

    /// Reads the data structure `cns` of Identify (1.4 §5.15): 4096 bytes, not validated.
    ///
    /// # Errors
    /// Returns the controller's error, e.g. *Invalid Field in Command* for an unknown structure.
    fn identify_data(&self, cns: u8, nsid: u32) -> Result<Vec<u8>> {
        Ok(self.query("Identify", Sqe::identify(0, nsid, cns, 0, 0, 0), 4096)?.1)
    }

    /// Reads the first `bytes` of log page `lid`, a page of memory at a time.
    ///
    /// # Errors
    /// Fails if there is no memory. Returns [`Error::Unsupported`] unless `bytes` is a positive
    /// multiple of 4, or the controller's error.
    fn get_log_page(&self, lid: u8, nsid: u32, bytes: u32) -> Result<Vec<u8>> {
        if bytes == 0 || !bytes.is_multiple_of(4) {
            return Err(Error::Unsupported(format!(
                "{bytes} bytes of a log page (a positive multiple of 4 is possible)"
            )));
        }
        let mut log = Vec::new();
        while log.len() < bytes as usize {
            let (offset, len) = (log.len() as u64, (bytes as usize - log.len()).min(4096));
            // Events stay asserted (RAE) until the last part is read.
            let more = log.len() + len < bytes as usize;
            let (rae, dwords) = (more || self.retains_events(), len as u32 / 4);
            let sqe = Sqe::get_log_page(0, nsid, lid, 0, rae, dwords, offset, 0, 0);
            log.extend(self.query("Get Log Page", sqe, len)?.1);
        }
        Ok(log)
    }

    /// The SMART / health log (1.4 §5.14.1.2).
    ///
    /// # Errors
    /// Returns the controller's error.
    fn smart(&self) -> Result<SmartLog> {
        log(self, lid::SMART, "SMART log")
    }

    /// The entries of the error log (1.4 §5.14.1.1), the latest first, at most `most`.
    ///
    /// # Errors
    /// Returns the controller's error.
    fn error_log(&self, most: u16) -> Result<Vec<ErrorLogEntry>> {
        let entries = most.min(self.identified().info.error_log_entries).max(1);
        let bytes = u32::from(entries) * size_of::<ErrorLogEntry>() as u32;
        let bytes = self.get_log_page(lid::ERROR_INFORMATION, NSID_BROADCAST, bytes)?;
        let entries = bytes.chunks_exact(size_of::<ErrorLogEntry>());
        let entries = entries.filter_map(|bytes| ErrorLogEntry::read_from_bytes(bytes).ok());
        // An error count of 0 is an entry that was never used.
        Ok(entries
            .take_while(|entry| entry.error_count.get() != 0)
            .take(usize::from(most))
            .collect())
    }

    /// The firmware slots (1.4 §5.14.1.3).
    ///
    /// # Errors
    /// Returns the controller's error.
    fn firmware_slots(&self) -> Result<FirmwareSlotLog> {
        log(self, lid::FIRMWARE_SLOT, "firmware slot log")
    }

    /// The supported commands and their effects (1.4 §5.14.1.5); `None` if the controller does not
    /// keep this log.
    ///
    /// # Errors
    /// Returns the controller's error.
    fn commands_supported(&self) -> Result<Option<CommandsSupportedLog>> {
        // A controller without the log would put the request into its error log.
        if !self.identified().info.has_commands_log {
            return Ok(None);
        }
        log(self, lid::COMMANDS_SUPPORTED, "commands supported log").map(Some)
    }

    /// The identifiers of namespace `nsid`. They are empty if the controller does not support the
    /// query (before 1.3).
    ///
    /// # Errors
    /// Returns the controller's error.
    fn namespace_ids(&self, nsid: u32) -> Result<NamespaceIds> {
        let version = self.identified().info.version;
        if (version.major(), version.minor()) < (1, 3) {
            return Ok(NamespaceIds::default());
        }
        let sqe = Sqe::identify(0, nsid, cns::NAMESPACE_ID_DESCRIPTORS, 0, 0, 0);
        let (_, list) = self.query("Identify (namespace identification descriptors)", sqe, 4096)?;
        Ok(NamespaceIds::of(&list))
    }
}

fn log<T: FromBytes>(
    of: &(impl AdminQueries + ?Sized),
    lid: u8,
    structure: &'static str,
) -> Result<T> {
    let bytes = of.get_log_page(lid, NSID_BROADCAST, size_of::<T>() as u32)?;
    let what = format!("{} bytes", bytes.len());
    T::read_from_bytes(&bytes).map_err(|_| Error::Invalid { structure, what })
}

impl AdminQueries for Controller {
    fn identified(&self) -> &Identified {
        &self.identified
    }

    fn query(&self, command: &'static str, sqe: Sqe, bytes: usize) -> Result<(u32, Vec<u8>)> {
        if bytes == 0 {
            return Ok((self.execute(command, sqe, None)?.0, Vec::new()));
        }
        let data = self.heap().alloc(bytes)?;
        let sqe = sqe.with_prps(data.iova().0, 0);
        let (dw0, data) = self.execute(command, sqe, Some(data))?;
        Ok((dw0, data.ok_or(Error::Gone)?.to_vec()))
    }
}

impl Controller {
    /// Writes feature `fid` while this controller is open: it is set again after a reset, and not
    /// saved in the device. With the volatile write cache off (1.4 §5.21.1.6), every completed
    /// write is durable, and slower.
    ///
    /// # Errors
    /// Returns the controller's error.
    pub fn set_feature(&self, fid: u8, nsid: u32, value: u32) -> Result<u32> {
        self.with_features(|features, sender| features.set(sender, fid, nsid, value))
    }

    /// Whether the device leaves power state 0 by itself (autonomous power state transitions, 1.4
    /// §5.21.1.12).
    ///
    /// # Errors
    /// Returns the controller's error.
    pub fn autonomous_power_states(&self) -> Result<bool> {
        self.with_features(|_, sender| Ok(sender.apst()?.0.apste()))
    }

    /// Makes the controller collect up to `completions` (1 to 256) before it interrupts, for at
    /// most `time_100us` × 100 µs (1.4 §5.21.1.8); 1 or 0 turn it off. A polled queue is not
    /// affected.
    ///
    /// # Errors
    /// Returns [`Error::Unsupported`] for an invalid number, or the controller's error.
    pub fn set_interrupt_coalescing(&self, completions: u16, time_100us: u8) -> Result<()> {
        let Some(threshold) = completions.checked_sub(1).and_then(|thr| u8::try_from(thr).ok())
        else {
            let what = format!("{completions} completions an interrupt (1 to 256 are possible)");
            return Err(Error::Unsupported(what));
        };
        let value = InterruptCoalescing(0).with_thr(threshold).with_time(time_100us);
        self.set_feature(fid::INTERRUPT_COALESCING, 0, value.0).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1.4 §5.15.2, figure "Namespace Identification Descriptor": NIDT, NIDL, two reserved bytes,
    /// NID.
    #[test]
    fn identifiers_by_type_and_length() {
        let mut list = vec![1, 8, 0, 0, 0xaa, 1, 2, 3, 4, 5, 6, 7];
        // A UUID of a wrong length, and an NGUID of zeroes.
        list.extend([3, 4, 0, 0, 9, 9, 9, 9]);
        list.extend([2, 16, 0, 0]);
        list.extend([0; 16]);
        // An unknown type does not end the list.
        list.extend([200, 1, 0, 0, 7]);
        list.extend([3, 16, 0, 0]);
        list.extend(1..=16);
        list.resize(4096, 0);
        let ids = NamespaceIds::of(&list);
        assert_eq!(ids.eui64, Some([0xaa, 1, 2, 3, 4, 5, 6, 7]));
        assert_eq!(ids.nguid, None);
        assert_eq!(ids.uuid, Some([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]));
        assert_eq!(NamespaceIds::of(&[0; 4096]), NamespaceIds::default());
        // A descriptor that extends beyond its page.
        assert_eq!(NamespaceIds::of(&[1, 200, 0, 0, 1, 2]), NamespaceIds::default());
    }
}
