//! Signatures of file systems that their own tools have made, compared with `blkid`.

use meantime_partitions::Size;
use meantime_testkit::e2fs::{command, has, run_tool};

use crate::image::Image;

/// What `blkid` says of `key`.
fn blkid(image: &Image, key: &str) -> Option<String> {
    let args = ["-p", "-s", key, "-o", "value", image.text()];
    let (_, value) = run_tool("blkid", &args);
    Some(value.trim_end_matches('\n').to_owned()).filter(|value| !value.is_empty())
}

/// Makes a file system by a command, the image at its end, and compares.
fn compare(command_line: &str, mib: u64, name: &str, text: &str, label: Option<&str>) {
    let words: Vec<&str> = command_line.split_whitespace().collect();
    if !has(words[0]) || !has("blkid") {
        return;
    }
    let image = Image::new(mib, 512);
    let output = command(words[0]).args(&words[1..]).arg(&image.path).output().unwrap();
    assert!(output.status.success(), "{command_line}: {output:?}");
    let found = image.signature().unwrap_or_else(|| panic!("{command_line}: nothing is found"));
    assert_eq!((found.name, found.text), (name, text), "{command_line}");
    assert_eq!(found.label.as_deref(), label, "{command_line}");
    assert_eq!(found.uuid, blkid(&image, "UUID"), "{command_line}");
    assert_eq!(found.label, blkid(&image, "LABEL"), "{command_line}");
    // Our names of these two are shorter.
    let theirs = blkid(&image, "TYPE").unwrap_or_default();
    let theirs = match &*theirs {
        "crypto_LUKS" => "LUKS",
        "LVM2_member" => "LVM",
        other => other,
    };
    assert_eq!(found.name, theirs, "{command_line}");
    assert_eq!(image.table_or_none(), None, "{command_line}");
}

const EXT: &str = "an ext2, ext3 or ext4 file system";

#[test]
fn ext() {
    compare("mkfs.ext4 -q -F -L root", 16, "ext4", EXT, Some("root"));
    compare("mkfs.ext4 -q -F -b 4096 -O ^has_journal", 16, "ext4", EXT, None);
    compare("mkfs.ext3 -q -F -L a-label-of-16-ch", 16, "ext3", EXT, Some("a-label-of-16-ch"));
    compare("mkfs.ext2 -q -F", 16, "ext2", EXT, None);
    compare("mkfs.ext4 -q -F -O journal_dev -L log", 16, "jbd", EXT, Some("log"));
}

#[test]
fn xfs() {
    compare("mkfs.xfs -q -f -L data", 320, "xfs", "an XFS file system", Some("data"));
    compare("mkfs.xfs -q -f -m crc=0", 320, "xfs", "an XFS file system", None);
}

#[test]
fn swap() {
    for page in [4096, 8192, 16_384, 65_536] {
        let line = format!("mkswap -p {page} -L swap1");
        compare(&line, 4, "swap", "a swap area", Some("swap1"));
    }
    compare("mkswap", 4, "swap", "a swap area", None);
}

#[test]
fn fat() {
    compare("mkfs.vfat -F 12 -n BOOT", 4, "vfat", "a FAT file system", Some("BOOT"));
    compare("mkfs.vfat -F 16", 32, "vfat", "a FAT file system", None);
    compare("mkfs.vfat -F 32 -n EFI", 64, "vfat", "a FAT file system", Some("EFI"));
}

#[test]
fn btrfs() {
    compare("mkfs.btrfs -q -f -L pool", 128, "btrfs", "a btrfs file system", Some("pool"));
}

#[test]
fn luks() {
    let line = "cryptsetup -q --pbkdf pbkdf2 --pbkdf-force-iterations 1000 --key-file \
                /proc/self/exe --keyfile-size 32 luksFormat --label";
    let text = "an encrypted volume (LUKS)";
    // It locks a file, which has no label in the first version.
    compare(&format!("{line} secret --type luks2"), 32, "LUKS", text, Some("secret"));
    let line = line.replace(" --label", "").replace("--pbkdf pbkdf2 ", "");
    compare(&format!("{line} --type luks1"), 32, "LUKS", text, None);
}

#[test]
fn others() {
    compare("mkfs.ntfs -q -F -f", 16, "ntfs", "an NTFS file system", None);
    compare("mkfs.exfat -q", 16, "exfat", "an exFAT file system", None);
    compare("mkfs.f2fs -q -l flash", 64, "f2fs", "an F2FS file system", Some("flash"));
}

/// What no tool has made here: the first bytes are enough.
#[test]
fn each_sign_is_found_in_its_place() {
    let cases: [(usize, &[u8], &str, &str); 14] = [
        (0, b"hsqs", "squashfs", "a squashfs file system"),
        (3, b"NTFS    ", "ntfs", "an NTFS file system"),
        (3, b"EXFAT   ", "exfat", "an exFAT file system"),
        (3, b"-FVE-FS-", "BitLocker", "an encrypted volume (BitLocker)"),
        (512, b"LABELONE", "LVM", "a volume of LVM"),
        (0, b"LABELONE", "LVM", "a volume of LVM"),
        (1024, b"\x10\x20\xf5\xf2", "f2fs", "an F2FS file system"),
        (1024, b"\xe2\xe1\xf5\xe0", "erofs", "an EROFS file system"),
        (4096, b"\xfc\x4e\x2b\xa9", "RAID", "a part of a RAID"),
        (4120, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca", "bcachefs", "a bcachefs file system"),
        (32_769, b"CD001", "iso9660", "an ISO 9660 file system"),
        (65_600, b"_BHRfS_M", "btrfs", "a btrfs file system"),
        (0, b"QFI\xfb", "qcow2", "a qcow2 image"),
        (4096, b"EFI PART", "GPT", "a partition table (GPT)"),
    ];
    for (offset, sign, name, text) in cases {
        let mut disk = vec![0; 1 << 20];
        disk[offset..offset + sign.len()].copy_from_slice(sign);
        let found = Image::of(&disk, 512).signature().unwrap();
        assert_eq!((found.name, found.text), (name, text));
        // A disk that ends within the sign has none.
        disk.truncate(offset + sign.len() - 1);
        let size = Size { block_bytes: 1, blocks: disk.len() as u64 };
        let mut read = |data: &mut [u8], offset: u64| -> Result<(), ()> {
            data.copy_from_slice(&disk[offset as usize..][..data.len()]);
            Ok(())
        };
        assert_eq!(meantime_partitions::signature(&mut read, size), Ok(None));
    }
}

#[test]
fn an_empty_disk_has_no_signature() {
    assert_eq!(Image::of(&vec![0; 1 << 20], 512).signature(), None);
    assert_eq!(Image::of(&[], 512).signature(), None);
}

/// The superblock of a RAID with metadata 1.0 on a disk of `bytes` bytes, and its place (Linux's
/// `include/uapi/linux/raid/md_p.h`, `struct mdp_superblock_1`).
fn raid_1_0(bytes: usize) -> (usize, [u8; 256]) {
    let sector = (bytes / 512 - 16) & !7;
    let mut superblock = [0; 256];
    superblock[..4].copy_from_slice(&0xA92B_4EFC_u32.to_le_bytes());
    superblock[4] = 1;
    superblock[144..152].copy_from_slice(&(sector as u64).to_le_bytes());
    (sector * 512, superblock)
}

/// A part of a mirror begins with the file system that is mirrored, and has the superblock at its
/// end.
#[test]
fn a_raid_is_found_by_its_end() {
    const RAID: &str = "a part of a RAID";
    for bytes in [1 << 20, (1 << 20) + 512, (1 << 20) + 60 * 1024] {
        let mut disk = vec![0; bytes];
        disk[..4].copy_from_slice(b"XFSB");
        let (at, superblock) = raid_1_0(bytes);
        disk[at..at + 256].copy_from_slice(&superblock);
        let found = Image::of(&disk, 512).signature().unwrap();
        assert_eq!((found.name, found.text), ("RAID", RAID), "{bytes}");
        // In a partition at the end it is that partition's, which names another place.
        disk.splice(..0, [0; 4096]);
        assert_eq!(Image::of(&disk, 512).signature(), None, "{bytes}");

        for magic in [0xA92B_4EFC_u32.to_le_bytes(), 0xA92B_4EFC_u32.to_be_bytes()] {
            let mut disk = vec![0; bytes];
            let at = (bytes & !0xFFFF) - 0x10000;
            disk[at..at + 4].copy_from_slice(&magic);
            let found = Image::of(&disk, 512).signature().unwrap();
            assert_eq!((found.name, found.text), ("RAID", RAID), "{bytes}");
        }
    }
}

#[test]
fn a_part_of_a_zfs_pool_is_found_by_any_uberblock() {
    for (slot, magic) in [(0, 0x00BA_B10C_u64.to_le_bytes()), (127, 0x00BA_B10C_u64.to_be_bytes())]
    {
        let mut disk = vec![0; 1 << 20];
        let at = (128 + slot) << 10;
        disk[at..at + 8].copy_from_slice(&magic);
        let found = Image::of(&disk, 512).signature().unwrap();
        assert_eq!((found.name, found.text), ("ZFS", "a part of a ZFS pool"));
        disk[at] ^= 1;
        disk[at + 7] ^= 1;
        assert_eq!(Image::of(&disk, 512).signature(), None);
    }
}
