//! Looking for damage: images as mkfs.ext4 makes them have none, and whatever bytes are changed, the check ends without a panic.

use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use meantime::ext4::check::{Checker, Event, Finding, Summary};
use meantime::ext4::format::{Source, SourceError, Volume, VolumeOptions};

/// An image in memory.
struct Image(Vec<u8>);

impl Source for Image {
    fn read(&self, offset: u64, bytes: usize) -> Result<Arc<[u8]>, SourceError> {
        let from = usize::try_from(offset).map_err(|_| SourceError::OutOfRange)?;
        let end = from.checked_add(bytes).ok_or(SourceError::OutOfRange)?;
        self.0.get(from..end).map(Arc::from).ok_or(SourceError::OutOfRange)
    }
}

fn tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(usual).map(|dir| dir.join(name)).find(|file| file.is_file())
}

/// An image of `mib` MiB with a few of everything; nothing without e2fsprogs.
fn image(mib: u32, options: &[&str]) -> Option<Vec<u8>> {
    let (Some(mkfs), Some(e2fsck)) = (tool("mkfs.ext4"), tool("e2fsck")) else {
        println!("skipped: no e2fsprogs here");
        return None;
    };
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (tree, file) = (dir.path().join("tree"), dir.path().join("disk.img"));
    std::fs::create_dir_all(tree.join("many/deep")).unwrap();
    for n in 0..200 {
        std::fs::write(tree.join(format!("many/a-rather-long-name-{n}")), vec![n as u8; n * 37]).unwrap();
    }
    let holes = std::fs::File::create(tree.join("holes")).unwrap();
    for n in 0..24 {
        std::os::unix::fs::FileExt::write_all_at(&holes, b"x", n * 65_536).unwrap();
    }
    std::os::unix::fs::symlink("y".repeat(300), tree.join("link")).unwrap();
    std::fs::hard_link(tree.join("holes"), tree.join("many/deep/holes")).unwrap();
    let run = |tool: &Path, args: &[&OsStr]| {
        let output = Command::new(tool).args(args).output().unwrap();
        assert!(output.status.code().unwrap_or(9) <= 1, "{options:?}: {output:?}");
    };
    let size = format!("{mib}M");
    let words: Vec<&OsStr> = ["-q", "-F"].iter().chain(options).map(OsStr::new).collect();
    run(&mkfs, &[&words, &["-d".as_ref(), tree.as_os_str(), file.as_ref(), size.as_ref()][..]].concat());
    run(&e2fsck, &["-fyD".as_ref(), file.as_ref()]);
    Some(std::fs::read(&file).unwrap())
}

/// What is found in `bytes`; nothing if they cannot be opened.
fn check(bytes: Vec<u8>) -> Option<(Summary, Vec<Finding>)> {
    let length = bytes.len() as u64;
    let volume = Volume::open(Image(bytes), length, VolumeOptions::default()).ok()?;
    let mut findings = Vec::new();
    let mut watch = |event: Event<'_>| {
        if let Event::Found(finding) = event {
            findings.push(finding.clone());
        }
        ControlFlow::Continue(())
    };
    let summary = Checker::new(&volume, &mut watch).ok()?.run().ok()?;
    Some((summary, findings))
}

#[test]
fn what_is_whole_is_clean() {
    for (mib, options) in [
        (32, &[][..]),
        (16, &["-b", "1024"]),
        (32, &["-b", "2048", "-O", "^metadata_csum,^64bit"]),
        (32, &["-t", "ext2"]),
        (32, &["-t", "ext3"]),
        (64, &["-O", "bigalloc", "-C", "16384"]),
        (64, &["-O", "bigalloc", "-C", "16384", "-b", "1024"]),
        (64, &["-O", "^resize_inode,meta_bg", "-b", "1024"]),
        (32, &["-O", "inline_data"]),
        (32, &["-O", "metadata_csum_seed,orphan_file"]),
        (32, &["-O", "quota,project"]),
        (32, &["-O", "sparse_super2", "-b", "1024"]),
        (32, &["-O", "^has_journal,^flex_bg", "-b", "1024"]),
        (32, &["-O", "uninit_bg,^metadata_csum", "-b", "1024"]),
        (32, &["-I", "128"]),
        (32, &["-O", "mmp"]),
        (32, &["-O", "large_dir,ea_inode"]),
        (128, &["-b", "65536"]),
    ] {
        let Some(bytes) = image(mib, options) else { return };
        let (summary, findings) = check(bytes).unwrap_or_else(|| panic!("{options:?} cannot be opened"));
        assert!(findings.is_empty() && summary.complete, "{options:?}: {findings:#?}");
        assert!(summary.directories >= 4 && summary.files >= 201 && summary.symlinks == 1, "{summary:?}");
    }
}

#[test]
fn whoever_watches_can_end_it() {
    let Some(bytes) = image(16, &["-b", "1024"]) else { return };
    let length = bytes.len() as u64;
    let volume = Volume::open(Image(bytes), length, VolumeOptions::default())
        .unwrap_or_else(|_| panic!("it is sound"));
    let mut told = 0;
    let mut watch = |_: Event<'_>| {
        told += 1;
        ControlFlow::Break(())
    };
    let summary = Checker::new(&volume, &mut watch).unwrap().run().unwrap();
    assert!(!summary.complete && told == 1, "{summary:?}, told {told} times");
}

/// Without checksums changed bytes reach the code behind them.
#[test]
fn changed_bytes_are_no_panic() {
    for (options, rounds) in [
        (&["-b", "1024", "-O", "^metadata_csum"][..], 150),
        (&["-t", "ext3", "-b", "1024"], 100),
        (&["-b", "1024"], 50),
    ] {
        let Some(whole) = image(8, &[options, &["-J", "size=1"]].concat()) else { return };
        // Where anything is: changes elsewhere change nothing.
        let places: Vec<usize> = (0..whole.len()).filter(|at| whole[*at] != 0).collect();
        let mut state = 0x6d65_616e_u64;
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize
        };
        let mut found = 0;
        for _ in 0..rounds {
            let mut bytes = whole.clone();
            for _ in 0..1 + random() % 40 {
                let at = places[random() % places.len()];
                bytes[at] = random() as u8;
            }
            found += check(bytes).map_or(0, |(_, findings)| usize::from(!findings.is_empty()));
        }
        assert!(found > rounds / 10, "{options:?}: {found} of {rounds}");
    }
}
