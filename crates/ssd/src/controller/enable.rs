//! Handles writes to registers (enable, reset and shutdown: 1.4 §3.1, §7.3, §7.6), and the loss of
//! power and of the device.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use meantime_nvme_spec::features::{InterruptCoalescing, PowerManagement, fid};
use meantime_nvme_spec::log::AsyncEventCode;
use meantime_nvme_spec::regs::{self, Aqa, CC_CSS_NVM, Cc, Csts, ams, shn, shst};
use meantime_nvme_spec::soft_port::{Doorbells, SOFT_DSTRD};

use super::Controller;
use super::doorbell::{QueueDoorbell, cq_doorbell, sq_doorbell};
use super::features::Features;
use super::interrupts::Interrupts;
use super::queues::{Cq, Sq};
use super::regs::half_of_wide;
use crate::Rng;
use crate::hostmem::{HostMemory, PAGE_BYTES};

/// IOSQES and IOCQES of the NVM command set: entries of 64 and of 16 bytes.
const IOSQES: u8 = 6;
const IOCQES: u8 = 4;

impl Controller {
    /// Writes a 32-bit register.
    pub(crate) fn write32(&mut self, offset: u32, value: u32, now_ns: u64) {
        if self.regs.is_gone() {
            return;
        }
        match offset {
            regs::CC => self.write_cc(Cc(value), now_ns),
            regs::AQA => {
                if self.may_configure() {
                    self.regs.aqa.store(value, Ordering::Release);
                }
            }
            // CSTS.NSSRO is cleared by writing 1.
            regs::CSTS if value == Csts(0).with_nssro(true).0 => {
                self.regs.set_csts(self.regs.csts().with_nssro(false));
            }
            regs::NSSR => self.write_nssr(value),
            regs::DOORBELLS.. => self.write_doorbell(offset, value),
            _ => {
                let half = half_of_wide(offset);
                let old = half.and_then(|(whole, _)| self.regs.wide(whole));
                let written = half.zip(old).is_some_and(|((whole, shift), old)| {
                    let kept = old & !(u64::from(u32::MAX) << shift);
                    self.write_wide(whole, kept | u64::from(value) << shift)
                });
                if !written {
                    self.bad_register("write to a register that is read-only or reserved");
                }
            }
        }
    }

    /// Writes a 64-bit register.
    pub(crate) fn write64(&mut self, offset: u32, value: u64, now_ns: u64) {
        if !self.regs.is_gone() && !self.write_wide(offset, value) {
            self.write32(offset, value as u32, now_ns);
            self.write32(offset.wrapping_add(4), (value >> 32) as u32, now_ns);
        }
    }

    /// Writes the 64-bit register at `offset`. Returns false if there is none that can be written.
    fn write_wide(&mut self, offset: u32, value: u64) -> bool {
        let is_wide = matches!(offset, regs::ASQ | regs::ACQ);
        if is_wide && self.may_configure() {
            let register = if offset == regs::ASQ { &self.regs.asq } else { &self.regs.acq };
            register.store(value, Ordering::Release);
        }
        is_wide
    }

    #[cold]
    pub(super) fn bad_register(&mut self, reason: &'static str) {
        self.counters.bad_registers.add(1);
        self.remember_rule(0, reason);
    }

    /// Sets CSTS.CFS. The controller does nothing more until it is reset.
    #[cold]
    pub(super) fn fatal(&mut self, reason: &'static str) {
        self.counters.fatal.add(1);
        // The host sees the failure in CSTS, and an observer of the SSD sees it among the refusals.
        tracing::debug!(reason, "controller fatal status");
        self.remember_rule(0, reason);
        self.drop_queues();
        self.regs.set_csts(self.regs.csts().with_cfs(true));
    }

    /// Returns whether AQA, ASQ and ACQ may be written, which is so only while the controller is
    /// disabled (1.4 §3.1.8).
    fn may_configure(&mut self) -> bool {
        let disabled = !self.regs.enabled();
        if !disabled {
            self.counters.bad_registers.add(1);
            self.fatal("admin queue attributes written while the controller is enabled");
        }
        disabled
    }

    /// Resets the NVM subsystem (1.4 §7.3.1). The state is that after power-on, except that nothing
    /// volatile is lost, and that CSTS reports the reset. Any value other than the magic one has no
    /// effect (1.4 §3.1.7).
    fn write_nssr(&mut self, value: u32) {
        if value == regs::NSSR_RESET {
            self.reset_function();
            self.regs.set_csts(Csts(0).with_nssro(true));
        }
    }

    fn write_doorbell(&mut self, offset: u32, value: u32) {
        let stride = 4u32 << SOFT_DSTRD;
        let at = offset - regs::DOORBELLS;
        match self.doorbells.get((at / stride) as usize).filter(|_| at.is_multiple_of(stride)) {
            // Release: the entries that the caller wrote before are visible to a reader that sees
            // this value.
            Some(cell) => cell.store(value, Ordering::Release),
            None => {
                self.counters.stray_doorbells.add(1);
                self.bad_register("write to a doorbell that does not exist");
                self.event(AsyncEventCode::WriteToInvalidDoorbell);
            }
        }
    }

    fn write_cc(&mut self, new: Cc, now_ns: u64) {
        let old = self.regs.cc();
        self.regs.cc.store(new.0, Ordering::Release);
        match (old.en(), new.en()) {
            (false, true) => self.enable(new, now_ns),
            (true, false) => {
                self.reset();
                self.regs.set_csts(self.regs.disabled_csts());
            }
            (true, true) => self.check_changed(old, new),
            (false, false) => {}
        }
        if new.shn() != old.shn() && new.shn() != shn::NONE {
            self.shut_down(new.shn());
        }
    }

    pub(super) fn has_io_queues(&self) -> bool {
        self.sqs.len() > 1 || self.cqs.iter().skip(1).any(Option::is_some)
    }

    /// Checks the fields that must not change while the controller is enabled (1.4 §3.1.5).
    fn check_changed(&mut self, old: Cc, new: Cc) {
        let sizes = |cc: Cc| (cc.iosqes(), cc.iocqes());
        let reason = if (old.css(), old.mps(), old.ams()) != (new.css(), new.mps(), new.ams()) {
            "CC.CSS, CC.MPS or CC.AMS changed while the controller is enabled"
        } else if self.has_io_queues() && sizes(old) != sizes(new) {
            "CC.IOSQES or CC.IOCQES changed while there are I/O queues"
        } else if !plausible_sizes(new) {
            "CC.IOSQES or CC.IOCQES that Identify Controller does not offer"
        } else {
            return;
        };
        self.counters.bad_registers.add(1);
        self.fatal(reason);
    }

    fn enable(&mut self, cc: Cc, now_ns: u64) {
        // Doorbells written before the controller was enabled do not count.
        for index in 0..self.doorbells.len() {
            let cell = self.doorbells.get(index);
            if cell.is_some_and(|cell| cell.swap(0, Ordering::Relaxed) != 0) {
                self.counters.stray_doorbells.add(1);
                let reason = "doorbell rung before the controller was enabled";
                self.remember_rule((index / 2) as u16, reason);
            }
        }
        self.power.active_until(now_ns);
        if let Err(reason) = self.create_admin_queues(cc) {
            self.counters.bad_registers.add(1);
            self.fatal(reason);
        } else if self.faults.never_ready(now_ns) {
            self.drop_queues();
        } else if self.config.ready_after_ns == 0 {
            self.regs.set_ready(true);
        } else {
            self.ready_at_ns = Some(now_ns.saturating_add(self.config.ready_after_ns));
            self.timed = true;
        }
    }

    fn create_admin_queues(&mut self, cc: Cc) -> Result<(), &'static str> {
        if cc.mps() != 0 {
            return Err("CC.MPS beyond CAP.MPSMAX: only pages of 4 KiB");
        }
        if cc.css() != CC_CSS_NVM {
            return Err("CC.CSS that CAP.CSS does not offer: only the NVM command set");
        }
        if cc.ams() != ams::ROUND_ROBIN && cc.ams() != ams::WEIGHTED_ROUND_ROBIN {
            return Err("CC.AMS that CAP.AMS does not offer: only round robin, plain and weighted");
        }
        if !plausible_sizes(cc) {
            return Err("CC.IOSQES or CC.IOCQES that Identify Controller does not offer");
        }
        let aqa = Aqa(self.regs.aqa.load(Ordering::Acquire));
        if aqa.asqs() < 2 || aqa.acqs() < 2 {
            return Err("AQA: an admin queue of fewer than two entries");
        }
        let asq = self.regs.asq.load(Ordering::Acquire);
        let acq = self.regs.acq.load(Ordering::Acquire);
        if !asq.is_multiple_of(PAGE_BYTES) || !acq.is_multiple_of(PAGE_BYTES) {
            return Err("ASQ or ACQ not aligned to a page");
        }
        let sq_ring = self.host.ring(asq, aqa.asqs(), 64).ok_or("ASQ is not in mapped memory")?;
        let cq_ring = self.host.ring(acq, aqa.acqs(), 16).ok_or("ACQ is not in mapped memory")?;
        let doorbell =
            |index| QueueDoorbell::register(&self.doorbells, index).ok_or("no doorbells");
        let (sq_doorbell, cq_doorbell) = (doorbell(sq_doorbell(0))?, doorbell(cq_doorbell(0))?);
        // The admin completion queue always uses vector 0 (1.4 §3.1.9 and §7.5).
        let mut cq = Cq::new(cq_ring, cq_doorbell, Some(0));
        cq.sqs = 1;
        self.arbiter.reset(cc.ams() == ams::WEIGHTED_ROUND_ROBIN);
        self.choose_path();
        self.cqs[0] = Some(cq);
        self.sqs.push(Sq::new(0, 0, 0, sq_ring, sq_doorbell));
        Ok(())
    }

    /// Returns whether CC allows I/O submission and completion queues to be created.
    pub(super) fn entry_sizes_set(&self) -> (bool, bool) {
        let cc = self.regs.cc();
        (cc.iosqes() == IOSQES, cc.iocqes() == IOCQES)
    }

    /// Drops all queues and pending commands, and the time at which the controller is ready.
    /// Nothing is written to host memory afterwards.
    pub(super) fn drop_queues(&mut self) {
        self.sqs.clear();
        self.cqs.iter_mut().for_each(|cq| *cq = None);
        self.pending.clear();
        self.shadows = None;
        self.ended.clear();
        self.events.reset();
        self.blocked = false;
        self.ready_at_ns = None;
        // Interrupts that are held back are still sent.
        self.update_timed();
    }

    /// Resets the controller (1.4 §7.3.2).
    pub(super) fn reset(&mut self) {
        self.counters.resets.add(1);
        self.drop_queues();
        self.interrupts.reset();
        self.service.clear();
        self.features = Features::new(&self.config);
        let values = &self.features;
        self.interrupts.coalescing = InterruptCoalescing(values[fid::INTERRUPT_COALESCING]);
        let power = PowerManagement(values[fid::POWER_MANAGEMENT]);
        let cached = values[fid::VOLATILE_WRITE_CACHE] == 1;
        if self.store.has_cache() && !self.store.enable_cache(cached) {
            tracing::warn!("the medium failed to write back");
        }
        self.arbiter.reset(false);
        self.power.set_state(power, 0);
        self.apply_transitions(0);
        self.timed = false;
        for index in 0..self.doorbells.len() {
            self.clear_doorbell(index);
        }
    }

    /// Shuts the controller down (1.4 §7.6.2). Cached data reaches the medium, also on an abrupt
    /// shutdown.
    fn shut_down(&mut self, notification: u8) {
        if notification > shn::ABRUPT {
            self.bad_register("CC.SHN is a reserved value");
            return;
        }
        let status = if self.store.flush() {
            shst::COMPLETE
        } else {
            // Reporting completion would claim that all data is safe.
            tracing::warn!("the medium failed to write back at shutdown");
            shst::OCCURRING
        };
        self.regs.set_csts(self.regs.csts().with_shst(status));
    }

    /// Cuts the power and restores it. A random subset of unflushed data is lost, and the
    /// controller is reset. Returns the number of lost writes.
    pub(crate) fn power_cut(&mut self, rng: &mut Rng) -> u64 {
        let (lost, torn) = self.store.power_cut(rng);
        self.counters.injected_tears.add(torn);
        self.power_cycles += 1;
        if !self.regs.is_shut_down() {
            self.unsafe_shutdowns += 1;
        }
        self.reset_function();
        lost
    }

    /// Resets the function. Everything except the host's memory and interrupts is as after
    /// power-on. No data is lost.
    pub(crate) fn reset_function(&mut self) {
        self.reset();
        self.regs.power_on();
    }

    /// Resets the function, and removes the host with its memory and interrupts. The next host uses
    /// `doorbells`, which the former one cannot reach.
    pub(crate) fn power_cycle(&mut self, doorbells: Arc<Doorbells>) {
        self.reset_function();
        self.host = HostMemory::default();
        self.interrupts = Interrupts::for_foreign_host(self.config.vectors);
        self.doorbells = doorbells;
    }

    /// Makes the device leave the bus: registers read all ones, and nothing completes.
    pub(crate) fn unplug(&mut self) {
        self.drop_queues();
        self.regs.set_gone();
    }

    /// Returns the device to the bus, as after power-on. The volatile cache keeps its content.
    pub(crate) fn plug(&mut self) {
        if self.regs.is_gone() {
            self.reset_function();
            self.regs.set_present();
        }
    }
}

/// Returns whether the entry sizes are those of Identify Controller, or not set yet.
fn plausible_sizes(cc: Cc) -> bool {
    (cc.iosqes() == 0 || cc.iosqes() == IOSQES) && (cc.iocqes() == 0 || cc.iocqes() == IOCQES)
}
