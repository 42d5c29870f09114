//! Scatter gather lists, right ones and wrong ones.

use meantime_nvme_spec::identify::{IdentifyController, cns};
use meantime_nvme_spec::sgl::{SglDescriptor as D, SglKind, sgls};
use meantime_nvme_spec::sqe::Sqe;
use meantime_nvme_spec::status::StatusCode as S;
use meantime_ssd::{Model, Rng};
use meantime_testkit::host::*;
use zerocopy::{FromBytes, IntoBytes};

fn list(host: &mut Host, descriptors: &[D]) -> u64 {
    let at = host.alloc(descriptors.len() as u64 * 16);
    host.write(at, descriptors.as_bytes());
    at
}

fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    (0..len).map(|_| rng.next_u64() as u8).collect()
}

fn each_way(test: impl Fn(Host)) {
    for model in ["null", "optane"] {
        let mut c = config(1 << 20, 512);
        c.model = Model::named(model).unwrap();
        let (_ssd, mut host) = stepped(c);
        host.create_queues(1, 16, None);
        test(host);
    }
}

#[test]
fn data_in_pieces_of_any_size_and_place() {
    each_way(|mut host| {
        let page = host.alloc(4096);
        ok(host.admin(Sqe::identify(0, 0, cns::CONTROLLER, 0, page, 0)));
        let id = IdentifyController::read_from_bytes(&host.read(page, 4096)).unwrap();
        assert_eq!(id.sgls.get(), sgls::SUPPORTED);

        let area = host.alloc(65536);
        let data = pattern(8192, 1);
        // At an odd address, across a page: one descriptor in the command itself.
        host.write(area + 4001, &data);
        ok(host.io(
            1,
            Sqe::write(0, 1, 0, 16, 0, 0, false).with_sgl(D::data_block(area + 4001, 8192)),
        ));
        // Back in three pieces of a last segment, one of them empty, another order in memory.
        let pieces = [
            D::data_block(area + 30_003, 5000),
            D::data_block(0, 0),
            D::data_block(area + 20_000, 1),
            D::data_block(area + 21_111, 3191),
        ];
        let last = list(&mut host, &pieces);
        ok(host.io(1, Sqe::read(0, 1, 0, 16, 0, 0).with_sgl(D::last_segment(last, 4))));
        let mut back = host.read(area + 30_003, 5000);
        back.extend(host.read(area + 20_000, 1));
        back.extend(host.read(area + 21_111, 3191));
        assert_eq!(back, data);
        ok(host.io(1, Sqe::compare(0, 1, 0, 16, 0, 0).with_sgl(D::last_segment(last, 4))));
        host.write(area + 20_000, &[!data[5000]]);
        refused(
            host.io(1, Sqe::compare(0, 1, 0, 16, 0, 0).with_sgl(D::last_segment(last, 4))),
            S::CompareFailure,
        );
        // A chain of segments of one page and more: 600 pieces of 8 bytes, 300 in each of two, and
        // the rest.
        let at = |i: u64| area + 40_000 + (i * 7919 % 900) * 8;
        let mut rest: Vec<_> = (300..600).map(|i| D::data_block(at(i), 8)).collect();
        rest.push(D::data_block(area, 8192 - 4800));
        let rest = list(&mut host, &rest);
        let mut first: Vec<_> = (0..300).map(|i| D::data_block(at(i), 8)).collect();
        first.push(D::last_segment(rest, 301));
        let first = list(&mut host, &first);
        ok(host.io(1, Sqe::read(0, 1, 0, 16, 0, 0).with_sgl(D::segment(first, 301))));
        let mut back: Vec<u8> = (0..600).flat_map(|i| host.read(at(i), 8)).collect();
        back.extend(host.read(area, 8192 - 4800));
        assert_eq!(back, data);
    });
}

#[test]
fn deallocation_by_sgl() {
    each_way(|mut host| {
        let area = host.alloc(8192);
        host.write(area, &[7; 4096]);
        ok(host.io(1, Sqe::write(0, 1, 0, 8, area, 0, false)));
        host.write(area + 3, &[0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
        ok(host.io(1, Sqe::dsm_deallocate(0, 1, 1, 0, 0).with_sgl(D::data_block(area + 3, 16))));
        ok(host.io(1, Sqe::read(0, 1, 1, 3, area, 0)));
        let expected: Vec<u8> = [7, 0, 7].into_iter().flat_map(|byte| [byte; 512]).collect();
        assert_eq!(host.read(area, 1536), expected);
    });
}

#[test]
fn lists_that_are_wrong() {
    each_way(|mut host| {
        let area = host.alloc(8192);
        host.write(area, &[1; 4096]);
        ok(host.io(1, Sqe::write(0, 1, 0, 8, area, 0, false)));
        host.write(area, &[0xee; 8192]);
        let block = D::data_block(area, 512);
        let of = |identifier| {
            let mut d = D::data_block(area, 512);
            d.identifier = identifier;
            d
        };
        let odd = |mut d: D, length| {
            d.length.set(length);
            d
        };
        let one = list(&mut host, &[block]);
        let two = list(&mut host, &[block, block]);
        let pointer_first = list(&mut host, &[D::last_segment(one, 1), block]);
        let pointer_in_last = list(&mut host, &[D::last_segment(one, 1)]);
        let bad_inside = list(&mut host, &[D::data_block(area, 256), of(0x50)]);
        let circle = host.alloc(4096);
        host.write(circle, D::segment(circle, 1).as_bytes());
        let unmapped = 0x9000_0000_0000;
        let cases = [
            (D::data_block(area, 511), S::DataSglLengthInvalid),
            (D::data_block(area, 513), S::DataSglLengthInvalid),
            (D::last_segment(two, 2), S::DataSglLengthInvalid),
            (D::data_block(unmapped, 512), S::DataTransferError),
            (D::data_block(u64::MAX - 100, 512), S::DataTransferError),
            (D::last_segment(unmapped, 1), S::DataTransferError),
            (D::last_segment(one, 0), S::InvalidSglSegmentDescriptor),
            (odd(D::last_segment(one, 1), 24), S::InvalidSglSegmentDescriptor),
            (D::last_segment(one + 4, 1), S::InvalidSglSegmentDescriptor),
            (D::segment(one, 1), S::InvalidSglSegmentDescriptor),
            (D::last_segment(pointer_in_last, 1), S::InvalidSglSegmentDescriptor),
            (D::segment(pointer_first, 2), S::InvalidNumberOfSglDescriptors),
            (D::segment(circle, 1), S::InvalidNumberOfSglDescriptors),
            (D::last_segment(bad_inside, 2), S::SglDescriptorTypeInvalid),
            (of((SglKind::KeyedDataBlock as u8) << 4), S::SglDescriptorTypeInvalid),
            (of(0xf0), S::SglDescriptorTypeInvalid),
            (of(0x60), S::SglDescriptorTypeInvalid),
            (of(0x01), S::SglDescriptorTypeInvalid),
        ];
        for (i, (sgl1, code)) in cases.into_iter().enumerate() {
            let cqe = host.io(1, Sqe::read(0, 1, 0, 1, 0, 0).with_sgl(sgl1));
            assert!(
                cqe.status().is(code) && cqe.status().dnr(),
                "{i}: {} not {code}",
                cqe.status()
            );
            let cqe = host.io(1, Sqe::write(0, 1, 0, 1, 0, 0, false).with_sgl(sgl1));
            assert!(cqe.status().is(code), "{i}: {} not {code}", cqe.status());
        }
        assert_eq!(host.read(area, 8192), [0xee; 8192], "nothing was transferred");
        ok(host.io(1, Sqe::read(0, 1, 0, 8, area, 0)));
        assert_eq!(host.read(area, 4096), [1; 4096]);
        // PSDT 10b, 11b; and 01b for the admin queue.
        for psdt in [2, 3] {
            let mut sqe = Sqe::read(0, 1, 0, 1, area, 0);
            sqe.cdw0.set(sqe.cdw0.get() | psdt << 14);
            refused(host.io(1, sqe), S::InvalidFieldInCommand);
        }
        let identify =
            Sqe::identify(0, 0, cns::CONTROLLER, 0, 0, 0).with_sgl(D::data_block(area, 4096));
        refused(host.admin(identify), S::InvalidFieldInCommand);
    });
}

#[test]
fn memory_taken_away_from_a_list_in_flight() {
    let mut c = config(1 << 20, 512);
    c.model = Model::named("optane").unwrap();
    let (_ssd, mut host) = stepped(c);
    host.create_queues(1, 16, None);
    let other = Arena::new(8192);
    let iova = 0x7000_0000;
    host.port.map_dma(Arena::region(&other, iova)).unwrap();
    host.submit(1, &Sqe::read(1, 1, 0, 8, 0, 0).with_sgl(D::data_block(iova + 4000, 4096)));
    host.run_until_idle();
    host.port.unmap_dma(iova).unwrap();
    refused(host.wait(1), S::DataTransferError);
}
