//! The format layer compared with e2fsprogs: images by mkfs.ext4 and debugfs, and what dumpe2fs and
//! debugfs report of them.

mod damage;

use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use meantime_ext4::format::{Error, ROOT_INO, Run, RunState, Volume};
use meantime_ext4::{Corruption, Defect, FileType};
use meantime_testkit::image::{self, Image, Mounted, debugfs_write, open, run, tools, try_open};
use tempfile::TempDir;

fn debugfs(image: &Path, request: &str) -> String {
    run("debugfs", &["-R", request, image.to_str().unwrap()])
}

/// Bytes without repetition.
pub(crate) fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..bytes.div_ceil(8)).flat_map(|_| next().to_le_bytes()).take(bytes).collect()
}

fn write_at(path: &Path, offset: u64, bytes: &[u8]) {
    let mut file =
        std::fs::OpenOptions::new().write(true).create(true).truncate(false).open(path).unwrap();
    file.seek(SeekFrom::Start(offset)).unwrap();
    file.write_all(bytes).unwrap();
}

/// A tree of files for images: empty, tiny, large, sparse.
fn tree(dir: &Path) -> PathBuf {
    let root = dir.join("tree");
    std::fs::create_dir_all(root.join("sub/deeper")).unwrap();
    std::fs::write(root.join("empty"), b"").unwrap();
    std::fs::write(root.join("tiny"), b"tiny content").unwrap();
    std::fs::write(root.join("middle"), noise(5, 100)).unwrap();
    std::fs::write(root.join("small"), noise(1, 150)).unwrap();
    std::fs::write(root.join("sub/large"), noise(2, 3_000_001)).unwrap();
    write_at(&root.join("sub/deeper/sparse"), 1 << 20, &noise(3, 70_000));
    write_at(&root.join("sub/deeper/sparse"), 5 << 20, &noise(4, 1));
    root
}

fn mkfs(dir: &Path, name: &str, args: &[&str], size: &str, tree: Option<&Path>) -> PathBuf {
    let mut all = vec!["-E", "lazy_itable_init=0,nodiscard"];
    all.extend(args);
    if let Some(tree) = tree {
        all.extend(["-d", tree.to_str().unwrap()]);
    }
    image::mkfs(dir, name, size, &all)
}

/// The inode number that debugfs reports for `path`.
fn ino(image: &Path, path: &str) -> u32 {
    let stat = debugfs(image, &format!("stat {path}"));
    stat.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// The content of inode `ino`, run by run. Checks it against the whole map.
fn content(volume: &Volume<Image>, ino: u32) -> Vec<u8> {
    let inode = volume.inode(ino).unwrap();
    if let Some(data) = volume.inline_data(&inode).unwrap() {
        return data;
    }
    let map = volume.extent_map(&inode).unwrap();
    assert!(map.is_complete());
    let block_bytes = volume.block_bytes() as u64;
    let mut found = Vec::new();
    let mut logical = 0;
    while logical * block_bytes < inode.size() {
        let run = volume.run_at(&inode, logical).unwrap();
        let mapped = map.run_at(logical).unwrap();
        assert_eq!(
            (mapped.physical, mapped.state),
            (run.physical, run.state),
            "inode {ino} block {logical}"
        );
        assert!(run.blocks > 0 && mapped.blocks > 0);
        for block in 0..run.blocks.min(inode.size().div_ceil(block_bytes) - logical) {
            match run.state {
                RunState::Written => found.extend(&volume.block(run.physical + block).unwrap()[..]),
                _ => found.resize(found.len() + block_bytes as usize, 0),
            }
        }
        logical += run.blocks;
    }
    found.truncate(usize::try_from(inode.size()).unwrap());
    found
}

/// Checks what is the same in every image that contains [`tree`].
fn check_tree(image: &Path, tree: &Path) {
    let volume = open(image);
    for path in ["empty", "tiny", "middle", "small", "sub/large", "sub/deeper/sparse"] {
        let ino = ino(image, path);
        assert_eq!(
            content(&volume, ino),
            std::fs::read(tree.join(path)).unwrap(),
            "{path} in {}",
            image.display()
        );
        let metadata = volume.metadata(&volume.linked_inode(ino).unwrap());
        assert_eq!(metadata.file_type, FileType::Regular);
        let stat = debugfs(image, &format!("stat {path}"));
        let field = |name: &str| -> u64 {
            let rest = stat.split(name).nth(1).unwrap_or_else(|| panic!("{name} in {stat}"));
            rest.split_whitespace().next().unwrap().parse().unwrap()
        };
        assert_eq!(u64::from(metadata.generation), field("Generation:"));
        assert_eq!(metadata.size, field("Size:"));
        assert_eq!(u64::from(metadata.links), field("Links:"));
        if !volume.inode(ino).unwrap().is_inline() {
            assert_eq!(metadata.blocks_512, field("Blockcount:"));
        }
    }
    let root = volume.linked_inode(ROOT_INO).unwrap();
    assert_eq!(root.file_type(), FileType::Directory);
    // Every inode and group can be read, and debugfs agrees on which are in use.
    let superblock = volume.superblock();
    let mut directories = 0;
    for number in 0..superblock.groups() {
        let group = volume.group(number).unwrap();
        let used = volume.inode_bitmap(number).unwrap();
        volume.block_bitmap(number).unwrap();
        for index in 0..superblock.inodes_per_group() {
            let ino = number * superblock.inodes_per_group() + index + 1;
            let inode = volume.inode(ino).unwrap();
            let in_use =
                used.as_ref().is_some_and(|used| used[index as usize / 8] >> (index % 8) & 1 != 0);
            if ino >= superblock.first_ino() {
                assert_eq!(in_use, !inode.is_free(), "inode {ino}");
            }
            directories +=
                u32::from(in_use && !inode.is_free() && inode.file_type() == FileType::Directory);
        }
        directories -= group.directories;
    }
    assert_eq!(directories, 0);
    check_dumpe2fs(image, &volume);
}

/// Compares the superblock and the groups with dumpe2fs.
fn check_dumpe2fs(image: &Path, volume: &Volume<Image>) {
    let dump = run("dumpe2fs", &[image.to_str().unwrap()]);
    let field = |name: &str| {
        let line =
            dump.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name}"));
        line.split_once(':').unwrap().1.trim().to_owned()
    };
    let (info, usage) = (volume.info(), volume.usage().unwrap());
    assert_eq!(info.features.join(" "), field("Filesystem features"));
    assert_eq!(info.blocks.to_string(), field("Block count"));
    assert_eq!(info.inodes.to_string(), field("Inode count"));
    assert_eq!(usage.free_blocks.to_string(), field("Free blocks"));
    assert_eq!(usage.free_inodes.to_string(), field("Free inodes"));
    assert_eq!(info.block_bytes.to_string(), field("Block size"));
    assert_eq!(info.inode_bytes.to_string(), field("Inode size"));
    let hex: String = info.uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, field("Filesystem UUID").replace('-', ""));
    assert!(info.clean && !info.errors);
    let overhead = dump.lines().find(|line| line.starts_with("Overhead clusters:"));
    if let Some(overhead) = overhead {
        let overhead: u64 = overhead.split_once(':').unwrap().1.trim().parse().unwrap();
        assert_eq!(
            info.blocks - usage.blocks,
            overhead * u64::from(volume.superblock().cluster_blocks())
        );
    }
    let mut bitmaps = dump.lines().filter_map(|line| line.trim().strip_prefix("Block bitmap at "));
    for number in 0..info.groups {
        let line = bitmaps.next().unwrap();
        let at: u64 = line.split([' ', ',']).next().unwrap().parse().unwrap();
        assert_eq!(volume.group(number).unwrap().block_bitmap, at, "group {number}");
    }
    assert_eq!(bitmaps.next(), None);
}

#[test]
fn images_of_all_block_sizes_and_features_read_as_they_were_made() {
    if !tools() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let tree = tree(dir.path());
    let shapes: &[(&str, &[&str], &str)] = &[
        ("default", &[], "64M"),
        ("b1024", &["-b", "1024"], "40M"),
        ("b2048", &["-b", "2048"], "40M"),
        ("b8192", &["-b", "8192"], "64M"),
        ("b16384", &["-b", "16384"], "64M"),
        ("b32768", &["-b", "32768"], "96M"),
        ("b65536", &["-b", "65536"], "128M"),
        ("inode128", &["-I", "128"], "40M"),
        ("inode1024", &["-I", "1024"], "40M"),
        ("nocsum", &["-O", "^metadata_csum"], "40M"),
        ("uninit", &["-O", "^metadata_csum,uninit_bg"], "40M"),
        ("uninit64", &["-O", "^metadata_csum,uninit_bg,64bit"], "40M"),
        ("no64", &["-O", "^64bit"], "40M"),
        ("seed", &["-O", "metadata_csum_seed,orphan_file"], "40M"),
        ("ext2", &["-t", "ext2", "-b", "1024"], "40M"),
        ("ext3", &["-t", "ext3", "-b", "1024"], "40M"),
        ("ext3b4", &["-t", "ext3", "-b", "4096", "-O", "metadata_csum"], "40M"),
        ("meta_bg", &["-b", "1024", "-O", "meta_bg,^resize_inode", "-g", "256"], "40M"),
        ("super2", &["-b", "1024", "-O", "sparse_super2,^resize_inode", "-g", "1024"], "40M"),
        ("inline", &["-O", "inline_data", "-I", "256"], "40M"),
        ("bigalloc", &["-O", "bigalloc", "-C", "65536"], "200M"),
        ("bigalloc1k", &["-O", "bigalloc", "-b", "1024", "-C", "16384"], "200M"),
        ("flexless", &["-O", "^flex_bg,^resize_inode", "-b", "1024"], "40M"),
        (
            "mixed",
            &["-O", "encrypt,casefold,project,quota,verity,ea_inode,large_dir,mmp,fast_commit"],
            "64M",
        ),
    ];
    for (name, args, size) in shapes {
        println!("{name}");
        let image = mkfs(dir.path(), name, args, size, Some(&tree));
        check_tree(&image, &tree);
        std::fs::remove_file(image).unwrap();
    }
}

/// A file whose extent tree has at least two levels: every second block is mapped.
fn deep(dir: &Path, args: &[&str], blocks: u64, block_bytes: u64) -> (PathBuf, PathBuf) {
    let host = dir.join("deep");
    for block in (0..blocks).step_by(2) {
        write_at(&host, block * block_bytes, &noise(block + 1, block_bytes as usize));
    }
    let root = dir.join("root");
    std::fs::create_dir_all(&root).unwrap();
    std::fs::rename(&host, root.join("deep")).unwrap();
    let image = mkfs(dir, "deep.img", args, "64M", Some(&root));
    (image, root.join("deep"))
}

/// The extents listed by `debugfs`: logical block, physical block, length.
fn debugfs_extents(image: &Path, path: &str) -> Vec<(u64, u64, u64)> {
    let text = debugfs(image, &format!("dump_extents -l {path}"));
    let mut found = Vec::new();
    for line in text.lines().skip(1) {
        let numbers: Vec<u64> = line
            .split(|c: char| !c.is_ascii_digit())
            .filter(|part| !part.is_empty())
            .map(|part| part.parse().unwrap())
            .collect();
        // Level/ of, entry/ of, logical first - last, physical first - last, length.
        if let [_, _, _, _, first, last, physical, ..] = numbers[..] {
            found.push((first, physical, last - first + 1));
        }
    }
    found
}

#[test]
fn deep_extent_trees_agree_with_debugfs() {
    if !tools() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let (image, host) = deep(dir.path(), &["-b", "1024"], 20_000, 1024);
    let volume = open(&image);
    let number = ino(&image, "deep");
    assert!(content(&volume, number) == std::fs::read(&host).unwrap());
    let inode = volume.inode(number).unwrap();
    assert!(inode.block_area()[6] >= 1, "not deep");
    let map = volume.extent_map(&inode).unwrap();
    let listed = debugfs_extents(&image, "deep");
    assert_eq!(listed.len(), 10_000);
    for (first, physical, blocks) in listed {
        let run = map.run_at(first).unwrap();
        assert_eq!(run, Run { physical, blocks: run.blocks, state: RunState::Written });
        assert!(run.blocks >= blocks);
    }
    let mut nodes = 0;
    volume
        .visit_mapping_blocks(&inode, &mut |_| {
            nodes += 1;
            Ok(())
        })
        .unwrap();
    assert!(nodes >= 120, "{nodes}");
    // A wrong byte in a leaf is found and named, and only that leaf's blocks are lost.
    let damaged = dir.path().join("damaged.img");
    std::fs::copy(&image, &damaged).unwrap();
    let mut blocks = Vec::new();
    volume
        .visit_mapping_blocks(&inode, &mut |block| {
            blocks.push(block);
            Ok(())
        })
        .unwrap();
    let leaf = *blocks.last().unwrap();
    write_at(&damaged, leaf * 1024 + 500, &[0xFF, 0xFE]);
    let volume = open(&damaged);
    let inode = volume.inode(number).unwrap();
    volume.run_at(&inode, 0).unwrap();
    let wrong = Corruption { defect: Defect::ExtentChecksum, ino: Some(number), block: Some(leaf) };
    assert_eq!(volume.run_at(&inode, 19_998), Err(Error::Corrupt(wrong)));
    assert_eq!(volume.extent_map(&inode), Err(Error::Corrupt(wrong)));
}

#[test]
fn unwritten_extents_are_told_from_written_ones() {
    if !tools() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let image = mkfs(dir.path(), "fallocated", &["-b", "4096"], "64M", None);
    let file = dir.path().join("content");
    std::fs::write(&file, noise(7, 8192)).unwrap();
    let requests = [format!("write {} f", file.display()), "fallocate f 0 99".into()];
    debugfs_write(&image, &requests);
    let volume = open(&image);
    let inode = volume.linked_inode(ino(&image, "f")).unwrap();
    let map = volume.extent_map(&inode).unwrap();
    assert_eq!(map.run_at(0).unwrap().state, RunState::Written);
    assert_eq!(map.run_at(0).unwrap().blocks, 2);
    let mut unwritten = 0;
    for extent in map.extents().iter().filter(|extent| extent.unwritten) {
        unwritten += extent.blocks;
        assert_eq!(
            volume.run_at(&inode, u64::from(extent.logical)).unwrap().state,
            RunState::Unwritten
        );
    }
    assert_eq!(unwritten, 98);
    assert_eq!(
        map.run_at(100).unwrap(),
        Run { physical: 0, blocks: u64::MAX - 100, state: RunState::Hole }
    );
}

#[test]
fn block_maps_reach_through_three_levels() {
    if !tools() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let root = dir.path().join("root");
    std::fs::create_dir_all(&root).unwrap();
    // With blocks of 1 KiB, the levels begin at blocks 12, 268 and 65,804.
    for block in
        [0u64, 5, 11, 12, 13, 100, 267, 268, 269, 523, 524, 60_000, 65_803, 65_804, 65_805, 70_000]
    {
        write_at(&root.join("f"), block * 1024, &noise(block + 1, 1024));
    }
    let image = mkfs(dir.path(), "map.img", &["-t", "ext2", "-b", "1024"], "32M", Some(&root));
    let volume = open(&image);
    let number = ino(&image, "f");
    assert!(content(&volume, number) == std::fs::read(root.join("f")).unwrap());
    let inode = volume.inode(number).unwrap();
    for block in [0u64, 1, 11, 12, 14, 267, 268, 60_000, 60_001, 65_803, 65_804, 65_806, 70_000] {
        let said = debugfs(&image, &format!("bmap <{number}> {block}"));
        assert_eq!(
            volume.run_at(&inode, block).unwrap().physical.to_string(),
            said.trim(),
            "block {block}"
        );
    }
    assert_eq!(volume.run_at(&inode, 70_001).unwrap().state, RunState::Hole);
}

#[test]
fn special_inodes_and_times_are_as_debugfs_says() {
    if !tools() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let image = mkfs(dir.path(), "image", &["-O", "project", "-I", "256"], "16M", None);
    let set = [
        "mknod pipe p",
        "mknod old b 8 1",
        "mknod new c 300 7000",
        "symlink short target",
        "set_inode_field pipe uid 123456",
    ];
    let more = [
        "set_inode_field pipe gid 654321",
        "set_inode_field pipe projid 77",
        "set_inode_field pipe mtime @0x1ffffffff",
        "set_inode_field pipe atime_extra 0x3b9ac9fc",
        "set_inode_field pipe generation 0xdeadbeef",
    ];
    debugfs_write(
        &image,
        &set.iter().chain(&more).map(|line| (*line).to_owned()).collect::<Vec<_>>(),
    );
    let volume = open(&image);
    let inode = |name: &str| volume.linked_inode(ino(&image, name)).unwrap();
    let pipe = volume.metadata(&inode("pipe"));
    assert_eq!(
        (pipe.file_type, pipe.uid, pipe.gid, pipe.project),
        (FileType::Fifo, 123_456, 654_321, 77)
    );
    assert_eq!((pipe.generation, pipe.accessed.nanoseconds), (0xDEAD_BEEF, 0x3B9A_C9FC >> 2));
    assert!(pipe.created.is_some());
    assert_eq!(volume.metadata(&inode("old")).device, (8, 1));
    assert_eq!(volume.metadata(&inode("new")).device, (300, 7000));
    let link = inode("short");
    assert!(link.is_fast_symlink() && !link.has_blocks());
    assert_eq!(&link.block_area()[..6], b"target");
    assert!(matches!(volume.run_at(&link, 0), Err(Error::Invalid(_))));
}

#[test]
fn usage_is_what_the_kernel_says() {
    if !tools() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let tree = tree(dir.path());
    let shapes: &[(&str, &[&str], &str)] = &[
        ("default", &["-b", "4096"], "64M"),
        ("b1024", &["-b", "1024"], "40M"),
        ("nojournal", &["-O", "^has_journal"], "40M"),
        ("ext2", &["-t", "ext2", "-b", "1024"], "40M"),
        ("no64", &["-O", "^64bit,^metadata_csum", "-b", "2048"], "40M"),
        ("meta_bg", &["-b", "1024", "-O", "meta_bg,^resize_inode", "-g", "256"], "40M"),
        ("super2", &["-b", "1024", "-O", "sparse_super2,^resize_inode", "-g", "1024"], "40M"),
        ("bigalloc", &["-O", "bigalloc", "-C", "65536"], "200M"),
    ];
    for (name, args, size) in shapes {
        let image = mkfs(dir.path(), name, args, size, Some(&tree));
        let at = dir.path().join("mounted");
        let Some(mounted) = Mounted::new(&image, &at, "ro") else { continue };
        let said = run("stat", &["-f", "-c", "%S %b %f %a %c %d %i", at.to_str().unwrap()]);
        drop(mounted);
        let usage = open(&image).usage().unwrap();
        let ours = format!(
            "{} {} {} {} {} {} {:x}",
            usage.block_bytes,
            usage.blocks,
            usage.free_blocks,
            usage.available_blocks,
            usage.inodes,
            usage.free_inodes,
            // coreutils print the first word first.
            usage.fsid.rotate_left(32)
        );
        assert_eq!(ours, said.trim(), "{name}");
    }
}
