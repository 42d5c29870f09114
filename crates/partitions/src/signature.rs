//! Signatures of file systems and of other formats.

use crate::disk::{Disk, ReadAt, Size};
use crate::mbr::RawRecord;
use crate::text;

/// The bytes at the beginning that are searched for signatures.
const SEARCHED_BYTES: u64 = 72 << 10;

/// What a disk or a partition seems to contain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    /// A short name, mostly the one that `blkid` prints: `ext4`, `swap`, `LVM`.
    pub name: &'static str,
    /// The format in a sentence: `an XFS file system`.
    pub text: &'static str,
    /// The label of the file system, or of what else it is. It may contain any character but NUL.
    pub label: Option<String>,
    /// The UUID, or the serial number of a file system that has no UUID, as `blkid` prints them.
    pub uuid: Option<String>,
}

/// How a format marks itself.
struct Sign {
    offset: usize,
    bytes: &'static [u8],
    name: &'static str,
    text: &'static str,
    /// Reads the label and the UUID.
    identity: fn(&Bytes<'_>) -> Identity,
}

type Identity = (Option<String>, Option<String>);

/// The signatures, of which the first that is there counts.
#[rustfmt::skip]
const SIGNS: [Sign; 27] = [
    sign(0, b"XFSB", "xfs", "an XFS file system", xfs),
    sign(0, b"LUKS\xba\xbe", "LUKS", "an encrypted volume (LUKS)", luks),
    sign(0, b"hsqs", "squashfs", "a squashfs file system", nothing),
    sign(3, b"NTFS    ", "ntfs", "an NTFS file system", ntfs),
    sign(3, b"EXFAT   ", "exfat", "an exFAT file system", exfat),
    sign(3, b"-FVE-FS-", "BitLocker", "an encrypted volume (BitLocker)", nothing),
    sign(0x36, b"FAT1", "vfat", "a FAT file system", fat16),
    sign(0x52, b"FAT32", "vfat", "a FAT file system", fat32),
    sign(512, b"EFI PART", "GPT", "a partition table (GPT)", nothing),
    sign(4096, b"EFI PART", "GPT", "a partition table (GPT)", nothing),
    sign(512, b"LABELONE", "LVM", "a volume of LVM", nothing),
    sign(0, b"LABELONE", "LVM", "a volume of LVM", nothing),
    sign(1024, b"\x10\x20\xf5\xf2", "f2fs", "an F2FS file system", f2fs),
    sign(1024 + 56, b"\x53\xef", "ext2", "an ext2, ext3 or ext4 file system", ext),
    sign(1024, b"\xe2\xe1\xf5\xe0", "erofs", "an EROFS file system", erofs),
    sign(4096, b"\xfc\x4e\x2b\xa9", "RAID", RAID, nothing),
    sign(0, b"\xfc\x4e\x2b\xa9", "RAID", RAID, nothing),
    // At the end of the first page, of whichever size.
    sign(4096 - 10, b"SWAPSPACE2", "swap", "a swap area", swap),
    sign(8192 - 10, b"SWAPSPACE2", "swap", "a swap area", swap),
    sign(16_384 - 10, b"SWAPSPACE2", "swap", "a swap area", swap),
    sign(65_536 - 10, b"SWAPSPACE2", "swap", "a swap area", swap),
    sign(4096 + 24, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca", "bcachefs", "a bcachefs file system",
         nothing),
    sign(4096 + 24, b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef",
         "bcachefs", "a bcachefs file system", nothing),
    sign(32_769, b"CD001", "iso9660", "an ISO 9660 file system", iso9660),
    sign(65_536 + 64, b"_BHRfS_M", "btrfs", "a btrfs file system", btrfs),
    sign(0, b"QFI\xfb", "qcow2", "a qcow2 image", nothing),
    sign(0, b"KDMV", "vmdk", "a VMDK image", nothing),
];

const fn sign(
    offset: usize,
    bytes: &'static [u8],
    name: &'static str,
    text: &'static str,
    identity: fn(&Bytes<'_>) -> Identity,
) -> Sign {
    Sign { offset, bytes, name, text, identity }
}

/// Says what a disk, or a partition that `disk` reads, seems to contain. Returns `None` if nothing
/// is recognized.
///
/// # Errors
/// Fails if the disk cannot be read.
pub fn signature<R: ReadAt>(disk: &mut R, size: Size) -> Result<Option<Signature>, R::Error> {
    let len = SEARCHED_BYTES.min(size.bytes());
    let mut disk = Disk::new(disk, size);
    let Some(bytes) = disk.read(0, len as usize)? else { return Ok(None) };
    // A mirror's parts begin with what the mirror contains.
    if has_raid_at_end(&mut disk, size)? {
        return Ok(Some(Signature::of("RAID", RAID)));
    }
    let bytes = Bytes(&bytes);
    if let Some(sign) = SIGNS.iter().find(|sign| bytes.has(sign.offset, sign.bytes)) {
        let (label, uuid) = (sign.identity)(&bytes);
        let name = if sign.name == "ext2" { ext_name(&bytes) } else { sign.name };
        return Ok(Some(Signature { name, text: sign.text, label, uuid }));
    }
    let has_partitions = RawRecord::from_bytes(bytes.0)
        .is_some_and(|record| record.is_table(size.blocks) && record.has_partitions());
    Ok(if has_partitions {
        Some(Signature::of("MBR", "a partition table"))
    } else if has_old_raid_at_end(&mut disk, size)? {
        Some(Signature::of("RAID", RAID))
    } else if has_zfs(&mut disk)? {
        Some(Signature::of("ZFS", "a part of a ZFS pool"))
    } else {
        None
    })
}

const RAID: &str = "a part of a RAID";
/// `MD_SB_MAGIC` of Linux's `include/uapi/linux/raid/md_p.h`.
const RAID_MAGIC: u32 = 0xA92B_4EFC;

/// Whether the superblock of Linux's RAID is at the end, with metadata of version 1.0: in a whole
/// 4 KiB, 8 to 12 KiB before the end. It names its own place, so that of the last partition is not
/// taken for that of the disk.
fn has_raid_at_end<R: ReadAt>(disk: &mut Disk<'_, R>, size: Size) -> Result<bool, R::Error> {
    const SECTOR: u64 = 512;
    let Some(sector) = (size.bytes() / SECTOR).checked_sub(16).map(|sector| sector & !7) else {
        return Ok(false);
    };
    let Some(bytes) = disk.read(sector * SECTOR, 256)? else { return Ok(false) };
    let bytes = Bytes(&bytes);
    let is_there = bytes.u32(0) == RAID_MAGIC && bytes.u32(4) == 1;
    Ok(is_there && u64::from_le_bytes(bytes.array(144)) == sector)
}

/// Whether the superblock of Linux's RAID is at the end, with metadata of version 0.90: in whole
/// 64 KiB, in the byte order of the machine that made it. That of the last partition is in the same
/// place.
fn has_old_raid_at_end<R: ReadAt>(disk: &mut Disk<'_, R>, size: Size) -> Result<bool, R::Error> {
    const RESERVED: u64 = 64 << 10;
    let whole = size.bytes() / RESERVED * RESERVED;
    let Some(at) = whole.checked_sub(RESERVED) else { return Ok(false) };
    let Some(bytes) = disk.read(at, 16)? else { return Ok(false) };
    let magic = Bytes(&bytes).u32(0);
    Ok(magic == RAID_MAGIC || magic.swap_bytes() == RAID_MAGIC)
}

/// Whether there is a label of ZFS with an uberblock (OpenZFS, `vdev_impl.h` and
/// `uberblock_impl.h`). The second half of the label is an array of them, in the byte order of the
/// machine that made it, 1 KiB apart or more.
fn has_zfs<R: ReadAt>(disk: &mut Disk<'_, R>) -> Result<bool, R::Error> {
    const MAGIC: u64 = 0x00BA_B10C;
    let Some(bytes) = disk.read(128 << 10, 128 << 10)? else { return Ok(false) };
    let mut magics = bytes.chunks_exact(1024).map(|chunk| Bytes(chunk).array(0));
    Ok(magics.any(|magic| u64::from_le_bytes(magic) == MAGIC || u64::from_be_bytes(magic) == MAGIC))
}

impl Signature {
    /// Makes one without a label and a UUID.
    fn of(name: &'static str, text: &'static str) -> Self {
        Self { name, text, label: None, uuid: None }
    }
}

/// The beginning of a disk. What lies beyond its end is zero.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn has(&self, offset: usize, sign: &[u8]) -> bool {
        self.0.get(offset..offset + sign.len()) == Some(sign)
    }

    fn array<const N: usize>(&self, offset: usize) -> [u8; N] {
        let bytes = self.0.get(offset..offset + N);
        bytes.and_then(|bytes| bytes.try_into().ok()).unwrap_or([0; N])
    }

    fn u32(&self, offset: usize) -> u32 {
        u32::from_le_bytes(self.array(offset))
    }

    /// The text in `N` bytes, if there is one.
    fn text<const N: usize>(&self, offset: usize) -> Option<String> {
        Some(text::utf8(&self.array::<N>(offset))).filter(|text| !text.is_empty())
    }

    /// The UUID, if it is not zero.
    fn uuid(&self, offset: usize) -> Option<String> {
        let bytes = self.array::<16>(offset);
        (bytes != [0; 16]).then(|| text::uuid(&bytes))
    }

    /// The serial number of a FAT file system.
    fn serial(&self, offset: usize) -> Option<String> {
        let serial = self.u32(offset);
        Some(format!("{:04X}-{:04X}", serial >> 16, serial & 0xFFFF))
    }

    /// The label in the boot sector of a FAT file system. It has other text if there is none.
    fn fat_label(&self, offset: usize) -> Option<String> {
        self.text::<11>(offset).filter(|label| label != "NO NAME")
    }
}

fn nothing(_: &Bytes<'_>) -> Identity {
    (None, None)
}

/// Linux's `fs/ext4/ext4.h`, `struct ext4_super_block`.
fn ext(bytes: &Bytes<'_>) -> Identity {
    (bytes.text::<16>(1024 + 0x78), bytes.uuid(1024 + 0x68))
}

/// Which of the three it is, by features that the older ones do not have.
fn ext_name(bytes: &Bytes<'_>) -> &'static str {
    let [compat, incompat, ro_compat] = [0x5C, 0x60, 0x64].map(|offset| bytes.u32(1024 + offset));
    let has_journal = compat & 0x4 != 0;
    // filetype, recover and meta_bg; sparse_super, large_file and btree_dir.
    let is_older = incompat & !0x16 == 0 && ro_compat & !0x7 == 0;
    match (is_older, has_journal) {
        // journal_dev
        _ if incompat & 0x8 != 0 => "jbd",
        (false, _) => "ext4",
        (true, true) => "ext3",
        (true, false) => "ext2",
    }
}

/// Linux's `fs/xfs/libxfs/xfs_format.h`, `struct xfs_dsb`.
fn xfs(bytes: &Bytes<'_>) -> Identity {
    (bytes.text::<12>(108), bytes.uuid(32))
}

/// The specifications of LUKS1 and LUKS2. Only the second has a label.
fn luks(bytes: &Bytes<'_>) -> Identity {
    let label = bytes.text::<48>(24).filter(|_| bytes.array(6) == [0, 2]);
    (label, bytes.text::<40>(168))
}

/// The serial number is at 0x48 of the boot sector; the label is in a file.
fn ntfs(bytes: &Bytes<'_>) -> Identity {
    (None, Some(format!("{:016X}", u64::from_le_bytes(bytes.array(0x48)))))
}

/// The specification of exFAT §3.1.11; the label is in the root directory.
fn exfat(bytes: &Bytes<'_>) -> Identity {
    (None, bytes.serial(100))
}

/// The specification of FAT §3.2.
fn fat16(bytes: &Bytes<'_>) -> Identity {
    (bytes.fat_label(43), bytes.serial(39))
}

/// The specification of FAT §3.3.
fn fat32(bytes: &Bytes<'_>) -> Identity {
    (bytes.fat_label(71), bytes.serial(67))
}

/// Linux's `include/linux/f2fs_fs.h`, `struct f2fs_super_block`.
fn f2fs(bytes: &Bytes<'_>) -> Identity {
    let label = text::utf16(&bytes.array::<1024>(1024 + 124));
    (Some(label).filter(|label| !label.is_empty()), bytes.uuid(1024 + 108))
}

/// Linux's `fs/erofs/erofs_fs.h`, `struct erofs_super_block`.
fn erofs(bytes: &Bytes<'_>) -> Identity {
    (bytes.text::<16>(1024 + 64), bytes.uuid(1024 + 48))
}

/// Linux's `include/linux/swap.h`, `union swap_header`.
fn swap(bytes: &Bytes<'_>) -> Identity {
    (bytes.text::<16>(1024 + 28), bytes.uuid(1024 + 12))
}

/// ECMA-119 §8.4.7.
fn iso9660(bytes: &Bytes<'_>) -> Identity {
    (bytes.text::<32>(32_768 + 40), None)
}

/// Linux's `include/uapi/linux/btrfs_tree.h`, `struct btrfs_super_block`.
fn btrfs(bytes: &Bytes<'_>) -> Identity {
    (bytes.text::<256>(65_536 + 0x12B), bytes.uuid(65_536 + 0x20))
}
