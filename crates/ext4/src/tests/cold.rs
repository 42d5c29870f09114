//! Tests that a change that waits for metadata from the device holds up no other change. Before
//! each request of a change whose metadata are not in memory, another thread makes one whose
//! metadata are.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::busy::{BESIDE, mounted, new_image};
use crate::fs::FileSystem;
use crate::options::OpenOptions;

/// This is long enough for a change in memory on a machine that does other things.
const PATIENCE: Duration = Duration::from_secs(10);

/// Files before those that are changed, so that these are in blocks of their own.
const BETWEEN: u32 = 64;

fn write(fs: &FileSystem, path: &str, bytes: usize) {
    let options = OpenOptions {
        read: true,
        write: true,
        create: true,
        mode: 0o644,
        ..OpenOptions::default()
    };
    let file = fs.open_with(path, &options).unwrap();
    file.write_at(&vec![1; bytes], 0).unwrap();
}

/// A change in directory `/cold`.
type Change = fn(&FileSystem);

const CHANGES: [(&str, Change); 8] = [
    ("create", |fs| write(fs, "/cold/new", 0)),
    ("mkdir", |fs| fs.create_dir("/cold/new").unwrap()),
    ("unlink", |fs| fs.remove_file("/cold/file").unwrap()),
    ("rmdir", |fs| fs.remove_dir("/cold/empty").unwrap()),
    ("symlink", |fs| fs.symlink("x".repeat(200), "/cold/new").unwrap()),
    ("rename", |fs| fs.rename("/cold/file", "/cold/empty/file").unwrap()),
    ("chmod", |fs| fs.set_permissions("/cold/file", 0o600).unwrap()),
    ("write back", |fs| {
        write(fs, "/cold/file", 200_000);
        fs.sync().unwrap();
    }),
];

/// Makes `change`, and the other thread's change before each of its requests. Returns the number of
/// requests.
fn run(what: &str, change: Change) -> u64 {
    let dir = new_image();
    let fs = mounted(&dir);
    fs.create_dir("/warm").unwrap();
    fs.create_dir("/cold").unwrap();
    (0..BETWEEN).for_each(|number| write(&fs, &format!("/cold/{number}"), 0));
    fs.create_dir("/cold/empty").unwrap();
    write(&fs, "/cold/file", 100_000);
    fs.unmount().unwrap();
    let fs = Arc::new(mounted(&dir));
    write(&fs, "/warm/first", 0);
    let (allowed, made) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let ended = Arc::new(AtomicBool::new(false));
    let other = {
        let (fs, allowed, made) = (Arc::clone(&fs), Arc::clone(&allowed), Arc::clone(&made));
        let ended = Arc::clone(&ended);
        std::thread::spawn(move || {
            while !ended.load(Ordering::Acquire) {
                let number = made.load(Ordering::Relaxed);
                if number < allowed.load(Ordering::Acquire) {
                    write(&fs, &format!("/warm/{number}"), 0);
                    made.store(number + 1, Ordering::Release);
                }
                std::thread::yield_now();
            }
        })
    };
    let action = {
        let (allowed, made, what) = (Arc::clone(&allowed), Arc::clone(&made), what.to_owned());
        move || {
            let sent = allowed.fetch_add(1, Ordering::AcqRel);
            let until = Instant::now() + PATIENCE;
            while made.load(Ordering::Acquire) <= sent {
                assert!(Instant::now() < until, "{what}: request {sent} holds up other changes");
                std::thread::yield_now();
            }
        }
    };
    BESIDE.set(Some(Box::new(action)));
    change(&fs);
    BESIDE.set(None);
    ended.store(true, Ordering::Release);
    other.join().unwrap();
    Arc::into_inner(fs).unwrap().unmount().unwrap();
    allowed.load(Ordering::Relaxed)
}

#[test]
fn a_change_that_waits_for_metadata_holds_up_no_other() {
    for (what, change) in CHANGES {
        let requests = run(what, change);
        println!("{what}: {requests} requests");
        assert!(requests > 0, "{what}: its metadata were in memory");
    }
}
