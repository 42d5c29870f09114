//! Blocks that cannot be read.

use meantime_nvme_spec::sqe::Sqe;
use meantime_nvme_spec::status::StatusCode as S;
use meantime_ssd::{Model, Rng, SsdConfig, SteppedSsd};
use meantime_testkit::host::*;

fn unreadable(cqe: meantime_nvme_spec::cqe::Cqe) {
    assert!(cqe.status().is(S::UnrecoveredReadError) && cqe.status().dnr(), "{}", cqe.status());
}

fn each_way(test: impl Fn(SteppedSsd, Host)) {
    for model in ["null", "optane"] {
        let mut c = config(1 << 20, 512);
        c.model = Model::named(model).unwrap();
        let (ssd, mut host) = stepped(c);
        host.create_queues(1, 16, None);
        test(ssd, host);
    }
}

#[test]
fn marked_blocks_cannot_be_read_until_they_are_written() {
    each_way(|ssd, mut host| {
        let area = host.alloc(8192);
        host.write(area, &[5; 4096]);
        ok(host.io(1, Sqe::write(0, 1, 0, 8, area, 0, false)));
        ok(host.io(1, Sqe::write_uncorrectable(0, 1, 2, 3)));
        host.write(area + 4096, &[9; 4096]);
        unreadable(host.io(1, Sqe::read(0, 1, 0, 8, area + 4096, 0)));
        assert_eq!(host.read(area + 4096, 4096), [9; 4096], "nothing was transferred");
        unreadable(host.io(1, Sqe::compare(0, 1, 4, 1, area, 0)));
        unreadable(host.io(1, Sqe::verify(0, 1, 0, 3)));
        ok(host.io(1, Sqe::read(0, 1, 0, 2, area + 4096, 0)));
        ok(host.io(1, Sqe::read(0, 1, 5, 3, area + 4096, 0)));
        ok(host.io(1, Sqe::verify(0, 1, 5, 3)));
        // One is written, one zeroed, one deallocated.
        ok(host.io(1, Sqe::write(0, 1, 3, 1, area, 0, false)));
        ok(host.io(1, Sqe::read(0, 1, 3, 1, area + 4096, 0)));
        unreadable(host.io(1, Sqe::read(0, 1, 2, 2, area + 4096, 0)));
        ok(host.io(1, Sqe::write_zeroes(0, 1, 2, 1, false, false)));
        host.write(area, &[0, 0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0]);
        ok(host.io(1, Sqe::dsm_deallocate(0, 1, 1, area, 0)));
        ok(host.io(1, Sqe::read(0, 1, 0, 8, area + 4096, 0)));
        assert_eq!(ssd.counters().media_errors, 4);
        assert_eq!(ssd.counters().refused, 0, "no rule was broken");
        refused(host.io(1, Sqe::write_uncorrectable(0, 1, 2047, 2)), S::LbaOutOfRange);
    });
}

#[test]
fn marks_survive_resets_and_power_cuts() {
    let (ssd, mut host) = stepped(SsdConfig { volatile_write_cache: true, ..config(1 << 20, 512) });
    host.create_queues(1, 16, None);
    let area = host.alloc(4096);
    ok(host.io(1, Sqe::write_uncorrectable(0, 1, 7, 2)));
    for seed in 0..8 {
        // Writing the first of them is for good, also without a flush.
        ok(host.io(1, Sqe::write_uncorrectable(0, 1, 7, 1)));
        host.write(area, &[seed; 512]);
        ok(host.io(1, Sqe::write(0, 1, 7, 1, area, 0, false)));
        ssd.power_cut(&mut Rng::new(seed.into()));
        host.enable();
        host.create_queues(1, 16, None);
        ok(host.io(1, Sqe::read(0, 1, 7, 1, area + 512, 0)));
        assert_eq!(host.read(area + 512, 512), [seed; 512]);
        unreadable(host.io(1, Sqe::read(0, 1, 8, 1, area, 0)));
    }
}
