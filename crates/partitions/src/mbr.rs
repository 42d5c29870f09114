//! The master boot record (UEFI 2.10 §5.2.1), and the chain of extended boot records in an
//! extended partition, as `fdisk` and Linux read it.

use zerocopy::FromBytes as _;
use zerocopy::little_endian::{U16, U32};

use crate::disk::{Disk, ReadAt};
use crate::partition::{Partition, Table, TableKind};
use crate::types;

/// The size of a boot record, in bytes: that of a block of the first disks.
pub(crate) const RECORD_BYTES: usize = 512;
/// The most extended boot records that are read.
pub(crate) const EBRS_MAX: usize = 128;
/// The type of an entry that stands for a GPT (UEFI 2.10 §5.2.3).
const PROTECTIVE: u8 = 0xEE;

on_disk! {
    /// A boot record (UEFI 2.10 §5.2.1, table 5.1).
    struct RawRecord, 512 {
        /// BootCode: a program, or the parameters of a file system.
        0 code: [u8; 440],
        /// UniqueMBRDiskSignature.
        440 disk_id: U32,
        /// Unknown.
        444 unknown: [u8; 2],
        /// PartitionRecord.
        446 entries: [RawEntry; 4],
        /// Signature.
        510 signature: U16,
    }

    /// An entry of a boot record (UEFI 2.10 §5.2.1, table 5.2).
    struct RawEntry, 16 {
        /// BootIndicator: 0x80 if the partition is booted from, else 0.
        0 status: u8,
        /// StartingCHS.
        1 first_chs: [u8; 3],
        /// OSType.
        4 kind: u8,
        /// EndingCHS.
        5 last_chs: [u8; 3],
        /// StartingLBA: in an extended boot record it counts from that record, or in a link from
        /// the extended partition.
        8 first_lba: U32,
        /// SizeInLBA.
        12 blocks: U32,
    }
}

/// Returns whether `kind` is the type of an extended partition.
pub(crate) fn is_extended(kind: u8) -> bool {
    matches!(kind, 0x05 | 0x0F | 0x85)
}

impl RawEntry {
    /// Returns whether `fdisk` takes this entry for unused: all of it is zero.
    fn is_unused(&self) -> bool {
        zerocopy::IntoBytes::as_bytes(self).iter().all(|byte| *byte == 0)
    }

    fn first_lba(&self) -> u64 {
        u64::from(self.first_lba.get())
    }

    fn blocks(&self) -> u64 {
        u64::from(self.blocks.get())
    }
}

impl RawRecord {
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Self::read_from_prefix(bytes).ok().map(|(record, _)| record)
    }

    fn has_signature(&self) -> bool {
        self.signature.get() == 0xAA55
    }

    /// Returns whether an entry stands for a GPT, which then counts.
    pub(crate) fn is_protective(&self) -> bool {
        self.has_signature() && self.entries.iter().any(|entry| entry.kind == PROTECTIVE)
    }

    /// Returns whether there are partitions besides the entries that stand for a GPT.
    pub(crate) fn is_hybrid(&self) -> bool {
        self.entries.iter().any(|entry| entry.kind != PROTECTIVE && entry.kind != 0)
    }

    /// Returns whether an entry is used.
    pub(crate) fn has_partitions(&self) -> bool {
        self.entries.iter().any(|entry| !entry.is_unused())
    }

    /// Returns whether this begins like the boot sector of a file system, which has parameters
    /// and a program in place of a table. The FAT strings count only with a sensible sector size,
    /// because programs that boot from a table have remains of them.
    fn is_boot_sector(&self) -> bool {
        let code = &self.code;
        let sector = u16::from_le_bytes([code[11], code[12]]);
        let is_fat = (code[54..58] == *b"FAT1" || code[82..87] == *b"FAT32")
            && sector.is_power_of_two()
            && (512..=4096).contains(&sector)
            && code[13].is_power_of_two();
        let others = [&b"NTFS    "[..], b"EXFAT   ", b"-FVE-FS-"];
        is_fat || others.iter().any(|sign| code[3..11] == **sign)
    }

    /// Returns whether this is the table of a disk of `blocks` blocks, and no other boot sector.
    pub(crate) fn is_table(&self, blocks: u64) -> bool {
        let is_inside = |entry: &RawEntry| {
            let inside = entry.first_lba().saturating_add(entry.blocks()) <= blocks;
            entry.is_unused() || (entry.first_lba() > 0 && entry.blocks() > 0 && inside)
        };
        // AIX marks its disks so (its table is another one), and `fdisk` leaves these alone.
        let is_aix = self.code[..4] == [0xC9, 0xC2, 0xD4, 0xC1];
        self.has_signature()
            && !is_aix
            && self.entries.iter().all(|entry| entry.status & 0x7F == 0)
            && (!self.is_boot_sector()
                || (self.has_partitions() && self.entries.iter().all(is_inside)))
    }

    fn partition(&self, number: u32, entry: &RawEntry, from: u64) -> Partition {
        let id = self.disk_id.get();
        Partition {
            number,
            first_lba: from.saturating_add(entry.first_lba()),
            blocks: entry.blocks(),
            type_code: format!("{:x}", entry.kind),
            type_name: types::of_mbr(entry.kind),
            label: String::new(),
            uuid: if id == 0 { String::new() } else { format!("{id:08x}-{number:02x}") },
        }
    }
}

/// Lists the partitions of `record`, which [is a table](RawRecord::is_table).
pub(crate) fn read<R: ReadAt>(
    disk: &mut Disk<'_, R>,
    record: &RawRecord,
) -> Result<Table, R::Error> {
    let mut table = Table {
        kind: TableKind::Mbr,
        id: format!("0x{:08x}", record.disk_id.get()),
        partitions: Vec::new(),
        remarks: Vec::new(),
    };
    let used = (1..).zip(&record.entries).filter(|(_, entry)| !entry.is_unused());
    table.partitions.extend(used.map(|(number, entry)| record.partition(number, entry, 0)));
    let mut extended = record.entries.iter().filter(|entry| is_extended(entry.kind));
    if let Some(extended) = extended.next() {
        let why = read_logical(disk, record, extended, &mut table)?;
        table.remarks.extend(why);
    }
    if extended.next().is_some() {
        table.remarks.push(
            "There is more than one extended partition: only the partitions in the first are \
             listed."
                .into(),
        );
    }
    Ok(table)
}

/// Lists the logical partitions in `extended`. Returns a remark if their chain is broken.
fn read_logical<R: ReadAt>(
    disk: &mut Disk<'_, R>,
    record: &RawRecord,
    extended: &RawEntry,
    table: &mut Table,
) -> Result<Option<String>, R::Error> {
    let begin = extended.first_lba();
    let end = begin.saturating_add(extended.blocks());
    let mut number = 5;
    let mut visited = Vec::new();
    let mut lba = begin;
    loop {
        let broken = |why: &str| {
            Ok(Some(format!(
                "The chain of logical partitions is broken at block {lba}, which {why}: there may \
                 be more partitions."
            )))
        };
        if lba == 0 {
            return broken("has the master boot record");
        }
        if visited.contains(&lba) {
            return broken("it has already been through");
        }
        if visited.len() == EBRS_MAX {
            return broken("is beyond the number of partitions that is supported");
        }
        visited.push(lba);
        let Some(bytes) = disk.read_block(lba, RECORD_BYTES)? else {
            return broken("is beyond the disk");
        };
        let Some(ebr) = RawRecord::from_bytes(&bytes).filter(RawRecord::has_signature) else {
            return broken("has no boot record");
        };
        let used = ebr.entries.iter().filter(|entry| entry.kind != 0 && entry.blocks() > 0);
        let (links, partitions): (Vec<_>, Vec<_>) = used.partition(|entry| is_extended(entry.kind));
        if let [entry, ..] = partitions[..] {
            let partition = record.partition(number, entry, lba);
            if partition.first_lba < begin || partition.end() > end {
                table
                    .remarks
                    .push(format!("Partition {number} is not inside of the extended partition."));
            }
            table.partitions.push(partition);
            number += 1;
        }
        if links.len() > 1 || partitions.len() > 1 {
            table.remarks.push(format!(
                "The boot record in block {lba} has more than one partition and a link: only the \
                 first of each counts."
            ));
        }
        let [link, ..] = links[..] else { return Ok(None) };
        lba = begin.saturating_add(link.first_lba());
    }
}
