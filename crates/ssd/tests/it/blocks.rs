//! Blocks that cannot be read, and formats.

use meantime_spec::identify::{IdentifyNamespace, cns, fna, oacs};
use meantime_spec::sqe::Sqe;
use meantime_spec::status::StatusCode as S;
use meantime_ssd::{Model, NamespaceConfig, Rng, SsdConfig, SteppedSsd};
use meantime_testkit::host::*;
use zerocopy::FromBytes;

fn unreadable(cqe: meantime_spec::cqe::Cqe) {
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

fn format_of(host: &mut Host, nsid: u32) -> (u64, u32) {
    let page = host.alloc(4096);
    ok(host.admin(Sqe::identify(0, nsid, cns::NAMESPACE, 0, page, 0)));
    let ns = IdentifyNamespace::read_from_bytes(&host.read(page, 4096)).unwrap();
    let sizes: Vec<_> = ns.lbaf[..=usize::from(ns.nlbaf)].iter().map(|f| f.block_bytes()).collect();
    assert_eq!(sizes, [Some(512), Some(4096)]);
    (ns.nsze.get(), ns.lba_format_in_use().unwrap().block_bytes().unwrap())
}

#[test]
fn formats_of_one_namespace_and_of_all() {
    let mut c = config(1 << 20, 512);
    c.namespaces.push(NamespaceConfig { bytes: 2 << 20, lba_bytes: 512 });
    let (_ssd, mut host) = stepped(c);
    host.create_queues(1, 16, None);
    let area = host.alloc(4096);
    let identify = host.alloc(4096);
    ok(host.admin(Sqe::identify(0, 0, cns::CONTROLLER, 0, identify, 0)));
    let id =
        meantime_spec::identify::IdentifyController::read_from_bytes(&host.read(identify, 4096))
            .unwrap();
    assert_eq!((id.oacs.get() & oacs::FORMAT, id.fna & fna::FORMAT_ALL), (oacs::FORMAT, 0));

    host.write(area, &[3; 4096]);
    for nsid in [1, 2] {
        for lba in [0, 8, 2040] {
            ok(host.io(1, Sqe::write(0, nsid, lba, 8, area, 0, false)));
        }
        ok(host.io(1, Sqe::write_uncorrectable(0, nsid, 20, 1)));
    }
    ok(host.admin(Sqe::format(0, 1, 1, 0)));
    assert_eq!((format_of(&mut host, 1), format_of(&mut host, 2)), ((256, 4096), (4096, 512)));
    for block in 0..256 {
        ok(host.io(1, Sqe::read(0, 1, block, 1, area, 0)));
        assert_eq!(host.read(area, 4096), [0; 4096], "gone, {block}");
    }
    refused(host.io(1, Sqe::read(0, 1, 256, 1, area, 0)), S::LbaOutOfRange);
    ok(host.io(1, Sqe::read(0, 2, 2040, 8, area, 0)));
    assert_eq!(host.read(area, 4096), [3; 4096], "the other is as it was");
    unreadable(host.io(1, Sqe::read(0, 2, 20, 1, area, 0)));
    ok(host.admin(Sqe::format(0, u32::MAX, 0, 1)));
    assert_eq!((format_of(&mut host, 1), format_of(&mut host, 2)), ((2048, 512), (4096, 512)));
    ok(host.io(1, Sqe::read(0, 2, 16, 8, area, 0)));

    refused(host.admin(Sqe::format(0, 3, 0, 0)), S::InvalidNamespaceOrFormat);
    refused(host.admin(Sqe::format(0, 0, 0, 0)), S::InvalidNamespaceOrFormat);
    refused(host.admin(Sqe::format(0, 1, 2, 0)), S::InvalidFormat);
    refused(host.admin(Sqe::format(0, 1, 0, 2)), S::InvalidFieldInCommand);
    let mut protected = Sqe::format(0, 1, 0, 0);
    protected.cdw10.set(1 << 5);
    refused(host.admin(protected), S::InvalidFormat);
}

#[test]
fn a_namespace_in_use_is_not_formatted() {
    let mut c = config(1 << 20, 512);
    c.namespaces.push(NamespaceConfig { bytes: 1 << 20, lba_bytes: 512 });
    c.model = Model::named("optane").unwrap();
    let (_ssd, mut host) = stepped(c);
    host.create_queues(1, 16, None);
    let area = host.alloc(4096);
    host.submit(1, &Sqe::read(1, 1, 0, 8, area, 0));
    host.settle();
    refused(host.admin(Sqe::format(0, 1, 1, 0)), S::CommandSequenceError);
    refused(host.admin(Sqe::format(0, u32::MAX, 1, 0)), S::CommandSequenceError);
    ok(host.admin(Sqe::format(0, 2, 1, 0)));
    ok(host.wait(1));
    ok(host.admin(Sqe::format(0, 1, 1, 0)));
}

#[test]
fn a_format_is_not_undone_by_a_power_cut() {
    let (ssd, mut host) = stepped(SsdConfig { volatile_write_cache: true, ..config(1 << 20, 512) });
    host.create_queues(1, 16, None);
    let area = host.alloc(4096);
    host.write(area, &[3; 4096]);
    ok(host.io(1, Sqe::write(0, 1, 0, 8, area, 0, false)));
    ok(host.admin(Sqe::format(0, 1, 1, 0)));
    assert_eq!(ssd.unflushed_bytes(), 0);
    ssd.power_cut(&mut Rng::new(3));
    host.enable();
    host.create_queues(1, 16, None);
    ok(host.io(1, Sqe::read(0, 1, 0, 1, area, 0)));
    assert_eq!(host.read(area, 4096), [0; 4096]);
}
