//! What the tests of the driver against the stepped SSD share.
#![allow(dead_code)]

pub(crate) mod port;
pub(crate) mod rig;

use std::sync::Arc;

use meantime_block::NvmeDevice;
use meantime_hw::soft::SoftTransport;
use meantime_nvme::{Controller, ControllerOptions};
use meantime_ssd::{Medium, SsdConfig, SteppedSsd};

/// Deadlines short enough that a lost completion costs little virtual time.
pub(crate) fn quick() -> ControllerOptions {
    ControllerOptions {
        io_timeout_ns: 2_000_000,
        abort_grace_ns: 200_000,
        admin_timeout_ns: 50_000_000,
        ..ControllerOptions::default()
    }
}

/// The same, with nothing repeated: what the caller sees is what the device did the first time.
pub(crate) fn quick_once() -> ControllerOptions {
    ControllerOptions { retries: 0, ..quick() }
}

/// A stepped SSD and a driver on it.
pub(crate) fn stepped(
    config: SsdConfig,
    options: ControllerOptions,
    seed: u64,
) -> (SteppedSsd, Arc<Controller>) {
    let medium = Medium::dram(config.total_bytes()).expect("memory for the medium");
    let ssd = SteppedSsd::new(config, medium, seed).expect("a valid configuration");
    // SAFETY: the port has no other user.
    let transport =
        unsafe { SoftTransport::new(ssd.port(), format!("stepped, seed {seed}"), None) };
    let controller =
        Controller::enable(Arc::new(transport), options).expect("the controller comes up");
    (ssd, controller)
}

/// Namespace 1 of `controller`.
pub(crate) fn device(controller: &Arc<Controller>) -> NvmeDevice {
    NvmeDevice::new(Arc::clone(controller), 1, "stepped".into()).expect("namespace 1")
}

/// The number that the environment has for `name`, if any.
pub(crate) fn setting(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|value| value.parse().unwrap_or_else(|_| panic!("{name}={value}: a number")))
}

/// SplitMix64: small, and good enough to choose by.
pub(crate) struct Rng(pub u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// 0 to `n` − 1.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}
