//! The function's configuration space.
//!
//! Written values are kept and read back, without other effects. Interrupts depend on the eventfds
//! that a client has installed, whatever MSI-X Enable says (with the kernel's vfio, installing them
//! sets it), and DMA depends on the mappings. So a driver that forgets bus mastering works here.

use meantime_nvme_spec::pci::{
    self, CLASS_NVME, EXPRESS_CONFIG_BYTES, MSIX_ENTRY_BYTES, MsixCapability, MsixControl,
    MsixPlace, ParkingCapability, capability, command, offset,
};
use zerocopy::IntoBytes as _;

use super::bars::Bars;

/// The PCI vendor, which is Red Hat, as for most virtual PCI functions.
pub const VENDOR_ID: u16 = 0x1b36;
/// The PCI device, which is unassigned under that vendor. It is not QEMU's 0010h, for which drivers
/// have workarounds that are not needed here.
pub const DEVICE_ID: u16 = 0x4d54;

/// Offsets of the capabilities, in the order of their list.
mod at {
    pub(super) const PM: usize = 0x40;
    pub(super) const MSIX: usize = 0x50;
    pub(super) const PARKING: usize = 0x60;
    pub(super) const EXPRESS: usize = 0x80;
}

/// Offset of the control and status register in the power management capability (PCI PM 1.2
/// §3.2.4).
const PMCSR: usize = at::PM + 4;
/// No_Soft_Reset says that nothing is lost between D3hot and D0.
const NO_SOFT_RESET: u8 = 1 << 3;
/// PowerState.
const POWER_STATE: u8 = 0b11;

/// Offset of Device Control in the Express capability (PCIe 3.0 §7.8.4).
const DEVICE_CONTROL: usize = at::EXPRESS + 8;
/// Initiate Function Level Reset, in the upper byte.
const INITIATE_FLR: u8 = 1 << 7;

/// The configuration space.
pub(super) struct ConfigSpace {
    bytes: [u8; EXPRESS_CONFIG_BYTES],
    /// The writable bits, which are set here.
    writable: [u8; EXPRESS_CONFIG_BYTES],
    power_on: Box<[u8; EXPRESS_CONFIG_BYTES]>,
}

/// The effect of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrote {
    /// The write has no effect.
    Plain,
    /// The write resets the function.
    FunctionReset,
}

impl ConfigSpace {
    /// Returns the state after power-on, for a function with `bars`.
    pub(super) fn new(bars: &Bars) -> Self {
        let mut space = Self {
            bytes: [0; EXPRESS_CONFIG_BYTES],
            writable: [0; EXPRESS_CONFIG_BYTES],
            power_on: Box::new([0; EXPRESS_CONFIG_BYTES]),
        };
        space.put(offset::VENDOR_ID, &VENDOR_ID.to_le_bytes());
        space.put(offset::DEVICE_ID, &DEVICE_ID.to_le_bytes());
        space.put(offset::STATUS, &pci::status::CAPABILITIES.to_le_bytes());
        space.put(offset::CLASS, &CLASS_NVME.to_le_bytes()[..3]);
        space.put(0x2c, &VENDOR_ID.to_le_bytes());
        space.put(0x2e, &DEVICE_ID.to_le_bytes());
        space.put(offset::CAPABILITIES, &[at::PM as u8]);
        // These are the bits that matter, and Parity Error Response and SERR# Enable.
        let command =
            command::MEMORY | command::BUS_MASTER | command::INTX_DISABLE | 1 << 6 | 1 << 8;
        space.allow(offset::COMMAND, &command.to_le_bytes());
        // Cache line size and interrupt line belong to software.
        space.allow(0x0c, &[0xff]);
        space.allow(offset::INTERRUPT_LINE, &[0xff]);
        for (bar, bytes) in [(0, bars.bar0_bytes), (4, bars.msix_bytes)] {
            let at = offset::BAR0 + bar * 4;
            // The region is in memory, 64-bit, and not prefetchable.
            space.put(at, &[0b0100]);
            space.allow(at, &(!(bytes - 1)).to_le_bytes());
        }
        space.add_capabilities(bars);
        *space.power_on = space.bytes;
        space
    }

    fn add_capabilities(&mut self, bars: &Bars) {
        // The capability has version 3, with D0 and D3hot only.
        self.put(
            at::PM,
            &[capability::POWER_MANAGEMENT, at::MSIX as u8, 0x03, 0x00, NO_SOFT_RESET, 0, 0, 0],
        );
        self.allow(PMCSR, &[POWER_STATE]);

        let place = |bytes: u64| MsixPlace(0).with_bir(4).with_offset_qwords((bytes >> 3) as u32);
        let msix = MsixCapability {
            id: capability::MSIX,
            next: at::PARKING as u8,
            control: MsixControl(0).with_table_size(bars.vectors - 1).0.into(),
            table: place(0).0.into(),
            pba: place(bars.pba_offset()).0.into(),
        };
        self.put(at::MSIX, msix.as_bytes());
        self.allow(
            at::MSIX + 2,
            &MsixControl(0).with_masked(true).with_enabled(true).0.to_le_bytes(),
        );

        let parking = ParkingCapability {
            id: capability::VENDOR,
            next: at::EXPRESS as u8,
            len: size_of::<ParkingCapability>() as u8,
            version: 1,
            magic: ParkingCapability::MAGIC,
            parked_offset: bars.parked_offset().into(),
        };
        self.put(at::PARKING, parking.as_bytes());

        // The function is an endpoint of version 2, with function level reset and role-based error
        // reporting. Its link has 8 GT/s by 4 lanes, and is up.
        self.put(at::EXPRESS, &[capability::EXPRESS, 0, 0x02, 0x00]);
        self.put(at::EXPRESS + 0x04, &0x1000_8000u32.to_le_bytes());
        self.put(DEVICE_CONTROL, &0x2000u16.to_le_bytes());
        self.put(at::EXPRESS + 0x0c, &0x0000_0043u32.to_le_bytes());
        self.put(at::EXPRESS + 0x12, &0x0043u16.to_le_bytes());
        self.put(at::EXPRESS + 0x2c, &0x0000_000eu32.to_le_bytes());
        self.put(at::EXPRESS + 0x30, &0x0003u16.to_le_bytes());
        // These are error reporting, relaxed ordering, no snoop and read request size.
        self.allow(DEVICE_CONTROL, &0x781fu16.to_le_bytes());
        self.allow(at::EXPRESS + 0x10, &0x00c3u16.to_le_bytes());
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn allow(&mut self, at: usize, bits: &[u8]) {
        self.writable[at..at + bits.len()].copy_from_slice(bits);
    }

    /// Reads the bytes at `offset`, which must be within.
    pub(super) fn read(&self, offset: usize, to: &mut [u8]) {
        to.copy_from_slice(&self.bytes[offset..offset + to.len()]);
    }

    /// Writes at `offset`, which must be within. Read-only bits keep their value, as in hardware.
    pub(super) fn write(&mut self, offset: usize, from: &[u8]) -> Wrote {
        let mut wrote = Wrote::Plain;
        for (at, &byte) in (offset..).zip(from) {
            let old = self.bytes[at];
            let new = old & !self.writable[at] | byte & self.writable[at];
            // A power state that does not exist is not entered (PCI PM 1.2 §3.2.4).
            let no_such_state = at == PMCSR && matches!(new & POWER_STATE, 1 | 2);
            self.bytes[at] = if no_such_state { old } else { new };
            if at == DEVICE_CONTROL + 1 && byte & INITIATE_FLR != 0 {
                wrote = Wrote::FunctionReset;
            }
        }
        wrote
    }

    /// Restores the state after power-on.
    pub(super) fn reset(&mut self) {
        self.bytes = *self.power_on;
    }
}

const _: () = {
    assert!(at::MSIX >= at::PM + 8 && at::PARKING >= at::MSIX + size_of::<MsixCapability>());
    assert!(
        at::EXPRESS >= at::PARKING + size_of::<ParkingCapability>() && at::EXPRESS + 0x3c <= 256
    );
    assert!(MSIX_ENTRY_BYTES == 16);
};

#[cfg(test)]
mod tests {
    use meantime_nvme_spec::pci::{capabilities, find_capability};

    use super::*;

    fn space() -> ConfigSpace {
        ConfigSpace::new(&Bars::new(65, 65))
    }

    fn dword(space: &ConfigSpace, at: usize) -> u32 {
        let mut bytes = [0; 4];
        space.read(at, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    #[test]
    fn it_is_an_nvme_function() {
        let space = space();
        assert_eq!(dword(&space, 0), 0x4d54_1b36);
        assert_eq!(dword(&space, 8), 0x0108_0200);
        assert_eq!(dword(&space, 4), 0x0010_0000);
        // There is no INTx.
        assert_eq!(dword(&space, 0x3c), 0);
        let found: Vec<_> = capabilities(&space.bytes).collect();
        assert_eq!(found, [(0x40, 0x01), (0x50, 0x11), (0x60, 0x09), (0x80, 0x10)]);
        let (_, msix): (_, MsixCapability) =
            find_capability(&space.bytes, capability::MSIX).unwrap();
        assert_eq!(MsixControl(msix.control.get()).table_size(), 64);
        let (_, parking): (_, ParkingCapability) =
            find_capability(&space.bytes, capability::VENDOR).unwrap();
        assert_eq!((parking.magic, parking.parked_offset.get()), (*b"MTpk", 0x1000 + 130 * 128));
    }

    #[test]
    fn bars_are_sized_as_in_hardware() {
        let mut space = space();
        for at in (0x10..0x28).step_by(4) {
            space.write(at, &[0xff; 4]);
        }
        // BAR0 has 4 KiB of registers and 5 pages of doorbells in 32 KiB. BAR4 has a table of 1,040
        // bytes and a page of pending bits in 8 KiB.
        assert_eq!((dword(&space, 0x10), dword(&space, 0x14)), (0xffff_8004, 0xffff_ffff));
        assert_eq!((dword(&space, 0x18), dword(&space, 0x1c)), (0, 0));
        assert_eq!((dword(&space, 0x20), dword(&space, 0x24)), (0xffff_e004, 0xffff_ffff));
        space.write(0x30, &[0xff; 4]);
        assert_eq!(dword(&space, 0x30), 0);
        space.write(0x10, &0xfe00_1234u32.to_le_bytes());
        assert_eq!(dword(&space, 0x10), 0xfe00_0004);
    }

    #[test]
    fn only_what_can_be_written_is() {
        let mut space = space();
        let before = space.bytes;
        space.write(0, &[0; 4]);
        assert_eq!(space.bytes[..4], before[..4]);
        space.write(4, &[0xff; 4]);
        assert_eq!(dword(&space, 4), 0x0010_0546);
        space.write(0x52, &[0xff; 2]);
        assert_eq!(dword(&space, 0x50) >> 16, 0xc040);
        // D1 and D2 do not exist, but D3hot does.
        space.write(0x44, &[1]);
        assert_eq!(dword(&space, 0x44), 0x08);
        space.write(0x44, &[3]);
        assert_eq!(dword(&space, 0x44), 0x0b);
        assert_eq!(space.write(0x88, &[0x00, 0x20]), Wrote::Plain);
        assert_eq!(space.write(0x88, &[0x10, 0xa0]), Wrote::FunctionReset);
        assert_eq!(dword(&space, 0x88) & 0xffff, 0x2010, "initiating a reset reads as 0");
        space.reset();
        assert_eq!(space.bytes, before);
    }
}
