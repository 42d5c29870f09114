//! The journal on a software SSD, read afterwards by e2fsprogs and by our own recovery.

pub(crate) mod image;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use super::{Handle, Journal, Recovery, Sequence};
use crate::error::MountFailure;
use crate::io::{DeviceSource, IoContexts};
use crate::options::{CommitOverlap, MountOptions};
use crate::{Error, Timestamp};
use meantime_block::{BlockChannel, BlockDevice, ChannelOptions, OpenOptions};
use meantime_ext4_format::journal as format_journal;
use meantime_ext4_format::{Volume, VolumeOptions};

/// A file system on a device in memory.
struct Disk {
    dir: tempfile::TempDir,
    contexts: Arc<IoContexts>,
}

fn tools() -> bool {
    let there = ["mkfs.ext4", "e2fsck", "debugfs"]
        .iter()
        .all(|tool| Command::new(tool).arg("-V").output().is_ok());
    if !there {
        println!("skipped: e2fsprogs are not installed");
    }
    there
}

fn run(program: &str, args: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(program).args(args).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

impl Disk {
    /// Makes a file system of `size`, on a device with the further options `query`. Returns `None`
    /// without e2fsprogs.
    fn new(size: &str, args: &[&str], query: &str) -> Option<Self> {
        if !tools() {
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("new");
        let mut all = vec!["-q", "-F"];
        all.extend(args);
        all.extend([image.to_str().unwrap(), size]);
        let (code, text) = run("mkfs.ext4", &all);
        assert_eq!(code, Some(0), "{text}");
        Some(Self::of(dir, &image, query))
    }

    fn of(dir: tempfile::TempDir, image: &Path, query: &str) -> Self {
        let bytes = std::fs::read(image).unwrap();
        let uri = format!("mem:{}?{query}", bytes.len());
        let device = meantime_block::open(&uri, &OpenOptions::default()).unwrap();
        let mut channel = device.channel(&ChannelOptions::default()).unwrap();
        for (index, part) in bytes.chunks(1 << 20).enumerate() {
            let mut buf = channel.alloc(part.len()).unwrap();
            buf.copy_from_slice(part);
            channel
                .write((index << 20) as u64 / u64::from(channel.info().block_bytes), buf)
                .unwrap();
        }
        drop(channel);
        let options = MountOptions { channels: 3, cache_bytes: 1 << 20, ..MountOptions::default() };
        let contexts = IoContexts::new(device, &options).unwrap();
        Self { dir, contexts: Arc::new(contexts) }
    }

    fn volume(&self) -> Volume<DeviceSource> {
        let source = DeviceSource::new(Arc::clone(&self.contexts), None, 1 << 20);
        Volume::open(source, self.contexts.info().bytes(), VolumeOptions::default()).unwrap()
    }

    /// Opens its journal, without fast commits.
    fn try_open(&self) -> Result<(Journal, Volume<DeviceSource>), MountFailure> {
        Recovery::read(&self.contexts, self.volume())?.begin(None, CommitOverlap::ALL, false)
    }

    fn mount(&self) -> (Journal, Volume<DeviceSource>) {
        self.try_open().unwrap()
    }

    /// Saves the device's current content, as after a power cut of a device without a volatile
    /// cache.
    fn save(&self, name: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        let mut io = self.contexts.take().unwrap();
        let mut bytes = Vec::new();
        let device_bytes = self.contexts.info().bytes() as usize;
        while bytes.len() < device_bytes {
            let count = (1 << 20).min(device_bytes - bytes.len());
            bytes.extend(io.read(bytes.len() as u64, count).unwrap());
        }
        std::fs::write(&path, &bytes).unwrap();
        path
    }

    /// Asserts that `e2fsck -fn` finds nothing in `image`.
    fn assert_clean(image: &Path) {
        let (code, text) = run("e2fsck", &["-fn", image.to_str().unwrap()]);
        assert_eq!(code, Some(0), "{text}");
    }

    /// Asserts that `e2fsck -fp` replays the journal, changes nothing else, and then finds nothing.
    fn assert_recovers(image: &Path) -> String {
        let (code, text) = run("e2fsck", &["-fp", image.to_str().unwrap()]);
        assert!(code == Some(0) || code == Some(1), "{code:?} {text}");
        for line in text.lines() {
            let expected = line.contains("recovering journal") || line.contains("files (");
            assert!(expected, "{text}");
        }
        Self::assert_clean(image);
        text
    }
}

fn time(seconds: i64) -> Timestamp {
    Timestamp { seconds, nanoseconds: 7 }
}

/// Sets the time of the root directory's last change to `seconds`.
fn touch(journal: &Journal, seconds: i64) -> Sequence {
    let work = |handle: &mut Handle<'_>| {
        let mut root = handle.load_inode(2)?;
        root.set_modified(time(seconds));
        handle.store_inode(&root, false)
    };
    journal.change(work).unwrap().1
}

fn touched<S: meantime_ext4_format::Source>(volume: &Volume<S>) -> i64 {
    volume.metadata(&volume.inode(2).unwrap()).modified.seconds
}

/// Returns the shapes of file systems: block size, features.
fn shapes() -> Vec<Vec<&'static str>> {
    vec![
        vec!["-b", "4096"],
        vec!["-b", "1024"],
        vec!["-b", "1024", "-O", "^metadata_csum,^64bit"],
        vec!["-b", "4096", "-O", "^64bit"],
        vec!["-b", "4096", "-O", "^metadata_csum"],
        vec!["-b", "65536"],
    ]
}

#[test]
fn what_was_committed_is_there_and_nothing_else() {
    for (shape, query) in
        shapes().iter().zip(["vwc=1", "vwc=0", "vwc=1", "vwc=0", "vwc=1", "vwc=0"])
    {
        let size = if shape.contains(&"65536") { "256M" } else { "32M" };
        let Some(disk) = Disk::new(size, shape, query) else { return };
        let (journal, volume) = disk.mount();
        let first = touch(&journal, 1_000_000);
        journal.commit(first, &mut disk.contexts.take().unwrap()).unwrap();
        let second = touch(&journal, 2_000_000);
        assert_eq!((first, second), (Sequence(1), Sequence(2)));
        assert_eq!((touched(&volume), journal.commits.durable()), (2_000_000, first));
        let cut = disk.save("cut");
        // This checks our own recovery.
        let fresh = disk.volume();
        let recovery = format_journal::recover(&fresh).unwrap();
        assert_eq!(
            (recovery.transactions, recovery.end),
            (1, Some(journal.lead().tid)),
            "{shape:?}"
        );
        let mut replayed = fresh.clone();
        recovery.apply(&mut replayed).unwrap();
        assert_eq!(touched(&replayed), 1_000_000);
        // This checks e2fsck's recovery.
        let text = Disk::assert_recovers(&cut);
        assert!(text.contains("recovering journal"), "{text}");
        let (_, text) = run("debugfs", &["-R", "stat <2>", cut.to_str().unwrap()]);
        assert!(text.contains("mtime: 0x000f4240"), "{text}");
        // This is a clean unmount.
        journal.close(&mut disk.contexts.take().unwrap()).unwrap();
        assert!(matches!(journal.change(|_| Ok(())), Err(Error::Aborted)));
        let ended = disk.save("ended");
        Disk::assert_clean(&ended);
        let (_, text) = run("dumpe2fs", &["-h", ended.to_str().unwrap()]);
        assert!(
            !text.contains("needs_recovery") && text.contains("Filesystem state:         clean"),
            "{text}"
        );
        assert_eq!(touched(&disk.volume()), 2_000_000);
    }
}

#[test]
fn the_log_goes_round_many_times() {
    for query in ["vwc=0", "vwc=1"] {
        let Some(disk) = Disk::new("24M", &["-b", "1024", "-J", "size=1"], query) else { return };
        let (journal, volume) = disk.mount();
        let mut log_blocks = 0;
        for round in 1..=800 {
            let sequence = touch(&journal, round);
            let mut io = disk.contexts.take().unwrap();
            journal.commit(sequence, &mut io).unwrap();
            log_blocks += 3;
            if round % 250 == 0 {
                drop(io);
                let cut = disk.save("cut");
                Disk::assert_recovers(&cut);
                let (_, text) = run("debugfs", &["-R", "stat <2>", cut.to_str().unwrap()]);
                assert!(text.contains(&format!("mtime: {round:#010x}")), "{round} {text}");
            }
        }
        assert!(log_blocks > 2 * journal.lead().log.len());
        assert_eq!(touched(&volume), 800);
        // Without a clean unmount, the next mount recovers, also several times.
        drop(journal);
        for round in 0..3 {
            let (journal, volume) = disk.mount();
            assert_eq!(touched(&volume), 800 + round);
            assert!(journal.recovered().is_some());
            let sequence = touch(&journal, 801 + round);
            journal.commit(sequence, &mut disk.contexts.take().unwrap()).unwrap();
        }
    }
}

/// Makes the unused block `block` metadata without an owner, filled with `byte`.
fn scribble(handle: &mut Handle<'_>, block: u64, byte: u8, magic: bool) -> Result<(), Error> {
    let content = handle.create(block)?;
    content.fill(byte);
    if magic {
        content[..4].copy_from_slice(&0xc03b_3998_u32.to_be_bytes());
    }
    Ok(())
}

#[test]
fn copies_are_escaped_and_revoked() {
    let Some(disk) = Disk::new("32M", &["-b", "4096"], "vwc=1") else { return };
    let (journal, volume) = disk.mount();
    let free = volume.block_count() - 700;
    let all = |byte: u8, magic: bool| {
        let work = |handle: &mut Handle<'_>| {
            (0..600)
                .try_for_each(|index| scribble(handle, free + index, byte, magic && index % 3 == 0))
        };
        // This does not fit a transaction; the parts below do.
        journal.change(work).map(|(_, sequence)| sequence)
    };
    assert!(matches!(all(1, true), Err(Error::Resources(_))));
    let parts = |byte: u8, magic: bool| {
        let mut last = Sequence(0);
        for part in 0..6 {
            let work = |handle: &mut Handle<'_>| {
                (part * 100..part * 100 + 100).try_for_each(|index| {
                    scribble(handle, free + index, byte, magic && index % 3 == 0)
                })
            };
            last = journal.change(work).unwrap().1;
        }
        last
    };
    let last = parts(5, true);
    assert!(last > Sequence(1), "a transaction that would be too large is closed");
    journal.commit(last, &mut disk.contexts.take().unwrap()).unwrap();
    let work = |handle: &mut Handle<'_>| {
        (0..300).for_each(|index| handle.forget(free + 2 * index));
        handle.hold(free..free + 1);
        Ok(())
    };
    let (_, sequence) = journal.change(work).unwrap();
    assert_eq!(journal.held.blocks(), 1);
    journal.commit(sequence, &mut disk.contexts.take().unwrap()).unwrap();
    assert_eq!(journal.held.blocks(), 0);
    let recovery = format_journal::recover(&disk.volume()).unwrap();
    assert_eq!((recovery.revoked, recovery.transactions), (300, sequence.0 as u32));
    let expected: Vec<u64> = (0..300).map(|index| free + 2 * index + 1).collect();
    assert!(recovery.overlay.keys().copied().filter(|block| *block >= free).eq(expected));
    for index in (1..600).step_by(2) {
        let copy = &recovery.overlay[&(free + index)];
        let magic = index % 3 == 0;
        assert_eq!(copy.starts_with(&0xc03b_3998_u32.to_be_bytes()), magic);
        assert!(copy[4..].iter().all(|byte| *byte == 5));
    }
    // e2fsck leaves the same: blocks that were not revoked are in place.
    let cut = disk.save("cut");
    Disk::assert_recovers(&cut);
    let bytes = std::fs::read(&cut).unwrap();
    for index in 0..600 {
        let block = &bytes[(free + index) as usize * 4096..][..4096];
        assert_eq!(block[9] == 5, index % 2 == 1, "{index}");
    }
    let (code, text) = run("debugfs", &["-R", "logdump -a", cut.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{text}");
    journal.close(&mut disk.contexts.take().unwrap()).unwrap();
    Disk::assert_clean(&disk.save("ended"));
}

#[test]
fn several_threads_share_commits_and_all_is_there() {
    let Some(disk) = Disk::new("24M", &["-b", "1024", "-J", "size=1"], "vwc=1") else { return };
    let (journal, volume) = disk.mount();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (journal, disk) = (&journal, &disk);
            scope.spawn(move || {
                for round in 0..300 {
                    let free = 16_000 + thread * 100;
                    let work = |handle: &mut Handle<'_>| {
                        scribble(handle, free + round % 7, round as u8, false)?;
                        handle.forget(free + (round + 3) % 7);
                        handle.hold(free + 50..free + 51);
                        Ok(())
                    };
                    let (_, sequence, token) = journal.change_with_data(work).unwrap();
                    token.end(Ok(()));
                    journal.commit(sequence, &mut disk.contexts.take().unwrap()).unwrap();
                    assert!(journal.commits.durable() >= sequence);
                    if round % 50 == 0 {
                        journal.balance().unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(journal.held.blocks(), 0);
    let cut = disk.save("cut");
    Disk::assert_recovers(&cut);
    let bytes = std::fs::read(&cut).unwrap();
    for thread in 0..4u64 {
        // These are the last rounds: 299 % 7 = 5 was written and 302 % 7 = 1 forgotten; 0 was
        // written in round 294, and 4 in 298.
        for (index, byte) in [(5, 299), (4, 298), (3, 297), (2, 296), (0, 294)] {
            let at = (16_000 + thread * 100 + index) as usize * 1024;
            let forgotten = (295..300).any(|round| (round + 3) % 7 == index && round > byte);
            if !forgotten {
                assert_eq!(bytes[at], byte as u8, "{thread} {index}");
            }
        }
    }
    assert_eq!(volume.block(16_005).unwrap()[0], 299u64 as u8);
    journal.close(&mut disk.contexts.take().unwrap()).unwrap();
    Disk::assert_clean(&disk.save("ended"));
}

#[test]
fn what_could_not_be_kept_right_is_refused() {
    for (args, what) in [
        (vec!["-O", "^has_journal"], "without a journal"),
        (vec!["-O", "bigalloc", "-b", "4096"], "bigalloc"),
        (vec!["-O", "quota"], "quota"),
    ] {
        let Some(disk) = Disk::new("32M", &args, "vwc=0") else { return };
        let before = std::fs::read(disk.save("before")).unwrap();
        let refused = disk.try_open().err();
        let text = format!("{:?}", refused.unwrap());
        assert!(text.contains(what), "{text}");
        assert!(before == std::fs::read(disk.save("after")).unwrap());
    }
}

#[test]
fn a_transaction_whose_data_failed_does_not_commit() {
    let Some(disk) = Disk::new("24M", &["-b", "1024"], "vwc=0") else { return };
    let (journal, _) = disk.mount();
    let first = touch(&journal, 1_000_000);
    journal.commit(first, &mut disk.contexts.take().unwrap()).unwrap();
    let work = |handle: &mut Handle<'_>| scribble(handle, 16_000, 1, false);
    let (_, sequence, token) = journal.change_with_data(work).unwrap();
    token.end(Err(Error::NoAttribute));
    let result = journal.commit(sequence, &mut disk.contexts.take().unwrap());
    assert_eq!((result, journal.failure()), (Err(Error::NoAttribute), Some(Error::NoAttribute)));
    assert!(matches!(journal.change(|_| Ok(())), Err(Error::Aborted)));
    assert!(journal.close(&mut disk.contexts.take().unwrap()).is_err());
    let recovery = format_journal::recover(&disk.volume()).unwrap();
    assert_eq!(recovery.transactions, 1);
    Disk::assert_recovers(&disk.save("cut"));
}

/// Returns a disk on which the commands of `rule` fail. In it, `{lba}` stands for the place of
/// block 6 of the journal (in LBAs of 512 bytes).
fn failing(query: &str, rule: &str) -> Option<Disk> {
    if !tools() {
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("new");
    let name = image.to_str().unwrap();
    let (code, text) = run("mkfs.ext4", &["-q", "-F", "-b", "1024", name, "24M"]);
    assert_eq!(code, Some(0), "{text}");
    let (_, text) = run("debugfs", &["-R", "bmap <8> 6", name]);
    let block: u64 = text.lines().find_map(|line| line.trim().parse().ok()).unwrap();
    let plan = dir.path().join("plan.toml");
    let rule = rule.replace("{lba}", &(2 * block).to_string());
    std::fs::write(&plan, format!("[[fault]]\nfault = \"status\"\ndnr = true\n{rule}\n")).unwrap();
    let query = format!("{query}&lba=512&faults={}", plan.to_str().unwrap());
    Some(Disk::of(dir, &image, &query))
}

#[test]
fn a_commit_that_fails_is_the_last() {
    let rules = [
        // The commit block of the second transaction fails. Its place was written once before,
        // with the image.
        ("vwc=0", "status = \"write-fault\"\nopcode = \"write\"\nlba = {lba}\nfrom = 2\ntimes = 1"),
        // The flush before it fails. The first flush is the mount's.
        ("vwc=1", "status = \"internal-error\"\nopcode = \"flush\"\nfrom = 3\ntimes = 1"),
    ];
    for (query, rule) in rules {
        let Some(disk) = failing(query, rule) else { return };
        let (journal, volume) = disk.mount();
        let first = touch(&journal, 1_000_000);
        journal.commit(first, &mut disk.contexts.take().unwrap()).unwrap();
        let second = touch(&journal, 2_000_000);
        let result = journal.commit(second, &mut disk.contexts.take().unwrap());
        assert!(matches!(result, Err(Error::Io(_))), "{query}: {result:?}");
        assert_eq!(journal.commit(second, &mut disk.contexts.take().unwrap()), result);
        assert!(journal.commit(first, &mut disk.contexts.take().unwrap()).is_ok());
        assert!(matches!(journal.change(|_| Ok(())), Err(Error::Aborted)));
        assert!(journal.close(&mut disk.contexts.take().unwrap()).is_err());
        assert_eq!(touched(&volume), 2_000_000);
        // What was promised is there, and the failure is recorded.
        let recovery = format_journal::recover(&disk.volume()).unwrap();
        assert_eq!((recovery.transactions, recovery.errno), (1, -5), "{query}");
        let refused = disk.try_open().err();
        assert!(format!("{refused:?}").contains("has errors"), "{refused:?}");
        let cut = disk.save("cut");
        let (_, text) = run("dumpe2fs", &["-h", cut.to_str().unwrap()]);
        for said in [
            "with errors",
            "FS Error count:           1",
            "First error function:     meantime",
            "Last error function:      meantime",
        ] {
            assert!(text.contains(said), "{said}: {text}");
        }
        let (code, text) = run("e2fsck", &["-fy", cut.to_str().unwrap()]);
        assert!(matches!(code, Some(0 | 1)), "{text}");
        Disk::assert_clean(&cut);
        let (_, text) = run("debugfs", &["-R", "stat <2>", cut.to_str().unwrap()]);
        assert!(text.contains("mtime: 0x000f4240"), "{text}");
    }
}
