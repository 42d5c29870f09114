//! A partition, and a table of them.

use std::fmt;

use crate::disk::Size;
use crate::mbr::is_extended;
use crate::selector::Selector;

/// The most partitions that a message lists.
const LISTED_MAX: usize = 16;

/// The kind of a partition table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableKind {
    /// A GUID partition table (UEFI 2.10 §5.3).
    Gpt,
    /// The table in a master boot record, and the logical partitions of an extended one.
    Mbr,
}

impl fmt::Display for TableKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gpt => "GPT",
            Self::Mbr => "MBR",
        })
    }
}

/// A partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// The number. Logical partitions of an MBR count from 5.
    pub number: u32,
    /// The first block.
    pub first_lba: u64,
    /// The number of blocks.
    pub blocks: u64,
    /// The type: a GUID in upper case, or hexadecimal digits for an MBR, as `sfdisk` prints them.
    pub type_code: String,
    /// The name of the type, if it is well-known.
    pub type_name: Option<&'static str>,
    /// The name in a GPT, or nothing. It may contain any character but NUL.
    pub label: String,
    /// A GUID in upper case. In an MBR it is what Linux calls PARTUUID: the identifier of the disk
    /// and the number, in hexadecimal digits, or nothing if the disk has no identifier.
    pub uuid: String,
}

impl Partition {
    /// Returns whether this is an extended partition of an MBR, which only contains others.
    #[must_use]
    pub fn is_extended(&self) -> bool {
        u8::from_str_radix(&self.type_code, 16).is_ok_and(is_extended)
    }

    /// Returns the block after the last one.
    pub(crate) fn end(&self) -> u64 {
        self.first_lba.saturating_add(self.blocks)
    }

    /// Returns whether both have a block that only one should have.
    fn overlaps(&self, other: &Self) -> bool {
        let contains = |outer: &Self, inner: &Self| outer.is_extended() && inner.number > 4;
        self.first_lba.max(other.first_lba) < self.end().min(other.end())
            && !contains(self, other)
            && !contains(other, self)
    }
}

/// A partition table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// The kind.
    pub kind: TableKind,
    /// The identifier of the disk: a GUID in upper case, or 0x and eight digits for an MBR.
    pub id: String,
    /// The partitions, by number. Some of them may be impossible to use: see [`Table::select`].
    pub partitions: Vec<Partition>,
    /// What is odd about the table: sentences for a person to read.
    pub remarks: Vec<String>,
}

impl Table {
    /// Finds the partition that `selector` names, if it can be used. `size` is that of the disk.
    ///
    /// # Errors
    /// The error is a sentence: there is no such partition and which ones there are; or there are
    /// several; or why this one cannot be used: it has no blocks, it is an extended partition, it
    /// reaches beyond the disk, it contains the table, or it overlaps another one.
    pub fn select(&self, selector: &Selector, size: Size) -> Result<&Partition, String> {
        let is_wanted = |partition: &&Partition| match selector {
            Selector::Number(number) => partition.number == *number,
            Selector::Label(label) => !label.is_empty() && partition.label == *label,
            Selector::Uuid(uuid) => !uuid.is_empty() && partition.uuid.eq_ignore_ascii_case(uuid),
        };
        let found: Vec<&Partition> = self.partitions.iter().filter(is_wanted).collect();
        match found[..] {
            [partition] => match self.objection(partition, size) {
                None => Ok(partition),
                Some(why) => Err(why),
            },
            [] if self.partitions.is_empty() => {
                Err(format!("The disk has no partitions: its {} is empty.", self.kind))
            }
            [] => Err(format!(
                "The disk has no partition {selector}. It has {}.",
                listed(self.partitions.iter())
            )),
            _ => Err(format!(
                "Several partitions are {selector}: {}. Name one by its number.",
                listed(found.into_iter())
            )),
        }
    }

    /// Says why `partition` cannot be used.
    fn objection(&self, partition: &Partition, size: Size) -> Option<String> {
        let Partition { number, first_lba, blocks, .. } = *partition;
        let table_end = if self.kind == TableKind::Gpt { 2 } else { 1 };
        if blocks == 0 {
            return Some(format!("Partition {number} has no blocks."));
        }
        if partition.is_extended() {
            return Some(format!(
                "Partition {number} is an extended partition, which only contains others: use one \
                 of those."
            ));
        }
        if partition.end() > size.blocks {
            return Some(format!(
                "Partition {number} reaches beyond the disk: it has {blocks} blocks from block \
                 {first_lba} on, and the disk has {}.",
                size.blocks
            ));
        }
        if first_lba < table_end {
            return Some(format!(
                "Partition {number} begins at block {first_lba}, so it contains the partition \
                 table: use the whole disk instead."
            ));
        }
        let is_other = |other: &&Partition| !std::ptr::eq(*other, partition);
        let other = self.partitions.iter().filter(is_other).find(|o| o.overlaps(partition))?;
        Some(format!(
            "Partition {number} overlaps partition {}: repair the partition table first.",
            other.number
        ))
    }

    /// Adds remarks about partitions that [`Table::select`] refuses, but for extended ones.
    pub(crate) fn add_remarks(&mut self, size: Size) {
        let mut odd = Vec::new();
        for partition in &self.partitions {
            if partition.blocks == 0 {
                odd.push(format!("Partition {} has no blocks.", partition.number));
            } else if partition.end() > size.blocks {
                odd.push(format!("Partition {} reaches beyond the disk.", partition.number));
            }
        }
        let mut by_start: Vec<&Partition> = self.partitions.iter().collect();
        by_start.sort_by_key(|partition| (partition.first_lba, partition.number));
        // What ends last of those before, with extended partitions and without.
        let (mut last, mut last_extended): (Option<&Partition>, Option<&Partition>) = (None, None);
        for partition in by_start {
            for before in [last, last_extended].into_iter().flatten() {
                if before.overlaps(partition) {
                    let (low, high) = (before.number, partition.number);
                    let (low, high) = (low.min(high), low.max(high));
                    odd.push(format!("Partitions {low} and {high} overlap."));
                }
            }
            let last = if partition.is_extended() { &mut last_extended } else { &mut last };
            if last.is_none_or(|last| last.end() < partition.end()) {
                *last = Some(partition);
            }
        }
        let more = odd.len().saturating_sub(LISTED_MAX);
        odd.truncate(LISTED_MAX);
        self.remarks.append(&mut odd);
        if more > 0 {
            self.remarks.push(format!("There are {more} more such partitions."));
        }
    }
}

/// Lists partitions for a message.
fn listed<'p>(partitions: impl ExactSizeIterator<Item = &'p Partition>) -> String {
    let more = partitions.len().saturating_sub(LISTED_MAX);
    let mut names: Vec<String> = partitions
        .take(LISTED_MAX)
        .map(|partition| match &*partition.label {
            "" => partition.number.to_string(),
            label => format!("{} (label {label:?})", partition.number),
        })
        .collect();
    if more > 0 {
        names.push(format!("{more} more"));
    }
    match names.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
    }
}
