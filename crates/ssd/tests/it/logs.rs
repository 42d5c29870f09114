//! Log pages: what they say, against what is so.

use meantime_nvme_spec::identify::{NamespaceIdDescriptors, cns, nidt};
use meantime_nvme_spec::log::{CommandsSupportedLog, SmartLog, lid};
use meantime_nvme_spec::opcode::{admin, io};
use meantime_nvme_spec::sqe::{NSID_BROADCAST, Sqe};
use meantime_nvme_spec::status::StatusCode as S;
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
    host.port.write32(
        meantime_nvme_spec::regs::CC,
        Host::cc().with_shn(meantime_nvme_spec::regs::shn::NORMAL).0,
    );
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
        assert_eq!(effects.admin_effects(admin::DOORBELL_BUFFER_CONFIG).csupp(), shadow_doorbells);
    }
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
