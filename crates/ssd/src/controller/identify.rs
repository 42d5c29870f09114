//! Identify (1.4 §5.15).

use meantime_nvme_spec::identify::{
    ActiveNamespaceList, IdentifyController, IdentifyNamespace, IndependentNamespace, LbaFormat,
    NamespaceIdDescriptor, PowerStateDescriptor, apsta, cns, controller_type, csi, ctratt, dlfeat,
    fuses, lpa, nidt, nstat, oacs, oncs, vwc,
};
use meantime_nvme_spec::regs;
use meantime_nvme_spec::sgl::sgls;
use meantime_nvme_spec::sqe::{NSID_BROADCAST, Sqe};
use zerocopy::{FromZeros, IntoBytes};

use super::Controller;
use super::error_log::ERROR_ENTRIES;
use super::features::{COMPOSITE_KELVIN, CRITICAL_KELVIN, WARNING_KELVIN};
use super::keep_alive::GRANULARITY_100MS;
use super::outcome::{Checked, Outcome, invalid_field, no_such_namespace};
use crate::config::PowerState;
use crate::event_requests::MAX_REQUESTS;
use crate::hostmem::PAGE_BYTES;
use crate::served::VENDOR_ID;
use crate::store::Namespace;

/// The firmware revision.
pub(crate) const FIRMWARE: &str = env!("CARGO_PKG_VERSION");

const _: () = assert!(COMPOSITE_KELVIN < WARNING_KELVIN && WARNING_KELVIN < CRITICAL_KELVIN);

impl Controller {
    pub(super) fn identify(&mut self, sqe: &Sqe) -> Checked {
        let nsid = sqe.nsid.get();
        let namespace = self.store.namespace(nsid).ok_or_else(no_such_namespace);
        let data: Vec<u8> = match sqe.cns() {
            // NSID FFFFFFFFh (the capabilities common to all namespaces) is only meaningful with
            // Namespace Management.
            cns::NAMESPACE => self.identify_namespace(namespace?, nsid).as_bytes().into(),
            cns::CONTROLLER => self.identify_controller().as_bytes().into(),
            cns::ACTIVE_NAMESPACE_LIST if nsid >= NSID_BROADCAST - 1 => {
                return Err(no_such_namespace());
            }
            cns::ACTIVE_NAMESPACE_LIST => {
                let mut list = ActiveNamespaceList::default();
                for (slot, active) in
                    list.nsid.iter_mut().zip(nsid + 1..=self.store.namespace_count())
                {
                    slot.set(active);
                }
                list.as_bytes().into()
            }
            cns::NAMESPACE_ID_DESCRIPTORS => {
                namespace?;
                let (eui64, nguid, uuid) = (self.eui64(nsid), self.nguid(nsid), self.uuid(nsid));
                let mut data = Vec::new();
                for (kind, id) in
                    [(nidt::NGUID, &nguid[..]), (nidt::EUI64, &eui64), (nidt::UUID, &uuid)]
                {
                    data.extend(NamespaceIdDescriptor::new(kind, id.len() as u8).as_bytes());
                    data.extend(id);
                }
                data
            }
            // These are data structures of 2.0. Hosts ask for them whatever VS says.
            cns::NAMESPACE_OF_COMMAND_SET | cns::CONTROLLER_OF_COMMAND_SET
                if sqe.csi() != csi::NVM =>
            {
                return Err(invalid_field("Identify: of another command set than NVM"));
            }
            // There is no protection information, and therefore there are no storage tags.
            cns::NAMESPACE_OF_COMMAND_SET => namespace.map(|_| Vec::new())?,
            // No command has a limit of its own.
            cns::CONTROLLER_OF_COMMAND_SET => Vec::new(),
            cns::NAMESPACE_INDEPENDENT => {
                namespace?;
                let mut data = IndependentNamespace::new_zeroed();
                data.nsattr = self.store.write_protected().into();
                data.nstat = nstat::READY;
                data.as_bytes().into()
            }
            _ => {
                return Err(invalid_field("Identify: a structure that this version does not have"));
            }
        };
        self.answer(sqe, &data, PAGE_BYTES as usize)?;
        Ok(Outcome::OK)
    }

    fn identify_controller(&self) -> IdentifyController {
        let config = &self.config;
        let mut c = IdentifyController::new_zeroed();
        // These are the PCI function's values, where there is one (1.4 §5.15.2.1, figure 247).
        c.vid.set(VENDOR_ID);
        c.ssvid.set(VENDOR_ID);
        c.set_serial(&config.serial);
        c.set_model("Meantime software SSD");
        c.set_firmware(FIRMWARE);
        c.set_subsystem_nqn(&format!("nqn.2026-01.io.meantime:{}", config.serial));
        // The limit is in units of the smallest page, as a power of two; 0 means no limit (1.4
        // Figure 247).
        c.mdts = match config.mdts_bytes {
            0 => 0,
            bytes => (bytes.trailing_zeros() - 12) as u8,
        };
        c.ver.set(self.regs.read32(regs::VS));
        // This is an I/O controller.
        c.cntrltype = controller_type::IO;
        c.acl = 3;
        c.aerl = (MAX_REQUESTS - 1) as u8;
        c.kas.set(GRANULARITY_100MS);
        c.ctratt.set(ctratt::TRAFFIC_BASED_KEEP_ALIVE);
        // There is one firmware slot, which is read only.
        c.frmw = 0b11;
        c.lpa = lpa::EXTENDED_DATA | lpa::COMMANDS_SUPPORTED;
        c.oacs.set(if config.shadow_doorbells { oacs::DOORBELL_BUFFER_CONFIG } else { 0 });
        c.crdt1.set(1);
        c.crdt2.set(10);
        c.crdt3.set(50);
        c.npss = (config.power_states.len() - 1) as u8;
        for (psd, state) in c.psd.iter_mut().zip(&config.power_states) {
            let PowerState { max_power_10mw, enlat_us, exlat_us, non_operational } = *state;
            *psd = PowerStateDescriptor::new(max_power_10mw, enlat_us, exlat_us, non_operational);
        }
        if config.power_states.iter().any(|state| state.non_operational) {
            c.apsta = apsta::SUPPORTED;
        }
        c.elpe = (ERROR_ENTRIES - 1) as u8;
        c.wctemp.set(WARNING_KELVIN);
        c.cctemp.set(CRITICAL_KELVIN);
        c.tnvmcap.set(u128::from(self.store.total_bytes()));
        c.sqes = 0x66;
        c.cqes = 0x44;
        c.nn.set(self.store.namespace_count());
        c.oncs.set(
            oncs::COMPARE
                | oncs::WRITE_UNCORRECTABLE
                | oncs::DATASET_MANAGEMENT
                | oncs::WRITE_ZEROES
                | oncs::VERIFY,
        );
        c.sgls.set(sgls::SUPPORTED);
        let present = if self.store.has_cache() { vwc::PRESENT } else { 0 };
        c.vwc = vwc::FLUSH_ALL_SUPPORTED | present;
        c.awun.set(config.atomic_write_lbas - 1);
        c.awupf.set(config.atomic_write_lbas - 1);
        c.fuses.set(fuses::COMPARE_AND_WRITE);
        c.acwu.set(config.atomic_write_lbas - 1);
        c
    }

    fn identify_namespace(&self, namespace: &Namespace, nsid: u32) -> IdentifyNamespace {
        let mut n = IdentifyNamespace::new_zeroed();
        n.nsze.set(namespace.blocks);
        n.ncap.set(namespace.blocks);
        n.nuse.set(namespace.blocks);
        n.lbaf[0] = LbaFormat::new(namespace.lba_shift);
        n.dlfeat = dlfeat::READ_ZEROES | dlfeat::WRITE_ZEROES_DEALLOCATE;
        n.noiob.set(self.config.optimal_io_boundary_lbas);
        n.nvmcap.set(u128::from(namespace.bytes()));
        n.nsattr = u8::from(self.store.write_protected());
        n.nguid = self.nguid(nsid);
        n.eui64 = self.eui64(nsid);
        n
    }

    /// Returns a namespace's identifier, derived from the serial number so that it is stable across
    /// runs. Two SSDs with one serial number have the same one, so NSFEAT does not claim that
    /// identifiers are never reused.
    fn nguid(&self, nsid: u32) -> [u8; 16] {
        let mut nguid = [0; 16];
        nguid[..8].copy_from_slice(&self.serial_hash().to_be_bytes());
        nguid[12..].copy_from_slice(&nsid.to_be_bytes());
        nguid
    }

    /// Returns the identifier as an EUI-64, marked as administered locally.
    fn eui64(&self, nsid: u32) -> [u8; 8] {
        let mut eui64 = self.serial_hash().to_be_bytes();
        eui64[0] = eui64[0] & !1 | 2;
        eui64[4..].copy_from_slice(&nsid.to_be_bytes());
        eui64
    }

    /// Returns the identifier as a UUID of version 8, whose content is implementation-specific (RFC
    /// 9562 §5.8).
    fn uuid(&self, nsid: u32) -> [u8; 16] {
        let mut uuid = self.nguid(nsid);
        uuid[6] = uuid[6] & 0xf | 0x80;
        uuid[8] = uuid[8] & 0x3f | 0x80;
        uuid
    }

    fn serial_hash(&self) -> u64 {
        hash(&self.config.serial)
    }
}

/// Returns the FNV-1a hash of `text`, 64 bits, for identifiers that are the same in each run.
pub(crate) fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
