//! Directories that one thread lists and searches while another thread adds names.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::sync::atomic::{AtomicBool, Ordering};

use meantime_ext4::{FileSystem, NewNode, Node};

use meantime_testkit::image::{mkfs, mount, run_for, scratch, tools, writable};
use meantime_testkit::setting;

const NEW: NewNode = NewNode { mode: 0o644, uid: 0, gid: 0, umask: 0 };

/// Names that exist from the start: fewer than fill a block.
const STAY: usize = 8;

/// Names that are added: enough for an index, splits of its leaves, and a second level.
const COME: usize = 1200;

/// Lists `dir` and looks its names up until no more are added. Returns how often.
fn look(fs: &FileSystem, dir: &Node, stay: &[OsString], done: &AtomicBool) -> u64 {
    let mut times = 0;
    loop {
        let last = done.load(Ordering::Acquire);
        let mut seen: BTreeMap<OsString, u32> = BTreeMap::new();
        for entry in fs.entries(dir).unwrap() {
            *seen.entry(entry.unwrap().name).or_default() += 1;
        }
        for name in stay {
            assert_eq!(
                seen.get(name),
                Some(&1),
                "{name:?} of {} names, in listing {times}",
                seen.len()
            );
            fs.lookup(dir, name).unwrap();
        }
        times += 1;
        if last {
            return times;
        }
    }
}

#[test]
fn a_directory_grows_while_another_thread_lists_it() {
    if !tools() {
        return;
    }
    let scratch = scratch();
    let image = mkfs(scratch.path(), "threads.img", "64M", &["-b", "1024"]);
    let fs = mount(&image, &writable());
    let root = fs.root().unwrap();
    let file = fs.create(&root, OsStr::new("file"), &NEW).unwrap();
    let stay: Vec<OsString> = (0..STAY).map(|n| format!("stays-{n}").into()).collect();
    let mut listings = 0;
    for round in 0..setting("LIST_ROUNDS").unwrap_or(12) {
        let dir = fs.mkdir(&root, OsStr::new(&format!("d{round}")), &NEW).unwrap();
        for name in &stay {
            fs.link(&file, &dir, name).unwrap();
        }
        let done = AtomicBool::new(false);
        listings += std::thread::scope(|scope| {
            let reader = scope.spawn(|| look(&fs, &dir, &stay, &done));
            for n in 0..COME {
                fs.link(&file, &dir, OsStr::new(&format!("comes-{n}-{}", "c".repeat(n % 150))))
                    .unwrap();
            }
            done.store(true, Ordering::Release);
            reader.join().unwrap()
        });
    }
    println!("{listings} listings");
    fs.unmount().unwrap();
    run_for("e2fsck", &["-fn", image.to_str().unwrap()], &[0]);
}
