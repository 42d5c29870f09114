//! The devices of a run. They are opened once, before anything runs, and stay open until the end.

use std::ops::Range;
use std::path::{Path, PathBuf};

use meantime_block::{Access, Device, OpenOptions, Uri, UriError};
use meantime_ext4::{
    FileDevice, FileDeviceOptions, FileSystem, FileType, MountOptions, OpenOptions as FileOptions,
    Overlap,
};
use meantime_hw::cpu;

use super::error::{RunError, fail};
use super::file_counts::FileCounts;
use super::floor::FloorKind;
use super::media::{Created, check_files, identity, is_free};
use super::target::{HowUsed, MountedToWrite, Target, Wanted};
use crate::job::Job;

struct Opened {
    target: Target,
    wanted: Wanted,
    /// Index of the mount, if the target is a file.
    mount: Option<usize>,
    /// CPU of its software SSD's thread, if it is bound to one.
    ssd_cpu: Option<usize>,
    /// Whether its medium begins empty, because it is memory, or a kernel file that was created.
    begins_empty: bool,
    /// The ranges that have been filled, in bytes from the device's beginning.
    filled: Vec<Range<u64>>,
}

/// All devices of a run.
#[derive(Default)]
pub struct Devices {
    // Fields are dropped in this order, so files are removed while their SSDs still have them
    // locked.
    created: Created,
    opened: Vec<Opened>,
    mounts: Vec<Mount>,
}

/// A mounted file system.
struct Mount {
    device: String,
    how: HowMounted,
    fs: FileSystem,
    /// Files that opening the devices created. They are removed again if nothing runs on them.
    created: Vec<PathBuf>,
}

/// The way in which a file system is mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct HowMounted {
    cache_bytes: usize,
    overlap: Overlap,
    /// The options of a mount for writing, if a job writes to one of its files.
    written: Option<MountedToWrite>,
}

impl HowMounted {
    fn options(&self) -> MountOptions {
        let Self { cache_bytes, overlap, written } = *self;
        let options = MountOptions { cache_bytes, overlap, ..MountOptions::default() };
        match written {
            None => options,
            Some(MountedToWrite { commit_overlap, fast_commit, policy }) => MountOptions {
                write: true,
                policy: Some(policy),
                commit_overlap,
                fast_commit,
                ..options
            },
        }
    }
}

impl Opened {
    /// Returns the device, or for a file, the device below it.
    fn device(&self) -> &Device {
        match &self.target {
            Target::Device(device) => device,
            Target::File(file) => file.file().device(),
        }
    }
}

impl Drop for Devices {
    fn drop(&mut self) {
        for mount in &self.mounts {
            for path in &mount.created {
                let _ = mount.fs.remove_file(path);
            }
        }
        // If this was not done before, an earlier failure is reported.
        let _ = self.unmount();
    }
}

impl Devices {
    /// Opens each device of `uris` once. With `stamps`, software SSDs take time stamps of every
    /// command.
    pub fn open_devices(uris: &[String], writes: bool, stamps: bool) -> Result<Self, RunError> {
        let wanted: Vec<Wanted> = uris.iter().map(|uri| Wanted::device(uri)).collect();
        Self::open(&wanted, |_| writes, stamps)
    }

    /// Opens each of `wanted` once, and each device below them. Opens a device for reading only if
    /// nothing `writes` to it. With `stamps`, software SSDs take time stamps of every command.
    ///
    /// A file system is mounted for writing if one of its files is written; files that are not there
    /// are created then. [`unmount`](Self::unmount) ends that.
    pub fn open(
        wanted: &[Wanted],
        writes: impl Fn(&str) -> bool,
        stamps: bool,
    ) -> Result<Self, RunError> {
        let mut distinct: Vec<&Wanted> = Vec::new();
        let mut files: Vec<(String, PathBuf)> = Vec::new();
        let mut under: Vec<(&str, Uri)> = Vec::new();
        for one in wanted.iter() {
            if !distinct.contains(&one) {
                distinct.push(one);
            }
            if under.iter().any(|(device, _)| *device == one.device) {
                continue;
            }
            let what: Uri =
                one.device.parse().map_err(|error: UriError| RunError::Uri(error.to_string()))?;
            if let Uri::File { path, .. } | Uri::Kernel { path, .. } = &what {
                files.push((one.device.clone(), path.clone()));
            }
            under.push((&one.device, what));
        }
        check_files(&files)?;
        let mut devices = Self::default();
        for (uri, what) in under {
            let access = if writes(uri) { Access::WhatIsPossible } else { Access::Read };
            // What writes files of its file system does not destroy it.
            let protect = distinct.iter().all(|one| one.device != uri || one.file.is_none());
            let mut first = Some(devices.open_device(uri, &what, access, stamps, protect)?);
            let mut how_written = distinct
                .iter()
                .filter(|one| one.device == uri)
                .filter_map(|one| Some(one.file.as_ref()?.1.written?.mount));
            let written = how_written.next();
            if how_written.any(|other| Some(other) != written) {
                return Err(other_mount(uri));
            }
            for one in distinct.iter().filter(|one| one.device == uri) {
                let (device, ssd_cpu, begins_empty) = match first.take() {
                    Some(first) => first,
                    None => devices.open_again(uri, access)?,
                };
                let (target, mount) = match &one.file {
                    None => (Target::Device(device), None),
                    Some((path, how)) => {
                        let mount = devices.mount(one, *how, written, device)?;
                        (devices.open_file(one, path, *how, mount)?, Some(mount))
                    }
                };
                let begins_empty = begins_empty && one.file.is_none();
                let (wanted, filled) = ((*one).clone(), Vec::new());
                let opened = Opened { target, wanted, mount, ssd_cpu, begins_empty, filled };
                devices.opened.push(opened);
            }
        }
        Ok(devices)
    }

    /// Opens a device. Returns it with the CPU of its software SSD, and whether its medium begins
    /// empty.
    fn open_device(
        &mut self,
        uri: &str,
        what: &Uri,
        access: Access,
        stamps: bool,
        protect: bool,
    ) -> Result<(Device, Option<usize>, bool), RunError> {
        let allowed = cpu::allowed();
        let (soft, begins_empty) = match what {
            Uri::Mem { soft, .. } => (Some(soft), true),
            Uri::File { soft, .. } => (Some(soft), false),
            _ => (None, false),
        };
        // The CPU that the library would choose, passed to it, so that the two cannot differ.
        let default = allowed.last().copied().filter(|_| allowed.len() > 1);
        let threaded = soft.filter(|soft| !soft.inline);
        let ssd_cpu = threaded.and_then(|soft| soft.cpu.or(default));
        if let Some(cpu) = ssd_cpu.filter(|cpu| !allowed.contains(cpu)) {
            fail!("device {uri}: cpu={cpu}: this process may not use it; it may use {allowed:?}");
        }
        let options = OpenOptions { access, ssd_cpu, stamps, protect, ..OpenOptions::default() };
        // The library creates the file exclusively, and locks it. A file that did not exist before
        // and is ours afterwards is new.
        let creates = match what {
            Uri::File { path, soft } if soft.create_bytes.is_some() => Some((path, false)),
            Uri::Kernel { path, kernel } if kernel.create_bytes.is_some() => Some((path, true)),
            _ => None,
        };
        let creates = creates.filter(|(path, _)| is_free(path));
        let device = meantime_block::open(uri, &options)
            .map_err(|error| RunError::of_device(uri, &error))?;
        if let Some((path, is_kernels)) = creates
            && let Ok(identity) = identity(path)
        {
            self.created.0.push((path.clone(), identity, is_kernels));
        }
        // Blocks that are only allocated read as zeroes, without a read from the disk.
        let begins_empty = match &device {
            Device::Nvme(_) => begins_empty,
            Device::Kernel(device) => device.was_created(),
        };
        Ok((device, ssd_cpu, begins_empty))
    }

    /// Opens an open device again, which is the same controller, or the kernel's file.
    fn open_again(
        &self,
        uri: &str,
        access: Access,
    ) -> Result<(Device, Option<usize>, bool), RunError> {
        let Some(first) = self.opened.iter().find(|opened| opened.wanted.device == uri) else {
            fail!("{uri} is not open: this is a bug, please report it");
        };
        let device = match first.device() {
            Device::Nvme(device) => Device::Nvme(device.clone()),
            Device::Kernel(_) => {
                let options = OpenOptions { access, ..OpenOptions::default() };
                meantime_block::open(uri, &options)
                    .map_err(|error| RunError::of_device(uri, &error))?
            }
        };
        Ok((device, first.ssd_cpu, first.begins_empty))
    }

    /// Mounts the file system on `device`, unless it is mounted in that way. Returns the index of
    /// the mount.
    fn mount(
        &mut self,
        wanted: &Wanted,
        how: HowUsed,
        written: Option<MountedToWrite>,
        device: Device,
    ) -> Result<usize, RunError> {
        let how = HowMounted { cache_bytes: how.cache_bytes, overlap: how.overlap, written };
        let on_it = |mount: &Mount| mount.device == wanted.device;
        if let Some(at) = self.mounts.iter().position(|mount| on_it(mount) && mount.how == how) {
            return Ok(at);
        }
        if written.is_some() && self.mounts.iter().any(on_it) {
            return Err(other_mount(&wanted.device));
        }
        let fs = FileSystem::mount(device, &how.options()).map_err(RunError::new)?;
        self.mounts.push(Mount { device: wanted.device.clone(), how, fs, created: Vec::new() });
        Ok(self.mounts.len() - 1)
    }

    /// Opens the file at `path` of a mount.
    fn open_file(
        &mut self,
        wanted: &Wanted,
        path: &Path,
        how: HowUsed,
        mount: usize,
    ) -> Result<Target, RunError> {
        let failed =
            |error: meantime_ext4::Error| RunError::new(format_args!("{}: {error}", wanted.uri));
        let Mount { fs, created, .. } = &mut self.mounts[mount];
        if how.times_deferrable {
            fs.time_deferrable(true);
        }
        let file = match how.written {
            None => fs.open(path).map_err(failed)?,
            Some(_) => {
                let is_new = matches!(fs.metadata(path), Err(meantime_ext4::Error::NotFound));
                let options = FileOptions {
                    read: true,
                    write: true,
                    create: true,
                    mode: 0o644,
                    ..FileOptions::default()
                };
                let file = fs.open_with(path, &options).map_err(failed)?;
                if is_new {
                    created.push(path.to_owned());
                }
                file
            }
        };
        if file.metadata().file_type == FileType::Directory {
            return Err(failed(meantime_ext4::Error::IsDirectory));
        }
        file.advise(0, 0, how.advice).map_err(failed)?;
        let options = FileDeviceOptions {
            direct: how.direct,
            data_only: how.written.is_some_and(|written| written.data_only),
            least_bytes: how.written.map_or(0, |written| written.grows_to_bytes),
            name: Some(wanted.uri.clone()),
            ..FileDeviceOptions::default()
        };
        FileDevice::new(file, options).map(Target::File).map_err(failed)
    }

    /// Ends the mounts, which writes everything that jobs have written. Files can no longer be
    /// written.
    ///
    /// # Errors
    /// Returns the first failure. All mounts have ended in any case.
    pub fn unmount(&mut self) -> Result<(), RunError> {
        let mut ended = Ok(());
        for Mount { device, fs, .. } in self.mounts.drain(..) {
            let unmounted = fs.unmount().map_err(|error| {
                RunError::new(format_args!("{device}: unmounting the file system failed: {error}"))
            });
            ended = ended.and(unmounted);
        }
        ended
    }

    /// Returns the counters of a file's mount, of all its files.
    pub(crate) fn file_counts(&self, index: usize) -> Option<FileCounts> {
        let mount = self.mounts.get(self.opened[index].mount?)?;
        Some(FileCounts::of(&mount.fs))
    }

    /// Returns whether two targets are one file or one device.
    pub(crate) fn are_same(&self, one: usize, other: usize) -> bool {
        let place = |index: usize| {
            let wanted = &self.opened[index].wanted;
            (&wanted.device, wanted.file.as_ref().map(|(path, _)| path))
        };
        one == other || place(one) == place(other)
    }

    /// Declares that the files hold results from now on and are kept. Kernel files are kept only
    /// once they are filled, since until then they cannot be read.
    pub fn keep_created(&mut self) {
        self.created.0.retain(|(.., is_kernels)| *is_kernels);
        self.mounts.iter_mut().for_each(|mount| mount.created.clear());
    }

    /// Keeps the file of the device with index `index`, which is filled now.
    pub(crate) fn keep_filled(&mut self, index: usize) {
        if let Ok(Uri::Kernel { path, .. }) = self.opened[index].wanted.device.parse() {
            self.created.0.retain(|(created, ..)| *created != path);
        }
    }

    /// Returns the target with index `index`.
    pub(crate) fn get(&self, index: usize) -> &Target {
        &self.opened[index].target
    }

    /// Returns the device with index `index`, or for a file, the device below it.
    pub fn device(&self, index: usize) -> &Device {
        self.opened[index].device()
    }

    /// Returns whether a file system on the device with index `index` is mounted in this run.
    pub(crate) fn is_mounted(&self, index: usize) -> bool {
        self.mounts.iter().any(|mount| mount.device == self.opened[index].wanted.device)
    }

    /// Returns the URI as given.
    pub fn uri(&self, index: usize) -> &str {
        &self.opened[index].wanted.uri
    }

    /// Returns the CPU of the device's software SSD.
    pub fn ssd_cpu(&self, index: usize) -> Option<usize> {
        self.opened[index].ssd_cpu
    }

    /// Returns the indices of devices, which are open.
    pub fn indices(&self, uris: &[String]) -> Vec<usize> {
        let wanted: Vec<Wanted> = uris.iter().map(|uri| Wanted::device(uri)).collect();
        self.indices_of(&wanted)
    }

    /// Returns the indices of `wanted` targets, which are open.
    pub fn indices_of(&self, wanted: &[Wanted]) -> Vec<usize> {
        let index = |one: &Wanted| self.opened.iter().position(|opened| opened.wanted == *one);
        wanted.iter().filter_map(index).collect()
    }

    /// Returns how the floor of the device with index `index` is measured for `job`.
    pub(crate) fn floor_kind(&self, index: usize, job: &Job) -> FloorKind {
        let device = &self.opened[index].wanted.device;
        FloorKind::of(device, job.numjobs as usize, job.iodepth as usize)
    }

    /// Returns the size of the floor's medium for the device with index `index`, in bytes.
    pub(crate) fn floor_bytes(&self, index: usize, job: &Job) -> u64 {
        self.floor_kind(index, job).medium_bytes(self.get(index).info().bytes())
    }

    /// Returns the parts of `range` (in bytes) that are not yet filled, on a medium that began
    /// empty. They count as filled from now on.
    pub(crate) fn take_unfilled(&mut self, index: usize, range: Range<u64>) -> Vec<Range<u64>> {
        let opened = &mut self.opened[index];
        if !opened.begins_empty {
            return Vec::new();
        }
        let gaps = gaps(&opened.filled, range);
        opened.filled.extend_from_slice(&gaps);
        gaps
    }

    /// Returns the memory in use that the devices of `indices` may read and write, in bytes.
    pub(crate) fn dma_bytes(&self, indices: &[usize]) -> usize {
        let heap_bytes = |index: &usize| self.opened[*index].device().heap().allocated_bytes();
        // Files of one device share its heap.
        let first = |at: &usize| {
            let uri = |index: usize| &self.opened[index].wanted.device;
            !indices[..*at].iter().any(|before| uri(*before) == uri(indices[*at]))
        };
        (0..indices.len()).filter(first).map(|at| heap_bytes(&indices[at])).sum()
    }

    /// Returns the kind of pages of the DMA memory.
    pub fn page_kind(&self) -> Option<&'static str> {
        self.opened.first()?.device().heap().page_kind().map(|kind| kind.name())
    }
}

/// Returns the error that a file which is written can have only one mount.
fn other_mount(device: &str) -> RunError {
    RunError::new(format_args!(
        "{device}: a file system that is written is mounted once: all jobs on its files need the \
         same cache, overlap, commit_overlap, fast_commit and completion; run the others by \
         themselves"
    ))
}

/// Returns the parts of `range` that are in none of `filled`. In the others an earlier job may have
/// written what a later one checks.
fn gaps(filled: &[Range<u64>], range: Range<u64>) -> Vec<Range<u64>> {
    let mut gaps = vec![range];
    for done in filled {
        let around = |gap: Range<u64>| {
            [gap.start..gap.end.min(done.start), gap.start.max(done.end)..gap.end]
        };
        gaps = gaps.into_iter().flat_map(around).filter(|gap| !gap.is_empty()).collect();
    }
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    // These are lists of ranges.
    #[expect(clippy::single_range_in_vec_init)]
    fn only_what_was_not_filled_is_filled() {
        assert_eq!(gaps(&[], 5..9), [5..9]);
        assert_eq!(gaps(&[0..4, 6..8, 20..30], 2..25), [4..6, 8..20]);
        assert_eq!(gaps(&[6..8, 0..4], 0..4), []);
        assert_eq!(gaps(&[4..6], 0..10), [0..4, 6..10]);
        assert_eq!(gaps(&[4..6], 6..6), []);
    }
}
