//! SSDs with a file system on them.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use meantime::block::{Device, NvmeDevice};
use meantime::ext4::{FileSystem, MountError, MountOptions, Overlap};
use meantime::hw::soft::SoftTransport;
use meantime::nvme::{Controller, ControllerOptions};
use meantime_ssd::record::CutOptions;
use meantime_ssd::{Medium, Model, SsdConfig, SteppedSsd};

use crate::model::{beginning_id, content};
use crate::ops::BEGINNING;

/// What kind of device and mount.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Config {
    pub block_bytes: usize,
    pub lba_bytes: u32,
    /// With a volatile write cache.
    pub volatile: bool,
    /// What the device never tears, in bytes.
    pub unit_bytes: usize,
    pub overlap: Overlap,
    pub fast_commit: bool,
    /// The service-time model.
    pub model: &'static str,
    /// More features for mkfs.
    pub features: &'static str,
}

impl Config {
    pub const PLAIN: Self = Self {
        block_bytes: 4096,
        lba_bytes: 4096,
        volatile: false,
        unit_bytes: 4096,
        overlap: Overlap::ALL,
        fast_commit: false,
        model: "optane",
        features: "",
    };

    pub fn cut(&self) -> CutOptions {
        CutOptions { volatile: self.volatile, unit_bytes: self.unit_bytes, ..CutOptions::default() }
    }

    pub fn mount_options(&self) -> MountOptions {
        MountOptions {
            write: true,
            background: false,
            cache_bytes: 2 << 20,
            read_ahead_bytes: 0,
            channels: 4,
            overlap: self.overlap,
            fast_commit: self.fast_commit,
            ..MountOptions::default()
        }
    }
}

/// What blocks hold that nobody has written to.
pub const STALE: u8 = 0xDB;

/// A new file system with what is there in the beginning, on blocks full of [`STALE`]; `None` without e2fsprogs.
pub fn make(config: &Config, roots: &[&str]) -> Option<Vec<u8>> {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    for sub in roots {
        let top = root.join(sub);
        std::fs::create_dir_all(&top).unwrap();
        for (name, size) in BEGINNING {
            match size {
                Some(size) => std::fs::write(top.join(name), content(beginning_id(name), 0, size)).unwrap(),
                None => std::fs::create_dir(top.join(name)).unwrap(),
            }
        }
    }
    let image = dir.path().join("image");
    let (bytes, journal) =
        if config.block_bytes == 1024 { (6 << 20, "size=1") } else { (12 << 20, "size=4") };
    std::fs::write(&image, vec![STALE; bytes]).unwrap();
    let block_bytes = config.block_bytes.to_string();
    let mut args = vec!["-q", "-F", "-E", "nodiscard", "-N", "256", "-b", &block_bytes, "-J", journal, "-d"];
    args.push(root.to_str().unwrap());
    if !config.features.is_empty() {
        args.extend(["-O", config.features]);
    }
    args.push(image.to_str().unwrap());
    let Ok(made) = Command::new("mkfs.ext4").args(args).output() else {
        println!("skipped: e2fsprogs are not installed");
        return None;
    };
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    Some(std::fs::read(image).unwrap())
}

/// An SSD with our driver.
pub struct Attached {
    pub ssd: SteppedSsd,
    controller: Arc<Controller>,
}

impl Attached {
    /// The device; as often as one likes.
    pub fn device(&self) -> Device {
        Device::Nvme(NvmeDevice::new(Arc::clone(&self.controller), 1, "stepped".into()).unwrap())
    }
}

/// An SSD of `config` that holds `bytes`, with our driver.
pub fn attach(bytes: &[u8], config: &Config, seed: u64) -> Attached {
    let ssd_config = SsdConfig {
        model: Model::named(config.model).unwrap(),
        volatile_write_cache: config.volatile,
        atomic_write_lbas: (config.unit_bytes / config.lba_bytes as usize).max(1) as u16,
        ..SsdConfig::with_namespace(bytes.len() as u64, config.lba_bytes)
    };
    let ssd = SteppedSsd::new(ssd_config, Medium::of(bytes).unwrap(), seed).unwrap();
    let transport = SoftTransport::new(ssd.port(), "stepped".into(), None);
    let controller = Controller::enable(Arc::new(transport), ControllerOptions::default()).unwrap();
    Attached { ssd, controller }
}

/// The same with what costs no time, mounted as `options` say.
pub fn mounted(
    bytes: &[u8],
    config: &Config,
    options: &MountOptions,
) -> Result<(SteppedSsd, FileSystem), MountError> {
    let Attached { ssd, controller } = attach(bytes, &Config { model: "null", ..*config }, 1);
    let attached = Attached { ssd: ssd.clone(), controller };
    Ok((ssd, FileSystem::mount(attached.device(), options)?))
}

/// For reading only.
pub fn read_only(bytes: &[u8], config: &Config) -> Result<(SteppedSsd, FileSystem), MountError> {
    mounted(bytes, config, &MountOptions { write: false, ..config.mount_options() })
}

/// Runs e2fsck on `image`; its exit status and what it said beside its phases and figures.
pub fn e2fsck(image: &Path, flags: &str) -> (i32, Vec<String>) {
    let output = Command::new("e2fsck").env("LC_ALL", "C").arg(flags).arg(image).output().unwrap();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    let is_said = |line: &&str| {
        let is_progress = line.starts_with("Pass ") || line.starts_with("e2fsck 1.");
        let is_summary = line.contains(" files (") && line.contains(" blocks");
        !line.trim().is_empty() && !is_progress && !is_summary
    };
    (output.status.code().unwrap_or(-1), said.lines().filter(is_said).map(str::to_owned).collect())
}
