//! The controller memory buffer (1.4 §3.1.11, §3.1.12, §3.1.16, §3.1.17, §4.7), for submission
//! queues only.
//!
//! As 1.4 specifies: CAP.CMBS says that there is one; CMBLOC and CMBSZ say where and how large once
//! the host has set CMBMSC.CRE; the controller decodes addresses from CMBMSC.CBA on while CMSE is
//! set. The transport presents it to the host at the start of BAR 2.

use std::sync::atomic::Ordering;

use meantime_spec::regs::{Cmbloc, Cmbmsc, Cmbsts, Cmbsz};

use super::Controller;
use super::regs::RegisterFile;
use crate::hostmem::{PAGE_BYTES, Ring};

/// The BAR that holds it.
const BAR: u8 = 2;

impl RegisterFile {
    pub(super) fn cmbmsc(&self) -> Cmbmsc {
        Cmbmsc(self.cmbmsc.load(Ordering::Acquire))
    }

    /// CMBLOC.
    pub(super) fn cmbloc(&self) -> u32 {
        if self.cmbmsc().cre() { Cmbloc(0).with_bir(BAR).0 } else { 0 }
    }

    /// CMBSZ: in pages.
    pub(super) fn cmbsz(&self) -> u32 {
        let pages = self.cmb_bytes / PAGE_BYTES as u32;
        if self.cmbmsc().cre() { Cmbsz(0).with_sqs(true).with_sz(pages).0 } else { 0 }
    }

    /// CMBSTS.
    pub(super) fn cmbsts(&self) -> u32 {
        let control = self.cmbmsc();
        let wraps = control.cba().checked_add(u64::from(self.cmb_bytes)).is_none();
        Cmbsts(0).with_cbai(control.cmse() && wraps).0
    }
}

impl Controller {
    pub(super) fn write_cmbmsc(&mut self, value: u64) {
        if self.config.cmb_bytes == 0 {
            self.bad_register("write to a register that is read-only or reserved");
            return;
        }
        // Bits 11:2 are reserved.
        let control = Cmbmsc(value & !0xffc);
        let moved = control.cba() != self.regs.cmbmsc().cba() || !control.cmse();
        if moved && self.sqs.iter().any(|sq| self.host.is_controller_memory(sq.ring.iova())) {
            self.counters.bad_registers.add(1);
            self.fatal("the controller memory buffer was taken away from a queue in it");
        }
        self.regs.cmbmsc.store(control.0, Ordering::Release);
        let usable = control.cmse() && self.regs.cmbsts() == 0;
        self.host.place_controller_memory(usable.then(|| control.cba()));
    }

    /// The memory of a new submission queue, in host memory or in the controller's own.
    pub(super) fn sq_ring(&self, base: u64, entries: u32) -> Option<Ring> {
        if self.host.is_controller_memory(base) {
            return self.host.ring_in_controller_memory(base, entries, 64);
        }
        self.host.ring(base, entries, 64)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use meantime_spec::regs;
    use meantime_spec::seam::Doorbells;

    use super::*;
    use crate::config::{NamespaceConfig, SsdConfig};
    use crate::medium::Medium;

    const CBA: u64 = 0x55_0000_0000;

    #[test]
    fn it_has_no_address_after_a_function_reset_and_is_there_for_the_next_host() {
        let namespaces = vec![NamespaceConfig { bytes: 1 << 20, lba_bytes: 512 }];
        let config = SsdConfig { cmb_bytes: 65536, namespaces, ..SsdConfig::default() };
        let mut controller = Controller::new(config, Medium::dram(1 << 20).unwrap());
        let doorbells = Doorbells::new(u16::try_from(controller.doorbells.len() / 2).unwrap());
        let enable = |controller: &mut Controller| {
            controller.write64(regs::CMBMSC, Cmbmsc::enabled(CBA).0, 0);
            assert!(controller.sq_ring(CBA, 16).is_some());
        };
        enable(&mut controller);
        controller.reset_function();
        assert!(controller.sq_ring(CBA, 16).is_none());
        enable(&mut controller);
        controller.power_cycle(Arc::new(doorbells));
        assert!(controller.sq_ring(CBA, 16).is_none());
        enable(&mut controller);
    }
}
