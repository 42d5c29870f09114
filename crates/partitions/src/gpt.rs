//! The GUID partition table (UEFI 2.10 §5.3).

use std::ops::RangeInclusive;

use crc_fast::{CrcAlgorithm, Digest};
use zerocopy::FromBytes as _;
use zerocopy::little_endian::{U32, U64};

use crate::disk::{Disk, ReadAt};
use crate::partition::{Partition, Table, TableKind};
use crate::{text, types};

/// The block of the primary header (UEFI 2.10 §5.3.1).
pub(crate) const PRIMARY_LBA: u64 = 1;
/// The most bytes of a header that are read. The specification allows a block.
const HEADER_BYTES_MAX: usize = 4096;
/// The largest entry.
const ENTRY_BYTES_MAX: u32 = 4096;
/// The largest array of entries. 16 KiB are usual, and the smallest reserve (UEFI 2.10 §5.3.1).
pub(crate) const ARRAY_BYTES_MAX: u64 = 1 << 20;

on_disk! {
    /// The header (UEFI 2.10 §5.3.2, table 5.5).
    struct RawHeader, 92 {
        /// Signature.
        0 signature: [u8; 8],
        /// Revision.
        8 revision: U32,
        /// HeaderSize.
        12 header_bytes: U32,
        /// HeaderCRC32: of HeaderSize bytes, with zero in this place.
        16 header_crc: U32,
        /// Reserved.
        20 reserved: U32,
        /// MyLBA.
        24 my_lba: U64,
        /// AlternateLBA.
        32 alternate_lba: U64,
        /// FirstUsableLBA.
        40 first_usable_lba: U64,
        /// LastUsableLBA.
        48 last_usable_lba: U64,
        /// DiskGUID.
        56 disk_guid: [u8; 16],
        /// PartitionEntryLBA.
        72 entries_lba: U64,
        /// NumberOfPartitionEntries.
        80 entries: U32,
        /// SizeOfPartitionEntry.
        84 entry_bytes: U32,
        /// PartitionEntryArrayCRC32.
        88 entries_crc: U32,
    }

    /// An entry (UEFI 2.10 §5.3.3, table 5.6).
    struct RawEntry, 128 {
        /// PartitionTypeGUID: zero if the entry is unused.
        0 kind: [u8; 16],
        /// UniquePartitionGUID.
        16 guid: [u8; 16],
        /// StartingLBA.
        32 first_lba: U64,
        /// EndingLBA: the last block.
        40 last_lba: U64,
        /// Attributes.
        48 attributes: U64,
        /// PartitionName: UTF-16LE, ended by a NUL.
        56 name: [u8; 72],
    }
}

/// Checks the header at the beginning of `bytes`, which are those of block `lba` (UEFI 2.10
/// §5.3.2). The error says what is wrong.
fn header_in(bytes: &[u8], lba: u64) -> Result<RawHeader, String> {
    let header = match RawHeader::read_from_prefix(bytes) {
        Ok((header, _)) if header.signature == *b"EFI PART" => header,
        _ => return Err(format!("block {lba} has no GPT header")),
    };
    let len = header.header_bytes.get() as usize;
    if len < size_of::<RawHeader>() || len > bytes.len() {
        return Err(format!("the header in block {lba} says that it has {len} bytes"));
    }
    let mut digest = Digest::new(CrcAlgorithm::Crc32IsoHdlc);
    digest.update(&bytes[..16]);
    digest.update(&[0; 4]);
    digest.update(&bytes[20..len]);
    if digest.finalize() != u64::from(header.header_crc.get()) {
        return Err(format!("the header in block {lba} has a wrong checksum"));
    }
    if header.my_lba.get() != lba {
        let my_lba = header.my_lba;
        return Err(format!("the header in block {lba} says that it belongs to block {my_lba}"));
    }
    Ok(header)
}

/// A header that is sound.
pub(crate) struct Header {
    raw: RawHeader,
}

impl Header {
    /// Reads the header in block `lba`. The inner error says what is wrong.
    pub(crate) fn read<R: ReadAt>(
        disk: &mut Disk<'_, R>,
        lba: u64,
    ) -> Result<Result<Self, String>, R::Error> {
        let len = HEADER_BYTES_MAX.min(disk.size.block_bytes as usize);
        Ok(match disk.read_block(lba, len)? {
            Some(bytes) => header_in(&bytes, lba).map(|raw| Self { raw }),
            None => Err(format!("block {lba} is beyond the disk")),
        })
    }

    /// Returns whether the disk has a primary header at the place where blocks of `block_bytes`
    /// bytes would put it.
    pub(crate) fn is_at<R: ReadAt>(
        disk: &mut Disk<'_, R>,
        block_bytes: u32,
    ) -> Result<bool, R::Error> {
        let len = HEADER_BYTES_MAX.min(block_bytes as usize);
        let bytes = disk.read(u64::from(block_bytes), len)?;
        Ok(bytes.is_some_and(|bytes| header_in(&bytes, PRIMARY_LBA).is_ok()))
    }

    /// Returns where the other header is.
    pub(crate) fn alternate_lba(&self) -> u64 {
        self.raw.alternate_lba.get()
    }

    /// Returns the blocks that partitions may have.
    pub(crate) fn usable_lbas(&self) -> RangeInclusive<u64> {
        self.raw.first_usable_lba.get()..=self.raw.last_usable_lba.get()
    }

    /// Returns whether both headers stand for the same table.
    pub(crate) fn is_of_same_table(&self, other: &Self) -> bool {
        let table =
            |header: &RawHeader| (header.disk_guid, header.entries, header.entries_crc.get());
        table(&self.raw) == table(&other.raw)
    }

    /// Reads and checks the entries (UEFI 2.10 §5.3.3). The inner error says what is wrong.
    pub(crate) fn read_table<R: ReadAt>(
        &self,
        disk: &mut Disk<'_, R>,
    ) -> Result<Result<Table, String>, R::Error> {
        let (my_lba, entry_bytes) = (self.raw.my_lba, self.raw.entry_bytes.get());
        // 128 · 2^n.
        if !entry_bytes.is_power_of_two() || !(128..=ENTRY_BYTES_MAX).contains(&entry_bytes) {
            return Ok(Err(format!(
                "the header in block {my_lba} says that an entry has {entry_bytes} bytes"
            )));
        }
        let bytes = u64::from(entry_bytes) * u64::from(self.raw.entries.get());
        if bytes == 0 || bytes > ARRAY_BYTES_MAX {
            return Ok(Err(format!(
                "the header in block {my_lba} says that the entries have {bytes} bytes, and up to \
                 {ARRAY_BYTES_MAX} are supported"
            )));
        }
        let Some(array) = disk.read_block(self.raw.entries_lba.get(), bytes as usize)? else {
            return Ok(Err(format!(
                "the header in block {my_lba} says that the entries are beyond the disk"
            )));
        };
        let crc = crc_fast::checksum(CrcAlgorithm::Crc32IsoHdlc, &array);
        if crc != u64::from(self.raw.entries_crc.get()) {
            return Ok(Err(format!(
                "the entries of the header in block {my_lba} have a wrong checksum"
            )));
        }
        Ok(Ok(Table {
            kind: TableKind::Gpt,
            id: text::guid(&self.raw.disk_guid),
            partitions: partitions(&array, entry_bytes as usize),
            remarks: Vec::new(),
        }))
    }
}

/// Lists the entries that are used.
fn partitions(array: &[u8], entry_bytes: usize) -> Vec<Partition> {
    let mut partitions = Vec::new();
    for (number, bytes) in (1..).zip(array.chunks_exact(entry_bytes)) {
        let Ok((entry, _)) = RawEntry::read_from_prefix(bytes) else { break };
        if entry.kind == [0; 16] {
            continue;
        }
        let (first_lba, last_lba) = (entry.first_lba.get(), entry.last_lba.get());
        let type_code = text::guid(&entry.kind);
        partitions.push(Partition {
            number,
            first_lba,
            blocks: last_lba.checked_sub(first_lba).map_or(0, |blocks| blocks.saturating_add(1)),
            type_name: types::of_gpt(&type_code),
            type_code,
            label: text::utf16(&entry.name),
            uuid: text::guid(&entry.guid),
        });
    }
    partitions
}
