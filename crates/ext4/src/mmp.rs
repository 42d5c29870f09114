//! Multiple mount protection (feature `mmp`): a host that has the file system mounted for writing
//! keeps updating a block, so that another host with access to the same device does not mount it.
//! This is rule 19 of `docs/ordering.md`. The format is in
//! [`format::mmp`](meantime_ext4_format::mmp).
//!
//! Before each update, the block is read past every cache. If it is not what this host wrote,
//! another host wrote it. This host then writes nothing more, not even the error, because the
//! journal is the other host's.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::error::{Corruption, Defect, Error, MountError, Result};
use super::io::{DeviceSource, IoContexts};
use super::journal::{BlockWriter, time_now};
use super::worker::{Stopping, Worker};
use meantime_ext4_format::mmp::check_interval_s;
use meantime_ext4_format::{Mmp, MmpState, Source, Superblock, Volume};
use meantime_process::lock::{Mutex, MutexGuard, Rank};

/// A host that found the file system unused waits this long between writing its mark and reading it
/// back, because another host may have done the same at the same time. Linux reads the mark back
/// at once.
const READ_BACK_DELAY: Duration = Duration::from_millis(100);

/// The pause before a failed update is repeated.
const RETRY: Duration = Duration::from_millis(500);

const UNMOUNT: &str = "unmount it there first; `meantime fs info` says who has it";
const FSCK: &str = "wait for it; if it was killed, tune2fs -f -E clear_mmp takes the mark off";

/// The MMP block of a file system on a device.
struct MmpBlock {
    contexts: Arc<IoContexts>,
    source: DeviceSource,
    superblock: Superblock,
    block: u64,
}

impl MmpBlock {
    /// Returns the block, or `None` if the file system of `superblock` has no such block.
    fn of(
        contexts: &Arc<IoContexts>,
        source: &DeviceSource,
        superblock: &Superblock,
    ) -> Result<Option<Self>, Corruption> {
        let Some(block) = superblock.mmp_block() else { return Ok(None) };
        if !superblock.holds(block, 1) {
            return Err(Corruption::new(Defect::SuperblockField("s_mmp_block")).in_block(block));
        }
        let (contexts, source) = (Arc::clone(contexts), source.anew());
        Ok(Some(Self { contexts, source, superblock: superblock.clone(), block }))
    }

    /// Reads the block from the device.
    fn read(&self) -> Result<Vec<u8>> {
        let bytes = self.superblock.block_bytes();
        // A new source has nothing cached.
        let read = self.source.anew().read(self.block * u64::from(bytes), bytes as usize)?;
        Ok(read.to_vec())
    }

    fn parse(&self, block: &[u8]) -> Result<Mmp> {
        Ok(Mmp::parse(&self.superblock, self.block, block)?)
    }

    /// Writes the block durably.
    fn write(&self, writer: &mut BlockWriter, content: &[u8]) -> Result<()> {
        writer.write_durably(&mut *self.contexts.take_or_spare()?, self.block, content)
    }
}

/// Describes `mmp`'s host, device and time for a person to read.
fn who(mmp: &Mmp) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).escape_debug().to_string();
    let (node, device) = (text(&mmp.node), text(&mmp.device));
    // The time is in seconds, as dumpe2fs prints it too, because the other host's time zone is
    // unknown.
    format!("host {node:?}, device {device:?}, last seen at {} s since 1970", mmp.seconds)
}

/// The name of this host.
fn host() -> Vec<u8> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().as_bytes().to_vec()
}

/// The short name of device `uri`.
fn short_name(uri: &str) -> &str {
    let path = uri.split('?').next().unwrap_or(uri);
    path.rsplit('/').next().unwrap_or(path)
}

/// The last update, and when it was made.
struct LastUpdate {
    mmp: Mmp,
    /// The whole block.
    block: Vec<u8>,
    /// The block of a failed write, which may or may not be on the device.
    tried: Option<Vec<u8>>,
    /// When writing the last update began.
    since: Instant,
    writer: BlockWriter,
}

/// Called when another host has the file system.
type Told = Box<dyn Fn(&Error) + Send>;

/// The loss of the file system to another host, and the function to call then.
#[derive(Default)]
struct Watch {
    lost: Option<Error>,
    tell: Option<Told>,
}

struct Shared {
    place: MmpBlock,
    interval: Duration,
    last_update: Mutex<LastUpdate>,
    watch: Mutex<Watch>,
}

impl Shared {
    fn last_update(&self) -> MutexGuard<'_, LastUpdate> {
        // The state is consistent after each step, so a poisoned lock may be used.
        self.last_update.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watch(&self) -> MutexGuard<'_, Watch> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a new state if the device still has this host's last block.
    ///
    /// # Errors
    /// [`Error::Taken`] if the device has another host's block; or a device error.
    fn change_state(&self, state: impl FnOnce(MmpState) -> MmpState) -> Result<()> {
        let mut last = self.last_update();
        let LastUpdate { mmp, block, tried, since, writer } = &mut *last;
        let found = self.place.read()?;
        if found != *block && tried.as_ref() != Some(&found) {
            let by =
                self.place.parse(&found).map_or_else(|error| error.to_string(), |mmp| who(&mmp));
            return Err(Error::Taken(format!("somebody else has mounted it too ({by})")));
        }
        let now = Instant::now();
        let took = now.duration_since(*since).max(self.interval);
        let next = Mmp {
            state: state(mmp.state),
            seconds: u64::try_from(time_now().seconds).unwrap_or(0),
            check_interval_s: check_interval_s(took.as_secs()),
            ..mmp.clone()
        };
        let mut bytes = found.clone();
        next.write(&self.place.superblock, &mut bytes)?;
        // If the write fails, the device has either this block or the new one.
        *block = found;
        let tried = tried.insert(bytes);
        self.place.write(writer, tried)?;
        std::mem::swap(block, tried);
        (*mmp, *since) = (next, now);
        last.tried = None;
        Ok(())
    }

    /// Renews the mark of this host.
    fn update(&self) -> Result<()> {
        self.change_state(|state| match state {
            MmpState::InUse(sequence) => MmpState::next(sequence),
            other => other,
        })
    }

    /// The time since the last update, if it exceeds what other hosts were told to wait.
    fn silent(&self) -> Option<Duration> {
        let last = self.last_update();
        let silent = last.since.elapsed();
        (silent > Duration::from_secs(u64::from(last.mmp.check_interval_s))).then_some(silent)
    }

    /// Stops all writes of this host.
    fn lose(&self, error: Error) {
        tracing::error!(%error, "nothing more is written");
        // This includes writes of operations that other threads have begun.
        self.place.contexts.fence();
        let mut watch = self.watch();
        watch.lost.get_or_insert(error.clone());
        let tell = watch.tell.take();
        drop(watch);
        if let Some(tell) = tell {
            tell(&error);
        }
    }

    /// Runs the thread that renews the mark.
    fn run(&self, stopping: &Stopping) {
        let mut pause = self.interval;
        while !stopping.sleep(pause) {
            let begun = Instant::now();
            match self.update() {
                Ok(()) => pause = self.interval.saturating_sub(begun.elapsed()),
                Err(error @ Error::Taken(_)) => return self.lose(error),
                Err(error) => {
                    tracing::warn!(%error, "multiple mount protection could not be updated");
                    if let Some(silent) = self.silent() {
                        let seconds = silent.as_secs();
                        let why = format!("it could not be updated for {seconds} s ({error})");
                        return self.lose(Error::Taken(why));
                    }
                    pause = RETRY.min(self.interval);
                }
            }
        }
    }
}

/// A file system with the feature `mmp` that this host has mounted for writing. If this is dropped,
/// the file system stays marked as in use, as after a crash.
pub(crate) struct Protection {
    shared: Arc<Shared>,
    worker: Mutex<Option<Worker>>,
}

impl Protection {
    /// Takes the file system of `superblock` on the device of `contexts`, named `uri`, for this
    /// host. This may wait (as long as [`MountOptions::write`](super::MountOptions::write) says),
    /// which is reported to `on_wait`. Returns `None` without the feature. Anything read from the
    /// device before is then stale.
    ///
    /// # Errors
    /// [`MountError::Protected`] if another host has it; damage, or a device error. In these cases
    /// nothing was written, or another host wrote after this one.
    pub(crate) fn take(
        contexts: &Arc<IoContexts>,
        source: &DeviceSource,
        superblock: &Superblock,
        uri: &str,
        on_wait: Option<fn(Duration)>,
    ) -> Result<Option<Self>, MountError> {
        let failed = |error: Error| MountError::Failed { uri: uri.to_owned(), error };
        let protected = |who, advice| MountError::Protected { uri: uri.to_owned(), who, advice };
        let place = MmpBlock::of(contexts, source, superblock)
            .map_err(|corruption| failed(corruption.into()))?;
        let Some(place) = place else { return Ok(None) };
        let read =
            || place.read().and_then(|block| Ok((place.parse(&block)?, block))).map_err(failed);

        let update_interval_s = superblock.mmp_update_interval_s();
        let (before, _) = read()?;
        let wait = match before.state {
            MmpState::Clean => READ_BACK_DELAY,
            MmpState::Checking => {
                return Err(protected(format!("e2fsck is running on it ({})", who(&before)), FSCK));
            }
            MmpState::InUse(_) => {
                let wait = Duration::from_secs(before.wait_s(update_interval_s));
                let most_s = 2 * wait.as_secs();
                tracing::info!(
                    device = uri,
                    most_s,
                    "somebody may have the file system mounted: waiting"
                );
                if let Some(on_wait) = on_wait {
                    on_wait(2 * wait);
                }
                std::thread::sleep(wait);
                wait
            }
        };
        let taken =
            |mmp: &Mmp| protected(format!("somebody else has mounted it ({})", who(mmp)), UNMOUNT);
        let (now, mut block) = read()?;
        // A host that has taken the file system since it was clean may not have waited.
        if now.state != before.state {
            return Err(taken(&now));
        }

        let mmp = Mmp {
            state: MmpState::random(RandomState::new().hash_one(Instant::now())),
            seconds: u64::try_from(time_now().seconds).unwrap_or(0),
            node: host(),
            device: short_name(uri).as_bytes().to_vec(),
            check_interval_s: check_interval_s(u64::from(update_interval_s)),
        };
        mmp.write(superblock, &mut block).map_err(|corruption| failed(corruption.into()))?;
        let mut writer = BlockWriter::new(superblock.block_bits());
        place.write(&mut writer, &block).map_err(failed)?;
        std::thread::sleep(wait);
        let (now, found) = read()?;
        if found != block {
            return Err(taken(&now));
        }

        // No other host could take it during the last wait, which was not a gap between updates.
        let last = LastUpdate { mmp, block, tried: None, since: Instant::now(), writer };
        let shared = Arc::new(Shared {
            place,
            interval: Duration::from_secs(u64::from(update_interval_s)),
            last_update: Mutex::new(Rank::ProtectionUpdate, last),
            watch: Mutex::new(Rank::ProtectionWatch, Watch::default()),
        });
        // The mark is updated at once, because it was written before the wait.
        shared.update().map_err(failed)?;
        let updated = Arc::clone(&shared);
        let worker = Worker::start("meantime-mmp", move |stopping| updated.run(stopping));
        let worker = worker.map_err(|error| failed(Error::Resources(error.to_string())))?;
        Ok(Some(Self { shared, worker: Mutex::new(Rank::ProtectionThread, Some(worker)) }))
    }

    /// Checks that this host still has the file system.
    ///
    /// # Errors
    /// [`Error::Taken`] if it does not.
    pub(crate) fn usable(&self) -> Result<()> {
        self.shared.watch().lost.clone().map_or(Ok(()), Err)
    }

    /// Makes `tell` be called once when another host has the file system.
    ///
    /// # Errors
    /// [`Error::Taken`] if another host has it already.
    pub(crate) fn watch(&self, tell: impl Fn(&Error) + Send + 'static) -> Result<()> {
        self.shared.watch().tell = Some(Box::new(tell));
        self.usable()
    }

    /// Marks the file system as unused. Everything else must be durable.
    ///
    /// # Errors
    /// [`Error::Taken`] if another host has it; or a device error.
    pub(crate) fn release(&self) -> Result<()> {
        self.stop();
        self.usable()?;
        self.shared.change_state(|_| MmpState::Clean)
    }

    /// Stops the updates. The file system stays marked as in use.
    pub(crate) fn stop(&self) {
        let worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(worker);
    }
}

/// Returns the state of the MMP block of `volume` on the device now, which names the host that has
/// the file system. Returns `None` if there is no such block.
///
/// # Errors
/// Fails if the block is damaged, or with a device error.
pub(crate) fn who_has(
    contexts: &Arc<IoContexts>,
    volume: &Volume<DeviceSource>,
) -> Result<Option<Mmp>> {
    let place = MmpBlock::of(contexts, volume.source(), volume.superblock())?;
    place.map(|place| place.parse(&place.read()?)).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_have_short_names() {
        assert_eq!(short_name("file:/a/b/image?model=null"), "image");
        assert_eq!(short_name("0000:00:04.0"), "0000:00:04.0");
        assert_eq!(short_name("mem:1M?image=/x/y"), "mem:1M");
    }
}
