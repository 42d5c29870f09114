//! Format NVM (1.4 §5.23).

use meantime_spec::log::AsyncEventCode;
use meantime_spec::sqe::{NSID_BROADCAST, Sqe};
use meantime_spec::status::StatusCode;

use super::Controller;
use super::complete::Outcome;
use super::failure::{Checked, invalid_field, no_such_namespace, refused};
use super::io::check_stored;

/// The LBA formats: logarithms of the bytes per block, without metadata.
pub(super) const LBA_FORMATS: [u8; 2] = [9, 12];

impl Controller {
    pub(super) fn format_nvm(&mut self, sqe: &Sqe) -> Checked {
        let nsid = sqe.nsid.get();
        if nsid != NSID_BROADCAST && self.store.namespace(nsid).is_none() {
            return Err(no_such_namespace());
        }
        let Some(&lba_shift) = LBA_FORMATS.get(usize::from(sqe.lbaf())) else {
            return Err(refused(StatusCode::InvalidFormat, "Format NVM: LBAF beyond NLBAF"));
        };
        if sqe.pi() != 0 || sqe.mset() {
            let rule = "Format NVM: metadata or protection information, which no format has";
            return Err(refused(StatusCode::InvalidFormat, rule).at(40, 4));
        }
        // SES 1 erases the user data, which happens in any case.
        if sqe.ses() > 1 {
            let rule = "Format NVM: a secure erase that FNA does not offer, or a reserved one";
            return Err(invalid_field(41, 1, rule));
        }
        if self.store.write_protected() {
            let rule = "Format NVM: the namespace is write protected";
            return Err(refused(StatusCode::NamespaceIsWriteProtected, rule));
        }
        // 1.4 §5.23: pending I/O commands of the namespace are a reason to refuse.
        if self.pending.has_namespace(nsid) {
            let rule = "Format NVM: I/O commands of the namespace are outstanding";
            return Err(refused(StatusCode::CommandSequenceError, rule));
        }
        let nsids =
            if nsid == NSID_BROADCAST { 1..=self.store.namespace_count() } else { nsid..=nsid };
        for nsid in nsids {
            let before = self.store.namespace(nsid).map(|namespace| namespace.lba_shift);
            check_stored(sqe, self.store.format(nsid, lba_shift))?;
            if before != Some(lba_shift) {
                self.changed_namespaces.insert(nsid);
            }
        }
        if !self.changed_namespaces.is_empty()
            && self.features.current.events().namespace_attribute()
        {
            self.event(AsyncEventCode::NamespaceAttributeChanged);
        }
        // The format has cleared all uncorrectable blocks.
        self.choose_path();
        Ok(Outcome::OK)
    }
}
