//! PCI configuration space, as far as an NVMe function has one (PCI Local Bus 3.0 §6.1 and §6.8.2,
//! PCI Express 3.0 §7.5 and §7.8, NVMe Base 1.4 §2).

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, KnownLayout};

use crate::bytes::Reserved;

/// Class code of an NVM Express I/O controller: mass storage, non-volatile memory, NVMe (NVMe Base
/// 1.4 §2.1.5).
pub const CLASS_NVME: u32 = 0x01_08_02;

/// Bytes of the configuration space that every function has.
pub const CONFIG_BYTES: usize = 256;

/// Bytes of the configuration space of a PCI Express function.
pub const EXPRESS_CONFIG_BYTES: usize = 4096;

/// Offsets in configuration space (PCI 3.0 §6.1).
pub mod offset {
    use core::mem::offset_of;

    use super::ConfigHeader;

    /// Vendor ID.
    pub const VENDOR_ID: usize = offset_of!(ConfigHeader, vendor_id);
    /// Device ID.
    pub const DEVICE_ID: usize = offset_of!(ConfigHeader, device_id);
    /// Command.
    pub const COMMAND: usize = offset_of!(ConfigHeader, command);
    /// Status.
    pub const STATUS: usize = offset_of!(ConfigHeader, status);
    /// Class code, after the revision.
    pub const CLASS: usize = offset_of!(ConfigHeader, class);
    /// Base address register 0.
    pub const BAR0: usize = offset_of!(ConfigHeader, bars);
    /// Base address register 5.
    pub const BAR5: usize = BAR0 + 5 * 4;
    /// Where the list of capabilities begins.
    pub const CAPABILITIES: usize = offset_of!(ConfigHeader, capabilities);
    /// Interrupt line.
    pub const INTERRUPT_LINE: usize = offset_of!(ConfigHeader, interrupt_line);
}

/// Bits of the command register (PCI 3.0 §6.2.2).
pub mod command {
    /// Memory decoding.
    pub const MEMORY: u16 = 1 << 1;
    /// May begin transactions: DMA, and MSI.
    pub const BUS_MASTER: u16 = 1 << 2;
    /// INTx is off.
    pub const INTX_DISABLE: u16 = 1 << 10;
}

/// Bits of the status register (PCI 3.0 §6.2.3).
pub mod status {
    /// There is a list of capabilities.
    pub const CAPABILITIES: u16 = 1 << 4;
}

/// Capability identifiers (PCI Code and ID Assignment §2).
pub mod capability {
    /// Power management.
    pub const POWER_MANAGEMENT: u8 = 0x01;
    /// Vendor specific: a byte of length follows the header.
    pub const VENDOR: u8 = 0x09;
    /// PCI Express.
    pub const EXPRESS: u8 = 0x10;
    /// MSI-X.
    pub const MSIX: u8 = 0x11;
}

wire! {
    /// What every type 0 function begins with (PCI 3.0 §6.1, figure 6-1).
    pub struct ConfigHeader, 64, Copy {
        /// Vendor ID.
        0 pub vendor_id: U16,
        /// Device ID.
        2 pub device_id: U16,
        /// Command.
        4 pub command: U16,
        /// Status.
        6 pub status: U16,
        /// Revision ID.
        8 pub revision: u8,
        /// Programming interface, subclass, base class.
        9 pub class: [u8; 3],
        /// Cache line size.
        12 pub cache_line: u8,
        /// Latency timer.
        13 pub latency: u8,
        14 unused_14: Reserved<2>,
        /// Base address registers.
        16 pub bars: [U32; 6],
        40 unused_40: Reserved<12>,
        /// Where the list of capabilities begins.
        52 pub capabilities: u8,
        /// Reserved.
        53 pub reserved: [u8; 7],
        /// Interrupt line.
        60 pub interrupt_line: u8,
        61 unused_61: Reserved<2>,
        /// Maximum latency.
        63 pub max_latency: u8,
    }
}

impl ConfigHeader {
    /// Base class, subclass and programming interface in one number, with the layout of
    /// [`CLASS_NVME`].
    #[must_use]
    pub const fn class_code(&self) -> u32 {
        (self.class[2] as u32) << 16 | (self.class[1] as u32) << 8 | self.class[0] as u32
    }
}

bitfields! {
    /// Message Control of MSI-X (PCI 3.0 §6.8.2.3).
    MsixControl(u16) {
        /// Entries of the table, 0's based.
        [10:0] table_size with_table_size: u16,
        /// All vectors are masked.
        [14] masked with_masked: bool,
        /// MSI-X is on.
        [15] enabled with_enabled: bool,
    }
    /// Table or PBA Offset and BIR of MSI-X (PCI 3.0 §6.8.2.4 and §6.8.2.5).
    MsixPlace(u32) {
        /// Which BAR.
        [2:0] bir with_bir: u8,
        /// Offset in the BAR, in units of 8 bytes.
        [31:3] offset_qwords with_offset_qwords: u32,
    }
}

impl MsixPlace {
    /// Offset in the BAR in bytes.
    #[must_use]
    pub const fn offset_bytes(self) -> u32 {
        self.offset_qwords() << 3
    }
}

wire! {
    /// The MSI-X capability (PCI 3.0 §6.8.2).
    pub struct MsixCapability, 12, Copy {
        /// [`capability::MSIX`].
        0 pub id: u8,
        /// Offset of the next capability; 0: none.
        1 pub next: u8,
        /// [`MsixControl`].
        2 pub control: U16,
        /// [`MsixPlace`] of the table.
        4 pub table: U32,
        /// [`MsixPlace`] of the pending bits.
        8 pub pba: U32,
    }
}

/// Bytes of an entry of the MSI-X table (PCI 3.0 §6.8.2, figure 6-11).
pub const MSIX_ENTRY_BYTES: u32 = 16;

wire! {
    /// The vendor specific capability of this project's software SSD. It locates the flag that says
    /// whether the SSD's thread is parked.
    pub struct ParkingCapability, 12, Copy {
        /// [`capability::VENDOR`].
        0 pub id: u8,
        /// Offset of the next capability; 0: none.
        1 pub next: u8,
        /// Length of the capability in bytes, which is [`size_of`] this.
        2 pub len: u8,
        /// Version: 1.
        3 pub version: u8,
        /// [`ParkingCapability::MAGIC`].
        4 pub magic: [u8; 4],
        /// Offset in BAR0 of a 32-bit word that is not 0 while the controller's thread is parked. A
        /// client that has stored a submission queue tail doorbell in shared memory and then, after
        /// a full fence, finds this word set must write that doorbell once more by a message. It
        /// must wait for the reply before storing to it again: a later message would undo the
        /// store.
        8 pub parked_offset: U32,
    }
}

impl ParkingCapability {
    /// Distinguishes this capability from other vendor specific ones.
    pub const MAGIC: [u8; 4] = *b"MTpk";
}

/// The offsets and identifiers of the capabilities in `config`. `config` comes from a device and
/// may hold anything: at most as many capabilities are returned as there is room for, and none
/// outside of it.
pub fn capabilities(config: &[u8]) -> impl Iterator<Item = (usize, u8)> + '_ {
    /// A capability has at least a dword, and none begins in the header.
    const MOST: usize = (CONFIG_BYTES - size_of::<ConfigHeader>()) / 4;
    let status = config.get(offset::STATUS).copied().unwrap_or(0);
    let first = config
        .get(offset::CAPABILITIES)
        .copied()
        .filter(|_| u16::from(status) & status::CAPABILITIES != 0);
    let entry = |at: usize| {
        let header = (at >= size_of::<ConfigHeader>()).then(|| config.get(at..at + 2))??;
        (header[0] != 0xff).then_some((at, header[0], header[1]))
    };
    // The lower two bits are reserved (PCI 3.0 §6.7).
    let place = |pointer: u8| usize::from(pointer & !3);
    let mut next = first.map(place);
    (0..MOST).map_while(move |_| {
        let (at, id, pointer) = entry(next?)?;
        next = Some(place(pointer));
        Some((at, id))
    })
}

/// The capability `T` of `config` that begins with `id`, if it is there and whole.
pub fn find_capability<T: FromBytes + KnownLayout + Immutable>(
    config: &[u8],
    id: u8,
) -> Option<(usize, T)> {
    let (at, _) = capabilities(config).find(|&(_, found)| found == id)?;
    Some((at, T::read_from_prefix(config.get(at..)?).ok()?.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(entries: &[(usize, &[u8])]) -> [u8; 256] {
        let mut config = [0; 256];
        config[offset::STATUS] = 0x10;
        for (at, bytes) in entries {
            config[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        config
    }

    #[test]
    fn the_list_is_walked() {
        // QEMU 7.2's nvme: MSI-X at 40h with 65 entries, table in BAR0 at 2000h, PBA at 3000h, then
        // Express at 80h, then PM at 60h.
        let config = config(&[
            (0x34, &[0x40]),
            (0x40, &[0x11, 0x80, 0x40, 0x00, 0x00, 0x20, 0, 0, 0x00, 0x30, 0, 0]),
            (0x80, &[0x10, 0x60]),
            (0x60, &[0x01, 0x00]),
        ]);
        let found: Vec<_> = capabilities(&config).collect();
        assert_eq!(found, [(0x40, 0x11), (0x80, 0x10), (0x60, 0x01)]);
        let (at, msix): (usize, MsixCapability) =
            find_capability(&config, capability::MSIX).unwrap();
        let control = MsixControl(msix.control.get());
        assert_eq!((at, control.table_size(), control.enabled()), (0x40, 64, false));
        assert_eq!(MsixPlace(msix.table.get()).offset_bytes(), 0x2000);
        assert_eq!(MsixPlace(msix.pba.get()).offset_bytes(), 0x3000);
    }

    #[test]
    fn malformed_lists_end() {
        // Circular; into the header; beyond the end; of a device that is gone; no list at all.
        let circle = config(&[(0x34, &[0x40]), (0x40, &[0x05, 0x40])]);
        assert_eq!(capabilities(&circle).count(), 48);
        assert_eq!(capabilities(&config(&[(0x34, &[0x10])])).count(), 0);
        assert_eq!(capabilities(&[0xff; 256]).count(), 0);
        assert_eq!(
            capabilities(&config(&[(0x34, &[0xfc]), (0xfc, &[0x01, 0x00])])[..0xfd]).count(),
            0
        );
        assert_eq!(capabilities(&[0; 256]).count(), 0);
        assert_eq!(capabilities(&[]).count(), 0);
        assert!(
            find_capability::<MsixCapability>(
                &config(&[(0x34, &[0xfc]), (0xfc, &[0x11, 0])]),
                0x11
            )
            .is_none()
        );
    }
}
