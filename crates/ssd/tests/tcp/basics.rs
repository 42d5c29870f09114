//! The SSD over NVMe/TCP, as its hosts see it.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use meantime_nvme_spec::fabrics::{DISCOVERY_NQN, DiscoveryEntry, DiscoveryHeader};
use meantime_nvme_spec::identify::{IdentifyController, IdentifyNamespace, cns};
use meantime_nvme_spec::regs::{CAP, Cap};
use meantime_nvme_spec::sgl::SglDescriptor;
use meantime_nvme_spec::sqe::Sqe;
use meantime_ssd::tcp::{DEFAULT_NQN, Target, TargetOptions};
use meantime_ssd::{Medium, SsdConfig};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use zerocopy::FromBytes as _;

use crate::peer::{Connect, Host, Peer};

pub(crate) const BLOCK: u32 = 512;

pub(crate) fn target() -> Target {
    target_with(|_, _| {})
}

pub(crate) fn target_with(change: impl FnOnce(&mut SsdConfig, &mut TargetOptions)) -> Target {
    let mut config = SsdConfig::with_namespace(8 << 20, BLOCK);
    let mut options = TargetOptions::default();
    change(&mut config, &mut options);
    let medium = Medium::dram(config.total_bytes()).unwrap();
    Target::start(config, medium, options).unwrap()
}

pub(crate) fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ seed).collect()
}

pub(crate) fn identify(peer: &mut Peer, nsid: u32, structure: u8) -> Vec<u8> {
    let cid = peer.next_cid();
    let sqe = Sqe::identify(cid, nsid, structure, 0, 0, 0).with_sgl(SglDescriptor::transport(4096));
    let answer = peer.command(&sqe, &[]);
    assert!(answer.status.is_success(), "{}", answer.status);
    answer.data
}

#[test]
fn data_is_written_in_capsules_or_when_asked_for_and_read_back() {
    let target = target();
    for digests in 0..4 {
        let mut host = Host::with(target.addr(), digests, &Connect::default());
        let mut at = 0;
        for len in [512, 4096, 8192, 12288, 16384] {
            let data = pattern(len, digests + len as u8);
            let answer = host.io.write(at, BLOCK, &data);
            assert!(answer.status.is_success(), "{}", answer.status);
            let read = host.io.read(at, len as u32 / BLOCK, BLOCK);
            assert!(read.status.is_success() && read.sqhd.is_none());
            assert!(read.data == data, "{len} bytes");
            at += len as u64 / u64::from(BLOCK);
        }
        for (len, piece) in [(512, 512), (4096, 512), (131_072, 131_072), (131_072, 10_000)] {
            let data = pattern(len, digests ^ piece as u8);
            let answer = host.io.write_asked(at, BLOCK, &data, piece);
            assert!(answer.status.is_success(), "{}", answer.status);
            let read = host.io.read(at, len as u32 / BLOCK, BLOCK);
            assert!(read.data == data, "{len} bytes in pieces of {piece}");
            at += len as u64 / u64::from(BLOCK);
        }
    }
    assert!(target.tcp_counters().r2ts > 0 && target.counters().reads > 0);
    assert_eq!(target.tcp_counters().fatal_errors, 0);
}

#[test]
fn with_flow_control_reads_are_answered_with_the_head_of_the_queue() {
    let target = target();
    let mut host = Host::with(target.addr(), 0, &Connect { cattr: 0, ..Connect::default() });
    for round in 1..200_u16 {
        let read = host.io.read(0, 1, BLOCK);
        // Connect was the first command.
        assert_eq!(read.sqhd, Some((round + 1) % 128));
    }
}

#[test]
fn controllers_say_what_they_are() {
    let target = target();
    let mut host = Host::new(target.addr());
    let data = identify(&mut host.admin, 0, cns::CONTROLLER);
    let c = IdentifyController::read_from_bytes(&data).unwrap();
    assert_eq!((c.cntlid.get(), c.mdts), (host.cntlid, 5));
    assert_eq!(c.fabrics.in_capsule_bytes(), 16384);
    assert_eq!((c.fabrics.iorcsz.get(), c.fabrics.icdoff.get()), (1, 0));
    assert_eq!(c.subsystem_nqn(), DEFAULT_NQN);
    assert_ne!(c.kas.get(), 0);
    let cap = host.admin.property(CAP, 8);
    let cap = Cap(u64::from(cap.dw0) | u64::from(cap.dw1) << 32);
    assert_eq!((cap.mqes(), c.maxcmd.get()), (1023, 1024));
    let data = identify(&mut host.admin, 1, cns::NAMESPACE);
    let n = IdentifyNamespace::read_from_bytes(&data).unwrap();
    assert_eq!((n.nsze.get(), n.nmic & 1), (8 << 11, 1));
}

#[test]
fn the_discovery_service_names_the_subsystem() {
    discover(Ipv4Addr::LOCALHOST);
}

#[test]
fn the_discovery_service_names_the_address_that_was_connected_to() {
    discover(Ipv4Addr::UNSPECIFIED);
}

fn discover(listen_at: Ipv4Addr) {
    let target = target_with(|_, options| options.addr = (listen_at, 0).into());
    let mut peer = Peer::new((Ipv4Addr::LOCALHOST, target.addr().port()).into());
    let connect = Connect { subnqn: DISCOVERY_NQN.to_owned(), ..Connect::default() };
    assert!(peer.connect(&connect).status.is_success());
    peer.enable();
    let c = identify(&mut peer, 0, cns::CONTROLLER);
    assert_eq!(IdentifyController::read_from_bytes(&c).unwrap().cntrltype, 2);
    let mut log = Vec::new();
    for at in 0..3_u64 {
        let sqe = Sqe::get_log_page(peer.next_cid(), 0, 0x70, 0, false, 256, at * 1024, 0, 0)
            .with_sgl(SglDescriptor::transport(1024));
        log.push(peer.command(&sqe, &[]).data);
    }
    let header = DiscoveryHeader::read_from_bytes(&log[0]).unwrap();
    assert_eq!((header.numrec.get(), header.recfmt.get()), (2, 0));
    let entry = DiscoveryEntry::read_from_bytes(&log[1]).unwrap();
    assert_eq!((entry.trtype, entry.adrfam, entry.subtype), (3, 1, 2));
    let text =
        |field: &[u8]| String::from_utf8_lossy(field).trim_end_matches([' ', '\0']).to_owned();
    assert_eq!(text(&entry.subnqn), DEFAULT_NQN);
    assert_eq!(text(&entry.traddr), "127.0.0.1");
    assert_eq!(text(&entry.trsvcid), target.addr().port().to_string());
    assert_eq!(DiscoveryEntry::read_from_bytes(&log[2]).unwrap().subtype, 3);
}

/// The kernel's own figures show it: another thread spins on the target's CPU.
#[test]
fn a_target_beside_a_thread_that_spins_on_its_cpu_sleeps() {
    let cpus = sched_getaffinity(None).unwrap();
    let cpu = (0..CpuSet::MAX_CPU).find(|&cpu| cpus.is_set(cpu)).unwrap();
    let target = target_with(|config, _| {
        // This is longer than the test, so the target sleeps only for the sake of others.
        (config.cpu, config.park_after_ns) = (Some(cpu), 600_000_000_000);
    });
    let (ends, begun) = (AtomicBool::new(false), Instant::now());
    let goes_on = || begun.elapsed() < Duration::from_secs(20);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut only = CpuSet::new();
            only.set(cpu);
            sched_setaffinity(None, &only).unwrap();
            while !ends.load(Ordering::Relaxed) && goes_on() {
                std::hint::spin_loop();
            }
        });
        let mut host = Host::new(target.addr());
        let sleeps = || target.tcp_counters().sleeps;
        while sleeps() == 0 && goes_on() {
            assert!(host.io.read(0, 1, BLOCK).status.is_success());
        }
        ends.store(true, Ordering::Relaxed);
        assert!(sleeps() > 0);
    });
}
