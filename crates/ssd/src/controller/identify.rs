//! Identify (1.4 §5.15).

use meantime_spec::identify::{
    ActiveNamespaceList, IdentifyController, IdentifyNamespace, LbaFormat, NamespaceIdDescriptor, cns,
    dlfeat, lpa, nidt, oncs, vwc,
};
use meantime_spec::regs;
use meantime_spec::sqe::{NSID_BROADCAST, Sqe};
use meantime_spec::status::{Status, StatusCode};
use zerocopy::{FromZeros, IntoBytes};

use super::Controller;
use super::complete::Outcome;
use super::events::MAX_REQUESTS;
use super::features::{COMPOSITE_KELVIN, CRITICAL_KELVIN, WARNING_KELVIN};
use super::logs::ERROR_ENTRIES;
use crate::hostmem::PAGE_BYTES;
use crate::served::VENDOR_ID;
use crate::store::Namespace;

const _: () = assert!(COMPOSITE_KELVIN < WARNING_KELVIN && WARNING_KELVIN < CRITICAL_KELVIN);

impl Controller {
    pub(super) fn identify(&mut self, sqe: &Sqe) -> Result<Outcome, Status> {
        let nsid = sqe.nsid.get();
        match sqe.cns() {
            cns::NAMESPACE => {
                let data = match self.store.namespace(nsid) {
                    Some(namespace) => self.identify_namespace(namespace, nsid),
                    // What all namespaces have in common (only meaningful with Namespace Management).
                    None => return Err(self.no_namespace(sqe)),
                };
                self.answer(sqe, data.as_bytes(), PAGE_BYTES as usize)?;
            }
            cns::CONTROLLER => {
                let data = self.identify_controller();
                self.answer(sqe, data.as_bytes(), PAGE_BYTES as usize)?;
            }
            cns::ACTIVE_NAMESPACE_LIST => {
                if nsid >= NSID_BROADCAST - 1 {
                    return Err(self.no_namespace(sqe));
                }
                let mut list = ActiveNamespaceList::default();
                for (slot, active) in list.nsid.iter_mut().zip(nsid + 1..=self.store.namespace_count()) {
                    slot.set(active);
                }
                self.answer(sqe, list.as_bytes(), PAGE_BYTES as usize)?;
            }
            cns::NAMESPACE_ID_DESCRIPTORS => {
                if self.store.namespace(nsid).is_none() {
                    return Err(self.no_namespace(sqe));
                }
                let mut data = NamespaceIdDescriptor::new(nidt::NGUID, 16).as_bytes().to_vec();
                data.extend(self.nguid(nsid));
                self.answer(sqe, &data, PAGE_BYTES as usize)?;
            }
            _ => {
                let reason = "Identify: a structure that this version does not have";
                return Err(self.refuse(0, sqe.cid(), StatusCode::InvalidFieldInCommand, reason));
            }
        }
        Ok(Outcome::OK)
    }

    fn no_namespace(&mut self, sqe: &Sqe) -> Status {
        self.refuse(0, sqe.cid(), StatusCode::InvalidNamespaceOrFormat, "no such namespace")
    }

    fn identify_controller(&self) -> IdentifyController {
        let config = &self.config;
        let mut c = IdentifyController::new_zeroed();
        // What the PCI function has, where there is one (1.4 §5.15.2.1, figure 247).
        c.vid.set(VENDOR_ID);
        c.ssvid.set(VENDOR_ID);
        c.set_serial(&config.serial);
        c.set_model(&config.model_number);
        c.set_firmware(&config.firmware);
        c.set_subsystem_nqn(&format!("nqn.2026-01.io.meantime:{}", config.serial));
        // In units of the smallest page, as a power of two; 0 is no limit (1.4 Figure 247).
        c.mdts = match config.mdts_bytes {
            0 => 0,
            bytes => (bytes.trailing_zeros() - 12) as u8,
        };
        c.ver.set(self.regs.read32(regs::VS));
        // I/O controller.
        c.cntrltype = 1;
        c.acl = 3;
        c.aerl = (MAX_REQUESTS - 1) as u8;
        // One firmware slot, read only.
        c.frmw = 0b11;
        c.lpa = lpa::EXTENDED_DATA;
        c.elpe = (ERROR_ENTRIES - 1) as u8;
        c.wctemp.set(WARNING_KELVIN);
        c.cctemp.set(CRITICAL_KELVIN);
        c.tnvmcap.set(u128::from(self.store.total_bytes()));
        c.sqes = 0x66;
        c.cqes = 0x44;
        c.nn.set(self.store.namespace_count());
        c.oncs.set(oncs::COMPARE | oncs::DATASET_MANAGEMENT | oncs::WRITE_ZEROES | oncs::VERIFY);
        let present = if self.store.has_cache() { vwc::PRESENT } else { 0 };
        c.vwc = vwc::FLUSH_ALL_SUPPORTED | present;
        c.awun.set(config.atomic_write_lbas - 1);
        c.awupf.set(config.atomic_write_lbas - 1);
        c
    }

    fn identify_namespace(&self, namespace: &Namespace, nsid: u32) -> IdentifyNamespace {
        let mut n = IdentifyNamespace::new_zeroed();
        n.nsze.set(namespace.blocks);
        n.ncap.set(namespace.blocks);
        n.nuse.set(namespace.blocks);
        n.nlbaf = 0;
        n.flbas = 0;
        n.lbaf[0] = LbaFormat::new(namespace.lba_shift);
        n.dlfeat = dlfeat::READ_ZEROES | dlfeat::WRITE_ZEROES_DEALLOCATE;
        n.noiob.set(self.config.optimal_io_boundary_lbas);
        n.nvmcap.set(u128::from(namespace.bytes()));
        n.nguid = self.nguid(nsid);
        n
    }

    /// A namespace's identifier, derived from the serial number so that it is the same each time.
    /// Two SSDs of one serial number have the same: hence NSFEAT does not say that they are never reused.
    fn nguid(&self, nsid: u32) -> [u8; 16] {
        // FNV-1a, 64 bits.
        let hash = self.config.serial.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        let mut nguid = [0; 16];
        nguid[..8].copy_from_slice(&hash.to_be_bytes());
        nguid[12..].copy_from_slice(&nsid.to_be_bytes());
        nguid
    }
}
