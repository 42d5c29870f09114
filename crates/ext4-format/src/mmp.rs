//! The block of multiple mount protection (kernel documentation: `filesystems/ext4/mmp.rst`;
//! e2fsprogs: `struct mmp_struct`).

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, IntoBytes};

use super::checksum::crc32c;
use super::superblock::Superblock;
use crate::{Corruption, Defect};

/// Size of the structure, in bytes. The rest of its block is unused.
pub const MMP_BYTES: usize = size_of::<RawMmp>();
/// `mmp_magic`.
const MAGIC: u32 = 0x004D_4D50;
/// This value of `mmp_seq` says that the file system is not in use.
const SEQUENCE_CLEAN: u32 = 0xFF4D_4D50;
/// This value of `mmp_seq` says that e2fsck uses the file system.
const SEQUENCE_FSCK: u32 = 0xE24D_4D50;
/// The last sequence number of a mount.
const SEQUENCE_LAST: u32 = 0xE24D_4D4F;

/// The default update interval, in seconds (`EXT4_MMP_UPDATE_INTERVAL`).
const UPDATE_INTERVAL_S: u16 = 5;
/// The limits of the check interval that is written for others, in seconds
/// (`EXT4_MMP_MIN_CHECK_INTERVAL`, `EXT4_MMP_MAX_CHECK_INTERVAL`), and its ratio to the interval of
/// updates (`EXT4_MMP_CHECK_MULT`).
const CHECK_INTERVAL_LEAST_S: u16 = 5;
const CHECK_INTERVAL_MOST_S: u16 = 300;
const CHECK_TIMES: u16 = 2;
/// The longest wait beyond one interval, in seconds.
const WAIT_MORE_MOST_S: u64 = 60;

on_disk! {
    /// `struct mmp_struct`, unchecked.
    struct RawMmp, 1024 {
        0x00 magic: U32,
        0x04 seq: U32,
        0x08 time: U64,
        0x10 nodename: [u8; 64],
        0x50 bdevname: [u8; 32],
        0x70 check_interval: U16,
        0x72 pad1: U16,
        0x74 pad2: [U32; 226],
        0x3FC checksum: U32,
    }
}

/// The state of use according to the block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MmpState {
    /// The file system is not in use.
    Clean,
    /// e2fsck uses the file system.
    Checking,
    /// The file system is mounted, or was left so by a crash. A live mount changes the number.
    InUse(u32),
}

/// The block's content, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mmp {
    /// Whether the file system is in use.
    pub state: MmpState,
    /// When the block was last written, in seconds since 1970, by the writer's clock.
    pub seconds: u64,
    /// The name of the writer's host.
    pub node: Vec<u8>,
    /// The writer's name of the device.
    pub device: Vec<u8>,
    /// The longest time until the writer updates it, in seconds.
    pub check_interval_s: u16,
}

fn until_zero(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().copied().take_while(|byte| *byte != 0).collect()
}

/// Returns `bytes`, truncated so that a zero follows.
fn name<const BYTES: usize>(bytes: &[u8]) -> [u8; BYTES] {
    let mut name = [0; BYTES];
    let bytes = &bytes[..bytes.len().min(BYTES - 1)];
    name[..bytes.len()].copy_from_slice(bytes);
    name
}

/// Returns the checksum of `raw`, starting from the file system's `seed`.
fn checksum(seed: u32, raw: &RawMmp) -> u32 {
    crc32c(seed, &raw.as_bytes()[..MMP_BYTES - 4])
}

impl MmpState {
    /// Returns the state after the next update of a mount.
    pub fn next(sequence: u32) -> Self {
        Self::InUse(if sequence >= SEQUENCE_LAST { 1 } else { sequence + 1 })
    }

    /// Returns a first number, derived from `random`.
    pub fn random(random: u64) -> Self {
        Self::InUse((random % (u64::from(SEQUENCE_LAST) + 1)) as u32)
    }

    fn sequence(self) -> u32 {
        match self {
            Self::Clean => SEQUENCE_CLEAN,
            Self::Checking => SEQUENCE_FSCK,
            Self::InUse(sequence) => sequence,
        }
    }
}

impl Mmp {
    /// Parses `block`, the content of block `number`.
    ///
    /// # Errors
    /// [`Defect::MmpMagic`], [`Defect::MmpChecksum`] or [`Defect::MmpField`].
    pub fn parse(superblock: &Superblock, number: u64, block: &[u8]) -> Result<Self, Corruption> {
        let wrong = |defect| Corruption::new(defect).in_block(number);
        let raw = block.get(..MMP_BYTES).and_then(|bytes| RawMmp::ref_from_bytes(bytes).ok());
        let raw =
            raw.filter(|raw| raw.magic.get() == MAGIC).ok_or_else(|| wrong(Defect::MmpMagic))?;
        if superblock.has_checksums() && checksum(superblock.seed(), raw) != raw.checksum.get() {
            return Err(wrong(Defect::MmpChecksum));
        }
        let state = match raw.seq.get() {
            SEQUENCE_CLEAN => MmpState::Clean,
            SEQUENCE_FSCK => MmpState::Checking,
            sequence @ ..=SEQUENCE_LAST => MmpState::InUse(sequence),
            // (e2fsprogs rejects it as well: EXT2_ET_MMP_UNKNOWN_SEQ.)
            _ => return Err(wrong(Defect::MmpField("sequence"))),
        };
        let check_interval_s = raw.check_interval.get();
        // This is Linux's initial value for the longest update interval. A greater one would make
        // other hosts wait for hours.
        if check_interval_s > CHECK_TIMES * CHECK_INTERVAL_MOST_S {
            return Err(wrong(Defect::MmpField("check interval")));
        }
        Ok(Self {
            state,
            seconds: raw.time.get(),
            node: until_zero(&raw.nodename),
            device: until_zero(&raw.bdevname),
            check_interval_s,
        })
    }

    /// Writes the state into `block`, the content of its block, with its checksum.
    ///
    /// # Errors
    /// [`Defect::MmpMagic`] if the block is too small.
    pub fn write(&self, superblock: &Superblock, block: &mut [u8]) -> Result<(), Corruption> {
        let bytes = block.get_mut(..MMP_BYTES).ok_or(Corruption::new(Defect::MmpMagic))?;
        let mut raw = RawMmp {
            magic: MAGIC.into(),
            seq: self.state.sequence().into(),
            time: self.seconds.into(),
            nodename: name(&self.node),
            bdevname: name(&self.device),
            check_interval: self.check_interval_s.into(),
            ..RawMmp::default()
        };
        if superblock.has_checksums() {
            raw.checksum = checksum(superblock.seed(), &raw).into();
        }
        bytes.copy_from_slice(raw.as_bytes());
        Ok(())
    }

    /// Returns the time to wait before checking whether a block that is [in use](MmpState::InUse)
    /// has changed, in seconds. `update_interval_s` is the superblock's update interval.
    pub fn wait_s(&self, update_interval_s: u16) -> u64 {
        let interval = self.check_interval_s.max(update_interval_s).max(CHECK_INTERVAL_LEAST_S);
        let interval = u64::from(interval);
        (2 * interval + 1).min(interval + WAIT_MORE_MOST_S)
    }
}

/// Returns the check interval to write for others, in seconds, for an update interval of `seconds`.
pub fn check_interval_s(seconds: u64) -> u16 {
    let seconds = seconds.saturating_mul(u64::from(CHECK_TIMES));
    seconds.clamp(u64::from(CHECK_INTERVAL_LEAST_S), u64::from(CHECK_INTERVAL_MOST_S)) as u16
}

impl Superblock {
    /// Returns the MMP block, or `None` without the feature `mmp`.
    pub fn mmp_block(&self) -> Option<u64> {
        self.features()
            .has_incompat(super::features::incompat::MMP)
            .then_some(self.raw.mmp_block.get())
    }

    /// Returns the interval at which a mount updates the MMP block, in seconds.
    pub fn mmp_update_interval_s(&self) -> u16 {
        match self.raw.mmp_interval.get() {
            0 => UPDATE_INTERVAL_S,
            // mke2fs does not allow a longer interval.
            seconds => seconds.min(CHECK_INTERVAL_MOST_S),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(state: MmpState) -> Mmp {
        Mmp {
            state,
            seconds: 7,
            node: b"host".to_vec(),
            device: b"disk".to_vec(),
            check_interval_s: 10,
        }
    }

    #[test]
    fn written_blocks_are_read() {
        let superblock = super::super::superblock::tests::checksummed();
        let mut block = vec![0xAA; 4096];
        let last = MmpState::InUse(SEQUENCE_LAST);
        for state in [MmpState::Clean, MmpState::Checking, MmpState::InUse(0), last] {
            some(state).write(&superblock, &mut block).unwrap();
            assert_eq!(Mmp::parse(&superblock, 9, &block).unwrap(), some(state));
        }
        assert!(block[MMP_BYTES..].iter().all(|byte| *byte == 0xAA));
        assert_eq!(block[..8], [0x50, 0x4D, 0x4D, 0, 0x4F, 0x4D, 0x4D, 0xE2]);
        for at in [0x7F, 0x3FC] {
            let mut damaged = block.clone();
            damaged[at] ^= 1;
            let wrong = Mmp::parse(&superblock, 9, &damaged).unwrap_err();
            assert_eq!((wrong.defect, wrong.block), (Defect::MmpChecksum, Some(9)));
        }
        block[0] ^= 1;
        assert_eq!(Mmp::parse(&superblock, 9, &block).unwrap_err().defect, Defect::MmpMagic);
        assert_eq!(Mmp::parse(&superblock, 9, &block[..8]).unwrap_err().defect, Defect::MmpMagic);
    }

    #[test]
    fn invalid_fields_are_refused() {
        let superblock = super::super::superblock::tests::checksummed();
        let mut block = vec![0; 1024];
        let odd = Mmp { check_interval_s: 601, ..some(MmpState::Clean) };
        odd.write(&superblock, &mut block).unwrap();
        let wrong = Mmp::parse(&superblock, 9, &block).unwrap_err();
        assert_eq!(wrong.defect, Defect::MmpField("check interval"));
        for sequence in [SEQUENCE_FSCK + 1, SEQUENCE_CLEAN - 1, u32::MAX] {
            some(MmpState::InUse(sequence)).write(&superblock, &mut block).unwrap();
            let wrong = Mmp::parse(&superblock, 9, &block).unwrap_err();
            assert_eq!(wrong.defect, Defect::MmpField("sequence"));
        }
        // Names that are too long still end with a zero.
        let long = Mmp { node: vec![b'x'; 100], device: vec![b'y'; 100], ..some(MmpState::Clean) };
        long.write(&superblock, &mut block).unwrap();
        let read = Mmp::parse(&superblock, 9, &block).unwrap();
        assert_eq!((read.node.len(), read.device.len()), (63, 31));
    }

    #[test]
    fn times_are_those_of_the_format() {
        assert_eq!(
            [0, 1, 2, 3, 100, 200, u64::MAX].map(check_interval_s),
            [5, 5, 5, 6, 200, 300, 300]
        );
        let wait_s = |check_interval_s, update| {
            Mmp { check_interval_s, ..some(MmpState::Clean) }.wait_s(update)
        };
        assert_eq!([wait_s(0, 0), wait_s(5, 1), wait_s(5, 20), wait_s(10, 5)], [11, 11, 41, 21]);
        assert_eq!([wait_s(59, 5), wait_s(60, 5), wait_s(600, 300)], [119, 120, 660]);
        assert_eq!(MmpState::next(SEQUENCE_LAST), MmpState::InUse(1));
        assert_eq!(MmpState::next(1), MmpState::InUse(2));
        for random in [0, 1, u64::from(SEQUENCE_FSCK), u64::MAX] {
            assert!(matches!(MmpState::random(random), MmpState::InUse(..=SEQUENCE_LAST)));
        }
    }
}
