//! Which partition table a disk has.

use crate::disk::{Disk, ReadAt, Size};
use crate::gpt::{Header, PRIMARY_LBA};
use crate::mbr::{self, EBRS_MAX, RECORD_BYTES, RawRecord};
use crate::partition::{Partition, Table};

/// The most reads that [`Table::read`] makes: the boot record, a header of a GPT with its entries
/// in each of three places, a header in the place of another block size twice at most, and the
/// logical partitions of an MBR.
pub const READS_MAX: usize = 9 + EBRS_MAX;

/// Why the partition table of a disk cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TableError<E> {
    /// The disk cannot be read.
    #[error("The partition table cannot be read: {0}")]
    Read(E),
    /// There is a table, and it is not usable: a sentence says why, and what to do.
    #[error("{0}")]
    Damaged(String),
    /// There is a table that was made with another size of logical blocks.
    #[error(
        "The disk has a partition table (GPT) that was made with blocks of {table_bytes} bytes, \
         and the device has blocks of {device_bytes}: open it with blocks of {table_bytes} bytes, \
         or make a new table."
    )]
    OtherBlocks {
        /// The size of a block when the table was made, in bytes.
        table_bytes: u32,
        /// The size of a block of the device, in bytes.
        device_bytes: u32,
    },
}

impl Table {
    /// Reads the partition table of a disk. Returns `None` if there is no table.
    ///
    /// A GPT counts if the master boot record has an entry for it, as for Linux. If its primary
    /// copy is damaged, the backup counts.
    ///
    /// # Errors
    /// [`TableError`].
    pub fn read<R: ReadAt>(disk: &mut R, size: Size) -> Result<Option<Self>, TableError<R::Error>> {
        let mut disk = Disk::new(disk, size);
        if (size.block_bytes as usize) < RECORD_BYTES {
            return Ok(None);
        }
        let Some(bytes) = disk.read(0, RECORD_BYTES).map_err(TableError::Read)? else {
            return Ok(None);
        };
        let Some(record) = RawRecord::from_bytes(&bytes) else { return Ok(None) };
        let mut table = if record.is_protective() {
            read_gpt(&mut disk, &record)?
        } else {
            read_mbr(&mut disk, &record)?
        };
        if let Some(table) = &mut table {
            table.add_remarks(size);
        }
        Ok(table)
    }
}

/// Reads the table of a disk whose master boot record has no entry for a GPT.
fn read_mbr<R: ReadAt>(
    disk: &mut Disk<'_, R>,
    record: &RawRecord,
) -> Result<Option<Table>, TableError<R::Error>> {
    let primary = copy_in(disk, PRIMARY_LBA)?;
    let is_table = record.is_table(disk.size.blocks);
    match primary {
        Ok(_) if !is_table || !record.has_partitions() => Err(TableError::Damaged(
            "Block 1 has a GPT, but block 0 has no protective MBR, without which the GPT does not \
             count: write one with gdisk, or remove the GPT with wipefs."
                .into(),
        )),
        _ if !is_table => Ok(None),
        primary => {
            let mut table = mbr::read(disk, record).map_err(TableError::Read)?;
            if primary.is_ok() {
                table.remarks.push(
                    "There is a GPT, too, which does not count, because the MBR has no entry for \
                     it."
                    .into(),
                );
            }
            Ok(Some(table))
        }
    }
}

/// Reads the table of a disk whose master boot record has an entry for a GPT.
fn read_gpt<R: ReadAt>(
    disk: &mut Disk<'_, R>,
    record: &RawRecord,
) -> Result<Option<Table>, TableError<R::Error>> {
    let size = disk.size;
    let (header, mut table) = match copy_in(disk, PRIMARY_LBA)? {
        Ok((header, mut table)) => {
            table.remarks.extend(backup_remark(disk, &header)?);
            (header, table)
        }
        Err(flaw) => {
            for table_bytes in [512, 4096] {
                let is_other = table_bytes != size.block_bytes;
                if is_other && Header::is_at(disk, table_bytes).map_err(TableError::Read)? {
                    let device_bytes = size.block_bytes;
                    return Err(TableError::OtherBlocks { table_bytes, device_bytes });
                }
            }
            match backup(disk, &flaw)? {
                Ok((header, mut table)) => {
                    table.remarks.push(format!(
                        "The primary copy of the GPT is damaged ({}). This is the backup. gdisk \
                         and sgdisk can restore the primary copy.",
                        flaw.why
                    ));
                    (header, table)
                }
                // A program that boots, and has this byte there.
                Err(_) if !record.is_table(size.blocks) => return Ok(None),
                Err(backup) => {
                    return Err(TableError::Damaged(format!(
                        "The disk has a GPT, both copies of which are damaged: {}, and {}. Restore \
                         it with gdisk or testdisk, or make a new one.",
                        flaw.why, backup.why
                    )));
                }
            }
        }
    };
    if record.is_hybrid() {
        table.remarks.push(
            "The MBR is a hybrid one: it lists partitions itself. Those of the GPT count.".into(),
        );
    }
    let usable = header.usable_lbas();
    let is_outside = |partition: &&Partition| {
        !usable.contains(&partition.first_lba) || partition.end() - 1 > *usable.end()
    };
    let mut used = table.partitions.iter().filter(|partition| partition.blocks > 0);
    if let Some(partition) = used.find(is_outside) {
        let remark = format!(
            "Partition {} is not within the blocks that the GPT has for partitions, {} to {}.",
            partition.number,
            usable.start(),
            usable.end()
        );
        table.remarks.push(remark);
    }
    if *usable.end() >= size.blocks {
        table.remarks.push(format!(
            "The GPT is of a larger disk: its partitions may reach to block {}, and this disk has \
             {} blocks.",
            usable.end(),
            size.blocks
        ));
    }
    Ok(Some(table))
}

/// What is wrong with a copy of a GPT.
struct Flaw {
    why: String,
    /// Where the other copy is, if the header is sound.
    alternate_lba: Option<u64>,
}

type Reading = Result<(Header, Table), Flaw>;

/// Reads the copy of a GPT whose header is in block `lba`.
fn copy_in<R: ReadAt>(disk: &mut Disk<'_, R>, lba: u64) -> Result<Reading, TableError<R::Error>> {
    let header = match Header::read(disk, lba).map_err(TableError::Read)? {
        Ok(header) => header,
        Err(why) => return Ok(Err(Flaw { why, alternate_lba: None })),
    };
    Ok(match header.read_table(disk).map_err(TableError::Read)? {
        Ok(table) => Ok((header, table)),
        Err(why) => Err(Flaw { why, alternate_lba: Some(header.alternate_lba()) }),
    })
}

/// Reads the backup of a GPT whose primary copy has `flaw`: where its header says, or else in the
/// last block (UEFI 2.10 §5.3.2).
fn backup<R: ReadAt>(disk: &mut Disk<'_, R>, flaw: &Flaw) -> Result<Reading, TableError<R::Error>> {
    let last = disk.size.blocks.saturating_sub(1);
    let lba = flaw.alternate_lba.unwrap_or(last);
    match copy_in(disk, lba)? {
        Err(_) if lba != last => copy_in(disk, last),
        copy => Ok(copy),
    }
}

/// Says what is wrong with the backup of a GPT whose primary copy has `header`.
fn backup_remark<R: ReadAt>(
    disk: &mut Disk<'_, R>,
    header: &Header,
) -> Result<Option<String>, TableError<R::Error>> {
    let lba = header.alternate_lba();
    Ok(match copy_in(disk, lba)? {
        Err(flaw) => Some(format!(
            "The backup of the GPT is damaged ({}). gdisk and sgdisk can restore it.",
            flaw.why
        )),
        Ok((backup, _)) if !backup.is_of_same_table(header) => {
            Some("The backup of the GPT is of another table. The primary copy counts.".into())
        }
        Ok(_) if lba != disk.size.blocks.saturating_sub(1) => Some(
            "The backup of the GPT is not in the disk's last block, as if the disk had grown. \
             sgdisk -e moves it there."
                .into(),
        ),
        Ok(_) => None,
    })
}
