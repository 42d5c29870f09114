//! Zones are filled and emptied as in fio.

use super::*;
use crate::job::testing::job;

const ZONE: u64 = 256 << 10;
const BLOCK: u64 = 64 << 10;

struct Device(SharedZones, Vec<(&'static str, &'static str)>);

impl Device {
    /// Creates 8 MiB in zones of 256 KiB.
    fn new(keys: &[(&'static str, &'static str)]) -> Self {
        let keys = [&[("zonemode", "zbd"), ("zonesize", "256k"), ("bs", "64k")], keys].concat();
        let device = Self(SharedZones::new(&ZoneKeys::default(), 0), keys);
        Self(SharedZones::new(&device.job(&[]).zones, 8 << 20), device.1)
    }

    fn job(&self, keys: &[(&str, &str)]) -> Job {
        job(&[&self.1[..], keys].concat())
    }

    /// Runs one pass of `pass_bytes`. Returns direction and block of each I/O.
    fn ios(&self, keys: &[(&str, &str)], pass_bytes: u64) -> Vec<(Dir, u64)> {
        self.ios_from(keys, 0, pass_bytes)
    }

    fn ios_from(
        &self,
        keys: &[(&str, &str)],
        offset_bytes: u64,
        pass_bytes: u64,
    ) -> Vec<(Dir, u64)> {
        let job = self.job(keys);
        let spec = PatternSpec {
            offset_bytes,
            range_bytes: 1 << 20,
            pass_bytes,
            block_shift: 9,
            bs_read_bytes: BLOCK,
            bs_write_bytes: BLOCK,
            random: job.rw.is_random(),
            read_percent: if !job.writes() {
                100 * u8::from(job.reads())
            } else {
                50 * u8::from(job.reads())
            },
            passes: Some(1),
            seed: 1,
        };
        let mut zoned = Zoned::new(&job, spec, self.0.clone());
        std::iter::from_fn(|| zoned.next()).map(|io| (io.dir, io.lba * 512 / BLOCK)).collect()
    }
}

/// Checks that writes are at the fill level of their zone, and reads within it. Returns the maximum
/// number of zones open at a time.
fn replay(ios: &[(Dir, u64)], capacity: u64) -> usize {
    let mut filled = [0u64; 32];
    let mut most = 0;
    for (dir, block) in ios {
        let (zone, at) = ((block / 4) as usize, block % 4);
        match dir {
            Dir::Write => {
                assert!(
                    at == filled[zone] || at == 0 && filled[zone] == capacity,
                    "{block} in {ios:?}"
                );
                filled[zone] = at + 1;
            }
            Dir::Read => assert!(at < filled[zone], "{block} in {ios:?}"),
            Dir::Trim => filled[zone] = 0,
        }
        most = most.max(filled.iter().filter(|filled| (1..capacity).contains(*filled)).count());
    }
    most
}

#[test]
fn writes_go_on_where_a_zone_is_filled_to() {
    let device = Device::new(&[]);
    let sequence: Vec<_> = (0..16).map(|block| (Dir::Write, block)).collect();
    assert_eq!(device.ios(&[("rw", "write")], 1 << 20), sequence);
    // Again: full zones are emptied.
    assert_eq!(device.ios(&[("rw", "write")], 1 << 20), sequence);
    let random = Device::new(&[]).ios(&[("rw", "randwrite")], 8 << 20);
    assert_eq!(random.len(), 128);
    assert!(replay(&random, 4) > 2 && !random.is_sorted_by_key(|io| io.1), "{random:?}");
}

#[test]
fn no_more_zones_are_open_than_allowed() {
    for key in ["max_open_zones", "job_max_open_zones"] {
        let device = Device::new(&[(key, "2")]);
        let ios = device.ios(&[("rw", "randwrite")], 8 << 20);
        assert_eq!((ios.len(), replay(&ios, 4)), (128, 2), "{key}: {ios:?}");
    }
}

#[test]
fn reads_find_what_was_written() {
    let device = Device::new(&[]);
    for rw in ["read", "randread"] {
        assert_eq!(device.ios(&[("rw", rw)], 1 << 20), [], "{rw}");
    }
    assert_eq!(device.ios(&[("rw", "read"), ("read_beyond_wp", "1")], 1 << 20).len(), 16);
    // One and a half zones.
    device.ios(&[("rw", "write")], 6 * BLOCK);
    let read: Vec<_> = (0..6).map(|block| (Dir::Read, block)).collect();
    assert_eq!(device.ios(&[("rw", "read")], 1 << 20), read);
    let random = device.ios(&[("rw", "randread")], 8 << 20);
    assert_eq!(random.len(), 128);
    assert!(random.iter().all(|(_, block)| *block < 6), "{random:?}");
    let mixed = Device::new(&[]).ios(&[("rw", "randrw")], 8 << 20);
    replay(&mixed, 4);
    assert_eq!(mixed[0].0, Dir::Write);
    assert!(mixed.iter().filter(|(dir, _)| *dir == Dir::Read).count() > 40);
}

#[test]
fn a_zone_may_be_written_in_part() {
    let device = Device::new(&[("zonecapacity", "128k")]);
    let blocks: Vec<u64> = device.ios(&[("rw", "write")], 1 << 20).iter().map(|io| io.1).collect();
    // As in fio 3.33.
    assert_eq!(blocks, [0, 1, 4, 5, 8, 9, 12, 13]);
    let random = Device::new(&[("zonecapacity", "128k")]).ios(&[("rw", "randwrite")], 4 << 20);
    replay(&random, 2);
}

#[test]
fn the_range_is_of_whole_zones() {
    // As in fio 3.33: from 100 KiB on it begins with the next zone.
    let blocks = Device::new(&[]).ios_from(&[("rw", "write")], 100 << 10, 1 << 20);
    assert_eq!(blocks.iter().map(|io| io.1).collect::<Vec<_>>(), (4..16).collect::<Vec<_>>());
}

#[test]
fn trims_empty_zones() {
    let device = Device::new(&[]);
    let trim = [("bs", "256k"), ("rw", "randtrim")];
    assert_eq!(device.ios(&trim, 1 << 20), []);
    device.ios(&[("rw", "write")], ZONE + BLOCK);
    let mut trimmed = device.ios(&trim, 1 << 20);
    trimmed.sort_by_key(|io| io.1);
    assert_eq!(trimmed, [(Dir::Trim, 0), (Dir::Trim, 4)]);
    assert_eq!(device.ios(&[("rw", "read")], 1 << 20), []);
}

#[test]
fn zones_are_emptied_before_their_time() {
    let keys = [("zone_reset_threshold", "0.5"), ("zone_reset_frequency", "0.25")];
    let device = Device::new(&keys);
    let ios = device.ios(&[("rw", "randwrite")], 8 << 20);
    let filled = device.0.locked().filled_bytes;
    // Without it all but the zones of the last few writes would be full.
    assert!(filled <= (1 << 19) + 4 * BLOCK, "{filled} {ios:?}");
    let mut begun = [0; 4];
    ios.iter().filter(|io| io.1 % 4 == 0).for_each(|io| begun[(io.1 / 4) as usize] += 1);
    assert!(begun.iter().sum::<u64>() > 34, "{begun:?}");
}
