//! Tests that e2fsck finds no defects in the file systems made.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use super::{Content, Layout, MakeOptions};
use crate::Timestamp;

/// Writes the file system to a file whose written parts contained garbage before (the rest is a
/// hole).
fn write(layout: &Layout, path: &Path) {
    let file = std::fs::File::create(path).unwrap();
    file.set_len(layout.bytes()).unwrap();
    let block_bytes = u64::from(layout.superblock_of().block_bytes());
    let put = |block: u64, content: Content<'_>| match content {
        Content::Bytes(bytes) => {
            assert!((bytes.len() as u64).is_multiple_of(block_bytes));
            file.write_all_at(bytes, block * block_bytes)
        }
        Content::Zeroes(_) => Ok(()),
    };
    layout.write(put).unwrap();
    let (block, content) = layout.primary();
    file.write_all_at(&content, block * block_bytes).unwrap();
}

fn options() -> MakeOptions {
    let random = std::array::from_fn(|index| index as u8 * 7 + 3);
    MakeOptions::new(random, Timestamp { seconds: 1_700_000_000, nanoseconds: 5 })
}

fn check(options: &MakeOptions, bytes: u64) {
    if Command::new("e2fsck").arg("-V").output().is_err() {
        println!("skipped: e2fsprogs are not installed");
        return;
    }
    let layout = Layout::new(options, bytes, 512).unwrap_or_else(|why| panic!("{bytes}: {why}"));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    write(&layout, &path);
    let output = Command::new("e2fsck").arg("-fn").arg(&path).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = text
        .lines()
        .filter(|line| {
            !line.starts_with("Pass ") && !line.trim().is_empty() && !line.contains(" files (")
        })
        .count();
    assert!(output.status.success() && said == 0, "{bytes} {options:?}: {text}");
}

#[test]
fn sizes_from_8_mib_to_64_gib() {
    for mib in [8, 9, 16, 31, 64, 100, 129, 511, 512, 513, 1000, 3333, 16_384, 65_536] {
        check(&options(), mib << 20);
    }
    // The last groups have various lengths.
    for blocks in (40_000..60_000).step_by(1234) {
        check(&options(), blocks << 10);
    }
}

#[test]
fn blocks_and_features_of_all_kinds() {
    for block_bytes in [1024, 2048, 4096, 8192, 16_384, 32_768, 65_536] {
        for (odd, mib) in [(false, 300), (true, 1500)] {
            let mut options = options();
            options.block_bytes = Some(block_bytes);
            options.bit64 = !odd;
            options.checksum_seed = odd;
            options.orphan_file = odd;
            options.fast_commit = odd;
            options.zero_inode_tables = odd;
            options.journal_bytes = odd.then_some(1100 * u64::from(block_bytes));
            options.inode_bytes = if odd { 512 } else { 128 };
            options.bytes_per_inode = odd.then_some(2 * u64::from(block_bytes));
            options.label = b"a label".to_vec();
            check(&options, mib << 20);
        }
    }
}

#[test]
fn invalid_options_are_refused() {
    let refusal = |change: &dyn Fn(&mut MakeOptions), bytes| {
        let mut options = options();
        change(&mut options);
        Layout::new(&options, bytes, 512).unwrap_err().0
    };
    assert!(refusal(&|_| {}, 100 << 10).contains("too small"));
    assert!(refusal(&|_| {}, 1500 << 10).contains("too small"));
    assert!(refusal(&|options| options.block_bytes = Some(3000), 1 << 30).contains("a block has"));
    assert!(refusal(&|options| options.inode_bytes = 8192, 1 << 30).contains("an inode has"));
    assert!(refusal(&|options| options.bytes_per_inode = Some(100), 1 << 30).contains("1024"));
    assert!(
        refusal(&|options| options.journal_bytes = Some(100), 1 << 30).contains("a journal has")
    );
    assert!(refusal(&|options| options.journal_bytes = Some(1 << 30), 1 << 30).contains("half"));
    assert!(refusal(&|options| options.label = vec![b'x'; 17], 1 << 30).contains("label"));
    assert!(refusal(&|_| {}, 1 << 45).contains("2^32"));
    let layout = Layout::new(&options(), 1 << 30, 4096).unwrap();
    assert_eq!(layout.superblock_of().block_bytes(), 4096);
    assert!(
        Layout::new(&MakeOptions { block_bytes: Some(1024), ..options() }, 1 << 30, 4096).is_err()
    );
}
