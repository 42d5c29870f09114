//! A mounted file system.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::ops::ControlFlow;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::bounded::Bounded;
use super::cache::{CacheCounters, LEAST_BYTES};
use super::counters::{Counters, Counts};
use super::error::{Corruption, Defect, Error, MountError, MountFailure, Result};
use super::file::File;
use super::inode::shared::{Inode, nodes_kept};
use super::inode::{Accesses, Mount, NameKey, Node, WritableMount};
use super::io::{Call, DeviceSource, IoContexts};
use super::journal::{Handle, Journal, JournalCounters, Recovery, check};
use super::mmp::{self, Protection};
use super::ops::recovery;
use super::options::{MountOptions, OpenOptions};
use meantime_block::{BlockDevice, Device, in_use};
use meantime_ext4_format::check;
use meantime_ext4_format::dirent::NAME_BYTES_MAX;
use meantime_ext4_format::{
    Attribute, DirectoryEntry, OpenFailure, ROOT_INO, Volume, VolumeOptions, journal,
};
use meantime_ext4_format::{FileType, Metadata, Mmp, Recovered, Usage, VolumeInfo};
use meantime_hw::Clock;
use meantime_process::lock::{Mutex, Rank};

/// The memory for metadata: a sixteenth of the page cache's, within these limits, in bytes.
const METADATA_BYTES: std::ops::RangeInclusive<usize> = (1 << 20)..=(64 << 20);

/// The memory for cached names: a sixteenth of the page cache's, within these limits, in bytes.
const NAMES_BYTES: std::ops::RangeInclusive<usize> = (4 << 20)..=(64 << 20);

/// A mounted ext4 file system. Cloning shares the mount; any thread may use it.
#[derive(Clone)]
pub struct FileSystem {
    pub(super) mount: Arc<Mount>,
}

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The name; a listing includes `.` and `..`.
    pub name: OsString,
    /// The inode's number.
    pub ino: u32,
    /// The file type, if the directory contains it.
    pub file_type: Option<FileType>,
    /// Where the next name begins, for `telldir`: a number up to `i64::MAX` that does not decrease
    /// from one name to the next. It stays valid while names are added, removed and renamed. Names
    /// with the same full hash share one position, that of the first of them.
    pub cookie: u64,
}

/// The names in a directory, block by block, in the order in which the kernel's ext4 lists them. A
/// name that exists all the while is listed once, whatever changes beside it. Nothing follows an
/// error.
pub struct ReadDir {
    pub(super) node: Node,
    /// The names of the current block that were not returned yet.
    entries: VecDeque<Entry>,
    /// Where to continue after them; `None` if the listing ends.
    cookie: Option<u64>,
    /// The directory's version when they were listed, or an earlier one.
    pub(super) version: u64,
    /// The directory's size in bytes when the listing began, or `u64::MAX` if it did not begin
    /// here. In a directory that is listed block by block, names after that size were added since
    /// and are left out, so the listing ends although other threads go on adding names.
    bytes: u64,
}

impl Iterator for ReadDir {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entry) = self.entries.pop_front() {
                return Some(Ok(entry));
            }
            let cookie = self.cookie.take()?;
            let Node { mount, inode } = &self.node;
            if cookie == 0 {
                self.bytes = self.node.metadata().size;
            }
            self.version = inode.version();
            let (volume, bytes) = (&mount.volume, self.bytes);
            let entries = inode.consistent(volume, |inode| volume.list(inode, cookie, bytes));
            match entries {
                Ok(entries) => {
                    // Cookies grow, so the listing ends.
                    self.cookie =
                        entries.last().map(|last| last.cookie).filter(|next| *next > cookie);
                    self.entries = entries.into_iter().map(Entry::from).collect();
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

impl From<DirectoryEntry> for Entry {
    fn from(entry: DirectoryEntry) -> Self {
        let DirectoryEntry { name, ino, file_type, cookie } = entry;
        Self { name: OsString::from_vec(name), ino, file_type, cookie }
    }
}

impl ReadDir {
    /// Continues at `cookie` of an [`Entry`] of the same directory; 0 is the beginning.
    pub fn seek(&mut self, cookie: u64) {
        self.entries.clear();
        self.cookie = Some(cookie);
    }
}

impl std::fmt::Debug for FileSystem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileSystem")
            .field("device", &self.device().info().uri)
            .finish_non_exhaustive()
    }
}

/// Recovers the journal of `volume`. Returns it with the recovered volume.
fn begin_journal(
    contexts: &Arc<IoContexts>,
    volume: Volume<DeviceSource>,
    options: &MountOptions,
) -> Result<(Journal, Volume<DeviceSource>), MountFailure> {
    let mut recovery = Recovery::read(contexts, volume)?;
    recovery::validate(recovery.volume())?;
    let commits = recovery.take_fast_commits();
    let changes = commits.map(|commits| recovery::apply(recovery.volume(), commits)).transpose()?;
    recovery.begin(changes, options.commit_overlap, options.fast_commit)
}

impl FileSystem {
    /// Returns the host that has the file system mounted for writing or checks it, according to the
    /// block of multiple mount protection that is on the device now. Returns `None` if there is no
    /// such block. A mount for reading does not write it.
    ///
    /// # Errors
    /// Fails if the block is damaged, or with a device error.
    pub fn multiple_mount_protection(&self) -> Result<Option<Mmp>> {
        mmp::who_has(&self.mount.contexts, &self.mount.volume)
    }

    /// Checks for damage, and reports events to `watch`, which may end the check. Does not repair
    /// anything.
    ///
    /// # Errors
    /// A device error, or a lack of memory. Damage is not an error.
    pub fn check(
        &self,
        watch: &mut dyn FnMut(check::Event<'_>) -> ControlFlow<()>,
    ) -> Result<check::Summary> {
        Ok(check::Checker::new(&self.mount.volume, watch)?.run()?)
    }

    /// Mounts the file system on `device`, for reading by default. A journal that needs recovery is
    /// replayed: into memory, or, for writing, onto the disk.
    ///
    /// # Errors
    /// [`MountError`]. A failed mount for reading has written nothing. A failed mount for writing
    /// has written nothing either if the file system is in use elsewhere, has errors, or cannot be
    /// kept consistent. The exception is the block of multiple mount protection, if there is one,
    /// which is left marked unused. With that protection, a mount for writing can take long: see
    /// [`MountOptions::write`].
    pub fn mount(device: Device, options: &MountOptions) -> Result<Self, MountError> {
        if options.cache_bytes < LEAST_BYTES {
            return Err(MountError::Option(format!(
                "a page cache of {} bytes is too small: from {LEAST_BYTES} bytes on",
                options.cache_bytes
            )));
        }
        if options.channels == 0 {
            return Err(MountError::Option("a mount needs at least one channel".to_owned()));
        }
        let uri = device.info().uri.clone();
        let device_bytes = device.info().bytes();
        let failed = |error: Error| MountError::Failed { uri: uri.clone(), error };
        if let (true, Some(why)) = (options.write, device.read_only()) {
            return Err(match uri.parse().ok().as_ref().and_then(in_use) {
                Some(who) => MountError::InUse { uri, who },
                None => MountError::ReadOnly { uri, why: why.to_owned() },
            });
        }
        let contexts = IoContexts::new(device, options)
            .map_err(|error| failed(Error::Resources(error.to_string())))?;
        let contexts = Arc::new(contexts);
        let metadata_bytes =
            (options.cache_bytes / 16).clamp(*METADATA_BYTES.start(), *METADATA_BYTES.end());
        let source = DeviceSource::new(Arc::clone(&contexts), options.policy, metadata_bytes);
        let volume_options = VolumeOptions {
            ignore_checksums: options.ignore_checksums,
            superblock: options.superblock,
        };
        let for_device = |failure: OpenFailure| MountError::new(failure, &uri, device_bytes);
        let volume = Volume::open(source, device_bytes, volume_options).map_err(for_device)?;
        let superblock = volume.superblock();
        if !options.write || superblock.mmp_block().is_none() {
            return Self::begin(&contexts, volume, options, None);
        }
        // Refuse unsupported features before anything is written.
        check(&volume, contexts.info().block_bytes)
            .map_err(|failure| MountError::new(failure, &uri, device_bytes))?;
        let taken =
            Protection::take(&contexts, volume.source(), superblock, &uri, options.on_wait)?;
        let protection = taken.map(Arc::new);
        // Another host may have changed the file system meanwhile: read it anew.
        let volume =
            Volume::open(volume.source().anew(), device_bytes, volume_options).map_err(for_device);
        let begun =
            volume.and_then(|volume| Self::begin(&contexts, volume, options, protection.clone()));
        if let (Err(error), Some(protection)) = (&begun, protection) {
            match error {
                // Writes may still be in flight, so the next mount has to wait, as after a crash.
                MountError::Failed { error: Error::Io(_) | Error::Taken(_), .. } => {
                    protection.stop()
                }
                _ => {
                    if let Err(error) = protection.release() {
                        tracing::warn!(%error, "the file system stays marked as in use");
                    }
                }
            }
        }
        begun
    }

    /// Mounts `volume` through `contexts`. On a mount for writing, `protection` keeps other hosts
    /// off if the file system has that feature.
    fn begin(
        contexts: &Arc<IoContexts>,
        mut volume: Volume<DeviceSource>,
        options: &MountOptions,
        protection: Option<Arc<Protection>>,
    ) -> Result<Self, MountError> {
        let uri = &contexts.info().uri;
        let device_bytes = contexts.info().bytes();
        let failed = |error: Error| MountError::Failed { uri: uri.clone(), error };
        let mut rw_mount = None;
        let recovered = if options.write {
            let (journal, ready) = begin_journal(contexts, volume, options)
                .map_err(|failure| MountError::new(failure, uri, device_bytes))?;
            volume = ready;
            let recovered = journal.recovered();
            rw_mount = Some(
                WritableMount::new(journal, contexts, &volume, options, protection)
                    .map_err(failed)?,
            );
            recovered
        } else {
            recover(&mut volume).map_err(|failure| MountError::new(failure, uri, device_bytes))?
        };
        let block_shift = volume.superblock().block_bytes().trailing_zeros();
        let mount = Mount {
            volume,
            contexts: Arc::clone(contexts),
            nodes: Bounded::new(nodes_kept(options.cache_bytes)),
            names: Bounded::new(
                (options.cache_bytes / 16).clamp(*NAMES_BYTES.start(), *NAMES_BYTES.end()),
            ),
            names_changed: Mutex::new(Rank::Names, 0),
            rw_mount,
            options: options.clone(),
            block_shift,
            overlaid: !options.write
                && recovered
                    .is_some_and(|recovered| recovered.blocks > 0 || recovered.fast_commits > 0),
            recovered,
            counts: Counts::default(),
            clock: Clock::real(),
            accesses: Accesses::new(options.write, options.access_times),
            timed: AtomicBool::new(false),
        };
        let fs = Self { mount: Arc::new(mount) };
        // A mount without a root is useless.
        let root = fs.root().map_err(failed)?;
        if root.file_type() != FileType::Directory {
            return Err(failed(
                Corruption::new(Defect::InodeField("type")).in_inode(root.ino()).into(),
            ));
        }
        fs.begin_writing().map_err(failed)?;
        Ok(fs)
    }

    /// Returns the size of the device's blocks, in bytes. Direct reads and writes cost the least at
    /// multiples of it, and Linux requires such multiples.
    pub fn device_block_bytes(&self) -> u32 {
        self.mount.contexts.info().block_bytes
    }

    /// The underlying device.
    pub fn device(&self) -> &Device {
        self.mount.contexts.device()
    }

    /// The on-disk structures.
    pub fn volume(&self) -> &Volume<DeviceSource> {
        &self.mount.volume
    }

    /// The counters of the mount's reads.
    pub fn counters(&self) -> Counters {
        self.mount.counts.read()
    }

    /// Returns the counters of the journal's writes, or `None` if the file system is mounted for
    /// reading.
    pub fn journal_counters(&self) -> Option<JournalCounters> {
        self.mount.rw_mount.as_ref().map(|rw_mount| rw_mount.journal.counters())
    }

    /// Switches the timing of work in the gaps of reads on or off; see [`Counters::deferrable_ns`].
    pub fn time_deferrable(&self, timed: bool) {
        self.mount.timed.store(timed, Ordering::Relaxed);
    }

    /// The counters of the page cache.
    pub fn cache_counters(&self) -> CacheCounters {
        let dirty_pages = self.mount.rw_mount.as_ref().map_or(0, |rw_mount| rw_mount.dirty_pages());
        CacheCounters { dirty_pages, ..self.mount.contexts.cache().counters() }
    }

    /// Notes that another process or thread waits for what the calling thread does next, until the
    /// result is dropped. If there are many such callers, waits for the device leave the CPU to
    /// them ([`MountOptions::pollers`]).
    #[inline]
    pub fn begin_call(&self) -> Call<'_> {
        self.mount.contexts.begin_call()
    }

    /// Opens the file at `path` (from the root, following links) for reading.
    ///
    /// # Errors
    /// The errors of `open(2)`; a directory can be opened, but not read.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<File> {
        self.open_node(&self.resolve(&self.root()?, path, true)?)
    }

    /// Returns the metadata of `path`, following links.
    ///
    /// # Errors
    /// The errors of `stat(2)`.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        Ok(self.resolve(&self.root()?, path, true)?.metadata())
    }

    /// Returns the metadata of `path` itself, without following a link.
    ///
    /// # Errors
    /// The errors of `lstat(2)`.
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        Ok(self.resolve(&self.root()?, path, false)?.metadata())
    }

    /// Lists the directory at `path`.
    ///
    /// # Errors
    /// The errors of `opendir(3)`.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        self.entries(&self.resolve(&self.root()?, path, true)?)
    }

    /// Returns the root directory.
    ///
    /// # Errors
    /// Damage, or a device error.
    pub fn root(&self) -> Result<Node> {
        self.linked(ROOT_INO)
    }

    /// Returns inode `ino`, with or without a name. On a mount for writing, an inode without names
    /// is found only while it is in use.
    ///
    /// # Errors
    /// Fails if the number does not exist, or if the inode cannot be read. On a mount for writing,
    /// returns [`Error::NotFound`] if the inode is free or being deleted.
    pub fn inode(&self, ino: u32) -> Result<Node> {
        let node = self.node_of(ino, false)?;
        let Some(writable) = &node.inode.writable else { return Ok(node) };
        let inode = self.mount.consistent(|| self.mount.volume.inode(ino))?;
        // An open inode without links is known to be unlinked. Any other one without links is free,
        // or is losing its last name right now.
        if inode.is_free() && !writable.is_unlinked() {
            if writable.end_alone() {
                // The number may be reused at any time, so this inode must not be cached.
                self.mount.forget_inode(&node.inode);
            }
            return Err(Error::NotFound);
        }
        Ok(node)
    }

    /// Returns inode `ino`, whose last name a handle is removing. It is not deleted before the node
    /// is dropped.
    pub(super) fn losing(&self, ino: u32) -> Result<Node> {
        self.node_of(ino, false)
    }

    /// Returns inode `ino`, to which a name leads.
    pub(super) fn linked(&self, ino: u32) -> Result<Node> {
        self.node_of(ino, true)
    }

    /// Returns inode `ino`, which `handle` is creating.
    pub(super) fn made(&self, handle: &Handle<'_>, ino: u32) -> Result<Node> {
        let inode = Inode::made(&self.mount, handle, ino)?;
        Node::new(&self.mount, &inode).ok_or(Error::NotFound)
    }

    fn node_of(&self, ino: u32, linked: bool) -> Result<Node> {
        loop {
            let inode = Inode::load(&self.mount, ino, linked)?;
            if let Some(node) = Node::new(&self.mount, &inode) {
                return Ok(node);
            }
            // It was deleted just now: its number's next owner is another inode.
            self.mount.forget_inode(&inode);
        }
    }

    /// Resolves `path` relative to `from`, or to the root if it begins with a slash. `follow` says
    /// whether to follow a link that is the last part.
    ///
    /// # Errors
    /// The errors of `stat(2)`.
    pub fn resolve(&self, from: &Node, path: impl AsRef<Path>, follow: bool) -> Result<Node> {
        self.walk(from, path.as_ref(), follow)
    }

    /// Looks up `name` in directory `parent`. Does not follow a link.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotDirectory`], damage, or a device error.
    pub fn lookup(&self, parent: &Node, name: &OsStr) -> Result<Node> {
        let name = name.as_bytes();
        if parent.file_type() != FileType::Directory {
            return Err(Error::NotDirectory);
        }
        if name.len() > NAME_BYTES_MAX {
            return Err(Error::NameTooLong);
        }
        let key = NameKey::new(parent.ino(), name);
        if let Some(ino) = key.get(&self.mount) {
            match self.linked(ino) {
                // The name was removed just now.
                Err(Error::Corrupt(_) | Error::NotFound) if self.mount.rw_mount.is_some() => {}
                // The name was removed and its number may already be another file's. This cannot
                // happen while a node of it exists.
                Ok(_) if self.mount.rw_mount.is_some() && key.get(&self.mount) != Some(ino) => {}
                found => return found,
            }
        }
        let mut tries = 0;
        let mut last: Option<Node> = None;
        loop {
            let before = self.mount.names_changed();
            let lookup = |inode: &_| self.mount.volume.lookup(inode, name);
            let found = parent.inode.consistent(&self.mount.volume, lookup)?;
            let (ino, _) = found.ok_or(Error::NotFound)?;
            tries += 1;
            match self.linked(ino) {
                // Another thread may have deleted it in between. Damage persists.
                Err(Error::Corrupt(_) | Error::NotFound)
                    if tries < 100 && self.mount.rw_mount.is_some() => {}
                Err(error) => return Err(error),
                Ok(node) => {
                    let changed = self.mount.lock_names();
                    if *changed == before {
                        key.learn(&self.mount, ino);
                        return Ok(node);
                    }
                    drop(changed);
                    // Another thread may have deleted the inode in between and reused its number,
                    // but not while a node of it exists.
                    if last.is_some_and(|last| Arc::ptr_eq(&last.inode, &node.inode)) {
                        return Ok(node);
                    }
                    last = Some(node);
                }
            }
        }
    }

    /// Returns the target of symbolic link `node`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is no symbolic link.
    pub fn read_link_at(&self, node: &Node) -> Result<PathBuf> {
        if node.file_type() != FileType::Symlink {
            return Err(Error::Invalid("not a symbolic link"));
        }
        let snapshot = node.inode.snapshot(&self.mount.volume)?;
        let target = self.mount.consistent(|| self.mount.volume.read_link(&snapshot.on_disk))?;
        node.accessed();
        Ok(PathBuf::from(OsString::from_vec(target)))
    }

    /// Lists directory `node`.
    ///
    /// # Errors
    /// [`Error::NotDirectory`], damage, or a device error.
    pub fn entries(&self, node: &Node) -> Result<ReadDir> {
        let entries = self.entries_unnoted(node)?;
        node.accessed();
        Ok(entries)
    }

    /// Lists directory `node`, and leaves its access time as it is (O_NOATIME).
    ///
    /// # Errors
    /// [`Error::NotDirectory`], damage, or a device error.
    pub fn entries_unnoted(&self, node: &Node) -> Result<ReadDir> {
        if node.file_type() != FileType::Directory {
            return Err(Error::NotDirectory);
        }
        let (node, entries) = (node.clone(), VecDeque::new());
        Ok(ReadDir { node, entries, cookie: Some(0), version: 0, bytes: u64::MAX })
    }

    /// Opens `node` for reading.
    ///
    /// # Errors
    /// [`Error::Special`], damage, or a device error.
    pub fn open_node(&self, node: &Node) -> Result<File> {
        File::open(node.clone(), OpenOptions { read: true, ..OpenOptions::default() })
    }

    /// Returns the extended attributes of `node`, with full names (`user.x`), in the order of the
    /// disk.
    ///
    /// # Errors
    /// Damage, or a device error.
    pub fn attributes(&self, node: &Node) -> Result<Vec<Attribute>> {
        let snapshot = node.inode.snapshot(&self.mount.volume)?;
        Ok(self.mount.consistent(|| self.mount.volume.attributes(&snapshot.on_disk))?)
    }

    /// Returns the value of attribute `name` of `node`.
    ///
    /// # Errors
    /// [`Error::NoAttribute`], damage, or a device error.
    pub fn attribute(&self, node: &Node, name: &[u8]) -> Result<Vec<u8>> {
        let found = self.attributes(node)?.into_iter().find(|(full, _)| full == name);
        found.map(|(_, value)| value).ok_or(Error::NoAttribute)
    }

    /// Returns the usage of space and inodes, as `statfs` does.
    ///
    /// # Errors
    /// Fails if a group descriptor cannot be read.
    pub fn usage(&self) -> Result<Usage> {
        if let Some(rw_mount) = &self.mount.rw_mount {
            return Ok(rw_mount.allocator.usage());
        }
        Ok(self.mount.volume.usage()?)
    }

    /// Returns the superblock's information.
    pub fn info(&self) -> VolumeInfo {
        VolumeInfo { recovered: self.mount.recovered, ..self.mount.volume.info() }
    }
}

/// Replays the journal of `volume` into memory, if it needs recovery.
fn recover(volume: &mut Volume<DeviceSource>) -> Result<Option<Recovered>, MountFailure> {
    let recovery = journal::recover(volume)?;
    if recovery.is_empty() {
        return Ok(None);
    }
    Ok(Some(recovery.apply(volume)?))
}
