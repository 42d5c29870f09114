//! The first and last writes of a mount: recovery, and the marks of a file system in use (rules 11
//! to 13 of `docs/ordering.md`).

use std::sync::{Arc, OnceLock};

use zerocopy::{FromBytes, IntoBytes};

use super::block_writer::BlockWriter;
use super::changes::Changes;
use super::commits::Commits;
use super::committer::Committer;
use super::fast_area::FastArea;
use super::handle::time_now;
use super::held::Held;
use super::log::LogRun;
use super::ordered_io;
use super::orphans::Orphans;
use super::pending::Pending;
use super::recover::{Beginner, Overlaid, Replacement};
use super::state::Journal;
use super::transaction::Open;
use crate::error::{Corruption, Defect, Error, MountFailure, Result, Unsupported};
use crate::io::{DeviceSource, IoContext, IoContexts};
use crate::options::CommitOverlap;
use crate::{FileType, Recovered};
use meantime_ext4_format::checksum::crc32c;
use meantime_ext4_format::features::{compat, incompat, ro_compat};
use meantime_ext4_format::journal::{self, FastCommits, JournalFormat};
use meantime_ext4_format::{
    Inode as DiskInode, OpenFailure, RawSuperblock, RunState, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET,
    Source, Superblock, Volume, VolumeOptions,
};
use meantime_process::lock::{Mutex, Rank};

/// The read-only-compatible features that this implementation maintains when it writes.
const KEPT_RIGHT: u32 = ro_compat::SPARSE_SUPER
    | ro_compat::LARGE_FILE
    | ro_compat::HUGE_FILE
    | ro_compat::GDT_CSUM
    | ro_compat::DIR_NLINK
    | ro_compat::EXTRA_ISIZE
    | ro_compat::METADATA_CSUM
    | ro_compat::VERITY
    | ro_compat::ORPHAN_PRESENT;

/// The smallest log, in blocks.
const LOG_BLOCKS_LEAST: u32 = 256;

/// The log's length divided by these is the most blocks of a transaction
/// (`j_max_transaction_buffers`) and its most revoke blocks.
const TRANSACTION_PART: u32 = 4;
const REVOKE_PART: u32 = 32;

const E2FSCK_P: &str = "run e2fsck -p, or mount it once with the kernel";
const E2FSCK: &str = "run e2fsck -f on it first, or mount it for reading";

fn refused(what: impl Into<String>, advice: &'static str) -> MountFailure {
    OpenFailure::Unsupported(Unsupported { what: what.into(), advice }).into()
}

/// Refuses a file system that could not be maintained correctly, before anything is written.
pub(crate) fn check<S>(volume: &Volume<S>, device_block_bytes: u32) -> Result<(), MountFailure> {
    const READ: &str = "mount it for reading";
    let superblock = volume.superblock();
    let features = superblock.features();
    if volume.is_from_backup() {
        return Err(refused(
            "writing by a backup of the superblock",
            "run e2fsck -b, which repairs the first",
        ));
    }
    if volume.ignored() > 0 || volume.ignores_checksums() {
        return Err(refused("writing where checksums are ignored", READ));
    }
    // New files would stay empty, because nothing here allocates blocks without extents.
    if !features.has_incompat(incompat::EXTENTS) {
        return Err(refused("writing without the feature extent (ext2 and ext3)", READ));
    }
    // The kernel expects small files and directories in their inodes.
    if features.has_incompat(incompat::INLINE_DATA) {
        return Err(refused("writing with inline_data", READ));
    }
    if !features.has_compat(compat::HAS_JOURNAL) {
        return Err(refused("writing without a journal", "make one: tune2fs -j"));
    }
    if superblock.external_journal().is_some() {
        return Err(refused("writing with a journal on another device", READ));
    }
    let others = features.ro_compat & !KEPT_RIGHT;
    if others != 0 {
        let names =
            meantime_ext4_format::features::Features { compat: 0, incompat: 0, ro_compat: others };
        return Err(refused(format!("writing with {}", names.names().join(", ")), READ));
    }
    if superblock.info().errors {
        return Err(refused("writing to a file system that has errors", E2FSCK));
    }
    if device_block_bytes > superblock.block_bytes() {
        return Err(refused(
            format!(
                "writing blocks of {} bytes to a device whose own have {device_block_bytes}",
                superblock.block_bytes()
            ),
            READ,
        ));
    }
    Ok(())
}

/// Returns where the journal's blocks are, in order.
fn runs<S: Source>(volume: &Volume<S>, inode: &DiskInode, blocks: u32) -> Result<Vec<LogRun>> {
    let mut found: Vec<LogRun> = Vec::new();
    let mut at = 0;
    while at < blocks {
        let run = volume.run_at(inode, u64::from(at))?;
        let count = u32::try_from(run.blocks).unwrap_or(u32::MAX).min(blocks - at);
        let inside = run
            .physical
            .checked_add(u64::from(count))
            .is_some_and(|end| end <= volume.block_count());
        if run.state != RunState::Written || count == 0 || !inside {
            return Err(Corruption::new(Defect::JournalSuperblock).in_inode(inode.ino()).into());
        }
        match found.last_mut() {
            Some(last) if last.place + u64::from(last.blocks) == run.physical => {
                last.blocks += count
            }
            _ => found.push(LogRun { first: at, blocks: count, place: run.physical }),
        }
        at += count;
    }
    Ok(found)
}

/// Applies `change` to the superblock in `block`, its block, and renews its checksum.
fn edit_superblock(
    superblock: &Superblock,
    block: &mut [u8],
    change: impl FnOnce(&mut RawSuperblock),
) -> Result<()> {
    let wrong = || Error::from(Corruption::new(Defect::SuperblockMagic));
    let at = SUPERBLOCK_OFFSET as usize % superblock.block_bytes() as usize;
    let bytes = block.get_mut(at..at + SUPERBLOCK_BYTES).ok_or_else(wrong)?;
    let raw = RawSuperblock::mut_from_bytes(bytes).map_err(|_| wrong())?;
    change(raw);
    if superblock.has_checksums() {
        let sum = crc32c(!0, &raw.as_bytes()[..SUPERBLOCK_BYTES - 4]);
        raw.checksum = sum.into();
    }
    Ok(())
}

/// Refuses a file system whose journal superblock records an earlier failure.
fn check_errno(errno: i32) -> Result<(), MountFailure> {
    if errno == 0 {
        return Ok(());
    }
    let aborted = Corruption::new(Defect::JournalAborted(errno));
    Err(refused(format!("writing to a file system that has errors ({aborted})"), E2FSCK))
}

/// A file system about to be mounted for writing, as it is when its journal is in place. All of
/// that is in memory, and nothing has been written.
pub(crate) struct Recovery {
    contexts: Arc<IoContexts>,
    /// The state before recovery. What was read of it is stale after the first write.
    before: Volume<DeviceSource>,
    replayed: Volume<Overlaid>,
    recovered: Option<Recovered>,
    fast_commits: Option<FastCommits>,
    format: JournalFormat,
    runs: Vec<LogRun>,
    /// The newest transaction number that may be in the log.
    last: u32,
}

impl Recovery {
    /// Reads the journal of `volume`.
    ///
    /// # Errors
    /// Fails if the file system has a feature or state that could not be maintained correctly, and
    /// names it. Fails also if there is damage, or the device fails.
    pub(crate) fn read(
        contexts: &Arc<IoContexts>,
        volume: Volume<DeviceSource>,
    ) -> Result<Self, MountFailure> {
        check(&volume, contexts.info().block_bytes)?;
        let recovery = journal::recover(&volume)?;
        check_errno(recovery.errno)?;
        if recovery.lost.is_some() {
            return Err(refused("writing after a committed transaction was lost", E2FSCK));
        }
        let block_bits = volume.superblock().block_bits();
        let recovered = (!recovery.is_empty()).then(|| recovery.summary());
        let primary = volume.superblock().primary_block();
        let mut blocks = recovery.overlay;
        if let Some(block) = blocks.get_mut(&primary) {
            let mut edited = block.to_vec();
            edit_superblock(volume.superblock(), &mut edited, |raw| {
                raw.feature_incompat = (raw.feature_incompat.get() | incompat::RECOVER).into();
            })?;
            *block = edited.into();
        }
        let replayed = Overlaid { device: volume.source().clone(), block_bits, blocks };
        let device_bytes = contexts.info().bytes();
        let replayed = Volume::open(replayed, device_bytes, VolumeOptions::default())?;
        check(&replayed, contexts.info().block_bytes)?;
        let (format, runs) = Journal::load(&replayed)?;
        // The last write of an unmount may have failed, after which there is nothing to recover.
        check_errno(format.errno())?;
        if recovery.end.is_none() && format.start() != 0 {
            return Err(refused(
                "writing with a journal that has something, and is said to have nothing",
                E2FSCK,
            ));
        }
        let last = recovery.end.unwrap_or(format.sequence());
        let fast_commits = Some(recovery.fast_commits).filter(|commits| commits.count() > 0);
        Ok(Self {
            contexts: Arc::clone(contexts),
            before: volume,
            replayed,
            recovered,
            fast_commits,
            format,
            runs,
            last,
        })
    }

    /// Returns the file system as it is when the log's whole transactions are in place.
    pub(crate) fn volume(&self) -> &Volume<Overlaid> {
        &self.replayed
    }

    /// Takes the fast commits that follow these transactions, if there are any. The caller applies
    /// them to [`volume`](Self::volume), and passes the result to [`begin`](Self::begin).
    pub(crate) fn take_fast_commits(&mut self) -> Option<FastCommits> {
        self.fast_commits.take()
    }

    /// Makes the file system ready for writing. It writes its journal in place, with the changes
    /// `recorded` by the fast commits, empties the log, and marks the file system as in use.
    /// Returns the journal and the volume after that. `overlap` says which waits of a commit are
    /// moved.
    ///
    /// # Errors
    /// Fails, with nothing written, if the file system has a feature or state that could not be
    /// maintained correctly, and names it. Fails also if the device fails.
    pub(crate) fn begin(
        self,
        recorded: Option<Changes>,
        overlap: CommitOverlap,
        fast_commit: bool,
    ) -> Result<(Journal, Volume<DeviceSource>), MountFailure> {
        let Self { contexts, before: volume, replayed, recovered, mut format, runs, .. } = self;
        let mut last = self.last;
        let contexts = &contexts;
        let block_bits = volume.superblock().block_bits();
        let device_bytes = contexts.info().bytes();
        let primary = volume.superblock().primary_block();
        let features = replayed.superblock().features();
        let converted =
            (replayed.superblock().has_checksums(), features.has_incompat(incompat::BIT64));
        // Without checksums, e2fsck 1.47.0 takes groups for uninitialized ones when it replays fast
        // commits, even those of the kernel.
        let fast = fast_commit && features.has_compat(compat::FAST_COMMIT) && converted.0;
        let replacement = if let Some(changes) = recorded {
            let runs = runs.clone();
            let made =
                Replacement::new(format.clone(), runs, &changes, last, block_bits, converted)?;
            let too_small = || refused("replaying fast commits with so small a journal", E2FSCK_P);
            // The replacement uses this number.
            last = last.wrapping_add(1);
            Some(made.ok_or_else(too_small)?)
        } else {
            None
        };
        format.set_tail(last, 0)?;
        format.convert(converted.0, converted.1, fast)?;
        let log = ordered_io::log(&format, runs);
        if log.len() < LOG_BLOCKS_LEAST {
            return Err(refused(
                "writing with so small a journal",
                "make a larger one: tune2fs -J size=",
            ));
        }
        let place = log.place(0).ok_or(Error::Invalid("the journal has no first block"))?.0;

        contexts.make_spare().map_err(|error| Error::Resources(error.to_string()))?;
        let mut io = contexts.take()?;
        let mut beginner = Beginner { io: &mut io, writer: BlockWriter::new(block_bits) };

        // The steps are those of docs/ordering.md. 1. Write in place what was committed.
        let blocks = replayed.source().blocks.iter().map(|(block, content)| (*block, &**content));
        beginner.writer.write_all(beginner.io, blocks)?;
        beginner.flush()?;
        // 2. Fast commits become the transaction that they continued.
        if let Some(replacement) = replacement {
            replacement.write(&mut beginner)?;
        }

        // What was read before the write is stale.
        let volume = Volume::open(volume.source().anew(), device_bytes, VolumeOptions::default())?;

        // 3. The log is empty, and the next transaction's number is in no old block of the log.
        beginner.write(place, format.block())?;

        // 4. The file system is in use.
        let mut block = volume.block(primary)?.to_vec();
        let now = time_now().seconds;
        edit_superblock(volume.superblock(), &mut block, |raw| {
            raw.feature_incompat = (raw.feature_incompat.get() | incompat::RECOVER).into();
            raw.mnt_count = raw.mnt_count.get().saturating_add(1).into();
            (raw.mtime, raw.mtime_hi) = ((now as u32).into(), (now >> 32) as u8);
            (raw.wtime, raw.wtime_hi) = ((now as u32).into(), (now >> 32) as u8);
        })?;
        beginner.write(primary, &block)?;

        // 5. The log begins here.
        if let Some((place, _)) = format.fast_commits().and_then(|area| log.place(area.start + 1)) {
            // These are fast commits of the previous mount. For e2fsck one that is older than the
            // log is an error.
            beginner.write(place, &vec![0; format.block_bytes()])?;
        }
        let tid = last.wrapping_add(1);
        format.set_tail(tid, log.head())?;
        beginner.write(place, format.block())?;
        drop(io);

        // What was read of the superblock is stale again.
        let volume = Volume::open(volume.source().anew(), device_bytes, VolumeOptions::default())?;
        volume.source().activate(block_bits);
        let (journal_table, _) = volume.inode_place(volume.superblock().journal_ino())?;
        let (blocks_most, revokes) = (log.len() / TRANSACTION_PART, log.len() / REVOKE_PART);
        let revoked_most = revokes as usize * format.revoked_most();
        let area = format.fast_commits().filter(|_| fast).and_then(FastArea::new);
        let fast = area.is_some();
        let committer = Committer::new(format, log, tid, block_bits, area);
        let journal = Journal {
            contexts: Arc::clone(contexts),
            volume: volume.clone(),
            held: Held::default(),
            blocks_most: blocks_most as usize,
            revoked_most,
            open: Mutex::new(Rank::JournalOpen, Open::new()),
            commits: Commits::new(committer),
            pending: Mutex::new(Rank::JournalPending, Pending::default()),
            checkpointing: Mutex::new(Rank::Checkpoint, BlockWriter::new(block_bits)),
            overlap,
            fast,
            journal_table,
            failure: OnceLock::new(),
            observer: OnceLock::new(),
            orphans: Orphans::default(),
            recovered,
        };
        Ok((journal, volume))
    }
}

impl Journal {
    /// Reads the journal's superblock and finds its blocks.
    fn load<S: Source>(volume: &Volume<S>) -> Result<(JournalFormat, Vec<LogRun>)> {
        let ino = volume.superblock().journal_ino();
        let inode = volume.inode(ino)?;
        let wrong = || Error::from(Corruption::new(Defect::JournalSuperblock).in_inode(ino));
        if inode.file_type() != FileType::Regular || inode.is_free() {
            return Err(wrong());
        }
        let blocks = inode.size() >> volume.superblock().block_bits();
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
        let first = volume.run_at(&inode, 0)?;
        if first.state != RunState::Written {
            return Err(wrong());
        }
        let format = JournalFormat::parse(&volume.block(first.physical)?, blocks)?;
        let used = format.blocks();
        Ok((format, runs(volume, &inode, used)?))
    }

    /// Returns what the mount replayed, if anything.
    pub fn recovered(&self) -> Option<Recovered> {
        self.recovered
    }

    /// Ends the mount: commits everything, writes it in place, empties the log, and marks the file
    /// system as clean. Nothing is changed afterwards. After a failure nothing is written, and the
    /// log has what was committed.
    ///
    /// # Errors
    /// Fails if the device fails, or with the earlier failure.
    pub(crate) fn close(&self, io: &mut IoContext) -> Result<()> {
        self.commit_all(io)?;
        self.checkpoint(io)?;
        let mut writer =
            self.checkpointing.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut leader = self.lead();
        self.usable()?;
        let result = self.close_by(&mut leader, &mut writer, io);
        // No more changes are made, whatever the result.
        self.end(result.as_ref().err());
        if let Err(error) = &result {
            self.note_failure(error, &mut leader, io);
        }
        result
    }

    fn close_by(
        &self,
        committer: &mut Committer,
        writer: &mut BlockWriter,
        io: &mut IoContext,
    ) -> Result<()> {
        if !committer.logged.is_empty() || self.pending().len() > 0 {
            return Err(Error::Busy);
        }
        let tid = committer.tid;
        committer.format.set_tail(tid, 0)?;
        committer.write_superblock(writer, io)?;
        let primary = self.volume.superblock().primary_block();
        let mut block = self.volume.block(primary)?.to_vec();
        let now = time_now().seconds;
        edit_superblock(self.volume.superblock(), &mut block, |raw| {
            raw.feature_incompat = (raw.feature_incompat.get() & !incompat::RECOVER).into();
            (raw.wtime, raw.wtime_hi) = ((now as u32).into(), (now >> 32) as u8);
        })?;
        writer.write_durably(io, primary, &block)
    }
}
