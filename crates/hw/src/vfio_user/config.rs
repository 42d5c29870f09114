//! The function's configuration space: identification and control.

use meantime_nvme_spec::pci::{
    CLASS_NVME, CONFIG_BYTES, ConfigHeader, MsixCapability, MsixControl, ParkingCapability,
    capabilities, capability, command, find_capability, offset,
};
use zerocopy::FromBytes;

use super::connection::Connection;
use super::error::{Result, UserError};
use super::region_access;

use meantime_nvme_spec::vfio_user::region;

/// The relevant content of the configuration space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Config {
    /// The MSI-X capability, if there is one.
    pub(super) msix: Option<Msix>,
    /// Offset in BAR0 of the word in which our software SSD shows that its thread has parked.
    pub(super) parked_offset: Option<u32>,
}

/// The function's MSI-X capability.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Msix {
    /// Offset of its control register.
    control_at: u64,
    control: MsixControl,
    /// Number of vectors in the table.
    pub(super) vectors: u16,
}

impl Config {
    /// Reads it, enables DMA, and switches the function's interrupts off. This undoes the last
    /// client's settings, which outlast connections, and some servers' reset.
    pub(super) fn prepare(connection: &Connection, max_bytes: u64) -> Result<Self> {
        let bytes = read(connection, max_bytes)?;
        let config = parse(&bytes).map_err(|what| connection.unusable(what))?;
        let (header, _) =
            ConfigHeader::read_from_prefix(&bytes).map_err(|_| connection.unusable("short"))?;
        let value =
            header.command.get() | command::MEMORY | command::BUS_MASTER | command::INTX_DISABLE;
        write16(connection, offset::COMMAND as u64, value)?;
        if let Some(msix) = config.msix {
            msix.enable(connection, false)?;
        }
        Ok(config)
    }
}

impl Msix {
    /// Switches all vectors on or off.
    pub(super) fn enable(self, connection: &Connection, on: bool) -> Result<()> {
        let control = self.control.with_enabled(on).with_masked(false);
        write16(connection, self.control_at, control.0)
    }
}

fn write16(connection: &Connection, at: u64, value: u16) -> Result<()> {
    region_access::write(connection, region::CONFIG, at, &value.to_le_bytes())
}

/// The first 256 bytes: in one access or, if that is refused, by dwords as on hardware.
fn read(connection: &Connection, max_bytes: u64) -> Result<[u8; CONFIG_BYTES]> {
    let mut bytes = [0; CONFIG_BYTES];
    if max_bytes >= CONFIG_BYTES as u64 {
        match region_access::read(connection, region::CONFIG, 0, &mut bytes) {
            Err(UserError::Refused { .. }) => {}
            result => return result.map(|()| bytes),
        }
    }
    for (index, dword) in bytes.chunks_exact_mut(4).enumerate() {
        region_access::read(connection, region::CONFIG, 4 * index as u64, dword)?;
    }
    Ok(bytes)
}

fn parse(bytes: &[u8; CONFIG_BYTES]) -> std::result::Result<Config, String> {
    let Ok((header, _)) = ConfigHeader::read_from_prefix(bytes) else {
        return Err("its configuration space is too short".into());
    };
    if header.class_code() != CLASS_NVME {
        let class = header.class_code();
        return Err(format!(
            "its class code is {class:#08x}, not that of an NVMe controller ({CLASS_NVME:#08x})"
        ));
    }
    let msix = find_capability::<MsixCapability>(bytes, capability::MSIX).map(|(at, msix)| {
        let control = MsixControl(msix.control.get());
        Msix { control_at: at as u64 + 2, control, vectors: control.table_size() + 1 }
    });
    let parked_offset =
        capabilities(bytes).filter(|&(_, id)| id == capability::VENDOR).find_map(|(at, _)| {
            let (parking, _) = ParkingCapability::read_from_prefix(bytes.get(at..)?).ok()?;
            let ours = parking.magic == ParkingCapability::MAGIC
                && usize::from(parking.len) >= size_of::<ParkingCapability>();
            ours.then(|| parking.parked_offset.get())
        });
    Ok(Config { msix, parked_offset })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(entries: &[(usize, &[u8])]) -> [u8; 256] {
        let mut bytes = [0; 256];
        bytes[0x06] = 0x10;
        bytes[0x09..0x0c].copy_from_slice(&[0x02, 0x08, 0x01]);
        for (at, entry) in entries {
            bytes[*at..at + entry.len()].copy_from_slice(entry);
        }
        bytes
    }

    #[test]
    fn msix_and_parking_are_found() {
        let bytes = config(&[
            (0x34, &[0x40]),
            (0x40, &[0x09, 0x50, 8, 1, b'o', b't', b'h', b'e']),
            (0x50, &[0x11, 0x60, 0x08, 0x80, 0, 0x20, 0, 0, 0, 0x30, 0, 0]),
            (0x60, &[0x09, 0x00, 12, 1, b'M', b'T', b'p', b'k', 0x00, 0x50, 0x00, 0x00]),
        ]);
        let config = parse(&bytes).unwrap();
        assert_eq!(config.parked_offset, Some(0x5000));
        let msix = config.msix.unwrap();
        assert_eq!((msix.control_at, msix.vectors, msix.control.enabled()), (0x52, 9, true));
    }

    #[test]
    fn a_function_without_either() {
        assert_eq!(parse(&config(&[])), Ok(Config { msix: None, parked_offset: None }));
        // Our capability, but truncated.
        let short = config(&[
            (0x34, &[0x40]),
            (0x40, &[0x09, 0, 8, 1, b'M', b'T', b'p', b'k', 0, 0x50, 0, 0]),
        ]);
        assert_eq!(parse(&short).unwrap().parked_offset, None);
    }

    #[test]
    fn another_class_is_refused() {
        let network = config(&[(0x09, &[0x00, 0x00, 0x02])]);
        assert!(parse(&network).unwrap_err().contains("class code is 0x020000"));
        assert!(parse(&[0xff; 256]).is_err());
    }
}
