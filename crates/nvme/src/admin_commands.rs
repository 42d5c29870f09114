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

impl Controller {
    /// Reads feature `fid` (NVMe Base 1.4 §5.13).
    ///
    /// # Errors
    /// Returns the controller's error, e.g. *Invalid Field in Command* for an unsupported feature.
    pub fn get_feature(&self, fid: u8, nsid: u32) -> Result<u32> {
        Ok(self.execute("Get Features", Sqe::get_features(0, nsid, fid, sel::CURRENT, 0), None)?.0)
    }

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

    /// Reads the first `bytes` of log page `lid`, a page of memory at a time.
    ///
    /// # Errors
    /// Fails if there is no memory. Returns [`Error::Unsupported`] unless `bytes` is a positive
    /// multiple of 4, or the controller's error.
    pub fn get_log_page(&self, lid: u8, nsid: u32, bytes: u32) -> Result<Vec<u8>> {
        if bytes == 0 || !bytes.is_multiple_of(4) {
            return Err(Error::Unsupported(format!(
                "{bytes} bytes of a log page (a positive multiple of 4 is possible)"
            )));
        }
        let mut log = Vec::new();
        while log.len() < bytes as usize {
            let (offset, len) = (log.len() as u64, (bytes as usize - log.len()).min(4096));
            let data = self.heap().alloc(len)?;
            // Events stay asserted (RAE) until the last part is read.
            let more = log.len() + len < bytes as usize;
            let sqe =
                Sqe::get_log_page(0, nsid, lid, 0, more, len as u32 / 4, offset, data.iova().0, 0);
            let (_, data) = self.execute("Get Log Page", sqe, Some(data))?;
            log.extend_from_slice(&data.ok_or(Error::Gone)?);
        }
        Ok(log)
    }

    fn log<T: FromBytes>(&self, lid: u8, structure: &'static str) -> Result<T> {
        let bytes = self.get_log_page(lid, NSID_BROADCAST, size_of::<T>() as u32)?;
        let what = format!("{} bytes", bytes.len());
        T::read_from_bytes(&bytes).map_err(|_| Error::Invalid { structure, what })
    }

    /// The SMART / health log (1.4 §5.14.1.2).
    ///
    /// # Errors
    /// Returns the controller's error.
    pub fn smart(&self) -> Result<SmartLog> {
        self.log(lid::SMART, "SMART log")
    }

    /// The entries of the error log (1.4 §5.14.1.1), the latest first, at most `most`.
    ///
    /// # Errors
    /// Returns the controller's error.
    pub fn error_log(&self, most: u16) -> Result<Vec<ErrorLogEntry>> {
        let entries = most.min(self.info().error_log_entries).max(1);
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
    pub fn firmware_slots(&self) -> Result<FirmwareSlotLog> {
        self.log(lid::FIRMWARE_SLOT, "firmware slot log")
    }

    /// The supported commands and their effects (1.4 §5.14.1.5); `None` if the controller does not
    /// keep this log.
    ///
    /// # Errors
    /// Returns the controller's error.
    pub fn commands_supported(&self) -> Result<Option<CommandsSupportedLog>> {
        // A controller without the log would put the request into its error log.
        if !self.info().has_commands_log {
            return Ok(None);
        }
        self.log(lid::COMMANDS_SUPPORTED, "commands supported log").map(Some)
    }

    /// The identifiers of namespace `nsid`. They are empty if the controller does not support the
    /// query (before 1.3).
    ///
    /// # Errors
    /// Returns the controller's error.
    pub fn namespace_ids(&self, nsid: u32) -> Result<NamespaceIds> {
        let version = self.info().version;
        if (version.major(), version.minor()) < (1, 3) {
            return Ok(NamespaceIds::default());
        }
        let data = self.heap().alloc(4096)?;
        let sqe = Sqe::identify(0, nsid, cns::NAMESPACE_ID_DESCRIPTORS, 0, data.iova().0, 0);
        let (_, data) =
            self.execute("Identify (namespace identification descriptors)", sqe, Some(data))?;
        Ok(NamespaceIds::of(&data.ok_or(Error::Gone)?))
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
