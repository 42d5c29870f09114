//! Access times: when they are updated, and what that costs.

use std::fs;
use std::path::Path;

use meantime_ext4::{
    AccessTimes, Allocate, File, FileSystem, MountOptions, OpenOptions, ReadOptions, SetMetadata,
    SetTime, Timestamp,
};

use meantime_testkit::filled::Image;

fn writable(access_times: AccessTimes) -> MountOptions {
    MountOptions { write: true, background: false, access_times, ..MountOptions::default() }
}

fn read_write() -> OpenOptions {
    OpenOptions { read: true, write: true, ..OpenOptions::default() }
}

fn image() -> Option<Image> {
    Image::make(&[], 32, |root: &Path| {
        fs::write(root.join("file"), [7; 10_000]).unwrap();
        fs::write(root.join("inline"), b"").unwrap();
        fs::create_dir(root.join("dir")).unwrap();
        std::os::unix::fs::symlink("file", root.join("link")).unwrap();
    })
}

fn read(file: &File) {
    assert_eq!(file.read_at(&mut [0; 100], 0).unwrap(), 100);
}

fn accessed(fs: &FileSystem, path: &str) -> Timestamp {
    fs.metadata(path).unwrap().accessed
}

/// The time `seconds` seconds ago.
fn long_ago(seconds: i64) -> Timestamp {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    Timestamp { seconds: now.as_secs() as i64 - seconds, nanoseconds: 5 }
}

#[test]
fn a_read_is_noted_once_after_each_change() {
    let Some(image) = image() else { return };
    let fs = image.mount("", &writable(AccessTimes::Relative));
    let file = fs.open_with("/file", &read_write()).unwrap();
    let before = file.metadata();
    read(&file);
    let first = file.metadata();
    assert!(
        first.accessed > before.accessed.max(before.modified),
        "it was not read since it was made"
    );
    assert_eq!((first.modified, first.changed), (before.modified, before.changed));
    read(&file);
    file.read_at_with(&mut [0; 4096], 0, &ReadOptions { direct: true, ..ReadOptions::default() })
        .unwrap();
    assert_eq!(file.metadata().accessed, first.accessed, "once");
    // After the content changed in memory only, after writeback, and after the inode changed.
    for turn in 0..3 {
        let before = file.metadata().accessed;
        match turn {
            0 => drop(file.write_at(&[8; 100], 50).unwrap()),
            1 => {
                file.write_at(&[9; 100], 50).unwrap();
                file.sync_all().unwrap();
            }
            _ => drop(
                fs.set_metadata(
                    file.node(),
                    &SetMetadata { mode: Some(0o600), ..SetMetadata::default() },
                )
                .unwrap(),
            ),
        }
        assert_eq!(file.metadata().accessed, before, "nobody has read it, turn {turn}");
        read(&file);
        let noted = file.metadata().accessed;
        assert!(noted > file.metadata().modified.max(file.metadata().changed), "turn {turn}");
        read(&file);
        assert_eq!(file.metadata().accessed, noted, "turn {turn}");
    }
    // A direct read, and one of no bytes.
    file.write_at(&[1; 10], 0).unwrap();
    let before = file.metadata().accessed;
    assert_eq!(file.read_at(&mut [], 0).unwrap(), 0);
    assert_eq!(file.metadata().accessed, before);
    file.read_at_with(&mut [0; 4096], 0, &ReadOptions { direct: true, ..ReadOptions::default() })
        .unwrap();
    assert!(file.metadata().accessed > before);
    let all = file.metadata();
    drop(file);
    fs.unmount().unwrap();
    image.check();
    let reader = image.mount("", &MountOptions::default());
    let stored = reader.metadata("/file").unwrap();
    assert_eq!(
        (stored.accessed, stored.modified),
        (all.accessed, all.modified),
        "it is on the disk"
    );
}

#[test]
fn a_day_old_time_is_renewed() {
    let Some(image) = image() else { return };
    const DAY: i64 = 24 * 60 * 60;
    // Set by debugfs, so that the inode's own change is long ago, too.
    for (seconds, renewed) in [(DAY - 600, false), (DAY + 600, true)] {
        let time = long_ago(seconds);
        for field in ["atime", "mtime", "ctime"] {
            let at = if field == "atime" { time.seconds } else { time.seconds - 100 };
            let request = format!("set_inode_field /file {field} @{at}");
            let image = image.path("image");
            let done = meantime_testkit::e2fs::command("debugfs")
                .args(["-w", "-R", &request])
                .arg(image)
                .output();
            assert!(done.unwrap().status.success());
        }
        let fs = image.mount("", &writable(AccessTimes::Relative));
        let before = accessed(&fs, "/file");
        assert_eq!(before.seconds, time.seconds);
        read(&fs.open("/file").unwrap());
        assert_eq!(accessed(&fs, "/file") > before, renewed, "{seconds} s");
        fs.unmount().unwrap();
    }
}

#[test]
fn never_and_always() {
    let Some(image) = image() else { return };
    let paths = ["/file", "/dir", "/link"];
    let use_all = |fs: &FileSystem| {
        let root = fs.root().unwrap();
        read(&fs.open("/file").unwrap());
        assert!(fs.read_dir("/dir").unwrap().count() > 0);
        let link = fs.lookup(&root, "link".as_ref()).unwrap();
        fs.read_link_at(&link).unwrap();
        let of_link = link.metadata().accessed;
        [accessed(fs, paths[0]), accessed(fs, paths[1]), of_link]
    };
    let fs = image.mount("", &writable(AccessTimes::Never));
    let first = use_all(&fs);
    assert_eq!(use_all(&fs), first);
    fs.unmount().unwrap();
    let fs = image.mount("", &writable(AccessTimes::Strict));
    let mut last = first;
    for turn in 0..3 {
        std::thread::sleep(std::time::Duration::from_millis(2));
        let now = use_all(&fs);
        assert!(
            now.iter().zip(&last).all(|(now, last)| now > last),
            "turn {turn}: {now:?} after {last:?}"
        );
        last = now;
    }
    fs.unmount().unwrap();
    image.check();
    let fs = image.mount("", &writable(AccessTimes::Relative));
    let now = use_all(&fs);
    assert_eq!(now, last, "they were read since they were made");
    fs.unmount().unwrap();
    // A file without access times, whatever the mount says (chattr +A).
    let request = "set_inode_field /file flags 0x80080";
    let done = meantime_testkit::e2fs::command("debugfs")
        .args(["-w", "-R", request])
        .arg(image.path("image"))
        .output();
    assert!(done.unwrap().status.success());
    let fs = image.mount("", &writable(AccessTimes::Strict));
    let before = accessed(&fs, "/file");
    read(&fs.open("/file").unwrap());
    assert_eq!(accessed(&fs, "/file"), before);
    fs.unmount().unwrap();
}

/// Neither a read nor a later `fsync` writes anything for an access time; `sync` does.
#[test]
fn a_mount_may_stop_noting_times_for_a_while() {
    let Some(image) = image() else { return };
    for times in [AccessTimes::Relative, AccessTimes::Strict] {
        let fs = image.mount("", &writable(times));
        fs.write("/file", [1; 100]).unwrap();
        let file = fs.open_with("/file", &read_write()).unwrap();
        let before = file.metadata().accessed;
        fs.note_access_times(false);
        read(&file);
        assert_eq!(file.metadata().accessed, before);
        fs.note_access_times(true);
        read(&file);
        assert!(file.metadata().accessed > before);
        drop(file);
        fs.unmount().unwrap();
    }
}

#[test]
fn a_time_of_reading_costs_no_commit() {
    let Some(image) = image() else { return };
    let fs = image.mount("", &writable(AccessTimes::Strict));
    fs.sync().unwrap();
    let committed = || {
        let counters = fs.journal_counters().unwrap();
        format!("{counters:?}")
    };
    let before = committed();
    let file = fs.open_with("/file", &read_write()).unwrap();
    for _ in 0..1000 {
        read(&file);
    }
    file.sync_all().unwrap();
    assert_eq!(committed(), before);
    let noted = file.metadata().accessed;
    let bytes = fs::read(image.path("image")).unwrap();
    // It is lost with the mount, but nothing else is.
    fs::write(image.path("copy"), bytes).unwrap();
    fs.sync().unwrap();
    assert_ne!(committed(), before);
    drop(file);
    fs.unmount().unwrap();
    let on_disk = image.mount("", &MountOptions::default());
    assert_eq!(accessed(&on_disk, "/file"), noted);
    drop(on_disk);
    fs::rename(image.path("copy"), image.path("image")).unwrap();
    let lost = image.mount("", &MountOptions::default());
    assert!(accessed(&lost, "/file") < noted);
    drop(lost);
    let fs = image.mount("", &writable(AccessTimes::Relative));
    fs.unmount().unwrap();
    image.check();
}

#[test]
fn a_mount_for_reading_changes_nothing() {
    let Some(image) = image() else { return };
    let before = fs::read(image.path("image")).unwrap();
    let options = MountOptions { access_times: AccessTimes::Strict, ..MountOptions::default() };
    let fs = image.mount("", &options);
    let noted = accessed(&fs, "/file");
    read(&fs.open("/file").unwrap());
    assert!(fs.read_dir("/dir").unwrap().count() > 0);
    assert_eq!(accessed(&fs, "/file"), noted);
    drop(fs);
    assert!(fs::read(image.path("image")).unwrap() == before);
}

/// Times are stored after the write they belong to, and changes of the inode in between have their
/// own times, too.
#[test]
fn what_is_written_back_late_does_not_make_an_inode_older() {
    let Some(image) = image() else { return };
    let fs = image.mount("", &writable(AccessTimes::Never));
    let file = fs.open_with("/file", &read_write()).unwrap();
    let pause = || std::thread::sleep(std::time::Duration::from_millis(2));
    let write = || {
        pause();
        file.write_at(&[8; 5000], 50).unwrap();
        pause();
        file.metadata().modified
    };
    type Sync = fn(&File);
    let syncs: [Sync; 2] = [|file| file.sync_data().unwrap(), |file| file.sync_all().unwrap()];
    for sync in syncs {
        let written = write();
        fs.set_metadata(file.node(), &SetMetadata { mode: Some(0o640), ..SetMetadata::default() })
            .unwrap();
        let changed = file.metadata().changed;
        assert!(changed > written);
        sync(&file);
        file.sync_all().unwrap();
        assert_eq!((file.metadata().modified, file.metadata().changed), (written, changed));
        // An operation that does not change the content keeps the modification time.
        let written = write();
        file.allocate(0, 4096, Allocate::KeepSize).unwrap();
        assert_eq!(file.metadata().modified, written);
        sync(&file);
        file.sync_all().unwrap();
        assert_eq!(file.metadata().modified, written);
        // An operation that changes the content updates it.
        let changes: [&dyn Fn(); 3] =
            [&|| file.set_len(20_000).unwrap(), &|| file.set_len(10_000).unwrap(), &|| {
                file.allocate(4096, 4096, Allocate::Punch).unwrap()
            }];
        for change in changes {
            let written = write();
            change();
            let changed = file.metadata();
            assert!(changed.modified > written && changed.changed == changed.modified);
            sync(&file);
            file.sync_all().unwrap();
            assert_eq!(
                (file.metadata().modified, file.metadata().changed),
                (changed.modified, changed.changed)
            );
        }
        // A time that was set stays, earlier or later than now.
        for set in [Timestamp { seconds: 1_000_000, nanoseconds: 7 }, long_ago(-100_000)] {
            write();
            fs.set_metadata(
                file.node(),
                &SetMetadata { modified: Some(SetTime::To(set)), ..SetMetadata::default() },
            )
            .unwrap();
            let changed = file.metadata().changed;
            sync(&file);
            file.sync_all().unwrap();
            assert_eq!((file.metadata().modified, file.metadata().changed), (set, changed));
        }
        // A write then sets the current time, even if it is earlier.
        let written = write();
        sync(&file);
        file.sync_all().unwrap();
        assert_eq!(file.metadata().modified, written);
        assert!(written < long_ago(-50_000));
    }
    let last = file.metadata();
    drop(file);
    fs.unmount().unwrap();
    image.check();
    let stored = image.mount("", &MountOptions::default()).metadata("/file").unwrap();
    assert_eq!((stored.modified, stored.changed), (last.modified, last.changed));
}

#[test]
fn inodes_without_room_for_nanoseconds_never_show_any() {
    let made = Image::make(&["-I", "128"], 32, |root: &Path| {
        fs::write(root.join("file"), [7; 10_000]).unwrap();
    });
    let Some(image) = made else { return };
    let fs = image.mount("", &writable(AccessTimes::Strict));
    let file = fs.open_with("/file", &read_write()).unwrap();
    file.write_at(&[8; 100], 50).unwrap();
    read(&file);
    let set = SetMetadata { accessed: Some(SetTime::To(long_ago(9))), ..SetMetadata::default() };
    let (written, touched) = (file.metadata(), fs.set_metadata(file.node(), &set).unwrap());
    for shown in [&written, &touched] {
        let times = [shown.accessed, shown.modified, shown.changed];
        assert_eq!(times.map(|time| time.nanoseconds), [0; 3], "{shown:?}");
    }
    assert_eq!(touched.modified, written.modified);
    drop(file);
    fs.unmount().unwrap();
    let stored = image.mount("", &MountOptions::default()).metadata("/file").unwrap();
    assert_eq!((stored.accessed, stored.modified), (touched.accessed, touched.modified));
}

#[test]
fn a_file_opened_not_to_note_reads_keeps_its_access_time() {
    let Some(image) = image() else { return };
    let fs = image.mount("", &writable(AccessTimes::Strict));
    let before = accessed(&fs, "/file");
    let unnoted = OpenOptions { no_access_time: true, ..read_write() };
    read(&fs.open_with("/file", &unnoted).unwrap());
    assert_eq!(accessed(&fs, "/file"), before);
    read(&fs.open_with("/file", &read_write()).unwrap());
    assert!(accessed(&fs, "/file") > before);
    let dir = fs.resolve(&fs.root().unwrap(), "dir", true).unwrap();
    let before = accessed(&fs, "/dir");
    fs.entries_unnoted(&dir).unwrap().for_each(drop);
    assert_eq!(accessed(&fs, "/dir"), before);
    fs.entries(&dir).unwrap().for_each(drop);
    assert!(accessed(&fs, "/dir") > before);
}
