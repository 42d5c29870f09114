//! Tests that each call ends beside a thread that never pauses: what the call does is bounded by
//! what there was when it began. This is counted in the requests that the calling thread sends.
//! Before each of them, another thread makes one more change.

use std::cell::{Cell, RefCell};
use std::ffi::OsStr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::cache::PAGE;
use crate::file::File;
use crate::fs::FileSystem;
use crate::inode::setattr::SetMetadata;
use crate::mkfs::make;
use crate::options::{
    Advice, Allocate, MountOptions, NewNode, OpenOptions, ReadOptions, WriteOptions,
};
use meantime_block::{self as block, Device};
use meantime_ext4_format::Timestamp;
use meantime_ext4_format::mkfs::MakeOptions;

thread_local! {
    /// What the calling thread does before each request that it sends.
    pub(super) static BESIDE: RefCell<Option<Box<dyn FnMut()>>> = const { RefCell::new(None) };
}

/// Is called before each request.
pub(crate) fn beside() {
    let action = BESIDE.with_borrow_mut(Option::take);
    if let Some(mut action) = action {
        action();
        BESIDE.set(Some(action));
    }
}

/// Pages of the file, and how many of them are dirty when a call begins.
const PAGES: u64 = 300;
const DIRTY: u64 = 40;

/// The maximum number of requests that a call may send: twice what is dirty, page by page, and some
/// for the journal.
const MOST: u64 = 2 * DIRTY + 80;

/// How long one change of the other thread may take before it counts as blocked by the call.
const PATIENCE: Duration = Duration::from_millis(2);

const NEW: NewNode = NewNode { mode: 0o644, uid: 0, gid: 0, umask: 0 };

/// The state that the two threads share.
struct World {
    fs: FileSystem,
    /// The number of changes that the other thread may have made, and the number that it has made.
    allowed: AtomicU64,
    made: AtomicU64,
    ended: AtomicBool,
}

impl World {
    fn open(&self) -> File {
        let options = OpenOptions { read: true, write: true, ..OpenOptions::default() };
        self.fs.open_with("/file", &options).unwrap()
    }

    /// Lets the other thread make a change, and waits until it has made it, if it can.
    fn let_change(&self) {
        let allowed = self.allowed.load(Ordering::Relaxed);
        if self.made.load(Ordering::Acquire) < allowed {
            // The other thread waits for this very call.
            return;
        }
        self.allowed.store(allowed + 1, Ordering::Release);
        let until = Instant::now() + PATIENCE;
        while self.made.load(Ordering::Acquire) <= allowed && Instant::now() < until {
            std::hint::spin_loop();
            std::thread::yield_now();
        }
    }

    /// Makes one `change` after another, as allowed.
    fn change(&self, change: &dyn Fn(u64)) {
        let mut number = 0;
        loop {
            if number < self.allowed.load(Ordering::Acquire) {
                change(number);
                number += 1;
                self.made.store(number, Ordering::Release);
            } else if self.ended.load(Ordering::Acquire) {
                return;
            } else {
                std::thread::yield_now();
            }
        }
    }
}

/// A change that the other thread makes again and again, with its number.
type Change = fn(&World, &File, u64);

/// A change may fail: the mount may have ended.
const CHANGES: [(&str, Change); 11] = [
    ("overwriting part of the last page", |_, file, number| {
        drop(file.write_at(&[number as u8; 50], file.size().saturating_sub(100)));
    }),
    ("overwriting whole pages", |_, file, number| {
        drop(file.write_at(&[number as u8; 4096], number * 7 % PAGES * PAGE));
    }),
    ("overwriting the same page", |_, file, number| {
        drop(file.write_at(&[number as u8; 4096], PAGE));
    }),
    ("appending pages", |_, file, number| drop(file.append(&[number as u8; 4096]))),
    ("appending bytes", |_, file, number| drop(file.append(&[number as u8; 100]))),
    ("appending and syncing", |_, file, number| {
        drop(file.append(&[number as u8; 100]));
        drop(file.sync_data());
    }),
    ("writing past the cache", |_, file, number| {
        let direct = WriteOptions { direct: true, ..WriteOptions::default() };
        drop(file.write_at_with(&[number as u8; 4096], number % PAGES * PAGE, &direct));
    }),
    ("writing and syncing the last page", |_, file, number| {
        let at = PAGES * PAGE;
        drop(file.write_at(&[number as u8; 100], at));
        drop(file.sync_range(at..at + 1));
    }),
    ("dropping what is cached", |_, file, _| drop(file.advise(0, 0, Advice::DontNeed))),
    ("changing attributes", |world, file, number| {
        let set = SetMetadata { mode: Some(0o600 | number as u16 & 7), ..SetMetadata::default() };
        drop(world.fs.set_metadata(file.node(), &set));
    }),
    ("making and removing names", |world, _, number| {
        let Ok(root) = world.fs.root() else { return };
        drop(world.fs.create(&root, OsStr::new(&format!("new-{number}")), &NEW));
        if number % 2 == 1 {
            drop(world.fs.unlink(&root, OsStr::new(&format!("new-{}", number - 1))));
        }
    }),
];

/// A call that has to end.
type Call = fn(&World, &File);

const CALLS: [(&str, Call); 15] = [
    ("fsync", |_, file| file.sync_all().unwrap()),
    ("fdatasync", |_, file| file.sync_data().unwrap()),
    ("sync_file_range", |_, file| file.sync_range(0..u64::MAX).unwrap()),
    ("sync", |world, _| world.fs.sync().unwrap()),
    ("background", |world, _| assert!(world.fs.background_step().is_ok())),
    ("truncate", |_, file| file.set_len(5000).unwrap()),
    ("punch", |_, file| file.allocate(5000, 200 * PAGE, Allocate::Punch).unwrap()),
    ("zero", |_, file| file.allocate(5000, 200 * PAGE, Allocate::Zero).unwrap()),
    ("preallocate", |_, file| file.allocate(0, 2 * PAGES * PAGE, Allocate::Extend).unwrap()),
    ("read", |_, file| {
        file.advise(0, 0, Advice::DontNeed).unwrap();
        assert_eq!(file.read_at(&mut vec![0; 64 << 12], 0).unwrap(), 64 << 12);
    }),
    ("write to a part of a page", |_, file| {
        file.advise(0, 0, Advice::DontNeed).unwrap();
        assert_eq!(file.write_at(&[3; 10], 2 * PAGE + 5).unwrap(), 10);
    }),
    ("direct read", |_, file| {
        let direct = ReadOptions { direct: true, ..ReadOptions::default() };
        file.read_at_with(&mut vec![0; 64 << 12], 0, &direct).unwrap();
    }),
    ("direct write", |_, file| {
        let direct = WriteOptions { direct: true, ..WriteOptions::default() };
        assert_eq!(file.write_at_with(&vec![1; 64 << 12], 0, &direct).unwrap(), 64 << 12);
    }),
    ("trim", |world, _| assert!(world.fs.trim(0..u64::MAX, 0).is_ok())),
    ("unmount", |world, _| world.fs.clone().unmount().unwrap()),
];

fn device(dir: &tempfile::TempDir) -> Device {
    let uri = format!("file:{}?model=null", dir.path().join("image").display());
    block::open(&uri, &block::OpenOptions::default()).unwrap()
}

pub(super) fn new_image() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::File::create(dir.path().join("image")).unwrap().set_len(64 << 20).unwrap();
    make(&device(&dir), &MakeOptions::new([7; 32], Timestamp { seconds: 1, nanoseconds: 0 }))
        .unwrap();
    dir
}

pub(super) fn mounted(dir: &tempfile::TempDir) -> FileSystem {
    let options = MountOptions {
        write: true,
        background: false,
        commit_interval_ms: 0,
        ..MountOptions::default()
    };
    FileSystem::mount(device(dir), &options).unwrap()
}

/// Prepares a file of [`PAGES`] pages, of which [`DIRTY`] are dirty, the last one in part.
fn prepare(fs: &FileSystem) {
    let root = fs.root().unwrap();
    drop(fs.create(&root, OsStr::new("file"), &NEW).unwrap());
    let options = OpenOptions { read: true, write: true, ..OpenOptions::default() };
    let file = fs.open_with("/file", &options).unwrap();
    file.write_at(&vec![1; (PAGES * PAGE) as usize], 0).unwrap();
    file.write_at(&[1; 1000], PAGES * PAGE).unwrap();
    fs.sync().unwrap();
    for page in 1..DIRTY {
        file.write_at(&[2; 4096], page * 7 * PAGE).unwrap();
    }
    file.write_at(&[2; 500], PAGES * PAGE).unwrap();
}

/// Runs `call` beside a thread that makes `change` before each of the call's requests. Returns the
/// number of these.
fn run(what: &str, call: Call, change: Change) -> u64 {
    let dir = new_image();
    let fs = mounted(&dir);
    prepare(&fs);
    let world = Arc::new(World {
        fs,
        allowed: AtomicU64::new(0),
        made: AtomicU64::new(0),
        ended: AtomicBool::new(false),
    });
    let other = {
        let (world, file) = (Arc::clone(&world), world.open());
        std::thread::spawn(move || {
            world.change(&|number| change(&world, &file, number));
        })
    };
    let file = world.open();
    let sent = Rc::new(Cell::new(0));
    let action = {
        let (sent, world, what) = (Rc::clone(&sent), Arc::clone(&world), what.to_owned());
        move || {
            sent.set(sent.get() + 1);
            assert!(sent.get() <= MOST, "{what}: more than {MOST} requests, it may never end");
            world.let_change();
        }
    };
    BESIDE.set(Some(Box::new(action)));
    let called = catch_unwind(AssertUnwindSafe(|| call(&world, &file)));
    BESIDE.set(None);
    world.ended.store(true, Ordering::Release);
    other.join().unwrap();
    if let Err(panic) = called {
        resume_unwind(panic);
    }
    drop(file);
    let world = Arc::into_inner(world).unwrap();
    assert_eq!(world.made.into_inner(), world.allowed.into_inner(), "the other thread went on");
    drop(world.fs.unmount());
    let image = dir.path().join("image");
    if let Ok(said) = Command::new("e2fsck").arg("-fn").arg(&image).output() {
        assert!(said.status.success(), "{what}: {}", String::from_utf8_lossy(&said.stdout));
    }
    sent.get()
}

/// Tests all pairs of a call and a change that another thread makes meanwhile.
#[test]
fn every_call_ends_beside_a_thread_that_never_pauses() {
    for (called, call) in CALLS {
        for (changed, change) in CHANGES {
            let what = format!("{called} beside {changed}");
            let sent = run(&what, call, change);
            println!("{what}: {sent} requests");
        }
    }
}
