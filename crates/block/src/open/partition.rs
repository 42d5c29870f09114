//! The partitions of a device, each of which is a device of its own.
//!
//! A partition is a range of blocks below everything else: requests of its channels cannot name a
//! block outside of it. A flush covers the whole namespace, as NVMe's Flush does. What a program
//! does with the [controller](super::super::NvmeDevice::controller) itself knows no partition.

use meantime_partitions::{Partition, Selector, Signature, Size, Table};

use super::super::any::{Channel, Device};
use super::super::device::{BlockChannel as _, BlockDevice as _, ChannelOptions};
use super::super::error::OpenError;
use super::super::options::Access;

const BEYOND: &str = "the partition reaches beyond the end of the device, or has no blocks";

/// The partition table of `device`; `None` if it has none.
///
/// # Errors
/// [`OpenError::Partition`], if it is damaged or cannot be read.
pub fn partitions(device: &Device) -> Result<Option<Table>, OpenError> {
    let mut channel = channel(device)?;
    let mut read = |data: &mut [u8], offset: u64| channel.read_at(data, offset);
    Table::read(&mut read, size(device)).map_err(|error| failed(device, error))
}

/// What the signature at the beginning of `device` says that it holds, e.g. a file system; `None`
/// if it has none that is known.
///
/// # Errors
/// [`OpenError::Partition`], if it cannot be read.
pub fn signature(device: &Device) -> Result<Option<Signature>, OpenError> {
    let mut channel = channel(device)?;
    let mut read = |data: &mut [u8], offset: u64| channel.read_at(data, offset);
    meantime_partitions::signature(&mut read, size(device)).map_err(|error| failed(device, error))
}

/// What the signature of each of `partitions` says that it holds. One channel of `device` reads them
/// all.
///
/// # Errors
/// [`OpenError::Partition`] if there is no channel, or of each partition that cannot be read.
pub fn signatures(
    device: &Device,
    partitions: &[Partition],
) -> Result<Vec<Result<Option<Signature>, OpenError>>, OpenError> {
    let mut channel = channel(device)?;
    let block_bytes = device.info().block_bytes;
    let mut of = |partition: &Partition| {
        let end = partition.first_lba.checked_add(partition.blocks);
        if end.is_none_or(|end| end > device.info().blocks) {
            return Err(failed(device, BEYOND));
        }
        let first_byte = partition.first_lba * u64::from(block_bytes);
        let mut read = |data: &mut [u8], offset: u64| channel.read_at(data, first_byte + offset);
        let size = Size { block_bytes, blocks: partition.blocks };
        meantime_partitions::signature(&mut read, size).map_err(|error| failed(device, error))
    };
    Ok(partitions.iter().map(&mut of).collect())
}

/// A partition of `device` as a device of its own. Its name is the device's with `partition=`.
///
/// # Errors
/// [`OpenError::Partition`], if the device does not have all of its blocks.
pub fn open_partition(device: &Device, partition: &Partition) -> Result<Device, OpenError> {
    let uri = &device.info().uri;
    let joint = if uri.contains('?') { '&' } else { '?' };
    part_of(device, format!("{uri}{joint}partition={}", partition.number), partition)
}

/// The partition of `device` that `selector` names, as a device with the name `uri`.
pub(super) fn select(device: &Device, uri: &str, selector: &Selector) -> Result<Device, OpenError> {
    let table = partitions(device)?
        .ok_or_else(|| failed(device, "it has no partition table: leave partition= out"))?;
    for remark in &table.remarks {
        tracing::warn!(uri, "{remark}");
    }
    let partition = table.select(selector, size(device)).map_err(|what| failed(device, what))?;
    part_of(device, uri.to_owned(), partition)
}

/// The device, for reading only if something lies on it that writing it would destroy.
pub(super) fn protected(device: Device, access: Access) -> Result<Device, OpenError> {
    if access == Access::Read || device.read_only().is_some() {
        return Ok(device);
    }
    let Some(found) = signature(&device)? else { return Ok(device) };
    let uri = device.info().uri.clone();
    let why = format!(
        "there is {} on it, which would be lost; overwrite=1 in the device's URI permits that",
        found.text
    );
    match access {
        Access::ReadWrite => Err(OpenError::ReadOnly { uri, why }),
        _ => Ok(device.with_read_only(why)),
    }
}

fn part_of(device: &Device, uri: String, partition: &Partition) -> Result<Device, OpenError> {
    let part = device.clone().part_of(uri, partition.first_lba, partition.blocks);
    part.ok_or_else(|| failed(device, BEYOND))
}

fn channel(device: &Device) -> Result<Channel, OpenError> {
    let options = ChannelOptions { depth: 1, interrupt: Some(false), ..ChannelOptions::default() };
    device.channel(&options).map_err(|error| failed(device, error))
}

fn failed(device: &Device, what: impl ToString) -> OpenError {
    OpenError::Partition { uri: device.info().uri.clone(), what: what.to_string() }
}

fn size(device: &Device) -> Size {
    let info = device.info();
    Size { block_bytes: info.block_bytes, blocks: info.blocks }
}
