//! Opening a device by its URI.

mod shared;
mod user;
mod vfio;

use super::any::Device;
use super::device::NvmeDevice;
use super::kernel::KernelDevice;
use super::uri::{Uri, UriError};
use crate::nvme::{ControllerOptions, Error};

/// What is to be known beside the URI.
#[derive(Debug, Clone, Default)]
pub struct OpenOptions {
    /// The driver's waits and queues.
    pub controller: ControllerOptions,
    /// The CPU of a software SSD's thread, if the URI names none. `None`: the last CPU this process may use.
    pub ssd_cpu: Option<usize>,
    /// Have the software SSD take time stamps of every command: [`BlockDevice::stamps`](super::BlockDevice::stamps).
    pub stamps: bool,
}

/// Why a device could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The URI is wrong.
    #[error(transparent)]
    Uri(#[from] UriError),
    /// The software SSD could not be made.
    #[cfg(feature = "ssd")]
    #[error("{uri}: {source}")]
    Ssd {
        /// The device.
        uri: String,
        /// Why.
        source: meantime_ssd::SsdError,
    },
    /// A model file could not be read.
    #[error("cannot read the model file {path}: {source}")]
    ModelFile {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The PCIe device cannot be had.
    #[error("{uri}: {source}")]
    Pci {
        /// The device.
        uri: String,
        /// Why.
        source: crate::hw::pci::PciError,
    },
    /// The driver could not bring the controller up.
    #[error(transparent)]
    Nvme(#[from] Error),
    /// The kernel's file cannot be used.
    #[error("{uri}: {what} ({source})")]
    Kernel {
        /// The device.
        uri: String,
        /// What is wrong, and what would help.
        what: String,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// It is not behind our driver.
    #[error("{uri}: the kernel's driver has this device, and here it takes one of our own; e.g. mem:1G")]
    NotNvme {
        /// The device.
        uri: String,
    },
    /// This build has no software SSD.
    #[error("{uri}: this build has no software SSD (feature `ssd`)")]
    NoSsd {
        /// The device.
        uri: String,
    },
}

/// Opens the device that `uri` names.
///
/// # Errors
/// [`OpenError`], which says what is wrong and what to do.
pub fn open(uri: &str, options: &OpenOptions) -> Result<Device, OpenError> {
    match uri.parse()? {
        Uri::Kernel { path, kernel } => KernelDevice::open(uri, &path, kernel, options).map(Device::Kernel),
        parsed => open_controller(uri, parsed, options).map(Device::Nvme),
    }
}

/// Opens the device that `uri` names, which is to be behind our own driver.
///
/// # Errors
/// [`OpenError`], which says what is wrong and what to do.
pub fn open_nvme(uri: &str, options: &OpenOptions) -> Result<NvmeDevice, OpenError> {
    match uri.parse()? {
        Uri::Kernel { .. } => Err(OpenError::NotNvme { uri: uri.to_owned() }),
        parsed => open_controller(uri, parsed, options),
    }
}

/// Starts the software SSD that `uri` names, without a driver: to be served to others. `adjust` may change what the URI leaves open.
///
/// # Errors
/// [`OpenError`], which says what is wrong and what to do. A URI of something else than a software SSD is [`OpenError::NoSsd`].
#[cfg(feature = "ssd")]
pub fn start_ssd(
    uri: &str,
    options: &OpenOptions,
    adjust: impl FnOnce(&mut meantime_ssd::SsdConfig),
) -> Result<meantime_ssd::Ssd, OpenError> {
    soft::start(uri, uri.parse()?, options, adjust).map(soft::Started::keep)
}

fn open_controller(uri: &str, parsed: Uri, options: &OpenOptions) -> Result<NvmeDevice, OpenError> {
    match parsed {
        Uri::Vfio { address, nvme } => vfio::open(uri, address, nvme, options),
        Uri::VfioUser { path, nvme } => user::open(uri, &path, nvme, options),
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

#[cfg(feature = "ssd")]
mod soft {
    use std::sync::Arc;

    use meantime_ssd::{
        FaultPlan, Medium, Model, NamespaceConfig, STAMP_RING_LEN, Ssd, SsdConfig, SsdError, Stamp, StampRing,
    };

    use super::super::device::NvmeDevice;
    use super::super::stamps::{DeviceStamp, StampSource};
    use super::super::uri::{SoftUri, Uri};
    use super::{OpenError, OpenOptions};
    use crate::hw::Clock;
    use crate::hw::soft::SoftTransport;
    use crate::nvme::Controller;

    /// The SSD measures time as the driver does.
    #[derive(Clone)]
    struct SharedClock(Clock);

    impl meantime_ssd::Clock for SharedClock {
        fn now_ns(&self) -> u64 {
            self.0.now_ns()
        }
    }

    impl StampSource for StampRing {
        fn written(&self) -> u64 {
            StampRing::written(self)
        }

        fn get(&self, index: u64) -> Option<DeviceStamp> {
            let stamp = StampRing::get(self, index)?;
            let Stamp { qid, cid, seen_ns, begun_ns, written_ns } = stamp;
            Some(DeviceStamp { qid, cid, seen_ns, begun_ns, written_ns })
        }

        fn capacity(&self) -> usize {
            STAMP_RING_LEN
        }
    }

    /// A running SSD, and its file if that was created for it.
    pub(super) struct Started {
        ssd: Ssd,
        soft: SoftUri,
        created: Option<Created>,
    }

    impl Started {
        /// The SSD. It came up: the file is the user's now.
        pub(super) fn keep(self) -> Ssd {
            if let Some(file) = self.created {
                std::mem::forget(file);
            }
            self.ssd
        }
    }

    pub(super) fn open(uri: &str, parsed: Uri, options: &OpenOptions) -> Result<NvmeDevice, OpenError> {
        let Started { ssd, soft, created } = start(uri, parsed, options, |_| {})?;
        let port = ssd.port();
        let stamps = ssd.stamps().cloned().map(|ring| ring as Arc<dyn StampSource>);
        let transport = SoftTransport::new(port, uri.to_owned(), Some(Box::new(ssd))).lock_memory(soft.lock);
        let controller = Controller::enable(Arc::new(transport), options.controller)?;
        let medium = format!("software SSD, model {}", soft.model);
        let device =
            NvmeDevice::new(controller, soft.nsid, uri.to_owned())?.with_medium(medium).with_stamps(stamps);
        // It came up: the file is the user's now.
        if let Some(file) = created {
            std::mem::forget(file);
        }
        Ok(device)
    }

    pub(super) fn start(
        uri: &str,
        parsed: Uri,
        options: &OpenOptions,
        adjust: impl FnOnce(&mut SsdConfig),
    ) -> Result<Started, OpenError> {
        let failed = |source: SsdError| OpenError::Ssd { uri: uri.to_owned(), source };
        // Before the medium, which may create a file: nothing is left behind by a wrong name.
        let (Uri::Mem { soft, .. } | Uri::File { soft, .. }) = &parsed else {
            return Err(OpenError::NoSsd { uri: uri.to_owned() });
        };
        let model = model(&soft.model).map_err(|error| error.into_open_error(uri))?;
        let faults = soft.faults.as_deref().map(FaultPlan::read).transpose().map_err(failed)?;
        let mut created = None;
        let (medium, soft, is_file) = match parsed {
            Uri::Mem { bytes, soft } => (Medium::dram(bytes).map_err(failed)?, soft, false),
            Uri::File { path, soft } if soft.read_only => {
                (Medium::file_read_only(path).map_err(failed)?, soft, false)
            }
            Uri::File { path, soft } => {
                let medium = Medium::file(&path, soft.create_bytes).map_err(failed)?;
                created = medium.was_created().then(|| Created(path));
                (medium, soft, true)
            }
            _ => return Err(OpenError::NoSsd { uri: uri.to_owned() }),
        };
        let mut config = SsdConfig {
            namespaces: namespaces(medium.len(), &soft),
            model,
            volatile_write_cache: soft.volatile_write_cache.unwrap_or(is_file),
            optimal_io_boundary_lbas: soft.boundary_blocks,
            cpu: soft.cpu.or(options.ssd_cpu).or_else(last_cpu),
            stamps: options.stamps,
            strict: soft.strict,
            faults: faults.unwrap_or(FaultPlan::NONE),
            ..SsdConfig::default()
        };
        if let Some(bytes) = soft.mdts_bytes {
            config.mdts_bytes = bytes;
        }
        if let Some(queues) = soft.queues {
            config.max_io_queues = queues;
        }
        if let Some(vectors) = soft.vectors {
            config.vectors = vectors;
        }
        adjust(&mut config);
        let ssd = Ssd::start(config, medium, SharedClock(Clock::real())).map_err(failed)?;
        Ok(Started { ssd, soft, created })
    }

    /// A file that we have created; removed again unless the device comes up.
    pub(super) struct Created(std::path::PathBuf);

    impl Drop for Created {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    fn namespaces(bytes: u64, soft: &SoftUri) -> Vec<NamespaceConfig> {
        let each = NamespaceConfig { bytes: bytes / u64::from(soft.namespaces), lba_bytes: soft.lba_bytes };
        vec![each; soft.namespaces as usize]
    }

    enum ModelError {
        Ssd(SsdError),
        File(String, std::io::Error),
    }

    impl ModelError {
        fn into_open_error(self, uri: &str) -> OpenError {
            match self {
                Self::Ssd(source) => OpenError::Ssd { uri: uri.to_owned(), source },
                Self::File(path, source) => OpenError::ModelFile { path, source },
            }
        }
    }

    fn model(name: &str) -> Result<Model, ModelError> {
        if name.ends_with(".toml") || name.contains('/') {
            let text = read_model(name).map_err(|error| ModelError::File(name.to_owned(), error))?;
            return Model::parse(&text).map_err(ModelError::Ssd);
        }
        Model::named(name).map_err(ModelError::Ssd)
    }

    /// A model is a few lines.
    fn read_model(name: &str) -> std::io::Result<String> {
        use std::io::Read as _;
        const MAX_BYTES: u64 = 1 << 20;
        let mut text = String::new();
        std::fs::File::open(name)?.take(MAX_BYTES).read_to_string(&mut text)?;
        if text.len() as u64 == MAX_BYTES {
            return Err(std::io::Error::new(std::io::ErrorKind::FileTooLarge, "a model has a few lines"));
        }
        Ok(text)
    }

    /// The last CPU this process may use, if there are two or more: the first ones are where programs begin.
    fn last_cpu() -> Option<usize> {
        let set = rustix::thread::sched_getaffinity(None).ok()?;
        if set.count() < 2 {
            return None;
        }
        (0..rustix::thread::CpuSet::MAX_CPU).rev().find(|&cpu| set.is_set(cpu))
    }
}
