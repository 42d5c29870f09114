//! The server's description of its device, validated.

use std::os::fd::OwnedFd;

use meantime_nvme_spec::vfio_user::{
    CapabilityHeader, Command, DeviceInfo, IrqInfo, RegionInfo, SparseArea, SparseMmap, device,
    irq, region,
};
use zerocopy::{FromBytes, IntoBytes};

use super::connection::{Connection, Reply};
use super::error::Result;

/// The longest region description that is requested, in bytes: some hundred areas.
const MAX_REGION_INFO_BYTES: u32 = 4096;

/// Room in a reply for fields beyond this version of the protocol.
const SPARE_BYTES: usize = 64;

const REGION_INFO_BYTES: u32 = size_of::<RegionInfo>() as u32;

/// The properties of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Device {
    /// Whether it can be reset by message.
    pub(super) resets: bool,
    /// Number of kinds of interrupts.
    pub(super) irqs: u32,
}

/// A region that can be read and written.
#[derive(Debug)]
pub(super) struct Region {
    /// Length in bytes.
    pub(super) bytes: u64,
    /// Its offset in the files.
    pub(super) file_offset: u64,
    /// The mappable areas: inside the region, in ascending order, without overlap.
    pub(super) areas: Vec<Area>,
    /// Their files: one for each area, or one for all; none if there are no areas.
    pub(super) files: Vec<OwnedFd>,
}

/// An area of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Area {
    /// Its offset in the region; a multiple of the page size.
    pub(super) offset: u64,
    /// Length in bytes; a multiple of the page size, not 0.
    pub(super) bytes: u64,
    /// Index of its file.
    pub(super) file: usize,
}

/// Queries the device, which must be a PCI function with a configuration space.
pub(super) fn device(connection: &Connection) -> Result<Device> {
    let ask =
        DeviceInfo { argsz: (size_of::<DeviceInfo>() as u32).into(), ..DeviceInfo::default() };
    let most = size_of::<DeviceInfo>() + SPARE_BYTES;
    let reply = connection.request(Command::DeviceGetInfo, &[ask.as_bytes()], None, most)?;
    let Some((info, _)) = reply.split::<DeviceInfo>() else {
        return Err(
            connection.protocol(format!("{} bytes in reply to DEVICE_GET_INFO", reply.body.len()))
        );
    };
    let flags = info.flags.get();
    if flags & device::PCI == 0 {
        return Err(connection.unusable("it is no PCI function"));
    }
    if info.regions.get() <= region::CONFIG {
        return Err(connection.unusable(format!("it has {} regions, too few", info.regions.get())));
    }
    Ok(Device { resets: flags & device::RESET != 0, irqs: info.irqs.get() })
}

/// Number of MSI-X vectors that support eventfds.
pub(super) fn msix_vectors(connection: &Connection, device: &Device) -> Result<u32> {
    if device.irqs <= irq::MSIX {
        return Ok(0);
    }
    let argsz = size_of::<IrqInfo>() as u32;
    let ask = IrqInfo { argsz: argsz.into(), index: irq::MSIX.into(), ..IrqInfo::default() };
    let most = size_of::<IrqInfo>() + SPARE_BYTES;
    let reply = connection.request(Command::DeviceGetIrqInfo, &[ask.as_bytes()], None, most)?;
    let Some((info, _)) = reply.split::<IrqInfo>() else {
        return Err(connection
            .protocol(format!("{} bytes in reply to DEVICE_GET_IRQ_INFO", reply.body.len())));
    };
    if info.index.get() != irq::MSIX {
        return Err(connection
            .protocol(format!("interrupt {} where MSI-X was asked for", info.index.get())));
    }
    Ok(if info.flags.get() & irq::INFO_EVENTFD == 0 { 0 } else { info.count.get() })
}

/// Queries region `index`.
pub(super) fn region(connection: &Connection, index: u32) -> Result<Region> {
    let mut reply = ask_region(connection, index, REGION_INFO_BYTES)?;
    let whole = first_part(connection, index, &reply)?.argsz.get();
    // The description is longer than the buffer: it has a list of areas, and their files.
    if whole > REGION_INFO_BYTES {
        if whole > MAX_REGION_INFO_BYTES {
            return Err(connection.protocol(format!("{whole} bytes to describe region {index}")));
        }
        reply = ask_region(connection, index, whole)?;
    }
    let info = first_part(connection, index, &reply)?;
    let Reply { body, fds } = reply;
    let checked = check(&info, &body, fds.len());
    let (bytes, areas) =
        checked.map_err(|what| connection.protocol(format!("region {index}: {what}")))?;
    let need = region::READ | region::WRITE;
    if info.flags.get() & need != need {
        return Err(connection.unusable(format!("its region {index} cannot be read and written")));
    }
    Ok(Region { bytes, file_offset: info.offset.get(), areas, files: fds })
}

fn ask_region(connection: &Connection, index: u32, argsz: u32) -> Result<Reply> {
    let ask = RegionInfo { argsz: argsz.into(), index: index.into(), ..RegionInfo::default() };
    let most = argsz as usize;
    connection.request(Command::DeviceGetRegionInfo, &[ask.as_bytes()], None, most)
}

fn first_part(connection: &Connection, index: u32, reply: &Reply) -> Result<RegionInfo> {
    match reply.split::<RegionInfo>() {
        Some((info, _)) if info.index.get() == index => Ok(info),
        Some((info, _)) => {
            Err(connection
                .protocol(format!("region {} where {index} was asked for", info.index.get())))
        }
        None => {
            Err(connection
                .protocol(format!("{} bytes to describe region {index}", reply.body.len())))
        }
    }
}

const PAGE_BYTES: u64 = 4096;

/// The region's size and areas, validated: `info` is the begin of `body`, and `files` came with it.
fn check(
    info: &RegionInfo,
    body: &[u8],
    files: usize,
) -> std::result::Result<(u64, Vec<Area>), String> {
    let (bytes, file_offset) = (info.size.get(), info.offset.get());
    if info.flags.get() & region::MMAP == 0 || bytes == 0 {
        return Ok((bytes, Vec::new()));
    }
    let sparse = if info.flags.get() & region::CAPS != 0 {
        sparse_areas(info.cap_offset.get(), body)?
    } else {
        None
    };
    let mut areas: Vec<Area> = match sparse {
        Some(areas) => {
            if files == 0 && !areas.is_empty() {
                return Err("areas to map, and no file to map them from".into());
            }
            if files > 1 && files < areas.len() {
                return Err(format!("{} areas to map, and {files} files", areas.len()));
            }
            let area = |(index, area): (usize, &SparseArea)| Area {
                offset: area.offset.get(),
                bytes: area.len.get(),
                file: if files == 1 { 0 } else { index },
            };
            areas.iter().enumerate().map(area).collect()
        }
        // Mappable as a whole; without a file, as with some servers, accessible by messages only.
        None if files == 0 => Vec::new(),
        None => vec![Area { offset: 0, bytes, file: 0 }],
    };
    for area in &areas {
        let odd = |part: u64| !part.is_multiple_of(PAGE_BYTES);
        let end = area.offset.checked_add(area.bytes);
        if end.is_none_or(|end| end > bytes) {
            return Err(format!(
                "an area at {:#x}, {:#x} bytes, of {bytes:#x}",
                area.offset, area.bytes
            ));
        }
        let file_end = end.and_then(|end| end.checked_add(file_offset));
        if area.bytes == 0
            || odd(area.offset)
            || odd(area.bytes)
            || odd(file_offset)
            || file_end.is_none()
        {
            return Err(format!(
                "an area at {:#x}, {:#x} bytes, its file from {file_offset:#x}: not whole pages",
                area.offset, area.bytes
            ));
        }
    }
    areas.sort_unstable();
    if areas.windows(2).any(|pair| pair[0].offset + pair[0].bytes > pair[1].offset) {
        return Err("areas that overlap".into());
    }
    Ok((bytes, areas))
}

/// The areas in the capability chain at `first`; `None` if there is no list.
fn sparse_areas(first: u32, body: &[u8]) -> std::result::Result<Option<&[SparseArea]>, String> {
    let mut at = first as usize;
    // Offsets must increase, so the chain ends.
    let mut least = REGION_INFO_BYTES as usize;
    while at != 0 {
        if at < least {
            return Err(format!("a capability at {at:#x}, in what comes before it"));
        }
        let rest = body.get(at..).unwrap_or_default();
        let Ok((header, _)) = CapabilityHeader::read_from_prefix(rest) else {
            return Err(format!(
                "a capability at {at:#x}, beyond the {:#x} bytes that came",
                body.len()
            ));
        };
        if header.id.get() == region::CAP_SPARSE_MMAP {
            let count = SparseMmap::read_from_prefix(rest)
                .ok()
                .map(|(sparse, list)| (sparse.areas.get(), list));
            let areas = count.and_then(|(count, list)| {
                <[SparseArea]>::ref_from_prefix_with_elems(list, count as usize).ok()
            });
            return match areas {
                Some((areas, _)) => Ok(Some(areas)),
                None => Err("more areas than came".into()),
            };
        }
        least = at + size_of::<CapabilityHeader>();
        at = header.next.get() as usize;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A description: flags, offset of the capabilities, size, offset in the file; then `rest`.
    fn described(flags: u32, cap_offset: u32, bytes: u64, offset: u64, rest: &[u8]) -> Vec<u8> {
        let argsz = 32 + rest.len() as u32;
        [
            &argsz.to_le_bytes()[..],
            &flags.to_le_bytes(),
            &0u32.to_le_bytes(),
            &cap_offset.to_le_bytes(),
            &bytes.to_le_bytes(),
            &offset.to_le_bytes(),
            rest,
        ]
        .concat()
    }

    /// The capability of sparse areas.
    fn sparse(count: u32, areas: &[(u64, u64)]) -> Vec<u8> {
        let mut bytes = vec![1, 0, 1, 0, 0, 0, 0, 0];
        bytes.extend(count.to_le_bytes());
        bytes.extend([0; 4]);
        for (offset, len) in areas {
            bytes.extend(offset.to_le_bytes());
            bytes.extend(len.to_le_bytes());
        }
        bytes
    }

    fn checked(body: &[u8], files: usize) -> Result<(u64, Vec<Area>), String> {
        let info = RegionInfo::read_from_prefix(body).unwrap().0;
        check(&info, body, files)
    }

    type Result<T, E> = std::result::Result<T, E>;

    /// READ | WRITE | MMAP | CAPS.
    const ALL: u32 = 15;

    #[test]
    fn one_area_as_spdk_has_it() {
        let body = described(ALL, 32, 0x4000, 0, &sparse(1, &[(0x1000, 0x1000)]));
        assert_eq!(
            checked(&body, 1),
            Ok((0x4000, vec![Area { offset: 0x1000, bytes: 0x1000, file: 0 }]))
        );
    }

    #[test]
    fn several_areas_of_one_file_or_of_several() {
        let body = described(ALL, 32, 0x4000, 0, &sparse(2, &[(0x3000, 0x1000), (0x1000, 0x1000)]));
        let files = |files| {
            checked(&body, files).unwrap().1.iter().map(|area| area.file).collect::<Vec<_>>()
        };
        assert_eq!(files(1), [0, 0]);
        assert_eq!(files(2), [1, 0]);
        assert!(checked(&body, 0).is_err());
    }

    #[test]
    fn other_capabilities_are_skipped() {
        let mut rest = vec![2, 0, 1, 0, 48, 0, 0, 0, 9, 9, 9, 9, 9, 9, 9, 9];
        rest.extend(sparse(1, &[(0x1000, 0x1000)]));
        assert_eq!(checked(&described(ALL, 32, 0x4000, 0, &rest), 1).unwrap().1.len(), 1);
        // An unknown capability: the whole region.
        rest[4] = 0;
        let whole = Area { offset: 0, bytes: 0x4000, file: 0 };
        assert_eq!(checked(&described(ALL, 32, 0x4000, 0, &rest), 1).unwrap().1, [whole]);
    }

    #[test]
    fn a_whole_region() {
        assert_eq!(checked(&described(7, 0, 0x4000, 0, &[]), 1).unwrap().1.len(), 1);
        // Not mappable, or without a file.
        assert_eq!(checked(&described(3, 0, 0x4000, 0, &[]), 1), Ok((0x4000, vec![])));
        assert_eq!(checked(&described(7, 0, 0x4000, 0, &[]), 0), Ok((0x4000, vec![])));
    }

    #[test]
    fn invalid_areas_are_refused() {
        let huge = u64::MAX - 0xfff;
        for areas in [
            &[(0x800, 0x1000)][..],
            &[(0x1000, 0x800)],
            &[(0x1000, 0)],
            &[(0x4000, 0x1000)],
            &[(0x1000, 0x4000)],
            &[(huge, 0x1000)],
            &[(0x1000, huge)],
            &[(0x1000, 0x2000), (0x2000, 0x1000)],
            &[(0x1000, 0x1000), (0x1000, 0x1000)],
        ] {
            let body = described(ALL, 32, 0x4000, 0, &sparse(areas.len() as u32, areas));
            assert!(checked(&body, 1).is_err(), "{areas:x?}");
        }
        let fine = sparse(1, &[(0x1000, 0x1000)]);
        assert!(checked(&described(ALL, 32, 0x4000, 0x800, &fine), 1).is_err(), "odd in the file");
        assert!(checked(&described(ALL, 32, 0x4000, huge, &fine), 1).is_err(), "beyond any file");
    }

    #[test]
    fn lists_that_make_no_sense() {
        let fine = sparse(1, &[(0x1000, 0x1000)]);
        for at in [1, 16, 31, 61, 64, u32::MAX] {
            assert!(checked(&described(ALL, at, 0x4000, 0, &fine), 1).is_err(), "at {at}");
        }
        for count in [2, 0x1000_0001, u32::MAX] {
            let body = described(ALL, 32, 0x4000, 0, &sparse(count, &[(0x1000, 0x1000)]));
            assert!(checked(&body, 1).is_err(), "{count} areas");
        }
        // A loop.
        let circle = [2, 0, 1, 0, 32, 0, 0, 0];
        assert!(checked(&described(ALL, 32, 0x4000, 0, &circle), 1).is_err());
        // Every truncated length.
        let body = described(ALL, 32, 0x4000, 0, &fine);
        for len in 32..body.len() {
            assert!(checked(&body[..len], 1).is_err(), "{len} bytes");
        }
    }
}
