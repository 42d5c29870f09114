//! Many dirty files: a sync writes them back together, with the same result as one by one.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use meantime_block::{self as block, BlockChannel, BlockDevice, ChannelOptions, Request};
use meantime_ext4::{
    Error, FileDevice, FileDeviceOptions, FileSystem, MountOptions, NewNode, Node,
};
use meantime_testkit::Rng;
use meantime_testkit::image::{self, READ_WRITE, mkfs, run_for, scratch, tools};

const NEW: NewNode = NewNode { mode: 0o644, uid: 0, gid: 0, umask: 0 };

fn mount(image: &Path) -> FileSystem {
    image::mount(image, &MountOptions { cache_bytes: 16 << 20, ..image::writable() })
}

fn make(fs: &FileSystem, dir: &Node, name: &str) -> Node {
    fs.create(dir, OsStr::new(name), &NEW).unwrap()
}

fn write(fs: &FileSystem, node: &Node, data: &[u8], offset: u64) -> Result<usize, Error> {
    fs.open_node_with(node, &READ_WRITE)?.write_at(data, offset)
}

fn name(number: usize) -> String {
    format!("name-{number}")
}

/// Checks that each file contains its entry of `contents`.
fn compare(fs: &FileSystem, contents: &[Vec<u8>], what: &str) {
    for (number, content) in contents.iter().enumerate() {
        let file = fs.open(format!("/{}", name(number))).unwrap();
        let mut found = vec![0xEE; content.len() + 1];
        let len = file.read_at(&mut found, 0).unwrap();
        assert!(found[..len] == content[..], "{what}: {}, {len} bytes", name(number));
    }
}

/// Checks what a power cut now would leave of `image`: the device has no volatile cache.
fn compare_cut(image: &Path, contents: &[Vec<u8>], what: &str) {
    let copy = image.with_extension("copy");
    std::fs::copy(image, &copy).unwrap();
    let fs = image::mount(&copy, &MountOptions::default());
    compare(&fs, contents, what);
    drop(fs);
    run_for("e2fsck", &["-fy", copy.to_str().unwrap()], &[0, 1]);
    run_for("e2fsck", &["-fn", copy.to_str().unwrap()], &[0]);
}

/// New files, some in several pieces, growing files and files overwritten in place, with a journal
/// that has room for a few of them at a time, or for all.
#[test]
fn a_sync_writes_back_all_files() {
    const FILES: usize = 600;
    if !tools() {
        return;
    }
    let kinds = [("1024", "size=1"), ("4096", "size=4"), ("4096", "size=32"), ("16384", "size=16")];
    for (block, journal) in kinds {
        let dir = scratch();
        let image = mkfs(dir.path(), "image", "96M", &["-b", block, "-J", journal, "-N", "4000"]);
        let fs = mount(&image);
        let root = fs.root().unwrap();
        let mut random = Rng::new(7);
        let nodes: Vec<Node> = (0..FILES).map(|number| make(&fs, &root, &name(number))).collect();
        let mut contents = vec![Vec::new(); FILES];
        for round in 0..4 {
            for (node, content) in nodes.iter().zip(&mut contents) {
                if round > 0 && random.one_in(3) {
                    continue;
                }
                let (begin, len) = match random.below(20) {
                    0 => (random.below(300_000), 1 + random.below(30_000)),
                    1..4 => (random.below(20_000), 1 + random.below(9000)),
                    _ => (random.below(content.len() as u64 + 1), 1 + random.below(3000)),
                };
                let data = vec![1 + random.below(255) as u8; len as usize];
                assert_eq!(write(&fs, node, &data, begin), Ok(data.len()));
                let end = begin as usize + data.len();
                content.resize(content.len().max(end), 0);
                content[begin as usize..end].copy_from_slice(&data);
            }
            fs.sync().unwrap();
            let what = format!("blocks of {block}, journal {journal}, round {round}");
            compare_cut(&image, &contents, &what);
        }
        drop((nodes, root));
        fs.unmount().unwrap();
        run_for("e2fsck", &["-fn", image.to_str().unwrap()], &[0]);
        let fs = mount(&image);
        compare(&fs, &contents, "mounted again");
        fs.unmount().unwrap();
    }
}

/// Creates and writes files until there is no space. All written data are kept.
#[test]
fn a_full_disk_has_all_that_was_written() {
    if !tools() {
        return;
    }
    for (block, journal) in [("1024", "size=1"), ("4096", "size=4")] {
        let dir = scratch();
        let image = mkfs(
            dir.path(),
            "image",
            "20M",
            &["-b", block, "-J", journal, "-N", "4000", "-m", "0"],
        );
        let fs = mount(&image);
        let root = fs.root().unwrap();
        let mut contents: Vec<Vec<u8>> = Vec::new();
        for turn in 0..3 {
            loop {
                let data = vec![1 + (contents.len() % 255) as u8; 9000];
                let node = match fs.create(&root, OsStr::new(&name(contents.len())), &NEW) {
                    Ok(node) => node,
                    Err(error) => {
                        assert_eq!(error, Error::NoSpace);
                        break;
                    }
                };
                let len = match write(&fs, &node, &data, 0) {
                    Ok(len) => len,
                    Err(error) => {
                        assert_eq!(error, Error::NoSpace);
                        0
                    }
                };
                contents.push(data[..len].to_vec());
                if len < data.len() {
                    break;
                }
            }
            assert!(contents.len() > 1000, "{} files", contents.len());
            fs.sync().unwrap();
            compare_cut(&image, &contents, &format!("turn {turn}, blocks of {block}"));
            // Frees some blocks, which can be reused after a commit.
            for _ in 0..100 {
                let last = contents.len() - 1;
                fs.unlink(&root, OsStr::new(&name(last))).unwrap();
                contents.pop();
            }
        }
        drop(root);
        fs.unmount().unwrap();
        run_for("e2fsck", &["-fn", image.to_str().unwrap()], &[0]);
    }
}

/// A failed write affects one file, even if other files' blocks were in the same request: that
/// file's next sync reports it once, and the others are on the device.
#[test]
fn a_failed_write_is_one_files() {
    const FILES: usize = 200;
    if !tools() {
        return;
    }
    let dir = scratch();
    let image = mkfs(dir.path(), "image", "64M", &["-b", "4096"]);
    let fs = mount(&image);
    let root = fs.root().unwrap();
    let mut contents: Vec<Vec<u8>> = (0..FILES).map(|_| vec![1; 4096]).collect();
    let mut places = Vec::new();
    for (number, content) in contents.iter().enumerate() {
        write(&fs, &make(&fs, &root, &name(number)), content, 0).unwrap();
    }
    fs.sync().unwrap();
    for number in 0..FILES {
        let file = fs.open(format!("/{}", name(number))).unwrap();
        places.push(file.extents(0..4096).unwrap()[0].place);
    }
    assert!(places.windows(2).filter(|two| two[0] + 4096 == two[1]).count() > FILES / 2);
    drop(root);
    fs.unmount().unwrap();

    let bad = [17, 18, 90];
    let rules: Vec<String> = bad
        .iter()
        .map(|number| {
            let (first, last) = (places[*number] / 512, places[*number] / 512 + 7);
            format!(
                "[[fault]]\nfault = \"status\"\nstatus = \"write-fault\"\ndnr = true\n\
                 opcode = \"write\"\nlba = \"{first}-{last}\"\n"
            )
        })
        .collect();
    let plan = dir.path().join("faults.toml");
    std::fs::write(&plan, rules.concat()).unwrap();
    let uri = format!("file:{}?model=null&lba=512&faults={}", image.display(), plan.display());
    let device = block::open(&uri, &block::OpenOptions::default()).unwrap();
    let options = MountOptions { cache_bytes: 16 << 20, ..image::writable() };
    let fs = FileSystem::mount(device, &options).unwrap();
    let files: Vec<_> = (0..FILES)
        .map(|number| fs.open_with(format!("/{}", name(number)), &READ_WRITE).unwrap())
        .collect();
    for (number, file) in files.iter().enumerate() {
        contents[number] = vec![2 + (number % 200) as u8; 4096];
        file.write_at(&contents[number], 0).unwrap();
    }
    assert!(matches!(fs.sync(), Err(Error::Io { .. })), "three of them");
    let copy = dir.path().join("copy");
    std::fs::copy(&image, &copy).unwrap();
    let cut = image::mount(&copy, &MountOptions::default());
    for (number, file) in files.iter().enumerate() {
        let is_bad = bad.contains(&number);
        let mut found = vec![0; 4096];
        let on_device = cut.open(format!("/{}", name(number))).unwrap();
        on_device.read_at(&mut found, 0).unwrap();
        assert_eq!(found == contents[number], !is_bad, "{number}");
        let told = file.sync_all();
        assert_eq!(matches!(told, Err(Error::Io { .. })), is_bad, "{number}: {told:?}");
    }
    drop((cut, files));
    assert!(fs.unmount().is_err(), "they are dirty still");
}

/// Threads write, truncate, sync and delete their own files while other threads sync everything.
#[test]
fn syncs_of_all_beside_changes_of_each() {
    const FILES: usize = 40;
    const TURNS: u64 = 1500;
    if !tools() {
        return;
    }
    for background in [false, true] {
        let dir = scratch();
        let image = mkfs(dir.path(), "image", "128M", &["-b", "4096", "-J", "size=4"]);
        let options = MountOptions {
            cache_bytes: 8 << 20,
            background,
            commit_interval_ms: 20,
            ..image::writable()
        };
        let fs = image::mount(&image, &options);
        let root = fs.root().unwrap();
        let stop = AtomicBool::new(false);
        let work = |thread: u64| {
            let mut random = Rng::new(thread + 1);
            let mut contents: Vec<Option<Vec<u8>>> = vec![None; FILES];
            let own = |number: usize| format!("of-{thread}-{number}");
            for _ in 0..TURNS {
                let number = random.below(FILES as u64) as usize;
                let Some(content) = &mut contents[number] else {
                    make(&fs, &root, &own(number));
                    contents[number] = Some(Vec::new());
                    continue;
                };
                let node = fs.lookup(&root, OsStr::new(&own(number))).unwrap();
                let file = fs.open_node_with(&node, &READ_WRITE).unwrap();
                match random.below(12) {
                    0 => {
                        let size = random.below(content.len() as u64 + 5000);
                        file.set_len(size).unwrap();
                        content.resize(size as usize, 0);
                    }
                    1 => file.sync_all().unwrap(),
                    2 => {
                        drop((file, node));
                        fs.unlink(&root, OsStr::new(&own(number))).unwrap();
                        contents[number] = None;
                    }
                    _ => {
                        let begin = random.below(content.len() as u64 + 5000);
                        let data = vec![random.below(256) as u8; 1 + random.below(9000) as usize];
                        assert_eq!(file.write_at(&data, begin), Ok(data.len()));
                        let end = begin as usize + data.len();
                        content.resize(content.len().max(end), 0);
                        content[begin as usize..end].copy_from_slice(&data);
                    }
                }
            }
            contents
        };
        let all: Vec<_> = thread::scope(|scope| {
            let syncs: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        while !stop.load(Ordering::Relaxed) {
                            fs.sync().unwrap();
                        }
                    })
                })
                .collect();
            let workers: Vec<_> = (0..3).map(|thread| scope.spawn(move || work(thread))).collect();
            let all = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
            stop.store(true, Ordering::Relaxed);
            syncs.into_iter().for_each(|sync| sync.join().unwrap());
            all
        });
        let compare = |fs: &FileSystem| {
            for (thread, contents) in all.iter().enumerate() {
                for (number, content) in contents.iter().enumerate() {
                    let path = format!("/of-{thread}-{number}");
                    let Some(content) = content else {
                        assert_eq!(fs.metadata(&path).map(drop), Err(Error::NotFound), "{path}");
                        continue;
                    };
                    let mut found = vec![0xEE; content.len() + 1];
                    let len = fs.open(&path).unwrap().read_at(&mut found, 0).unwrap();
                    assert!(found[..len] == content[..], "{path}");
                }
            }
        };
        compare(&fs);
        drop(root);
        fs.unmount().unwrap();
        run_for("e2fsck", &["-fn", image.to_str().unwrap()], &[0]);
        let fs = mount(&image);
        compare(&fs);
        fs.unmount().unwrap();
    }
}

/// More threads than channels make changes durable.
#[test]
fn threads_that_outnumber_the_channels() {
    if !tools() {
        return;
    }
    let dir = scratch();
    let image = mkfs(dir.path(), "image", "64M", &[]);
    let fs = image::mount(&image, &MountOptions { channels: 1, ..image::writable() });
    let root = fs.root().unwrap();
    thread::scope(|scope| {
        for number in 0..8 {
            let (fs, root) = (&fs, &root);
            scope.spawn(move || {
                let node = make(fs, root, &name(number));
                let file = fs.open_node_with(&node, &READ_WRITE).unwrap();
                for turn in 0..60u8 {
                    file.append(&[number as u8 ^ turn; 5000]).unwrap();
                    if turn % 2 == 0 { file.sync_all() } else { fs.sync() }.unwrap();
                }
            });
        }
    });
    let contents: Vec<Vec<u8>> = (0..8)
        .map(|number: u8| (0..60).flat_map(|turn: u8| [number ^ turn; 5000]).collect())
        .collect();
    compare_cut(&image, &contents, "threads");
    fs.unmount().unwrap();
}

/// A file as a device executes a request when it is waited for, when the slot of a dropped ticket
/// is needed, or when its channel ends.
#[test]
fn writes_of_a_file_as_a_device_are_done_without_their_tickets() {
    if !tools() {
        return;
    }
    let dir = scratch();
    let fs = mount(&mkfs(dir.path(), "image", "16M", &[]));
    let node = make(&fs, &fs.root().unwrap(), "file");
    let file = fs.open_node_with(&node, &READ_WRITE).unwrap();
    let options =
        FileDeviceOptions { least_bytes: 64 << 10, block_bytes: 4096, ..Default::default() };
    let device = FileDevice::new(file, options).unwrap();
    let options = ChannelOptions { depth: 2, ..ChannelOptions::default() };
    let (mut channel, mut other) =
        (device.channel(&options).unwrap(), device.channel(&options).unwrap());
    for lba in 0..8 {
        for (channel, at) in [(&mut channel, lba), (&mut other, lba + 8)] {
            let mut buf = channel.alloc(4096).unwrap();
            buf.fill(at as u8 + 1);
            let ticket = channel.submit(Request::write(at, buf)).expect("a dropped ticket's slot");
            if lba == 6 { channel.detach(ticket) } else { drop(ticket) }
        }
    }
    drop((channel, other));
    let mut found = vec![0; 16 * 4096];
    device.channel(&options).unwrap().read_at(&mut found, 0).unwrap();
    for (at, block) in found.chunks(4096).enumerate() {
        assert!(block.iter().all(|byte| *byte == at as u8 + 1), "block {at}");
    }
}
