//! The partitions of a device: as a list, and the one whose file system is meant.

use meantime_block::{
    BlockDevice as _, CommonUri, Device, OpenError, Partition, Signature, Table, open_partition,
    partitions, signature, signatures,
};

use crate::facts::{Fact, facts};
use crate::failure::{Failure, named, warn};
use crate::figures;

/// A partition, and what its signature says that it holds.
pub(crate) struct Content {
    partition: Partition,
    /// The error is why it cannot be read.
    signature: Result<Option<Signature>, String>,
}

/// The partition table of `device` with what each partition holds; `None` if it has no table, or is
/// a partition itself.
pub(crate) fn contents(device: &Device) -> Result<Option<(Table, Vec<Content>)>, OpenError> {
    if device.info().uri.parse::<CommonUri>()?.partition.is_some() {
        return Ok(None);
    }
    let Some(table) = partitions(device)? else { return Ok(None) };
    let signatures = signatures(device, &table.partitions)?.into_iter();
    let content = |(partition, signature): (&Partition, Result<_, OpenError>)| Content {
        partition: partition.clone(),
        signature: signature.map_err(|error| error.to_string()),
    };
    let contents = table.partitions.iter().zip(signatures).map(content).collect();
    Ok(Some((table, contents)))
}

/// The device whose file system a user of `device` means: itself, or the only partition with one,
/// which is said.
pub(crate) fn with_file_system(device: Device) -> Result<Device, Failure> {
    let uri = device.info().uri.clone();
    let failed = |error: OpenError| named(&uri, &error);
    if is_ext(signature(&device).map_err(failed)?.as_ref()) {
        return Ok(device);
    }
    let Some((table, contents)) = contents(&device).map_err(failed)? else { return Ok(device) };
    let mut fitting = contents.iter().filter(|content| content.has_ext());
    match (fitting.next(), fitting.next()) {
        (Some(one), None) => {
            warn(format_args!("{uri}: using {}, which alone has ext4", one.in_words()));
            open_partition(&device, &one.partition).map_err(failed)
        }
        (Some(_), Some(_)) => {
            let all = contents.iter().filter(|content| content.has_ext()).map(Content::in_words);
            let all = all.collect::<Vec<_>>().join(", ");
            Err(Failure::new(format_args!(
                "{uri} has several partitions with ext4: name one by ?partition=N: {all}"
            )))
        }
        (None, _) => {
            let all = contents.iter().map(Content::in_words).collect::<Vec<_>>().join(", ");
            Err(Failure::new(format_args!(
                "{uri} has a partition table ({}), and no partition of it ext4: {all}",
                table.kind
            )))
        }
    }
}

fn is_ext(signature: Option<&Signature>) -> bool {
    signature.is_some_and(|found| found.name.starts_with("ext"))
}

/// A text of the disk without control characters.
fn harmless(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// The facts of what lies on a whole device.
pub(crate) fn held(found: &Signature) -> Vec<Fact> {
    let label = found.label.clone().unwrap_or_default();
    facts! {
        "holds", "holds": found.name;
        "its label", "fs_label": label => harmless(&label);
        "", "fs_uuid": found.uuid;
    }
}

impl Content {
    fn has_ext(&self) -> bool {
        self.signature.as_ref().is_ok_and(|found| is_ext(found.as_ref()))
    }

    fn holds(&self) -> String {
        match &self.signature {
            Ok(found) => {
                found.as_ref().map_or_else(|| "–".to_owned(), |found| found.name.to_owned())
            }
            Err(why) => why.clone(),
        }
    }

    fn in_words(&self) -> String {
        let Self { partition: Partition { number, label, .. }, .. } = self;
        let label =
            if label.is_empty() { String::new() } else { format!(" {:?}", harmless(label)) };
        format!("partition {number}{label} ({})", self.holds())
    }

    /// The facts of a partition on a device with blocks of `block_bytes`.
    pub(crate) fn facts(&self, block_bytes: u32) -> Vec<Fact> {
        let Partition { number, first_lba, blocks, type_code, type_name, label, uuid } =
            &self.partition;
        let bytes = blocks.saturating_mul(u64::from(block_bytes));
        let found = self.signature.as_ref().ok().and_then(Option::as_ref);
        let fs_label = found.and_then(|found| found.label.clone()).unwrap_or_default();
        facts! {
            "partition", "number": number;
            "first block", "first_lba": first_lba;
            "size", "bytes": bytes => figures::bytes(bytes);
            "", "blocks": blocks;
            "type", "type": type_code => type_name.unwrap_or(type_code);
            "name", "label": label => harmless(label);
            "holds", "holds": self.holds();
            "its label", "fs_label": fs_label => harmless(&fs_label);
            "", "fs_uuid": found.and_then(|found| found.uuid.clone());
            "UUID", "uuid": uuid;
        }
    }
}
