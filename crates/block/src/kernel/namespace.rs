//! An NVMe namespace whose commands the kernel takes as they are, without its block layer.

use std::path::Path;

use meantime_hw::uring::{UringIo, UringOp};
use meantime_nvme_spec::identify::IdentifyNamespace;
use meantime_nvme_spec::opcode::io as command;
use meantime_nvme_spec::sqe::Sqe;

/// The kernel's page size. At worst each page of a buffer is a segment of its own.
pub(super) const PAGE_BYTES: u64 = 4096;
/// The most logical blocks of a command: NLB has 16 bits, and is 0's based (1.4 §6.9).
const NLB_MAX: u64 = 1 << 16;
/// The limit keeps what the kernel's interfaces count in 32 bits far below that.
const TRANSFER_MAX_BYTES: u64 = 1 << 30;

/// The properties of a namespace that commands to it need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Namespace {
    nsid: u32,
    /// log2 of the size of the namespace's own blocks.
    lba_shift: u8,
    /// The most data of one command; a multiple of the channel's block size.
    pub(super) command_bytes: u32,
}

impl Namespace {
    /// The command for `io`, of at most [`Self::command_bytes`], without its data.
    pub(super) fn command(self, io: &UringIo) -> Sqe {
        let Self { nsid, lba_shift, .. } = self;
        let transfer = |opcode, fua| {
            let (slba, blocks) = (io.offset_bytes >> lba_shift, io.bytes >> lba_shift);
            debug_assert!((1..=NLB_MAX).contains(&blocks));
            Sqe::transfer(opcode, 0, nsid, slba, (blocks - 1) as u16, 0, 0, fua)
        };
        match io.op {
            UringOp::Read => transfer(command::READ, false),
            UringOp::Write { dsync } => transfer(command::WRITE, dsync),
            // The channel refuses ranges without data.
            UringOp::Fdatasync | UringOp::Fallocate { .. } => Sqe::flush(0, nsid),
        }
    }

    /// Checks the Identify data of a namespace. Returns the namespace with its size in bytes and
    /// its block size; the error is the reason.
    pub(super) fn new(nsid: u32, raw: &IdentifyNamespace) -> Result<(Self, u64, u32), String> {
        let format = raw.lba_format_in_use();
        let Some(lba_bytes) = format.and_then(|format| format.block_bytes()) else {
            return Err(format!("its LBA format is none (FLBAS {:#x})", raw.flbas));
        };
        let metadata_bytes = format.map_or(0, |format| format.ms.get());
        if metadata_bytes != 0 {
            return Err(format!(
                "it is formatted with {metadata_bytes} bytes of metadata a block, which this would \
                 have to transfer, too: use its block device"
            ));
        }
        let lba_shift = lba_bytes.trailing_zeros() as u8;
        let blocks = raw.nsze.get();
        if blocks > i64::MAX as u64 >> lba_shift {
            return Err(format!("its size is {blocks} blocks"));
        }
        Ok((Self { nsid, lba_shift, command_bytes: 0 }, blocks << lba_shift, lba_bytes))
    }

    /// Limits the data of one command: to what the queue takes, in KiB and in segments, and to
    /// whole blocks of `block_bytes`.
    pub(super) fn limited(self, hardware_kib: u64, segments: u64, block_bytes: u32) -> Self {
        // A buffer that does not begin with a page touches one more.
        let most = (hardware_kib << 10).min(segments.saturating_sub(1) * PAGE_BYTES);
        let most = most.min(NLB_MAX << self.lba_shift).min(TRANSFER_MAX_BYTES);
        let block_bytes = u64::from(block_bytes);
        let command_bytes = (most - most % block_bytes).max(block_bytes) as u32;
        Self { command_bytes, ..self }
    }
}

/// Whether the kernel would have a namespace's character device at `path`.
pub(super) fn is_name(path: &Path) -> bool {
    let name = path.strip_prefix("/dev").ok().and_then(Path::to_str);
    let numbers = name.and_then(|name| name.strip_prefix("ng")?.split_once('n'));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    numbers.is_some_and(|(instance, namespace)| is_number(instance) && is_number(namespace))
}

/// The reason why there is no device of that name, and what to use.
pub(super) const ABSENT: &str = "there is no such device: the kernel's NVMe driver makes one for \
    each of its namespaces since Linux 5.13, and takes I/O by it since 5.19; use the namespace's \
    block device, e.g. kernel:/dev/nvme0n1";

#[cfg(test)]
mod tests {
    use meantime_nvme_spec::identify::LbaFormat;
    use meantime_nvme_spec::sqe::CDW12_FUA;

    use super::*;

    fn identified(lbads: u8) -> IdentifyNamespace {
        let mut raw = IdentifyNamespace::default();
        raw.nsze = 1024.into();
        raw.lbaf[0] = LbaFormat::new(lbads);
        raw
    }

    #[test]
    fn commands_count_in_the_namespaces_own_blocks() {
        let (namespace, bytes, lba_bytes) = Namespace::new(7, &identified(12)).unwrap();
        assert_eq!((bytes, lba_bytes), (1024 << 12, 4096));
        let io = |op| UringIo { op, offset_bytes: 5 << 12, bytes: 3 << 12, ..UringIo::default() };
        let read = namespace.command(&io(UringOp::Read));
        assert_eq!(read, Sqe::read(0, 7, 5, 3, 0, 0));
        let write = namespace.command(&io(UringOp::Write { dsync: true }));
        assert_eq!(write, Sqe::write(0, 7, 5, 3, 0, 0, true));
        assert_ne!(write.cdw12.get() & CDW12_FUA, 0);
        let write = namespace.command(&io(UringOp::Write { dsync: false }));
        assert_eq!(write, Sqe::write(0, 7, 5, 3, 0, 0, false));
        assert_eq!(namespace.command(&UringIo::default()), Sqe::flush(0, 7));
    }

    #[test]
    fn a_command_has_as_much_as_every_limit_permits() {
        let (namespace, ..) = Namespace::new(1, &identified(9)).unwrap();
        let most = |kib, segments, block| namespace.limited(kib, segments, block).command_bytes;
        assert_eq!(most(128, 127, 512), 128 << 10);
        assert_eq!(most(2048, 127, 512), 126 * 4096);
        assert_eq!(most(510, 200, 4096), 508 << 10);
        assert_eq!(most(1 << 40, 1 << 40, 512), (1 << 16) * 512);
        assert_eq!(most(0, 0, 4096), 4096);
    }

    #[test]
    fn a_format_that_it_cannot_do_says_why() {
        let why = |raw: &IdentifyNamespace| Namespace::new(1, raw).unwrap_err();
        let mut raw = identified(9);
        raw.lbaf[0].ms = 8.into();
        assert!(why(&raw).contains("8 bytes of metadata"));
        assert!(why(&identified(0)).contains("LBA format"));
        raw.nsze = u64::MAX.into();
        raw.lbaf[0].ms = 0.into();
        assert!(why(&raw).contains("size"));
    }

    #[test]
    fn names_are_the_kernels() {
        for (path, is) in [
            ("/dev/ng0n1", true),
            ("/dev/ng12n34", true),
            ("/dev/ng0", false),
            ("/dev/ngn1", false),
            ("/dev/ng0n1p1", false),
            ("/dev/nvme0n1", false),
            ("/tmp/ng0n1", false),
        ] {
            assert_eq!(is_name(Path::new(path)), is, "{path}");
        }
    }
}
