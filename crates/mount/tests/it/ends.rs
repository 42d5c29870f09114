//! How mounts begin and end.

use std::fs::{self, File};
use std::io::Write as _;
use std::time::Duration;

use meantime_ext4::MountOptions;
use meantime_mount::{Mount, Options, ServeError, SessionError};
use meantime_testkit::{e2fs, image};

use crate::served::Served;

#[test]
fn a_mount_that_is_in_use_goes_on_or_ends_by_force() {
    let Some(mut served) = Served::new("64M", &Options::default()) else { return };
    let file = served.used(|dir| {
        let mut file = File::create(dir.join("file")).unwrap();
        file.write_all(b"before").unwrap();
        file
    });
    let Err((Some(mount), ServeError::Busy { .. })) = served.take().unmount() else {
        panic!("a file is open");
    };
    assert!(!mount.has_ended() && !mount.wait(Duration::from_millis(1)));
    mount.unmount_by_force().unwrap();
    let error = (&file).write_all(b"after").unwrap_err();
    assert!([libc::ENOTCONN, libc::ECONNABORTED].contains(&error.raw_os_error().unwrap()));
    drop(file);
    assert_eq!(served.unmounted().read("/file").unwrap(), b"before");
    e2fs::run("e2fsck", &["-fn", served.image.to_str().unwrap()]);
}

#[test]
fn somebody_else_may_unmount_it() {
    let Some(mut served) = Served::new("64M", &Options::default()) else { return };
    served.used(|dir| fs::write(dir.join("file"), b"content").unwrap());
    e2fs::run("umount", &[served.dir().to_str().unwrap()]);
    let mount = served.take();
    assert!(mount.wait(Duration::from_secs(10)));
    mount.unmount().map_err(|(_, error)| error).unwrap();
    assert_eq!(served.unmounted().read("/file").unwrap(), b"content");
    e2fs::run("e2fsck", &["-fn", served.image.to_str().unwrap()]);
}

#[test]
fn a_dropped_mount_is_unmounted_and_written() {
    let Some(mut served) = Served::new("64M", &Options::default()) else { return };
    served.used(|dir| fs::write(dir.join("file"), b"content").unwrap());
    drop(served.take());
    assert_eq!(fs::read_dir(served.dir()).unwrap().count(), 0);
    assert_eq!(served.unmounted().read("/file").unwrap(), b"content");
    e2fs::run("e2fsck", &["-fn", served.image.to_str().unwrap()]);
}

#[test]
fn directories_that_cannot_be_mounted_at_are_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let refused = |dir: &std::path::Path, part: &str| {
        let error = Mount::check(dir, &Options::default()).unwrap_err();
        assert!(matches!(error, SessionError::Directory { .. }));
        assert!(error.to_string().contains(part), "{error}");
    };
    refused(&scratch.path().join("none"), "mkdir");
    fs::write(scratch.path().join("file"), b"").unwrap();
    refused(&scratch.path().join("file"), "not a directory");
    refused(scratch.path(), "nonempty");
    let options = Options { nonempty: true, ..Options::default() };
    Mount::check(scratch.path(), &options).unwrap();
}

#[test]
fn a_mount_for_reading_writes_nothing() {
    if !e2fs::tools() {
        return;
    }
    let options = Options { read_only: true, ..Options::default() };
    let Some(mut served) = Served::new("64M", &Options::default()) else { return };
    served.sh("mkdir d; echo text > d/file; ln -s d/file link");
    served.unmount();
    let before = fs::read(&served.image).unwrap();
    assert!(served.mount(&options, &MountOptions::default()));
    assert_eq!(served.sh("cat link; ls d; grep -c . d/file"), "text\nfile\n1");
    served.used(|dir| {
        let error = File::create(dir.join("new")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EROFS));
    });
    served.unmount();
    assert!(fs::read(&served.image).unwrap() == before);
}

#[test]
fn with_sync_every_change_is_durable() {
    let options = Options { sync: true, ..Options::default() };
    let Some(mut served) = Served::new("64M", &options) else { return };
    served.used(|dir| {
        fs::create_dir(dir.join("d")).unwrap();
        fs::write(dir.join("d/file"), b"content").unwrap();
        fs::rename(dir.join("d/file"), dir.join("file")).unwrap();
    });
    // A copy of what the device has at this moment is what a crash would leave.
    let crashed = served.beside("crashed");
    fs::copy(&served.image, &crashed).unwrap();
    let fs = image::mount(&crashed, &MountOptions::default());
    assert_eq!(fs.read("/file").unwrap(), b"content");
    assert!(fs.exists("/d").unwrap());
    served.unmount();
}

#[test]
fn many_threads_that_make_files_durable_hold_nobody_up() {
    let Some(served) = Served::new("128M", &Options::default()) else { return };
    served.used(|dir| {
        let threads: Vec<_> = (0..12)
            .map(|thread| {
                let dir = dir.to_owned();
                std::thread::spawn(move || {
                    for n in 0..40 {
                        let path = dir.join(format!("{thread} {n}"));
                        let mut file = File::create(&path).unwrap();
                        file.write_all(&[thread; 3000]).unwrap();
                        file.sync_all().unwrap();
                        assert!(fs::read(&path).unwrap() == [thread; 3000]);
                        if n % 2 == 0 {
                            fs::remove_file(path).unwrap();
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(fs::read_dir(dir).unwrap().count(), 12 * 20 + 1);
    });
    served.end();
}
