//! Multiple mount protection (feature `mmp`), with the kernel, e2fsck and a simulated host as the
//! others.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use meantime_block::{self as block, Device, NvmeDevice};
use meantime_ext4::{
    Corruption, Defect, Error, FileSystem, Mmp, MmpState, MountError, MountOptions, NewNode,
    OpenOptions,
};
use meantime_hw::soft::SoftTransport;
use meantime_nvme::{Controller, ControllerOptions};
use meantime_ssd::{Medium, Model, MonotonicClock, Ssd, SsdConfig};

use meantime_testkit::e2fs;
use meantime_testkit::image::{
    self, mkfs, mount, mount_after_kernel, run, run_for, scratch, tools, try_mount, writable,
};

const NEW: NewNode = NewNode { mode: 0o644, uid: 0, gid: 0, umask: 0 };

/// A new image that requires an update each second.
fn protected(dir: &Path, name: &str, args: &[&str]) -> PathBuf {
    let mut all = vec!["-O", "mmp", "-E", "mmp_update_interval=1"];
    all.extend(args);
    mkfs(dir, name, "32M", &all)
}

/// The byte offset of the MMP block.
fn place(path: &Path) -> u64 {
    let volume = image::open(path);
    volume.superblock().mmp_block().unwrap() * volume.block_bytes() as u64
}

/// Reads the block from the image file.
fn read(path: &Path) -> Vec<u8> {
    let mut block = vec![0; 1024];
    std::fs::File::open(path).unwrap().read_exact_at(&mut block, place(path)).unwrap();
    block
}

fn write(path: &Path, block: &[u8]) {
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(block, place(path)).unwrap();
}

fn parse(path: &Path) -> Result<Mmp, Corruption> {
    Mmp::parse(image::open(path).superblock(), 0, &read(path))
}

/// The block's content. Repeats a read that meets a write.
fn said(path: &Path) -> Mmp {
    until(|| parse(path).ok())
}

/// Writes `state` as another host.
fn say(path: &Path, state: MmpState) -> Vec<u8> {
    let other = Mmp {
        state,
        seconds: 77,
        node: b"elsewhere".into(),
        device: b"sdz".into(),
        check_interval_s: 5,
    };
    let mut block = read(path);
    other.write(image::open(path).superblock(), &mut block).unwrap();
    write(path, &block);
    block
}

/// Waits until `look` returns a value.
#[track_caller]
fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "it does not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Runs `test` for all of `cases` at the same time, each with its own directory: most of it is
/// waiting.
fn each<T: Sync>(cases: &[T], test: impl Fn(&Path, &T) + Sync) {
    std::thread::scope(|scope| {
        for case in cases {
            let test = &test;
            scope.spawn(move || test(scratch().path(), case));
        }
    });
}

fn create(fs: &FileSystem, name: &str) -> Result<(), Error> {
    let root = fs.root()?;
    fs.create(&root, name.as_ref(), &NEW)?;
    fs.sync()
}

/// Checks that a mount for writing is refused because another host has the file system.
fn kept_off(path: &Path) -> String {
    kept_off_of(image::device(path))
}

fn kept_off_of(device: Device) -> String {
    match FileSystem::mount(device, &writable()) {
        Err(error @ MountError::Protected { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

/// Opens the image as a device without a check of its use by the kernel, as from a host that cannot
/// see that.
fn from_afar(path: &Path) -> Device {
    let medium = Medium::file(path, None).unwrap();
    let model = Model::named("null").unwrap();
    let config = SsdConfig { model, ..SsdConfig::with_namespace(medium.len(), 512) };
    let ssd = Ssd::start(config, medium, MonotonicClock::new()).unwrap();
    // SAFETY: the port has no other user.
    let transport = unsafe { SoftTransport::new(ssd.port(), "afar".into(), Some(Box::new(ssd))) };
    let controller = Controller::enable(Arc::new(transport), ControllerOptions::default()).unwrap();
    Device::Nvme(NvmeDevice::new(controller, 1, "afar".into()).unwrap())
}

fn fsck(path: &Path) {
    run("e2fsck", &["-fn", path.to_str().unwrap()]);
}

#[test]
fn it_is_said_again_and_again_and_at_the_end_that_nobody_has_it() {
    if !tools() {
        return;
    }
    each(
        &[
            (&["-b", "4096"][..], "vwc=1"),
            (&["-b", "1024", "-O", "^metadata_csum,^64bit"][..], "vwc=0"),
            (&["-b", "1024", "-O", "metadata_csum_seed"][..], "vwc=1"),
        ],
        |dir, (args, query)| {
            let path = protected(dir, "image", args);
            let before = std::fs::read(&path).unwrap();
            // A mount for reading takes no part.
            let fs = mount(&path, &MountOptions::default());
            assert_eq!(fs.multiple_mount_protection().unwrap().unwrap().state, MmpState::Clean);
            drop(fs);
            assert!(before == std::fs::read(&path).unwrap());

            let uri = format!("file:{}?model=null&{query}", path.display());
            let device = block::open(&uri, &block::OpenOptions::default()).unwrap();
            let fs = FileSystem::mount(device, &writable()).unwrap();
            let first = said(&path);
            assert!(matches!(first.state, MmpState::InUse(_)));
            assert_eq!((first.device.as_slice(), first.check_interval_s), (&b"image"[..], 5));
            let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
            assert_eq!(first.node, host.trim().as_bytes());
            let own = fs.multiple_mount_protection().unwrap().unwrap();
            assert!(matches!(own.state, MmpState::InUse(_)));
            let second = until(|| Some(said(&path)).filter(|said| said.state != first.state));
            until(|| Some(said(&path)).filter(|said| said.state != second.state));
            // Checks the view of other programs. With -m dumpe2fs checks whether the device is in
            // use.
            let looked =
                e2fs::command("dumpe2fs").args(["-m", path.to_str().unwrap()]).output().unwrap();
            let text = String::from_utf8_lossy(&looked.stderr);
            assert!(text.contains("currently active") && text.contains(host.trim()), "{text}");
            let text = run("debugfs", &["-R", "dump_mmp", path.to_str().unwrap()]);
            assert!(
                text.contains("magic: 0x4d4d50") && text.contains("device_name: image"),
                "{text}"
            );
            create(&fs, "file").unwrap();
            fs.unmount().unwrap();
            assert_eq!(said(&path).state, MmpState::Clean);
            fsck(&path);
            // The next mount does not wait.
            let options = MountOptions { on_wait: Some(|_| panic!("it waits")), ..writable() };
            mount(&path, &options).unmount().unwrap();
            assert_eq!(said(&path).state, MmpState::Clean);
        },
    );
}

#[test]
fn what_somebody_else_has_is_not_written_to() {
    if !tools() {
        return;
    }
    let dir = scratch();
    let path = protected(dir.path(), "image", &[]);
    let sound = read(&path);
    say(&path, MmpState::Checking);
    let before = std::fs::read(&path).unwrap();
    let text = kept_off(&path);
    assert!(text.contains("e2fsck is running on it") && text.contains("elsewhere"), "{text}");
    assert!(text.contains("sdz") && text.contains("77 s") && text.contains("clear_mmp"), "{text}");
    assert!(before == std::fs::read(&path).unwrap());
    mount(&path, &MountOptions::default());

    for (at, defect) in [
        (0, Defect::MmpMagic),
        (0x3FC, Defect::MmpChecksum),
        (0x70, Defect::MmpChecksum),
        (0x20, Defect::MmpChecksum),
    ] {
        let mut damaged = sound.clone();
        damaged[at] ^= 0x10;
        write(&path, &damaged);
        let before = std::fs::read(&path).unwrap();
        match try_mount(&path, &writable()) {
            Err(MountError::Failed { error: Error::Corrupt(found), .. }) => {
                assert_eq!(found.defect, defect)
            }
            other => panic!("{other:?}"),
        }
        assert!(before == std::fs::read(&path).unwrap());
        let fs = mount(&path, &MountOptions::default());
        assert!(matches!(fs.multiple_mount_protection(), Err(Error::Corrupt(_))));
        let mut found = Vec::new();
        fs.check(&mut |event| {
            if let meantime_ext4::check::Event::Found(finding) = event {
                found.push(finding.corruption.defect);
            }
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(found, [defect]);
    }
    write(&path, &sound);

    // An unsupported feature is found before anything is written.
    let other = protected(dir.path(), "other", &["-O", "quota"]);
    let before = std::fs::read(&other).unwrap();
    assert!(matches!(try_mount(&other, &writable()), Err(MountError::Unsupported { .. })));
    assert!(before == std::fs::read(&other).unwrap());
    // For a later refusal, the block is marked as unused again.
    let journal = image::open(&path);
    let inode = journal.inode(8).unwrap();
    let at = journal.run_at(&inode, 0).unwrap().physical * journal.block_bytes() as u64;
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&(-5_i32).to_be_bytes(), at + 0x20).unwrap();
    match try_mount(&path, &writable()) {
        Err(error) => assert!(error.to_string().contains("has errors"), "{error}"),
        Ok(_) => panic!("mounted"),
    }
    assert_eq!(said(&path).state, MmpState::Clean);
}

#[test]
fn who_loses_it_writes_nothing_more() {
    if !tools() {
        return;
    }
    // Another host, e2fsck, a host that marks the block as unused, and garbage.
    each(&[0, 1, 2, 3], |dir, number| {
        let path = protected(dir, "image", &[]);
        let fs = mount(&path, &writable());
        create(&fs, "before").unwrap();
        let (root, new) = (fs.root().unwrap(), NEW);
        fs.create(&root, "lost".as_ref(), &new).unwrap();
        // Data to be overwritten in place.
        let options = OpenOptions { create: true, mode: 0o644, ..image::READ_WRITE };
        let file = fs.open_with("/data", &options).unwrap();
        file.write_at(&[1; 16384], 0).unwrap();
        file.sync_all().unwrap();
        file.write_at(&[2; 8192], 0).unwrap();
        // The mount's own update may be in flight, so this is repeated.
        let place_it = || match number {
            0 => say(&path, MmpState::InUse(5)),
            1 => say(&path, MmpState::Checking),
            2 => say(&path, MmpState::Clean),
            _ => {
                write(&path, &[0xA5; 1024]);
                vec![0xA5; 1024]
            }
        };
        let mut theirs = place_it();
        until(|| {
            if read(&path) != theirs {
                theirs = place_it();
            }
            matches!(fs.mkdir(&root, "x".as_ref(), &new), Err(Error::Aborted)).then_some(())
        });
        let before = std::fs::read(&path).unwrap();
        assert!(file.sync_data().is_err() && fs.sync().is_err());
        assert!(file.write_at(&[3; 4096], 8192).is_err());
        let direct = fs.open_with("/data", &OpenOptions { direct: true, ..image::READ_WRITE });
        assert!(direct.is_err());
        assert!(fs.background_step().is_err());
        assert_eq!(fs.open("/before").unwrap().size(), 0);
        drop(file);
        let error = fs.unmount().unwrap_err();
        assert!(!matches!(error, Error::Io(_)), "{error}");
        assert!(before == std::fs::read(&path).unwrap(), "{number}: it was written to");
        assert!(read(&path) == theirs);
    });
}

#[test]
fn who_cannot_say_so_for_too_long_writes_nothing_more() {
    if !tools() {
        return;
    }
    // The first two writes are the mount's.
    each(&[("times = 2", false), ("", true)], |dir, (times, ends)| {
        let path = protected(dir, "image", &["-b", "4096"]);
        let lba = place(&path) / 512;
        let plan = dir.join("plan.toml");
        let rule = format!(
            "[[fault]]\nfault = \"status\"\ndnr = true\nstatus = \"write-fault\"\nopcode = \"write\"\nlba = {lba}\nfrom = 4\n{times}\n"
        );
        std::fs::write(&plan, rule).unwrap();
        let uri = format!("file:{}?model=null&lba=512&faults={}", path.display(), plan.display());
        let device = block::open(&uri, &block::OpenOptions::default()).unwrap();
        let fs = FileSystem::mount(device, &writable()).unwrap();
        if *ends {
            let root = fs.root().unwrap();
            until(|| {
                matches!(fs.mkdir(&root, "x".as_ref(), &NEW), Err(Error::Aborted)).then_some(())
            });
            assert!(fs.unmount().is_err());
            assert!(matches!(said(&path).state, MmpState::InUse(_)));
        } else {
            let mut last = said(&path).state;
            for _ in 0..3 {
                last = until(|| Some(said(&path).state).filter(|state| *state != last));
            }
            create(&fs, "file").unwrap();
            fs.unmount().unwrap();
            assert_eq!(said(&path).state, MmpState::Clean);
        }
    });
}

#[test]
fn after_a_crash_it_is_waited_for_whether_somebody_is_alive() {
    static WAITED_S: AtomicU64 = AtomicU64::new(0);
    if !tools() {
        return;
    }
    let dir = scratch();
    let path = protected(dir.path(), "image", &[]);
    let fs = mount(&path, &writable());
    create(&fs, "file").unwrap();
    let (crashed, alive, late) =
        (dir.path().join("crashed"), dir.path().join("alive"), dir.path().join("late"));
    for copy in [&crashed, &alive, &late] {
        std::fs::copy(&path, copy).unwrap();
    }
    fs.unmount().unwrap();
    let before = said(&late).state;
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let on_wait: fn(Duration) = |most| WAITED_S.store(most.as_secs(), SeqCst);
            let fs = mount(&crashed, &MountOptions { on_wait: Some(on_wait), ..writable() });
            assert_eq!(WAITED_S.load(SeqCst), 22);
            assert!(fs.open("/file").is_ok() && fs.info().recovered.is_some());
            create(&fs, "another").unwrap();
            fs.unmount().unwrap();
            assert_eq!(said(&crashed).state, MmpState::Clean);
            fsck(&crashed);
        });
        // A live host, and one that appears after this mount has written its mark.
        scope.spawn(|| {
            let mut sequence = 1;
            while !ended.load(SeqCst) {
                say(&alive, MmpState::InUse(sequence));
                sequence += 1;
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        scope.spawn(|| {
            let text = kept_off(&alive);
            ended.store(true, SeqCst);
            assert!(
                text.contains("elsewhere") && text.contains("sdz") && text.contains("77 s"),
                "{text}"
            );
        });
        let theirs = scope.spawn(|| {
            until(|| Some(said(&late).state).filter(|state| *state != before));
            say(&late, MmpState::InUse(5))
        });
        let text = kept_off(&late);
        assert!(text.contains("elsewhere"), "{text}");
        assert!(read(&late) == theirs.join().unwrap());
    });
}

/// The kernel's mount of an image on a loop device, in its own mount namespace, where this process
/// does not see it.
struct Elsewhere(Child);

impl Elsewhere {
    /// `None`, with a message, if that is not possible.
    fn mount(path: &Path, at: &Path) -> Option<Self> {
        std::fs::create_dir_all(at).unwrap();
        let script = "mount -t ext4 -o loop \"$0\" \"$1\" && echo mounted && read x; umount \"$1\"";
        let child = Command::new("unshare")
            .args(["-m", "sh", "-c", script])
            .args([path, at])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut child) = child else {
            println!("skipped: no unshare");
            return None;
        };
        let mut line = String::new();
        let _ = BufReader::new(child.stdout.take().unwrap()).read_line(&mut line);
        if line == "mounted\n" {
            return Some(Self(child));
        }
        println!("skipped: no mount on a loop device: {:?}", child.wait());
        None
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        if let Some(mut stdin) = self.0.stdin.take() {
            let _ = stdin.write_all(b"\n");
        }
        let _ = self.0.wait();
    }
}

#[test]
fn the_kernel_and_e2fsck_keep_off_what_is_ours_and_we_what_is_theirs() {
    if !tools() {
        return;
    }
    let dir = scratch();
    let theirs = protected(dir.path(), "theirs", &[]);
    let ours = protected(dir.path(), "ours", &[]);
    let Some(elsewhere) = Elsewhere::mount(&theirs, &dir.path().join("theirs.mnt")) else { return };
    let fs = mount(&ours, &writable());
    create(&fs, "file").unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // A host that sees the kernel's loop device is refused before that …
            match try_mount(&theirs, &writable()) {
                Err(MountError::InUse { who, .. }) => {
                    assert!(who.contains("the file of loop"), "{who}")
                }
                other => panic!("{other:?}"),
            }
            // … and one that does not is refused by the block.
            let text = kept_off_of(from_afar(&theirs));
            // The kernel's host name is the one outside of any container.
            assert!(text.contains("device \"loop"), "{text}");
            drop(elsewhere);
            let fs = mount_after_kernel(&theirs, &writable());
            create(&fs, "file").unwrap();
            fs.unmount().unwrap();
            fsck(&theirs);
        });
        scope.spawn(|| {
            let at = dir.path().join("ours.mnt");
            assert!(Elsewhere::mount(&ours, &at).is_none(), "the kernel has mounted what is ours");
        });
        // The reason comes from the block: "MMP: device currently active".
        let text = run_for("e2fsck", &["-p", ours.to_str().unwrap()], &[8]);
        assert!(!text.contains("clean"), "{text}");
    });
    // This mount still has it.
    create(&fs, "another").unwrap();
    fs.unmount().unwrap();
    fsck(&ours);
    drop(
        Elsewhere::mount(&ours, &dir.path().join("ours.mnt"))
            .expect("the kernel does not mount it"),
    );
    fsck(&ours);
}
