//! The devices of a run: opened once, before anything runs, and open until the end.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use meantime::block::{BlockDevice, Device, OpenOptions, Uri};
use meantime::hw::cpu;

use super::checks;
use crate::failure::{Failure, named};

struct Opened {
    device: Device,
    uri: String,
    /// The CPU of its software SSD's thread, if it is bound to one.
    ssd_cpu: Option<usize>,
    /// Its medium begins empty: memory, or a file of the kernel's that was created.
    begins_empty: bool,
    /// How far from its beginning it has been filled, in bytes.
    filled: Vec<(u64, u64)>,
}

/// All devices of a run.
#[derive(Default)]
pub struct Devices {
    // Dropped in this order: files are removed while their SSDs still have them locked.
    created: Created,
    opened: Vec<Opened>,
}

/// Files that opening the devices created. They are removed again if nothing is run on them after all.
#[derive(Default)]
struct Created(Vec<(PathBuf, Identity)>);

/// Device and inode number.
type Identity = (u64, u64);

/// What is at `path` itself, not where a link leads.
fn identity(path: &Path) -> std::io::Result<Identity> {
    path.symlink_metadata().map(|meta| (meta.dev(), meta.ino()))
}

/// Whether there is nothing by that name, not even a link that leads nowhere. If that cannot be told there is something.
fn is_free(path: &Path) -> bool {
    identity(path).is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

impl Created {
    /// Opening a device that creates the file has succeeded where there was nothing before. The file is locked.
    fn add(&mut self, path: PathBuf) {
        if let Ok(identity) = identity(&path) {
            self.0.push((path, identity));
        }
    }
}

impl Drop for Created {
    fn drop(&mut self) {
        for (path, created) in &self.0 {
            // Nothing that somebody else has put in its place.
            if identity(path).is_ok_and(|there| there == *created) {
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

impl Devices {
    /// Opens each of `uris` once; with `stamps`, software SSDs take time stamps of every command.
    pub fn open(uris: &[String], stamps: bool) -> Result<Self, Failure> {
        let mut distinct: Vec<&String> = Vec::new();
        let mut files: Vec<(String, PathBuf)> = Vec::new();
        let mut parsed = Vec::new();
        for uri in uris {
            if distinct.contains(&uri) {
                continue;
            }
            let what: Uri = uri.parse().map_err(Failure::new)?;
            if let Uri::File { path, .. } | Uri::Kernel { path, .. } = &what {
                files.push((uri.clone(), path.clone()));
            }
            distinct.push(uri);
            parsed.push(what);
        }
        checks::check_files(&files)?;
        let allowed = cpu::allowed();
        let mut devices = Self::default();
        for (uri, what) in distinct.into_iter().zip(parsed) {
            let (soft, begins_empty) = match &what {
                Uri::Mem { soft, .. } => (Some(soft), true),
                Uri::File { soft, .. } => (Some(soft), false),
                _ => (None, false),
            };
            // As the library chooses it: told to it, so that the two cannot differ.
            let default = allowed.last().copied().filter(|_| allowed.len() > 1);
            let ssd_cpu = soft.and_then(|soft| soft.cpu.or(default));
            if let Some(cpu) = ssd_cpu.filter(|cpu| !allowed.contains(cpu)) {
                let what = format!("cpu={cpu}: this process may not use it; it may use {allowed:?}");
                return Err(Failure::new(format_args!("device {uri}: {what}")));
            }
            let options = OpenOptions { ssd_cpu, stamps, ..OpenOptions::default() };
            // The library creates it exclusively, and locks it: what was not there before, and is ours after, is new.
            let creates = match &what {
                Uri::File { path, soft } if soft.create_bytes.is_some() => Some(path),
                Uri::Kernel { path, kernel } if kernel.create_bytes.is_some() => Some(path),
                _ => None,
            };
            let is_new = creates.is_some_and(|path| is_free(path));
            let device = meantime::block::open(uri, &options).map_err(|error| named(uri, &error))?;
            if let (true, Uri::File { path, .. } | Uri::Kernel { path, .. }) = (is_new, what) {
                devices.created.add(path);
            }
            // Blocks that were only allocated read as zeroes, which the file system does not ask the disk for.
            let begins_empty = match &device {
                Device::Nvme(_) => begins_empty,
                Device::Kernel(device) => device.was_created(),
            };
            devices.opened.push(Opened {
                device,
                uri: uri.clone(),
                ssd_cpu,
                begins_empty,
                filled: Vec::new(),
            });
        }
        Ok(devices)
    }

    /// From now on the files hold results; those of the kernel's once they are filled, since until then they cannot be read from.
    pub fn keep_created(&mut self) {
        let kernels = |path: &Path| {
            self.opened
                .iter()
                .any(|opened| matches!(opened.uri.parse(), Ok(Uri::Kernel { path: its, .. }) if its == path))
        };
        self.created.0.retain(|(path, _)| kernels(path));
    }

    /// The device of that index is filled.
    pub fn keep_filled(&mut self, index: usize) {
        if let Ok(Uri::Kernel { path, .. }) = self.opened[index].uri.parse() {
            self.created.0.retain(|(created, _)| *created != path);
        }
    }

    /// The device of that index.
    pub fn get(&self, index: usize) -> &Device {
        &self.opened[index].device
    }

    /// The URI as it was given.
    pub fn uri(&self, index: usize) -> &str {
        &self.opened[index].uri
    }

    /// The CPU of the device's software SSD.
    pub fn ssd_cpu(&self, index: usize) -> Option<usize> {
        self.opened[index].ssd_cpu
    }

    /// Indices of `uris`, which were opened before.
    pub fn indices(&self, uris: &[String]) -> Vec<usize> {
        uris.iter().filter_map(|uri| self.opened.iter().position(|opened| opened.uri == *uri)).collect()
    }

    /// Memory that the floors of `indices` need.
    pub fn floor_bytes(&self, indices: &[usize]) -> u64 {
        indices.iter().map(|index| self.get(*index).info().bytes()).fold(0, u64::saturating_add)
    }

    /// What of the range `offset_bytes`, `bytes` of a medium that began empty has yet to be filled; counts as filled
    /// from now on.
    pub fn take_unfilled(&mut self, index: usize, offset_bytes: u64, bytes: u64) -> Option<(u64, u64)> {
        let opened = &mut self.opened[index];
        let end = offset_bytes + bytes;
        let covered = opened.filled.iter().any(|(from, to)| *from <= offset_bytes && end <= *to);
        if !opened.begins_empty || covered {
            return None;
        }
        opened.filled.push((offset_bytes, end));
        Some((offset_bytes, bytes))
    }

    /// What the DMA memory is made of.
    pub fn page_kind(&self) -> Option<&'static str> {
        self.opened.first().and_then(|opened| opened.device.heap().page_kind()).map(|kind| kind.name())
    }
}
