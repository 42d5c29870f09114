//! Shared by the tests of the driver against the stepped SSD.
use std::sync::Arc;

use meantime_block::NvmeDevice;
use meantime_hw::soft::SoftTransport;
use meantime_nvme::{Controller, ControllerOptions};
use meantime_ssd::{Medium, SsdConfig, SteppedSsd};

/// Deadlines short enough that a lost completion costs little virtual time.
pub fn quick() -> ControllerOptions {
    ControllerOptions {
        io_timeout_ns: 2_000_000,
        abort_grace_ns: 200_000,
        admin_timeout_ns: 50_000_000,
        ..ControllerOptions::default()
    }
}

/// The same without retries: the caller sees the device's first answer.
pub fn quick_once() -> ControllerOptions {
    ControllerOptions { retries: 0, ..quick() }
}

/// A stepped SSD and a driver on it.
pub fn stepped(
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
pub fn device(controller: &Arc<Controller>) -> NvmeDevice {
    NvmeDevice::new(Arc::clone(controller), 1, "stepped".into()).expect("namespace 1")
}
