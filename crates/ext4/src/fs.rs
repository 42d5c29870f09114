//! A mounted file system.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::ops::ControlFlow;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::bounded::Bounded;
use super::cache::{CacheCounters, LEAST_BYTES};
use super::counters::{Counters, Counts};
use super::error::{Corruption, Defect, Error, MountError, MountFailure};
use super::file::File;
use super::inode::shared::{Inode, nodes_kept};
use super::inode::{Mount, Node, Writer};
use super::io::{DeviceSource, IoContexts};
use super::journal::{Handle, Journal, JournalCounters, Recovery, check};
use super::mmp::{self, Protection};
use super::ops::recovery;
use super::options::{MountOptions, OpenOptions};
use meantime_block::{BlockDevice, Device, in_use};
use meantime_ext4_format::check;
use meantime_ext4_format::{
    Attribute, DirectoryEntry, OpenFailure, ROOT_INO, Volume, VolumeOptions, journal,
};
use meantime_ext4_format::{FileType, Metadata, Mmp, Recovered, Usage, VolumeInfo};
use meantime_hw::Clock;
use meantime_process::lock::{Mutex, Rank};

/// Memory for metadata: a sixteenth of the page cache's, within these, in bytes.
const METADATA_BYTES: std::ops::RangeInclusive<usize> = (1 << 20)..=(64 << 20);

/// Memory for names that were looked up or made: a sixteenth of the page cache's, within these, in
/// bytes.
const NAMES_BYTES: std::ops::RangeInclusive<usize> = (4 << 20)..=(64 << 20);

/// A mounted ext4 file system. Cloning shares the mount; any thread may use it.
#[derive(Clone)]
pub struct FileSystem {
    pub(super) mount: Arc<Mount>,
}

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The name; `.` and `..` are among them.
    pub name: OsString,
    /// Its inode.
    pub ino: u32,
    /// What it is, if the directory says so.
    pub file_type: Option<FileType>,
    /// Where the next one begins, for `telldir`: any number up to `i64::MAX` that does not fall
    /// from one to the next. It stays what it is while names are added, removed and renamed. Names
    /// of one full hash are one place: then it is where the first of them begins.
    pub cookie: u64,
}

/// The names in a directory, block by block, in the order in which the kernel's ext4 lists them.
/// What is there all the while comes once, whatever is added, removed and renamed beside it. After
/// an error nothing more comes.
pub struct ReadDir {
    pub(super) node: Node,
    /// Those of the current block that were not given out yet.
    entries: VecDeque<Entry>,
    /// Where to go on after them; `None`: nowhere.
    cookie: Option<u64>,
    /// The directory's version when they were listed, or an earlier one.
    pub(super) version: u64,
}

impl Iterator for ReadDir {
    type Item = Result<Entry, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entry) = self.entries.pop_front() {
                return Some(Ok(entry));
            }
            let cookie = self.cookie.take()?;
            let Node { mount, inode } = &self.node;
            self.version = inode.version();
            let entries = inode.consistent(mount, |inode| mount.volume.list(inode, cookie));
            match entries {
                Ok(entries) => {
                    // (They grow: so it ends.)
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
    /// Goes on at `cookie`, of an [`Entry`] of the same directory; 0 is the beginning.
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

/// The journal of `volume`, which is recovered, and the volume as it is then.
fn begin_journal(
    contexts: &Arc<IoContexts>,
    volume: Volume<DeviceSource>,
    options: &MountOptions,
) -> Result<(Journal, Volume<DeviceSource>), MountFailure> {
    let mut recovery = Recovery::read(contexts, volume)?;
    recovery::look_over(recovery.volume())?;
    let commits = recovery.take_fast_commits();
    let said =
        commits.map(|commits| recovery::carry_out(recovery.volume(), commits)).transpose()?;
    recovery.begin(said, options.commit_overlap, options.fast_commit)
}

impl FileSystem {
    /// Who has the file system mounted for writing, or checks it, as the block of multiple mount
    /// protection has it on the device now; `None`: it has no such block. A mount for reading takes
    /// no part in it.
    ///
    /// # Errors
    /// The block is damaged; the device.
    pub fn multiple_mount_protection(&self) -> Result<Option<Mmp>, Error> {
        mmp::who_has(&self.mount.contexts, &self.mount.volume)
    }

    /// Looks for damage; `watch` is told what is found, and may end it. Nothing is repaired.
    ///
    /// # Errors
    /// The device, or memory: damage is none.
    pub fn check(
        &self,
        watch: &mut dyn FnMut(check::Event<'_>) -> ControlFlow<()>,
    ) -> Result<check::Summary, Error> {
        Ok(check::Checker::new(&self.mount.volume, watch)?.run()?)
    }

    /// Mounts the file system on `device`: for reading, if the options do not say otherwise. A
    /// journal that needs recovery is replayed: into memory, or, for writing, onto the disk.
    ///
    /// # Errors
    /// [`MountError`]; mounted for reading, nothing was written in any case. For writing, nothing
    /// was written either if the file system is in use elsewhere, has errors, or cannot be kept
    /// right; but for the block of multiple mount protection, where there is one, which says that
    /// nobody has it then. With that, a mount for writing can take long: see
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
        let MountOptions { channels, policy, cache_bytes, overlap, .. } = *options;
        let contexts = IoContexts::new(device, channels, policy, cache_bytes, overlap)
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
        // What could not be kept right is refused before anything is written.
        check(&volume, contexts.info().block_bytes)
            .map_err(|failure| MountError::new(failure, &uri, device_bytes))?;
        let taken =
            Protection::take(&contexts, volume.source(), superblock, &uri, options.on_wait)?;
        let protection = taken.map(Arc::new);
        // It may have been somebody else's meanwhile: what is known of it is old.
        let volume =
            Volume::open(volume.source().anew(), device_bytes, volume_options).map_err(for_device);
        let begun =
            volume.and_then(|volume| Self::begin(&contexts, volume, options, protection.clone()));
        if let (Err(error), Some(protection)) = (&begun, protection) {
            match error {
                // Nobody knows what is under way still: the next one waits, as after a crash.
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

    /// The mount of `volume` by `contexts`; for writing, from which `protection` keeps others off,
    /// if need be.
    fn begin(
        contexts: &Arc<IoContexts>,
        mut volume: Volume<DeviceSource>,
        options: &MountOptions,
        protection: Option<Arc<Protection>>,
    ) -> Result<Self, MountError> {
        let uri = &contexts.info().uri;
        let device_bytes = contexts.info().bytes();
        let failed = |error: Error| MountError::Failed { uri: uri.clone(), error };
        let mut writer = None;
        let recovered = if options.write {
            let (journal, ready) = begin_journal(contexts, volume, options)
                .map_err(|failure| MountError::new(failure, uri, device_bytes))?;
            volume = ready;
            let recovered = journal.recovered();
            writer = Some(Writer::new(journal, &volume, options, protection).map_err(failed)?);
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
            writer,
            options: options.clone(),
            block_shift,
            overlaid: !options.write
                && recovered
                    .is_some_and(|recovered| recovered.blocks > 0 || recovered.fast_commits > 0),
            recovered,
            counts: Counts::default(),
            clock: Clock::real(),
            access_epoch: AtomicU32::new(Mount::first_access_epoch(
                options.write,
                options.access_times,
            )),
            access_unnoted: AtomicBool::new(false),
            timed: AtomicBool::new(false),
        };
        let fs = Self { mount: Arc::new(mount) };
        // A mount without a root is of no use to anybody.
        let root = fs.root().map_err(failed)?;
        if root.file_type() != FileType::Directory {
            return Err(failed(
                Corruption::new(Defect::InodeField("type")).in_inode(root.ino()).into(),
            ));
        }
        fs.begin_writing().map_err(failed)?;
        Ok(fs)
    }

    /// The device that it is on.
    pub fn device(&self) -> &Device {
        self.mount.contexts.device()
    }

    /// The structures on the disk.
    pub fn volume(&self) -> &Volume<DeviceSource> {
        &self.mount.volume
    }

    /// What its reads have come to so far.
    pub fn counters(&self) -> Counters {
        self.mount.counts.read()
    }

    /// What its journal has written so far; `None`: it is mounted for reading only, or has none.
    pub fn journal_counters(&self) -> Option<JournalCounters> {
        self.mount.writer.as_ref().map(|writer| writer.journal.counters())
    }

    /// From now on times what reads do in their gaps, or not: [`Counters::deferrable_ns`].
    pub fn time_deferrable(&self, timed: bool) {
        self.mount.timed.store(timed, Ordering::Relaxed);
    }

    /// What its page cache has, and did.
    pub fn cache_counters(&self) -> CacheCounters {
        self.mount.contexts.cache().counters()
    }

    /// Opens the file at `path` (from the root, links are followed) for reading.
    ///
    /// # Errors
    /// As `open(2)`; a directory can be opened, and not read.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<File, Error> {
        self.open_node(&self.resolve(&self.root()?, path, true)?)
    }

    /// What `stat` tells of `path`.
    ///
    /// # Errors
    /// As `stat(2)`.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata, Error> {
        Ok(self.resolve(&self.root()?, path, true)?.metadata())
    }

    /// What `lstat` tells of `path`.
    ///
    /// # Errors
    /// As `lstat(2)`.
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata, Error> {
        Ok(self.resolve(&self.root()?, path, false)?.metadata())
    }

    /// The names in the directory at `path`.
    ///
    /// # Errors
    /// As `opendir(3)`.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir, Error> {
        self.entries(&self.resolve(&self.root()?, path, true)?)
    }

    /// The root directory.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn root(&self) -> Result<Node, Error> {
        self.linked(ROOT_INO)
    }

    /// The inode of number `ino`, whether a name leads to it or not; on a mount for writing, one to
    /// which none leads only as long as somebody has it.
    ///
    /// # Errors
    /// There is no such number, or it cannot be read; [`Error::NotFound`], on a mount for writing,
    /// if it is free or being deleted.
    pub fn inode(&self, ino: u32) -> Result<Node, Error> {
        let node = self.node_of(ino, false)?;
        let Some(writable) = &node.inode.writable else { return Ok(node) };
        let inode = self.mount.consistent(|| self.mount.volume.inode(ino))?;
        // Of one without links that somebody has open, it is known that it has none. Any other is
        // free; or it has lost its last name right now.
        if inode.is_free() && !writable.is_unlinked() {
            if writable.end_alone() {
                // It may be made any time, and be something else then.
                self.mount.forget_inode(&node.inode);
            }
            return Err(Error::NotFound);
        }
        Ok(node)
    }

    /// Inode `ino`, from which its last name is being taken in a handle: it is not deleted before
    /// the node is dropped.
    pub(super) fn losing(&self, ino: u32) -> Result<Node, Error> {
        self.node_of(ino, false)
    }

    /// The inode of number `ino`, to which a name leads.
    pub(super) fn linked(&self, ino: u32) -> Result<Node, Error> {
        self.node_of(ino, true)
    }

    /// Inode `ino`, which is being made by `handle`.
    pub(super) fn made(&self, handle: &Handle<'_>, ino: u32) -> Result<Node, Error> {
        let inode = Inode::made(&self.mount, handle, ino)?;
        Node::new(&self.mount, &inode).ok_or(Error::NotFound)
    }

    fn node_of(&self, ino: u32, linked: bool) -> Result<Node, Error> {
        loop {
            let inode = Inode::load(&self.mount, ino, linked)?;
            if let Some(node) = Node::new(&self.mount, &inode) {
                return Ok(node);
            }
            // It was deleted right now: what has its number next is another one.
            self.mount.forget_inode(&inode);
        }
    }

    /// What `path` leads to, from `from` on, or from the root if it begins with a slash. `follow`:
    /// the last part too, if it is a link.
    ///
    /// # Errors
    /// As `stat(2)`.
    pub fn resolve(
        &self,
        from: &Node,
        path: impl AsRef<Path>,
        follow: bool,
    ) -> Result<Node, Error> {
        self.walk(from, path.as_ref(), follow)
    }

    /// What `name` in directory `parent` is; a link is not followed.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotDirectory`], …
    pub fn lookup(&self, parent: &Node, name: &OsStr) -> Result<Node, Error> {
        let name = name.as_bytes();
        if parent.file_type() != FileType::Directory {
            return Err(Error::NotDirectory);
        }
        let mut room = [0; 4 + 255];
        let key = room.get_mut(..4 + name.len()).ok_or(Error::NameTooLong)?;
        key[..4].copy_from_slice(&parent.ino().to_le_bytes());
        key[4..].copy_from_slice(name);
        if let Some(ino) = self.mount.names.get(&*key) {
            match self.linked(ino) {
                // It was taken away right now.
                Err(Error::Corrupt(_) | Error::NotFound) if self.mount.writer.is_some() => {}
                // It, and another file has its number already, perhaps. (As long as there is a
                // node, none has.)
                Ok(_)
                    if self.mount.writer.is_some() && self.mount.names.get(&*key) != Some(ino) => {}
                found => return found,
            }
        }
        let mut tries = 0;
        let mut last: Option<Node> = None;
        loop {
            let before = self.mount.names_changed();
            let lookup = |inode: &_| self.mount.volume.lookup(inode, name);
            let found = parent.inode.consistent(&self.mount, lookup)?;
            let (ino, _) = found.ok_or(Error::NotFound)?;
            tries += 1;
            match self.linked(ino) {
                // Another thread has deleted it between, perhaps. (If it is damage, it stays.)
                Err(Error::Corrupt(_) | Error::NotFound)
                    if tries < 100 && self.mount.writer.is_some() => {}
                Err(error) => return Err(error),
                Ok(node) => {
                    let changed = self.mount.lock_names();
                    if *changed == before {
                        self.mount.names.keep(Box::from(&*key), ino, key.len() + 64);
                        return Ok(node);
                    }
                    drop(changed);
                    // Another thread may have deleted it between, and made another file of the same
                    // number; not while there is a node of it.
                    if last.is_some_and(|last| Arc::ptr_eq(&last.inode, &node.inode)) {
                        return Ok(node);
                    }
                    last = Some(node);
                }
            }
        }
    }

    /// Where the link `node` leads.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is none.
    pub fn read_link_at(&self, node: &Node) -> Result<PathBuf, Error> {
        if node.file_type() != FileType::Symlink {
            return Err(Error::Invalid("not a symbolic link"));
        }
        let snapshot = node.inode.snapshot(&self.mount)?;
        let target = self.mount.consistent(|| self.mount.volume.read_link(&snapshot.on_disk))?;
        node.accessed();
        Ok(PathBuf::from(OsString::from_vec(target)))
    }

    /// The names in directory `node`.
    ///
    /// # Errors
    /// [`Error::NotDirectory`], …
    pub fn entries(&self, node: &Node) -> Result<ReadDir, Error> {
        if node.file_type() != FileType::Directory {
            return Err(Error::NotDirectory);
        }
        node.accessed();
        Ok(ReadDir { node: node.clone(), entries: VecDeque::new(), cookie: Some(0), version: 0 })
    }

    /// Opens `node` for reading.
    ///
    /// # Errors
    /// [`Error::Special`], …
    pub fn open_node(&self, node: &Node) -> Result<File, Error> {
        File::open(node.clone(), OpenOptions { read: true, ..OpenOptions::default() })
    }

    /// The extended attributes of `node`: full names (`user.x`) and values, in the order of the
    /// disk.
    ///
    /// # Errors
    /// Damage, or the device.
    pub fn attributes(&self, node: &Node) -> Result<Vec<Attribute>, Error> {
        let snapshot = node.inode.snapshot(&self.mount)?;
        Ok(self.mount.consistent(|| self.mount.volume.attributes(&snapshot.on_disk))?)
    }

    /// The value of attribute `name` of `node`.
    ///
    /// # Errors
    /// [`Error::NoAttribute`], …
    pub fn attribute(&self, node: &Node, name: &[u8]) -> Result<Vec<u8>, Error> {
        let found = self.attributes(node)?.into_iter().find(|(full, _)| full == name);
        found.map(|(_, value)| value).ok_or(Error::NoAttribute)
    }

    /// What `statfs` tells.
    ///
    /// # Errors
    /// A group descriptor could not be read.
    pub fn usage(&self) -> Result<Usage, Error> {
        if let Some(writer) = &self.mount.writer {
            return Ok(writer.allocator.usage());
        }
        Ok(self.mount.volume.usage()?)
    }

    /// What the superblock says.
    pub fn info(&self) -> VolumeInfo {
        VolumeInfo { recovered: self.mount.recovered, ..self.mount.volume.info() }
    }
}

/// Takes what the journal of `volume` holds into memory, if it has to be replayed.
fn recover(volume: &mut Volume<DeviceSource>) -> Result<Option<Recovered>, MountFailure> {
    let recovery = journal::recover(volume)?;
    if recovery.is_empty() {
        return Ok(None);
    }
    Ok(Some(recovery.apply(volume)?))
}
