//! Reads and writes by byte offsets, against an array of bytes.

use meantime_block::{BlockChannel, RequestError, SubmitError};
use meantime_nvme::Op;
use meantime_ssd::SsdConfig;
use meantime_testkit::Rng;
use meantime_testkit::rig::{LOST, Rig};

/// Larger than what one request carries, so that calls of all of it have several.
const DEVICE_BYTES: usize = 3 << 20;

#[test]
fn bytes_at_any_offset_agree_with_an_array() {
    for block_bytes in [512, 4096] {
        let rig = Rig::new(SsdConfig::with_namespace(DEVICE_BYTES as u64, block_bytes));
        let mut channel = rig.channel(2);
        let block_bytes = block_bytes as usize;
        let mut rng = Rng::new(block_bytes as u64);
        let mut model = vec![0; DEVICE_BYTES];
        for round in 0..200 {
            let most = if round % 20 == 0 { DEVICE_BYTES } else { 20_000 };
            let offset = rng.below(DEVICE_BYTES as u64) as usize;
            let bytes = rng.below(most as u64 + 1) as usize;
            let bytes = bytes.min(DEVICE_BYTES - offset);
            let (first, whole) = (offset - offset % block_bytes, bytes - bytes % block_bytes);
            let data: Vec<u8> = (0..whole).map(|_| rng.below(256) as u8).collect();
            channel.write_at(&data, first as u64).expect("whole blocks");
            model[first..first + whole].copy_from_slice(&data);
            let mut found = vec![0xEE; bytes];
            channel.read_at(&mut found, offset as u64).expect("a range of the device");
            assert!(found == model[offset..offset + bytes], "{bytes} bytes at {offset}");
        }
        let mut found = vec![0; DEVICE_BYTES];
        channel.read_at(&mut found, 0).expect("all of it");
        assert!(found == model);
    }
}

#[test]
fn bytes_that_cannot_be_written_are_refused_and_nothing_is() {
    let rig = Rig::new(SsdConfig::with_namespace(1 << 20, 4096));
    let mut channel = rig.channel(2);
    let before = rig.ssd.counters();
    for (bytes, offset) in [(512, 0), (4096, 512), (1, 4095), (8191, 0)] {
        let error = channel.write_at(&vec![1; bytes], offset).expect_err("parts of blocks");
        let RequestError::Refused(SubmitError::Unaligned { block_bytes: 4096, .. }) = error else {
            panic!("{bytes} at {offset}: {error}");
        };
    }
    for (bytes, offset) in [(4096, 1 << 20), (8192, (1 << 20) - 4096), (4096, u64::MAX - 4095)] {
        let mut data = vec![1; bytes];
        for error in [channel.write_at(&data, offset), channel.read_at(&mut data, offset)] {
            let error = error.expect_err("beyond the end");
            assert!(
                matches!(error, RequestError::Refused(SubmitError::OutOfRange { .. })),
                "{bytes} at {offset}: {error}"
            );
        }
    }
    channel.write_at(&[], 1 << 20).expect("no bytes");
    channel.read_at(&mut [], 1 << 20).expect("no bytes");
    let after = rig.ssd.counters();
    assert_eq!((after.writes, after.reads), (before.writes, before.reads));
}

#[test]
fn a_failed_command_fails_the_call() {
    let rig = Rig::once(SsdConfig::with_namespace(1 << 20, 512));
    let mut channel = rig.channel(2);
    rig.ssd.set_faults(LOST);
    let error = channel.read_at(&mut [0; 100], 700).expect_err("its command is lost");
    let RequestError::Failed(error) = error else { panic!("{error}") };
    assert_eq!((error.op, error.lba), (Op::Read, 1));
}
