//! A partition as a device: requests of its channels stay within it.

use meantime_block::{
    BlockChannel as _, BlockDevice as _, Channel, ChannelOptions, IoErrorKind, OpenError,
    OpenOptions, Request, SubmitError, open, open_partition, partitions, signatures,
};
use proptest::prelude::*;
use tempfile::NamedTempFile;

const BLOCK: usize = 512;
const DISK_BLOCKS: usize = 512;
/// Odd numbers, so that no boundary of the device is one of the partition.
const FIRST: usize = 37;
const BLOCKS: usize = 151;

/// A disk with an MBR of one partition, and other bytes in every block.
fn disk() -> Vec<u8> {
    let mut bytes: Vec<u8> =
        (0..DISK_BLOCKS * BLOCK).map(|at| (at / BLOCK * 7 + at % BLOCK) as u8).collect();
    bytes[440..512].fill(0);
    let entry = &mut bytes[446..462];
    entry[4] = 0x83;
    entry[8..12].copy_from_slice(&(FIRST as u32).to_le_bytes());
    entry[12..16].copy_from_slice(&(BLOCKS as u32).to_le_bytes());
    bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
    bytes
}

fn file_with(bytes: &[u8]) -> NamedTempFile {
    let file = NamedTempFile::new_in("/var/tmp").unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    file
}

/// One request. Its range may reach beyond the partition.
#[derive(Debug, Clone, Copy)]
struct Step {
    kind: Kind,
    lba: usize,
    blocks: usize,
    fill: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    WriteZeroes,
    Deallocate,
    Compare,
    CompareAndWrite,
    Verify,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    use Kind::{Compare, CompareAndWrite, Deallocate, Read, Verify, Write, WriteZeroes};
    let kinds = [Read, Write, Write, WriteZeroes, Deallocate, Compare, CompareAndWrite, Verify];
    // Near the ends more often than elsewhere.
    let lba = prop_oneof![0..4_usize, BLOCKS - 4..BLOCKS + 4, 0..DISK_BLOCKS];
    let step = (prop::sample::select(kinds.to_vec()), lba, 1..40_usize, any::<u8>());
    let step = step.prop_map(|(kind, lba, blocks, fill)| Step { kind, lba, blocks, fill });
    prop::collection::vec(step, 1..24)
}

/// The disk as it has to be, with what a deallocation leaves open.
struct Model {
    bytes: Vec<u8>,
    open: Vec<bool>,
}

impl Model {
    /// Does one step on the partition, and checks its outcome.
    fn step(&mut self, channel: &mut Channel, step: Step) {
        let Step { kind, lba, mut blocks, fill } = step;
        if kind == Kind::CompareAndWrite {
            blocks = 1;
        }
        let at = (FIRST + lba) * BLOCK;
        let range = at..at + blocks * BLOCK;
        let is_inside = lba + blocks <= BLOCKS;
        let mut there = self.bytes.get(range.clone()).map_or_else(Vec::new, <[u8]>::to_vec);
        there.resize(blocks * BLOCK, 0);
        let data = match kind {
            Kind::Compare => there.clone(),
            Kind::CompareAndWrite => [there.clone(), vec![fill; BLOCK]].concat(),
            _ => vec![fill; blocks * BLOCK],
        };
        let buf = || {
            let mut buf = channel.alloc(data.len()).unwrap();
            buf.copy_from_slice(&data);
            buf
        };
        let lba = lba as u64;
        let request = match kind {
            Kind::Read => Request::read(lba, buf()),
            Kind::Write => Request::write(lba, buf()),
            Kind::Compare => Request::compare(lba, buf()),
            Kind::CompareAndWrite => Request::compare_and_write(lba, buf()),
            Kind::WriteZeroes => Request::write_zeroes(lba, blocks as u64),
            Kind::Deallocate => Request::deallocate(lba, blocks as u64),
            Kind::Verify => Request::verify(lba, blocks as u64),
        };
        let ticket = match channel.submit(request) {
            Ok(ticket) => ticket,
            Err(rejected) => {
                match rejected.error {
                    SubmitError::OutOfRange { size, .. } => {
                        assert!(!is_inside, "{step:?}");
                        assert_eq!(size, BLOCKS as u64);
                    }
                    SubmitError::Unsupported(_) => {}
                    other => panic!("{step:?}: {other}"),
                }
                return;
            }
        };
        assert!(is_inside, "{step:?} was accepted");
        let done = channel.wait(ticket);
        let is_open = self.open[range.clone()].contains(&true);
        match done.result {
            Ok(()) => {}
            Err(error) if is_open && error.kind == IoErrorKind::Miscompare => return,
            Err(error) => panic!("{step:?}: {error}"),
        }
        match kind {
            Kind::Read => {
                let read = done.buf.unwrap();
                let pairs = read.iter().zip(&there).zip(&self.open[range]);
                assert!(pairs.into_iter().all(|((read, there), open)| *open || read == there));
            }
            Kind::Write | Kind::CompareAndWrite => self.set(range, fill, false),
            Kind::WriteZeroes => self.set(range, 0, false),
            Kind::Deallocate => self.set(range, 0, true),
            Kind::Compare | Kind::Verify => {}
        }
    }

    fn set(&mut self, range: std::ops::Range<usize>, byte: u8, open: bool) {
        self.bytes[range.clone()].fill(byte);
        self.open[range].fill(open);
    }
}

/// What the devices of both kinds are opened with.
const DEVICES: [(&str, &str); 4] = [
    ("file", "inline=1&partition=1"),
    ("file", "inline=1&mdts=8k&boundary=8&partition=1"),
    ("kernel", "direct=0&partition=1"),
    ("kernel", "direct=0&engine=preadv2&partition=1"),
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Reads return the partition's blocks, writes change them and no others, and what reaches
    /// beyond it is refused before it is sent.
    #[test]
    fn no_request_leaves_the_partition(steps in steps(), which in 0..DEVICES.len()) {
        let mut model = Model { bytes: disk(), open: vec![false; DISK_BLOCKS * BLOCK] };
        let file = file_with(&model.bytes);
        let (scheme, parameters) = DEVICES[which];
        let uri = format!("{scheme}:{}?{parameters}", file.path().display());
        let device = open(&uri, &OpenOptions::default()).unwrap();
        prop_assert_eq!(device.info().blocks, BLOCKS as u64);
        prop_assert_eq!(&device.info().uri, &uri);
        let mut channel = device.channel(&ChannelOptions::default()).unwrap();
        for step in steps {
            model.step(&mut channel, step);
        }
        channel.flush().unwrap();
        drop((channel, device));
        let after = std::fs::read(file.path()).unwrap();
        let wrong = (0..after.len()).find(|at| !model.open[*at] && after[*at] != model.bytes[*at]);
        prop_assert_eq!(wrong, None);
    }
}

#[test]
fn what_is_not_there_is_an_error_that_lists_what_is() {
    let file = file_with(&disk());
    let path = file.path().display();
    let refused = |uri: String| match open(&uri, &OpenOptions::default()) {
        Err(error @ (OpenError::Partition { .. } | OpenError::Uri(_))) => error.to_string(),
        Err(other) => panic!("{uri}: {other}"),
        Ok(_) => panic!("{uri} was opened"),
    };
    let none = refused(format!("file:{path}?partition=2"));
    assert!(none.contains("partition 1") || none.contains('1'), "{none}");
    refused(format!("file:{path}?partition=label:data"));
    for wrong in ["", "-1", "x", "uuid:"] {
        let error = refused(format!("file:{path}?partition={wrong}"));
        assert!(error.contains("label:"), "{error}");
    }
    let twice = refused(format!("file:{path}?partition=1&partition=2"));
    assert!(twice.contains("twice"), "{twice}");
    let empty = file_with(&vec![0; DISK_BLOCKS * BLOCK]);
    let error = refused(format!("kernel:{}?direct=0&partition=1", empty.path().display()));
    assert!(error.contains("no partition table"), "{error}");
}

/// Numbers of a table are untrusted: none of them overflows.
#[test]
fn a_partition_beyond_the_device_is_refused() {
    let file = file_with(&disk());
    for uri in ["file", "kernel"].map(|scheme| format!("{scheme}:{}", file.path().display())) {
        let uri = if uri.starts_with("kernel") { uri + "?direct=0" } else { uri + "?inline=1" };
        let device = open(&uri, &OpenOptions::default()).unwrap();
        let table = partitions(&device).unwrap().unwrap();
        let [one] = &table.partitions[..] else { panic!("{table:?}") };
        assert!(open_partition(&device, one).is_ok());
        for (first_lba, blocks) in
            [(u64::MAX / 2, 1), (u64::MAX, 1), (1, u64::MAX), (DISK_BLOCKS as u64, 1), (0, 0)]
        {
            let mut odd = one.clone();
            (odd.first_lba, odd.blocks) = (first_lba, blocks);
            assert!(open_partition(&device, &odd).is_err(), "{uri} {first_lba} {blocks}");
            let found = signatures(&device, &[odd, one.clone()]).unwrap();
            assert!((blocks == 0 || found[0].is_err()) && found[1].is_ok(), "{uri} {found:?}");
        }
    }
}
