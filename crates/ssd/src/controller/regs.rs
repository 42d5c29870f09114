//! The registers that hosts read (1.4 §3.1).

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use meantime_nvme_spec::regs::{
    self, CAP_AMS_WEIGHTED_ROUND_ROBIN, CAP_CSS_NVM, Cap, Cc, Csts, Vs, shst,
};
use meantime_nvme_spec::soft_port::SOFT_DSTRD;

use crate::config::SsdConfig;

/// The registers. Any thread may read them, and only the controller writes them.
pub(crate) struct RegisterFile {
    cap: u64,
    vs: u32,
    pub(super) cc: AtomicU32,
    csts: AtomicU32,
    pub(super) aqa: AtomicU32,
    pub(super) asq: AtomicU64,
    pub(super) acq: AtomicU64,
    gone: AtomicBool,
}

impl RegisterFile {
    pub(super) fn new(config: &SsdConfig) -> Self {
        let cap = Cap(0)
            .with_mqes((config.max_queue_entries - 1) as u16)
            .with_cqr(true)
            // The value is at least one unit, because with 0 the host would not wait at all.
            .with_to(config.ready_timeout_ms.div_ceil(500).max(1) as u8)
            .with_dstrd(SOFT_DSTRD)
            .with_ams(CAP_AMS_WEIGHTED_ROUND_ROBIN)
            .with_nssrs(true)
            .with_css(CAP_CSS_NVM);
        Self {
            cap: cap.0,
            vs: Vs::new(1, 4, 0).0,
            cc: AtomicU32::new(0),
            csts: AtomicU32::new(0),
            aqa: AtomicU32::new(0),
            asq: AtomicU64::new(0),
            acq: AtomicU64::new(0),
            gone: AtomicBool::new(false),
        }
    }

    /// Returns whether the device has left the bus.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Makes the device leave the bus.
    pub(crate) fn set_gone(&self) {
        self.gone.store(true, Ordering::Release);
    }

    /// Returns the device to the bus.
    pub(super) fn set_present(&self) {
        self.gone.store(false, Ordering::Release);
    }

    /// Returns the 64-bit register at `offset`, if there is one.
    pub(super) fn wide(&self, offset: u32) -> Option<u64> {
        match offset {
            regs::CAP => Some(self.cap),
            regs::ASQ => Some(self.asq.load(Ordering::Acquire)),
            regs::ACQ => Some(self.acq.load(Ordering::Acquire)),
            _ => None,
        }
    }

    /// Reads a 64-bit register, which is all ones once the device is gone.
    pub(crate) fn read64(&self, offset: u32) -> u64 {
        if self.is_gone() {
            return u64::MAX;
        }
        self.wide(offset).unwrap_or_else(|| {
            let high = self.read32(offset.wrapping_add(4));
            u64::from(self.read32(offset)) | u64::from(high) << 32
        })
    }

    /// Reads a 32-bit register, which is all ones once the device is gone. Reserved ones read as
    /// zero.
    pub(crate) fn read32(&self, offset: u32) -> u32 {
        if self.is_gone() {
            return regs::GONE;
        }
        match offset {
            regs::VS => self.vs,
            regs::CC => self.cc.load(Ordering::Acquire),
            // Acquire: a reader that sees RDY also sees the stores before it.
            regs::CSTS => self.csts.load(Ordering::Acquire),
            regs::AQA => self.aqa.load(Ordering::Acquire),
            _ => half_of_wide(offset)
                .and_then(|(whole, shift)| Some((self.wide(whole)? >> shift) as u32))
                .unwrap_or(0),
        }
    }

    pub(super) fn csts(&self) -> Csts {
        Csts(self.csts.load(Ordering::Acquire))
    }

    pub(super) fn set_csts(&self, csts: Csts) {
        self.csts.store(csts.0, Ordering::Release);
    }

    pub(super) fn set_ready(&self, ready: bool) {
        self.set_csts(self.csts().with_rdy(ready));
    }

    /// Returns whether the host has shut the controller down, and CSTS reports it complete.
    pub(super) fn is_shut_down(&self) -> bool {
        self.csts().shst() == shst::COMPLETE
    }

    /// Returns CSTS after a controller reset. NSSRO stays set until the host clears it.
    pub(super) fn disabled_csts(&self) -> Csts {
        Csts(0).with_nssro(self.csts().nssro())
    }

    pub(super) fn cc(&self) -> Cc {
        Cc(self.cc.load(Ordering::Acquire))
    }

    pub(super) fn enabled(&self) -> bool {
        self.cc().en()
    }

    /// Sets the values after a power cycle.
    pub(super) fn power_on(&self) {
        self.cc.store(0, Ordering::Release);
        self.aqa.store(0, Ordering::Release);
        self.asq.store(0, Ordering::Release);
        self.acq.store(0, Ordering::Release);
        self.set_csts(Csts(0));
    }
}

/// Returns the offset of the 64-bit register of which the dword at `offset` is a half, and the
/// shift of the half in it. Returns `None` if there is no such register.
pub(super) fn half_of_wide(offset: u32) -> Option<(u32, u32)> {
    offset.is_multiple_of(4).then_some((offset & !7, 8 * (offset & 4)))
}
