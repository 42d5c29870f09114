//! SSDs with a file system on them.

use std::fs::Permissions;
use std::ops::Range;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use meantime_block::{Device, NvmeDevice};
use meantime_ext4::{CommitOverlap, FileSystem, MountError, MountOptions, Overlap};
use meantime_hw::soft::SoftTransport;
use meantime_nvme::{Controller, ControllerOptions};
use meantime_ssd::{Medium, Model, SsdConfig, SteppedSsd};
use meantime_testkit::e2fs;
use meantime_testkit::power_cut::CutOptions;

use crate::model::{DIRECTORY_MODE, FILE_MODE, beginning_id, content};
use crate::ops::BEGINNING;

/// A configuration of device, file system and mount.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Config {
    pub block_bytes: usize,
    pub lba_bytes: u32,
    /// Whether the device has a volatile write cache.
    pub volatile: bool,
    /// The device's atomic unit, in bytes.
    pub unit_bytes: usize,
    pub overlap: Overlap,
    pub commit_overlap: CommitOverlap,
    /// The maximum of dirty pages in bytes, or 0 for the default.
    pub dirty_bytes: usize,
    /// The length of the log, in blocks.
    pub log_blocks: usize,
    pub fast_commit: bool,
    /// The service-time model.
    pub model: &'static str,
    /// Additional features for mkfs.
    pub features: &'static str,
}

impl Config {
    pub(crate) const PLAIN: Self = Self {
        block_bytes: 4096,
        lba_bytes: 4096,
        volatile: false,
        unit_bytes: 4096,
        overlap: Overlap::ALL,
        commit_overlap: CommitOverlap::ALL,
        dirty_bytes: 0,
        log_blocks: 1024,
        fast_commit: false,
        model: "optane",
        features: "",
    };

    pub(crate) fn cut(&self) -> CutOptions {
        CutOptions { volatile: self.volatile, unit_bytes: self.unit_bytes, ..CutOptions::default() }
    }

    /// Whether fast commits are made: they are wanted, there are checksums (without which e2fsck
    /// 1.47.0 gets fast commits wrong), and no journal thread commits.
    pub(crate) fn makes_fast_commits(&self) -> bool {
        self.fast_commit
            && self.commit_overlap.caller_commits
            && !self.features.contains("^metadata_csum")
    }

    pub(crate) fn has_orphan_file(&self) -> bool {
        self.features.contains("orphan_file")
    }

    pub(crate) fn mount_options(&self) -> MountOptions {
        MountOptions {
            write: true,
            background: false,
            cache_bytes: 2 << 20,
            read_ahead_bytes: 0,
            channels: 4,
            overlap: self.overlap,
            commit_overlap: self.commit_overlap,
            fast_commit: self.fast_commit,
            dirty_bytes: self.dirty_bytes,
            ..MountOptions::default()
        }
    }

    /// Options for a mount that only recovers and reads: with little memory, because filling it
    /// takes time.
    pub(crate) fn recovery_options(&self, write: bool) -> MountOptions {
        MountOptions { write, cache_bytes: 1 << 20, channels: 1, ..self.mount_options() }
    }
}

/// The content of blocks that were never written.
pub(crate) const STALE: u8 = 0xDB;

/// A file system as e2fsprogs made it.
#[derive(Default)]
pub(crate) struct Base {
    pub bytes: Vec<u8>,
    /// The places of the log's blocks without the journal's superblock, and the place of that.
    pub log: Vec<Range<usize>>,
    pub journal: usize,
}

impl Base {
    fn of(image: &Path, config: &Config) -> Self {
        let volume = meantime_testkit::image::open(image);
        let inode = volume.inode(volume.superblock().journal_ino()).unwrap();
        let block_bytes = config.block_bytes;
        let (mut log, mut at, mut journal) = (Vec::new(), 0, 0);
        while at < inode.size() / block_bytes as u64 {
            let run = volume.run_at(&inode, at).unwrap();
            let mut begin = run.physical as usize * block_bytes;
            let end = begin + run.blocks as usize * block_bytes;
            if at == 0 {
                journal = begin;
                begin += block_bytes;
            }
            log.push(begin..end);
            at += run.blocks;
        }
        Self { bytes: std::fs::read(image).unwrap(), log, journal }
    }
}

/// Makes a file system with the initial files, on blocks full of [`STALE`]. Returns `None` without
/// e2fsprogs.
pub(crate) fn make(config: &Config, roots: &[&str]) -> Option<Base> {
    let dir = meantime_testkit::image::scratch();
    let root = dir.path().join("root");
    for sub in roots {
        let top = root.join(sub);
        std::fs::create_dir_all(&top).unwrap();
        for (name, size) in BEGINNING {
            match size {
                Some(size) => {
                    std::fs::write(top.join(name), content(beginning_id(name), 0, size)).unwrap()
                }
                None => std::fs::create_dir(top.join(name)).unwrap(),
            }
            let mode = u32::from(if size.is_some() { FILE_MODE } else { DIRECTORY_MODE });
            std::fs::set_permissions(top.join(name), Permissions::from_mode(mode)).unwrap();
        }
        std::fs::set_permissions(&top, Permissions::from_mode(u32::from(DIRECTORY_MODE))).unwrap();
    }
    let image = dir.path().join("image");
    // mkfs takes whole MiB for a log. The blocks of fast commits come on top.
    let log_bytes = (config.log_blocks * config.block_bytes).next_multiple_of(1 << 20);
    let fast_bytes = if config.fast_commit { 256 * config.block_bytes } else { 0 };
    // mkfs wants as much space beside the journal as for it.
    let bytes = (log_bytes + (6 << 20)).max(2 * (log_bytes + fast_bytes) + (1 << 20));
    std::fs::write(&image, vec![STALE; bytes]).unwrap();
    let (block_bytes, log) = (config.block_bytes.to_string(), format!("size={}", log_bytes >> 20));
    let mut args =
        vec!["-q", "-F", "-E", "nodiscard", "-N", "256", "-b", &block_bytes, "-J", &log, "-d"];
    args.push(root.to_str().unwrap());
    let fast = if config.fast_commit { "fast_commit" } else { "" };
    let features = [config.features, fast].into_iter().filter(|some| !some.is_empty());
    let features = features.collect::<Vec<_>>().join(",");
    if !features.is_empty() {
        args.extend(["-O", &features]);
    }
    args.push(image.to_str().unwrap());
    let Ok(made) = e2fs::command("mkfs.ext4").args(args).output() else {
        println!("skipped: e2fsprogs are not installed");
        return None;
    };
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    Some(Base::of(&image, config))
}

/// An SSD with this project's driver.
pub(crate) struct Attached {
    pub ssd: SteppedSsd,
    controller: Arc<Controller>,
}

impl Attached {
    /// Returns the device. Can be called any number of times.
    pub(crate) fn device(&self) -> Device {
        Device::Nvme(NvmeDevice::new(Arc::clone(&self.controller), 1, "stepped".into()).unwrap())
    }
}

/// Attaches an SSD of `config` on `medium` to this project's driver.
pub(crate) fn attach(medium: Medium, config: &Config, seed: u64) -> Attached {
    let ssd_config = SsdConfig {
        model: Model::named(config.model).unwrap(),
        volatile_write_cache: config.volatile,
        atomic_write_lbas: (config.unit_bytes / config.lba_bytes as usize).max(1) as u16,
        ..SsdConfig::with_namespace(medium.len(), config.lba_bytes)
    };
    let ssd = SteppedSsd::new(ssd_config, medium, seed).unwrap();
    // SAFETY: the port has no other user.
    let transport = unsafe { SoftTransport::new(ssd.port(), "stepped".into(), None) };
    let controller = Controller::enable(Arc::new(transport), ControllerOptions::default()).unwrap();
    Attached { ssd, controller }
}

/// Attaches `medium` to an SSD without service times and mounts it with `options`.
pub(crate) fn mounted(
    medium: Medium,
    config: &Config,
    options: &MountOptions,
) -> Result<(SteppedSsd, FileSystem), MountError> {
    let Attached { ssd, controller } = attach(medium, &Config { model: "null", ..*config }, 1);
    let attached = Attached { ssd: ssd.clone(), controller };
    Ok((ssd, FileSystem::mount(attached.device(), options)?))
}

/// Runs e2fsck on `image`. Returns its exit status and its output without phases and figures.
pub(crate) fn e2fsck(image: &Path, flags: &str) -> (i32, Vec<String>) {
    // e2fsck's clock is a few ms behind that of the timestamps: a write at the end of a second
    // would be in its future.
    let now =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() + 1;
    let mut command = e2fs::command("e2fsck");
    command.env("LC_ALL", "C").env("E2FSCK_TIME", now.to_string()).arg(flags).arg(image);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    let is_said = |line: &&str| {
        let is_progress = line.starts_with("Pass ") || line.starts_with("e2fsck 1.");
        let is_summary = line.contains(" files (") && line.contains(" blocks");
        !line.trim().is_empty() && !is_progress && !is_summary
    };
    (output.status.code().unwrap_or(-1), said.lines().filter(is_said).map(str::to_owned).collect())
}
