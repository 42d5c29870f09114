//! Opening a software SSD in this process, with a driver or without.

use std::any::Any;
use std::path::Path;
use std::sync::Arc;

use meantime_ssd::{
    FaultPlan, InlineSsd, Medium, Model, NamespaceConfig, STAMP_RING_LEN, Ssd, SsdConfig, SsdError,
    Stamp, StampRing,
};

use super::super::error::OpenError;
use super::super::nvme_device::NvmeDevice;
use super::super::options::{Access, Created, OpenOptions, in_use, may_not_write};
use super::super::stamps::{DeviceStamp, StampSource};
use super::super::uri::{SoftUri, Uri, UriError};
use super::shared::coalesce;
use meantime_hw::Clock;
use meantime_hw::soft::SoftTransport;
use meantime_nvme::Controller;

/// The driver's clock as the SSD's clock.
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

/// The parts of an SSD: its configuration and medium, its file if that was created for it, and the
/// reason if it must not be written.
struct Prepared {
    config: SsdConfig,
    medium: Medium,
    soft: SoftUri,
    created: Created,
    read_only: Option<String>,
}

/// Calls `make` with the parts of an SSD.
pub(super) fn make<T, E>(
    uri: &str,
    parsed: Uri,
    options: &OpenOptions,
    adjust: impl FnOnce(&mut SsdConfig),
    make: impl FnOnce(SsdConfig, Medium) -> Result<T, E>,
) -> Result<Result<T, E>, OpenError> {
    let Prepared { config, medium, soft, created, .. } = prepare(uri, parsed, options, adjust)?;
    if soft.inline {
        let what = "inline=1 has no thread that could serve others; leave it out".to_owned();
        return Err(UriError { uri: uri.to_owned(), what }.into());
    }
    let made = make(config, medium);
    if made.is_ok() {
        created.keep();
    }
    Ok(made)
}

pub(super) fn run(uri: &str, config: SsdConfig, medium: Medium) -> Result<Ssd, OpenError> {
    Ssd::start(config, medium, SharedClock(Clock::real())).map_err(|source| failed(uri, source))
}

fn failed(uri: &str, source: SsdError) -> OpenError {
    OpenError::Ssd { uri: uri.to_owned(), source }
}

// `SoftTransport::new` is unsafe: its caller promises that the port has no other user.
#[expect(unsafe_code)]
pub(super) fn open(uri: &str, parsed: Uri, options: &OpenOptions) -> Result<NvmeDevice, OpenError> {
    let Prepared { config, medium, soft, created, read_only } =
        prepare(uri, parsed, options, |_| {})?;
    let (port, stamps, owner): (_, _, Option<Box<dyn Any + Send + Sync>>) = if soft.inline {
        let ssd = InlineSsd::new(config, medium, SharedClock(Clock::real()))
            .map_err(|source| failed(uri, source))?;
        (ssd.port(), ssd.stamps().cloned(), None)
    } else {
        if last_cpu().is_none() {
            tracing::warn!(
                "{uri}: the SSD's thread and its users share one CPU, and each I/O takes two \
                 switches between them; inline=1 does without the thread"
            );
        }
        let ssd = run(uri, config, medium)?;
        (ssd.port(), ssd.stamps().cloned(), Some(Box::new(ssd)))
    };
    let stamps = stamps.map(|ring| ring as Arc<dyn StampSource>);
    // SAFETY: the SSD was made for this transport, which owns it: its port has no other user.
    let transport =
        unsafe { SoftTransport::new(port, uri.to_owned(), owner) }.lock_memory(soft.lock);
    let controller = Controller::enable(Arc::new(transport), options.controller)?;
    coalesce(&controller, soft.coalesce)?;
    let how = if soft.inline { ", inline" } else { "" };
    let medium = format!("software SSD, model {}{how}", soft.model);
    let device = NvmeDevice::new(controller, soft.nsid, uri.to_owned())?
        .with_medium(medium)
        .with_stamps(stamps)
        .with_read_only(read_only);
    // The controller works, so the file is kept.
    created.keep();
    Ok(device)
}

fn prepare(
    uri: &str,
    parsed: Uri,
    options: &OpenOptions,
    adjust: impl FnOnce(&mut SsdConfig),
) -> Result<Prepared, OpenError> {
    let failed = |source: SsdError| failed(uri, source);
    // This comes before the medium, which may create a file: a wrong name must leave nothing
    // behind.
    let (Uri::Mem { soft, .. } | Uri::File { soft, .. }) = &parsed else {
        return Err(OpenError::NoSsd { uri: uri.to_owned() });
    };
    let model = model(uri, &soft.model)?;
    let faults = soft.faults.as_deref().map(FaultPlan::read).transpose().map_err(failed)?;
    let reads_only = options.access == Access::Read;
    let in_use = in_use(&parsed);
    let Opened { medium, soft, created, read_only } = match parsed {
        Uri::Mem { bytes, soft } => {
            let medium = Medium::dram(bytes).map_err(failed)?;
            Opened { medium, soft, created: Created(None), read_only: None }
        }
        Uri::File { path, soft } if soft.read_only => read(&path, soft, "ro=1").map_err(failed)?,
        // A new file is used by no process yet, and read-only access to it would be useless.
        Uri::File { path, soft }
            if reads_only && (soft.create_bytes.is_none() || path.exists()) =>
        {
            read(&path, soft, "it was opened for reading only").map_err(failed)?
        }
        Uri::File { path, soft } => match in_use {
            Some(why) => read(&path, soft, &why).map_err(failed)?,
            None => write(&path, soft).map_err(failed)?,
        },
        _ => return Err(OpenError::NoSsd { uri: uri.to_owned() }),
    };
    if let (Access::ReadWrite, Some(why)) = (options.access, &read_only) {
        return Err(OpenError::ReadOnly { uri: uri.to_owned(), why: why.clone() });
    }
    let caches = medium.path().is_some() && !medium.is_read_only();
    let mut config = SsdConfig {
        namespaces: namespaces(medium.len(), &soft),
        model,
        volatile_write_cache: soft.volatile_write_cache.unwrap_or(caches),
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
    Ok(Prepared { config, medium, soft, created, read_only })
}

/// A medium and its properties.
struct Opened {
    medium: Medium,
    soft: SoftUri,
    created: Created,
    read_only: Option<String>,
}

/// Opens the file as a read-only medium, for the reason `why`.
fn read(path: &Path, soft: SoftUri, why: &str) -> Result<Opened, SsdError> {
    let medium = Medium::file_read_only(path)?;
    if let Some(bytes) = soft.create_bytes.filter(|bytes| *bytes != medium.len()) {
        let problem = format!(
            "exists with {} bytes, not the {bytes} asked for; leave the size out or remove the \
             file",
            medium.len()
        );
        return Err(SsdError::Size { what: path.display().to_string(), problem });
    }
    // A medium without writes needs no cache.
    let soft = SoftUri { volatile_write_cache: Some(false), ..soft };
    Ok(Opened { medium, soft, created: Created(None), read_only: Some(why.to_owned()) })
}

/// Opens the file as a writable medium, if this process may write.
fn write(path: &Path, soft: SoftUri) -> Result<Opened, SsdError> {
    let medium = match Medium::file(path, soft.create_bytes) {
        Err(SsdError::Io { source, .. }) if path.exists() && may_not_write(&source).is_some() => {
            return read(path, soft, may_not_write(&source).unwrap_or_default());
        }
        medium => medium?,
    };
    let created = Created(medium.was_created().then(|| path.to_owned()));
    Ok(Opened { medium, soft, created, read_only: None })
}

fn namespaces(bytes: u64, soft: &SoftUri) -> Vec<NamespaceConfig> {
    let each =
        NamespaceConfig { bytes: bytes / u64::from(soft.namespaces), lba_bytes: soft.lba_bytes };
    vec![each; soft.namespaces as usize]
}

fn model(uri: &str, name: &str) -> Result<Model, OpenError> {
    let model = if name.ends_with(".toml") || name.contains('/') {
        let text = read_model(name)
            .map_err(|source| OpenError::ModelFile { path: name.to_owned(), source })?;
        Model::parse(&text)
    } else {
        Model::named(name)
    };
    model.map_err(|source| OpenError::Ssd { uri: uri.to_owned(), source })
}

/// Reads a model, with a size limit: a model is a few lines.
fn read_model(name: &str) -> std::io::Result<String> {
    use std::io::Read as _;
    const MAX_BYTES: u64 = 1 << 20;
    let mut text = String::new();
    std::fs::File::open(name)?.take(MAX_BYTES).read_to_string(&mut text)?;
    if text.len() as u64 == MAX_BYTES {
        let kind = std::io::ErrorKind::FileTooLarge;
        return Err(std::io::Error::new(kind, "a model has a few lines"));
    }
    Ok(text)
}

/// The last CPU that this process may use, if there are two or more: programs tend to start on the
/// first ones.
fn last_cpu() -> Option<usize> {
    let set = rustix::thread::sched_getaffinity(None).ok()?;
    if set.count() < 2 {
        return None;
    }
    (0..rustix::thread::CpuSet::MAX_CPU).rev().find(|&cpu| set.is_set(cpu))
}
