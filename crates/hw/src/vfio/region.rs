//! A region of the device: BAR0, or the configuration space.

use std::io;
use std::os::fd::BorrowedFd;

use zerocopy::{FromBytes, IntoBytes};

use super::error::{Result, VfioError};
use super::ioctl;
use super::uapi::{self, RegionInfo, SparseArea};

/// A range of the device's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Region {
    /// Its offset in the device's file.
    pub(super) offset: u64,
    /// Its size in bytes; 0 if it does not exist.
    pub(super) size: u64,
    pub(super) readable: bool,
    pub(super) writable: bool,
    /// The mappable areas, as half-open ranges.
    pub(super) mappable: Vec<(u64, u64)>,
}

impl Region {
    /// Queries the device for its region `index`.
    pub(super) fn of(device: BorrowedFd<'_>, index: u32) -> Result<Self> {
        let question = RegionInfo { argsz: RegionInfo::BYTES, index, ..Default::default() };
        let answer = ioctl::answer(device, uapi::DEVICE_GET_REGION_INFO, question.as_bytes())
            .map_err(VfioError::os(
                "the device does not describe its BAR0 and configuration space",
            ))?;
        Ok(Self::parse(&answer))
    }

    fn parse(answer: &[u8]) -> Self {
        let info = RegionInfo::read_from_prefix(answer).map(|(info, _)| info).unwrap_or_default();
        let mappable = match uapi::capability(answer, info.cap_offset, uapi::REGION_CAP_SPARSE_MMAP)
        {
            _ if info.flags & uapi::REGION_MMAP == 0 => Vec::new(),
            None => vec![(0, info.size)],
            Some(areas) => uapi::array_of::<SparseArea>(areas)
                .iter()
                .map(|area| (area.offset, area.offset.saturating_add(area.size).min(info.size)))
                .collect(),
        };
        Self {
            offset: info.offset,
            size: info.size,
            readable: info.flags & uapi::REGION_READ != 0,
            writable: info.flags & uapi::REGION_WRITE != 0,
            mappable,
        }
    }

    /// Number of mappable bytes from `first` on, at most up to `end`.
    pub(super) fn mappable_from(&self, first: u64, end: u64) -> u64 {
        let area = self.mappable.iter().find(|&&(from, to)| from <= first && first < to);
        area.map_or(0, |&(_, to)| to.min(end).saturating_sub(first))
    }

    fn place(&self, offset: u32, bytes: u64) -> io::Result<u64> {
        let end = u64::from(offset) + bytes;
        if end > self.size {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(self.offset + u64::from(offset))
    }

    /// Reads the `N` bytes at `offset` in one access, if `N` is 1, 2 or 4.
    pub(super) fn read<const N: usize>(
        &self,
        device: BorrowedFd<'_>,
        offset: u32,
    ) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        let place = self.place(offset, N as u64)?;
        match rustix::io::pread(device, &mut bytes, place)? {
            read if read == N => Ok(bytes),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Writes `bytes` at `offset` in one access, if they are 1, 2 or 4.
    pub(super) fn write(
        &self,
        device: BorrowedFd<'_>,
        offset: u32,
        bytes: &[u8],
    ) -> io::Result<()> {
        let place = self.place(offset, bytes.len() as u64)?;
        match rustix::io::pwrite(device, bytes, place)? {
            written if written == bytes.len() => Ok(()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::os::fd::AsFd;

    fn answer(flags: u32, areas: &[(u64, u64)]) -> Vec<u8> {
        let info =
            RegionInfo { flags, cap_offset: 32, size: 0x4000, offset: 0, ..Default::default() };
        let mut bytes = info.as_bytes().to_vec();
        bytes.extend(uapi::CapHeader { id: 1, version: 1, next: 0 }.as_bytes());
        bytes.extend([areas.len() as u8, 0, 0, 0, 0, 0, 0, 0]);
        for &(offset, size) in areas {
            bytes.extend(SparseArea { offset, size }.as_bytes());
        }
        bytes
    }

    #[test]
    fn maps_only_what_may_be_mapped() {
        // The MSI-X table is on the third page.
        let region = Region::parse(&answer(7, &[(0, 0x2000), (0x3000, 0x1000)]));
        assert_eq!(region.mappable_from(0x1000, 0x4000), 0x1000);
        assert_eq!(region.mappable_from(0x2000, 0x4000), 0);
        assert_eq!(region.mappable_from(0x3000, 0x3800), 0x800);
        // An area beyond the region, and one that wraps.
        let region = Region::parse(&answer(7, &[(0x1000, 0x10000), (0x8000, u64::MAX)]));
        assert_eq!(region.mappable_from(0x1000, u64::MAX), 0x3000);
        assert_eq!(region.mappable_from(0x8000, u64::MAX), 0);
    }

    #[test]
    fn without_the_capability_all_or_nothing() {
        let mut bytes = answer(7, &[]);
        bytes[12..16].fill(0);
        assert_eq!(Region::parse(&bytes).mappable_from(0x1000, u64::MAX), 0x3000);
        let bytes = answer(3, &[(0, 0x4000)]);
        assert_eq!(Region::parse(&bytes).mappable_from(0, u64::MAX), 0);
        assert_eq!(Region::parse(&[]).size, 0);
    }

    #[test]
    fn accesses_stay_inside() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&(0..=255).collect::<Vec<u8>>()).unwrap();
        let region =
            Region { offset: 16, size: 32, readable: true, writable: true, mappable: Vec::new() };
        assert_eq!(region.read(file.as_fd(), 28).unwrap(), [44, 45, 46, 47]);
        assert!(region.read::<4>(file.as_fd(), 29).is_err());
        assert!(region.read::<4>(file.as_fd(), u32::MAX).is_err());
        region.write(file.as_fd(), 0, &[9, 9]).unwrap();
        assert_eq!(region.read(file.as_fd(), 0).unwrap(), [9, 9, 18]);
        assert!(region.write(file.as_fd(), 31, &[1, 2]).is_err());
        // Shorter than its size field.
        let region = Region { size: 1 << 20, ..region };
        assert!(region.read::<4>(file.as_fd(), 4096).is_err());
    }
}
