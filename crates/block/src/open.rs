//! Opening a device by its URI.

mod keys;
mod partition;
mod shared;
#[cfg(feature = "ssd")]
mod soft;
mod tcp;
mod user;
mod vfio;

use std::sync::Arc;

use super::any::Device;
use super::error::OpenError;
use super::kernel::KernelDevice;
use super::nvme_device::NvmeDevice;
use super::options::{Access, OpenOptions};
use super::uri::{CommonUri, Uri, UriError};
use meantime_fabrics::{Host, Subsystem};
use meantime_nvme::AdminQueries;
pub use partition::{open_partition, partitions, signature, signatures};

/// Opens the device that `uri` names.
///
/// # Errors
/// Returns [`OpenError`], which gives the cause and a remedy.
pub fn open(uri: &str, options: &OpenOptions) -> Result<Device, OpenError> {
    let parsed: Uri = uri.parse()?;
    // Memory begins empty.
    let holds_data = !matches!(parsed, Uri::Mem { .. });
    let device = match parsed {
        Uri::Kernel { path, kernel } => {
            KernelDevice::open(uri, &path, kernel, options).map(Device::Kernel)
        }
        parsed => open_controller(uri, parsed, options).map(Device::Nvme),
    }?;
    let CommonUri { partition, overwrite } = uri.parse()?;
    let device = match partition {
        Some(selector) => partition::select(&device, uri, &selector)?,
        None => device,
    };
    if options.protect && holds_data && !overwrite {
        partition::protected(device, options.access)
    } else {
        Ok(device)
    }
}

/// Opens the device that `uri` names, which must be one of Meantime's own driver.
///
/// # Errors
/// Returns [`OpenError`], which gives the cause and a remedy.
pub fn open_nvme(uri: &str, options: &OpenOptions) -> Result<NvmeDevice, OpenError> {
    if matches!(uri.parse()?, Uri::Kernel { .. }) {
        return Err(OpenError::NotNvme { uri: uri.to_owned() });
    }
    match open(uri, options)? {
        Device::Nvme(device) => Ok(device),
        Device::Kernel(_) => unreachable!("checked above"),
    }
}

/// A device, and what answers queries about it.
pub struct Queried {
    /// The device.
    pub device: Device,
    /// Its controller.
    pub controller: Arc<dyn AdminQueries>,
    /// The identifier of its namespace.
    pub nsid: u32,
}

/// Opens the device that `uri` names to ask its controller, which may be the kernel's; such a
/// device is opened for reading only.
///
/// # Errors
/// Returns [`OpenError`], which gives the cause and a remedy; [`OpenError::NoController`] for what
/// the kernel has beside NVMe SSDs.
pub fn open_queried(uri: &str, options: &OpenOptions) -> Result<Queried, OpenError> {
    let none = || OpenError::NoController { uri: uri.to_owned() };
    let access = match uri.parse()? {
        // A file would be made.
        Uri::Kernel { kernel, .. } if kernel.create_bytes.is_some() => return Err(none()),
        Uri::Kernel { .. } => Access::Read,
        _ => options.access,
    };
    let device = open(uri, &OpenOptions { access, ..options.clone() })?;
    let (controller, nsid) = match &device {
        Device::Nvme(device) => {
            let controller: Arc<dyn AdminQueries> = Arc::clone(device.controller()) as _;
            (controller, device.namespace().nsid)
        }
        Device::Kernel(device) => device.controller()?.ok_or_else(none)?,
    };
    Ok(Queried { device, controller, nsid })
}

/// Asks the discovery service of the NVMe/TCP target that `uri` names (`nvme+tcp://HOST[:PORT]`)
/// for its subsystems.
///
/// # Errors
/// Returns [`OpenError`], which gives the cause and a remedy.
pub fn discover(uri: &str, options: &OpenOptions) -> Result<Vec<Subsystem>, OpenError> {
    discover_as(uri, options).map(|(_, found)| found)
}

/// Asks the discovery service of the NVMe/TCP target that `uri` names for its subsystems, and also
/// returns the host as which it has asked.
///
/// # Errors
/// Returns [`OpenError`], which gives the cause and a remedy.
pub fn discover_as(uri: &str, options: &OpenOptions) -> Result<(Host, Vec<Subsystem>), OpenError> {
    let parsed = uri.parse().map_err(|error| match uri.contains([':', '/']) {
        true => error,
        false => {
            let what = format!("no scheme: did you mean nvme+tcp://{uri}?");
            UriError { uri: uri.to_owned(), what }
        }
    })?;
    match parsed {
        Uri::Tcp { address, tcp } => tcp::discover(uri, &address, &tcp, options),
        _ => Err(OpenError::Uri(UriError {
            uri: uri.to_owned(),
            what: "only a target has subsystems; e.g. nvme+tcp://192.0.2.7".to_owned(),
        })),
    }
}

/// Starts the software SSD that `uri` names, without a driver, to be served to others. `adjust` may
/// change values that the URI leaves open.
///
/// # Errors
/// Returns [`OpenError`], which gives the cause and a remedy. A URI of another device is
/// [`OpenError::NoSsd`].
#[cfg(feature = "ssd")]
pub fn start_ssd(
    uri: &str,
    options: &OpenOptions,
    adjust: impl FnOnce(&mut meantime_ssd::SsdConfig),
) -> Result<meantime_ssd::Ssd, OpenError> {
    make_ssd(uri, options, adjust, |config, medium| soft::run(uri, config, medium))?
}

/// Makes another object of the software SSD that `uri` names: `make` gets its configuration and its
/// medium. If `make` fails, a file created for the SSD is removed again.
///
/// # Errors
/// Returns [`OpenError`], which gives the cause and a remedy; [`OpenError::NoSsd`] if the URI names
/// another device. The inner error is that of `make`.
#[cfg(feature = "ssd")]
pub fn make_ssd<T, E>(
    uri: &str,
    options: &OpenOptions,
    adjust: impl FnOnce(&mut meantime_ssd::SsdConfig),
    make: impl FnOnce(meantime_ssd::SsdConfig, meantime_ssd::Medium) -> Result<T, E>,
) -> Result<Result<T, E>, OpenError> {
    if uri.parse::<CommonUri>()?.partition.is_some() {
        let what = "a partition is no SSD: name the whole disk; its hosts own the table";
        return Err(UriError { uri: uri.to_owned(), what: what.to_owned() }.into());
    }
    soft::make(uri, uri.parse()?, options, adjust, make)
}

fn open_controller(uri: &str, parsed: Uri, options: &OpenOptions) -> Result<NvmeDevice, OpenError> {
    match parsed {
        Uri::Vfio { address, nvme } => vfio::open(uri, address, nvme, options),
        Uri::VfioUser { path, nvme } => user::open(uri, &path, nvme, options),
        Uri::Tcp { address, tcp } => tcp::open(uri, &address, &tcp, options),
        parsed => open_soft(uri, parsed, options),
    }
}

fn open_soft(uri: &str, parsed: Uri, options: &OpenOptions) -> Result<NvmeDevice, OpenError> {
    #[cfg(feature = "ssd")]
    return soft::open(uri, parsed, options);
    #[cfg(not(feature = "ssd"))]
    {
        let _ = (parsed, options);
        Err(OpenError::NoSsd { uri: uri.to_owned() })
    }
}
