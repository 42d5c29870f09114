//! Images whose size is not a multiple of 4096, or not of a block: all whole blocks are accessible,
//! and the file keeps its size.

use std::path::Path;

use meantime_block::{self as block, BlockChannel, BlockDevice, ChannelOptions, Device};
use meantime_completion::Policy;
use meantime_ext4::{FileSystem, MountOptions};

use meantime_testkit::e2fs;
use meantime_testkit::image::{READ_WRITE, clean, run, tools, writable};

/// 1 MiB and 1 KiB, and a partial block.
const BYTES: usize = (1 << 20) + 1024 + 100;
/// The number of whole blocks of 512 bytes.
const BLOCKS: u64 = (BYTES / 512) as u64;

/// A directory on the disk: not every file system supports direct I/O.
fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn open(uri: &str) -> Result<Device, String> {
    block::open(uri, &block::OpenOptions::default()).map_err(|error| error.to_string())
}

/// Both backends for a file, used one after the other.
fn uris(path: &Path) -> [String; 2] {
    let path = path.display();
    [format!("file:{path}?model=null"), format!("kernel:{path}?direct=0")]
}

#[test]
fn the_last_blocks_can_be_read_and_written() {
    let dir = scratch();
    let path = dir.path().join("odd.img");
    let content: Vec<u8> = (0..BYTES).map(|at| (at / 512 + at) as u8).collect();
    std::fs::write(&path, &content).unwrap();
    for (round, uri) in (1..).zip(uris(&path)) {
        let device = open(&uri).unwrap();
        assert_eq!((device.info().block_bytes, device.info().blocks), (512, BLOCKS), "{uri}");
        let options =
            ChannelOptions { policy: Some(Policy::Interrupt), ..ChannelOptions::default() };
        let mut channel = device.channel(&options).unwrap();
        let buf = channel.alloc(2048).unwrap();
        // Beyond the last multiple of 4096.
        let mut buf = channel.read(BLOCKS - 4, buf).unwrap();
        let from = (BLOCKS as usize - 4) * 512;
        if round == 1 {
            assert_eq!(*buf, content[from..from + 2048], "{uri}");
        }
        buf.fill(round);
        let buf = channel.write(BLOCKS - 4, buf).unwrap();
        channel.flush().unwrap();
        drop(buf);
        drop(channel);
        drop(device);
        let after = std::fs::read(&path).unwrap();
        assert_eq!(after.len(), BYTES, "{uri}");
        assert_eq!(after[..from], content[..from], "{uri}");
        assert_eq!(after[from..from + 2048], [round; 2048], "{uri}");
        assert_eq!(after[from + 2048..], content[from + 2048..], "{uri}");
    }
}

#[test]
fn blocks_of_4096_bytes_are_refused_with_advice() {
    let dir = scratch();
    let path = dir.path().join("odd.img");
    std::fs::write(&path, vec![0; BYTES]).unwrap();
    for (uri, advice) in uris(&path).iter().zip(["lba=512", "leave lba out"]) {
        let error = open(&format!("{uri}&lba=4096")).map(drop).unwrap_err();
        assert!(error.contains(advice), "{error}");
    }
    assert_eq!(std::fs::metadata(&path).unwrap().len(), BYTES as u64);
}

/// An ext4 of 1 KiB blocks on such an image is filled to its last block, and checked.
#[test]
fn a_file_system_to_its_last_block() {
    if !tools() {
        return;
    }
    let dir = scratch();
    let tree = dir.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    // 4,097 blocks, so the last is alone after the last multiple of 4096, and the largest file
    // that fits.
    let path = dir.path().join("odd.img");
    let fits = |blocks: usize| {
        std::fs::write(tree.join("all"), vec![0xA5; blocks * 1024]).unwrap();
        let words = ["-qF", "-b1024", "-m0", "-N16", "-Jsize=1", "-O^resize_inode", "-d"];
        let mut mkfs = e2fs::command("mkfs.ext4");
        mkfs.args(words).arg(&tree).arg(&path).arg("4097k");
        mkfs.output().unwrap().status.success()
    };
    let (mut blocks, mut too_many) = (1, 4097);
    while too_many - blocks > 1 {
        let between = usize::midpoint(blocks, too_many);
        *(if fits(between) { &mut blocks } else { &mut too_many }) = between;
    }
    assert!(fits(blocks));
    let bytes = blocks * 1024;
    let last = |byte: u8| {
        let image = std::fs::read(&path).unwrap();
        assert_eq!(image.len(), 4097 * 1024);
        assert!(
            image[4096 * 1024..].iter().all(|found| *found == byte),
            "the file has the last block"
        );
    };
    last(0xA5);
    let fs = FileSystem::mount(open(&uris(&path)[0]).unwrap(), &writable()).unwrap();
    let file = fs.open_with("/all", &READ_WRITE).unwrap();
    assert_eq!(file.write_at(&vec![0x5A; bytes], 0).unwrap(), bytes);
    drop(file);
    fs.unmount().unwrap();
    last(0x5A);
    run("e2fsck", &["-fn", path.to_str().unwrap()]);
    for uri in uris(&path) {
        let policy = Some(Policy::Interrupt);
        let options = MountOptions { policy, ..MountOptions::default() };
        let fs = FileSystem::mount(open(&uri).unwrap(), &options).unwrap();
        let mut content = vec![0; bytes];
        assert_eq!(fs.open("/all").unwrap().read_at(&mut content, 0).unwrap(), bytes, "{uri}");
        assert!(content.iter().all(|byte| *byte == 0x5A), "{uri}");
        clean(&fs, &uri);
    }
}
