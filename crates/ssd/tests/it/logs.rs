//! Log pages: what they say, against what is so.

use meantime_spec::features::{AsyncEventConfig, fid};
use meantime_spec::identify::{NamespaceIdDescriptors, cns, nidt};
use meantime_spec::log::{
    AsyncEvent, AsyncEventCode, ChangedNamespaceList, CommandsSupportedLog, ErrorLogEntry,
    SmartLog, lid,
};
use meantime_spec::opcode::{admin, io};
use meantime_spec::sqe::{NSID_BROADCAST, Sqe, fuse};
use meantime_spec::status::StatusCode as S;
use meantime_ssd::{Rng, SsdConfig};
use meantime_testkit::host::*;
use zerocopy::FromBytes;

fn log<T: FromBytes>(host: &mut Host, lid: u8, rae: bool) -> T {
    let (page, len) = (host.alloc(8192), size_of::<T>());
    let second = if len > 4096 { page + 4096 } else { 0 };
    let sqe = Sqe::get_log_page(0, NSID_BROADCAST, lid, 0, rae, (len / 4) as u32, 0, page, second);
    ok(host.admin(sqe));
    T::read_from_bytes(&host.read(page, len)).unwrap()
}

fn newest_error(host: &mut Host) -> ErrorLogEntry {
    log::<[ErrorLogEntry; 64]>(host, lid::ERROR_INFORMATION, false)[0]
}

#[test]
fn errors_say_where_and_what() {
    let mut c = config(1 << 20, 512);
    c.mdts_bytes = 8192;
    let (_ssd, mut host) = stepped(c);
    host.create_queues(1, 16, None);
    let area = host.alloc(8192);
    let mut fused = Sqe::read(0, 1, 5, 1, area, 0);
    fused.cdw0.set(fused.cdw0.get() | 1 << 8);
    // The command, its status, the byte and bit at fault, its LBA.
    let cases = [
        (Sqe::read(0, 1, 2047, 2, area, 0), S::LbaOutOfRange, Some((40, 0)), 2047),
        (Sqe::read(0, 9, 3, 1, area, 0), S::InvalidNamespaceOrFormat, Some((4, 0)), 3),
        (Sqe::read(0, 1, 4, 1, area + 1, 0), S::PrpOffsetInvalid, Some((24, 0)), 4),
        (Sqe::read(0, 1, 4, 9, area + 8, 0), S::InvalidFieldInCommand, Some((32, 0)), 4),
        (Sqe::read(0, 1, 4, 17, area, area), S::InvalidFieldInCommand, Some((48, 0)), 4),
        (Sqe::new(0x7f, 0, 1), S::InvalidCommandOpcode, Some((0, 0)), 0),
        (fused, S::CommandAbortedMissingFused, Some((1, 0)), 5),
    ];
    for (count, (sqe, code, parameter, lba)) in cases.into_iter().enumerate() {
        let cqe = host.io(1, sqe);
        refused(cqe, code);
        let entry = newest_error(&mut host);
        assert_eq!(entry.error_count.get(), count as u64 + 1);
        assert_eq!((entry.sqid.get(), entry.cid.get()), (1, cqe.cid.get()));
        assert_eq!((entry.nsid.get(), entry.lba.get()), (sqe.nsid.get(), lba), "{code}");
        assert_eq!(entry.parameter(), parameter, "{code}");
        assert_eq!(
            entry.status_phase.get(),
            cqe.status_phase.get(),
            "the status field, phase included"
        );
    }
    // Admin commands have no LBA.
    refused(host.admin(Sqe::get_features(0, 0, 0xc0, 0, 0)), S::InvalidFieldInCommand);
    let entry = newest_error(&mut host);
    assert_eq!((entry.sqid.get(), entry.lba.get(), entry.parameter()), (0, 0, Some((40, 0))));
    // What only became known when it was executed: the block that differs, counted from the first.
    host.write(area, &[7; 8192]);
    ok(host.io(1, Sqe::write(0, 1, 0, 16, area, area + 4096, false)));
    host.write(area + 6000, &[8]);
    refused(host.io(1, Sqe::compare(0, 1, 0, 16, area, area + 4096)), S::CompareFailure);
    assert_eq!(newest_error(&mut host).lba.get(), 11);
    // A range's own place, since the command names no block.
    host.write(area + 16, &[0, 0, 0, 0, 1, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0]);
    host.write(area, &[0; 16]);
    refused(host.io(1, Sqe::dsm_deallocate(0, 1, 2, area, 0)), S::LbaOutOfRange);
    assert_eq!(
        (newest_error(&mut host).lba.get(), newest_error(&mut host).parameter()),
        (2048, Some((24, 0)))
    );
}

#[test]
fn both_commands_of_a_refused_pair_are_located() {
    let (_ssd, mut host) = stepped(config(1 << 20, 512));
    host.create_queues(1, 16, None);
    let area = host.alloc(4096);
    host.put(1, &Sqe::compare(70, 1, 3, 1, area, 0).with_fuse(fuse::FIRST));
    host.put(1, &Sqe::write(71, 1, 4, 1, area, 0, false).with_fuse(fuse::SECOND));
    host.ring(1);
    for _ in 0..2 {
        refused(host.wait(1), S::InvalidFieldInCommand);
    }
    let [second, first, ..]: [ErrorLogEntry; 64] = log(&mut host, lid::ERROR_INFORMATION, false);
    for (entry, cid, lba) in [(first, 70, 3), (second, 71, 4)] {
        assert_eq!((entry.cid.get(), entry.nsid.get(), entry.lba.get()), (cid, 1, lba));
        assert_eq!(entry.parameter(), Some((40, 0)), "blocks that are not the same");
    }
}

#[test]
fn an_error_waits_for_its_completion() {
    // With a model, what is refused completes at once, but what is read later.
    let (_ssd, mut host) = stepped(SsdConfig {
        model: meantime_ssd::Model::named("optane").unwrap(),
        ..config(1 << 20, 512)
    });
    host.create_queues(1, 16, None);
    let area = host.alloc(4096);
    ok(host.io(1, Sqe::write_uncorrectable(0, 1, 6, 2)));
    let cqe = host.io(1, Sqe::read(0, 1, 4, 8, area, 0));
    assert!(cqe.status().is(S::UnrecoveredReadError) && cqe.status().dnr());
    let entry = newest_error(&mut host);
    assert_eq!((entry.lba.get(), entry.nsid.get(), entry.cid.get()), (6, 1, cqe.cid.get()));
    assert_eq!(entry.parameter(), None, "no parameter is to blame");
}

#[test]
fn smart_counts_power_and_media_errors() {
    let (ssd, mut host) = stepped(config(1 << 20, 512));
    host.create_queues(1, 16, None);
    let area = host.alloc(4096);
    ok(host.io(1, Sqe::write_uncorrectable(0, 1, 0, 1)));
    for _ in 0..3 {
        host.io(1, Sqe::read(0, 1, 0, 1, area, 0));
    }
    ssd.power_cut(&mut Rng::new(1));
    host.enable();
    host.port
        .write32(meantime_spec::regs::CC, Host::cc().with_shn(meantime_spec::regs::shn::NORMAL).0);
    ssd.power_cut(&mut Rng::new(1));
    host.enable();
    let smart: SmartLog = log(&mut host, lid::SMART, false);
    assert_eq!((smart.media_errors.get(), smart.error_log_entries.get()), (3, 3));
    assert_eq!((smart.power_cycles.get(), smart.unsafe_shutdowns.get()), (3, 1));
}

#[test]
fn the_effects_log_is_true() {
    for shadow_doorbells in [false, true] {
        let (_ssd, mut host) = stepped(SsdConfig { shadow_doorbells, ..config(1 << 20, 512) });
        host.create_queues(1, 16, None);
        let effects: CommandsSupportedLog = log(&mut host, lid::COMMANDS_SUPPORTED, false);
        for opcode in 0..=255 {
            let supported = effects.admin_effects(opcode).csupp();
            if opcode == admin::ASYNC_EVENT_REQUEST {
                assert!(supported);
                continue;
            }
            let refused = host.admin(Sqe::new(opcode, 0, 77)).status().is(S::InvalidCommandOpcode);
            assert_eq!(refused, !supported, "admin {opcode:#x}");
        }
        for opcode in 0..=255 {
            let supported = effects.io_effects(opcode).csupp();
            let refused = host.io(1, Sqe::new(opcode, 0, 1)).status().is(S::InvalidCommandOpcode);
            assert_eq!(refused, !supported, "I/O {opcode:#x}");
        }
        assert!(effects.io_effects(io::WRITE).lbcc() && !effects.io_effects(io::READ).lbcc());
        let format = effects.admin_effects(admin::FORMAT_NVM);
        assert!(format.lbcc() && format.ncc() && format.cse() == 1);
        assert_eq!(effects.admin_effects(admin::DOORBELL_BUFFER_CONFIG).csupp(), shadow_doorbells);
    }
}

#[test]
fn a_namespace_that_changed_is_listed_once() {
    let mut c = config(1 << 20, 512);
    c.namespaces.push(meantime_ssd::NamespaceConfig { bytes: 1 << 20, lba_bytes: 512 });
    let (_ssd, mut host) = stepped(c);
    let wanted = AsyncEventConfig(0).with_namespace_attribute(true);
    ok(host.admin(Sqe::set_features(0, 0, fid::ASYNC_EVENT_CONFIG, false, wanted.0)));
    let cid = host.cid();
    host.submit(0, &Sqe::async_event_request(cid));
    host.settle();
    ok(host.admin(Sqe::format(0, 2, 0, 0)));
    assert!(host.poll(0).is_none(), "the same format as before is no change");
    // The event comes first, then the completion of what caused it.
    let format = host.cid();
    let mut sqe = Sqe::format(0, 2, 1, 0);
    sqe.set_cid(format);
    host.submit(0, &sqe);
    let event = AsyncEvent::try_from(ok(host.wait(0)).dw0.get()).unwrap();
    assert_eq!((event.code(), event.log_page), (Ok(AsyncEventCode::NamespaceAttributeChanged), 4));
    assert_eq!(ok(host.wait(0)).cid.get(), format);
    let changed: ChangedNamespaceList = log(&mut host, lid::CHANGED_NAMESPACE_LIST, false);
    assert_eq!(changed.iter().collect::<Vec<_>>(), [2]);
    let changed: ChangedNamespaceList = log(&mut host, lid::CHANGED_NAMESPACE_LIST, false);
    assert_eq!(changed.iter().count(), 0);
}

#[test]
fn namespaces_have_identifiers_of_every_kind() {
    let mut c = config(1 << 20, 512);
    c.namespaces.push(meantime_ssd::NamespaceConfig { bytes: 1 << 20, lba_bytes: 512 });
    let (_ssd, mut host) = stepped(c);
    let page = host.alloc(4096);
    let mut seen = std::collections::HashSet::new();
    for nsid in [1, 2] {
        ok(host.admin(Sqe::identify(0, nsid, cns::NAMESPACE_ID_DESCRIPTORS, 0, page, 0)));
        let data = host.read(page, 4096);
        let found: Vec<_> = NamespaceIdDescriptors::new(&data).collect();
        let kinds: Vec<_> = found.iter().map(|(kind, id)| (*kind, id.len())).collect();
        assert_eq!(kinds, [(nidt::NGUID, 16), (nidt::EUI64, 8), (nidt::UUID, 16)]);
        assert!(
            found.iter().all(|(_, id)| seen.insert(id.to_vec())),
            "no two namespaces share one"
        );
        ok(host.admin(Sqe::identify(0, nsid, cns::NAMESPACE, 0, page, 0)));
        let ns = host.read(page, 128);
        assert_eq!(
            (&ns[104..120], &ns[120..128]),
            (found[0].1, found[1].1),
            "as Identify Namespace has them"
        );
    }
}
