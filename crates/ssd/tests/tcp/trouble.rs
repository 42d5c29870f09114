//! Hosts that break rules, vanish, or are not welcome.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use meantime_nvme_spec::fabrics::FabricsStatus;
use meantime_nvme_spec::identify::cns;
use meantime_nvme_spec::opcode::{admin, io};
use meantime_nvme_spec::regs::{CC, CSTS, Cc, Csts, shn, shst};
use meantime_nvme_spec::sgl::SglDescriptor;
use meantime_nvme_spec::sqe::Sqe;
use meantime_nvme_spec::status::StatusCode;
use meantime_nvme_spec::tcp::{CapsuleCmd, CommonHeader, PduType};
use meantime_ssd::tcp::{NetFaults, Target};
use meantime_ssd::{FaultControl as _, FaultRule};
use zerocopy::IntoBytes as _;

use crate::basics::{BLOCK, pattern, target, target_with};
use crate::peer::{Connect, HOST, Host, Peer, icreq};

/// Whether the target closes the connection within a while, whatever it sends before.
fn closes(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_secs(15))).unwrap();
    let mut bytes = [0; 4096];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

pub(crate) fn works(host: &mut Host) {
    let data = pattern(4096, 7);
    assert!(host.io.write(64, BLOCK, &data).status.is_success());
    assert!(host.io.read(64, 8, BLOCK).data == data);
}

pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn only_hosts_that_are_listed_may_connect_and_parameters_are_checked() {
    let target = target_with(|_, options| options.hosts = vec![HOST.to_owned()]);
    let refused = |connect: Connect, code: FabricsStatus| {
        let answer = Peer::new(target.addr()).connect(&connect);
        assert_eq!(answer.status.bits() & 0x7ff, code as u16, "{}", answer.status);
    };
    let other = || Connect { hostnqn: "nqn.2014-08.org.x:other".into(), ..Connect::default() };
    refused(other(), FabricsStatus::ConnectInvalidHost);
    let invalid = FabricsStatus::ConnectInvalidParameters;
    let wrong = |change: fn(&mut Connect)| {
        let mut connect = Connect::default();
        change(&mut connect);
        refused(connect, invalid);
    };
    wrong(|c| c.subnqn = "nqn.2014-08.org.x:none".into());
    wrong(|c| c.subnqn = String::new());
    wrong(|c| c.hostnqn = "with a blank".into());
    wrong(|c| c.entries = 1);
    wrong(|c| c.entries = 1025);
    wrong(|c| c.cntlid = 1);
    wrong(|c| (c.qid, c.cntlid) = (1, 77));
    let mut host = Host::new(target.addr());
    let cntlid = host.cntlid;
    for change in [(|c| c.hostid = 2) as fn(&mut Connect), |c| c.qid = 1, |c| c.qid = 999] {
        let mut connect = Connect::io(cntlid, 2);
        change(&mut connect);
        refused(connect, invalid);
    }
    assert!(Peer::new(target.addr()).connect(&Connect::io(cntlid, 2)).status.is_success());
    works(&mut host);
    assert_eq!(target.tcp_counters().connects_refused, 11);
}

/// SPDK's programs send no name unless they are given one.
#[test]
fn a_host_without_a_name_may_connect_unless_hosts_are_listed() {
    let nameless = Connect { hostnqn: String::new(), ..Connect::default() };
    let open = target();
    works(&mut Host::with(open.addr(), 0, &nameless));
    let listing = target_with(|_, options| options.hosts = vec![HOST.to_owned()]);
    let other = Connect { hostnqn: "nqn.x:other".into(), ..Connect::default() };
    for (connect, times) in [(&nameless, 3), (&other, 1)] {
        for _ in 0..times {
            let answer = Peer::new(listing.addr()).connect(connect);
            let code = FabricsStatus::ConnectInvalidHost as u16;
            assert_eq!(answer.status.bits() & 0x7ff, code, "{}", answer.status);
        }
    }
    let refused = listing.handle().refused_hosts();
    let said: Vec<_> = refused.iter().map(|one| (one.host.as_str(), one.count)).collect();
    assert_eq!(said, [("a host without a name", 3), ("nqn.x:other", 1)]);
    assert!(refused.iter().all(|one| one.why.contains("--host")), "{refused:?}");
    works(&mut Host::new(listing.addr()));
}

#[test]
fn a_host_that_is_silent_is_given_up() {
    let target = target();
    let kato = Connect { kato_ms: 300, ..Connect::default() };
    let mut host = Host::with(target.addr(), 0, &kato);
    let mut other = Host::new(target.addr());
    // Any command keeps it.
    for _ in 0..8 {
        std::thread::sleep(Duration::from_millis(100));
        works(&mut host);
    }
    let begun = Instant::now();
    assert!(closes(&mut host.io.stream) && closes(&mut host.admin.stream));
    assert!((200..3000).contains(&(begun.elapsed().as_millis() as u64)));
    works(&mut other);
    assert_eq!(target.tcp_counters().keep_alives_expired, 1);
    let c = target.tcp_counters();
    assert_eq!((c.associations, c.associations_ended), (2, 1));
}

#[test]
fn a_controller_is_disabled_shut_down_and_enabled_again() {
    let target = target();
    let mut host = Host::new(target.addr());
    works(&mut host);
    assert!(host.admin.set_cc(Cc(0)).is_success());
    assert!(!host.admin.csts().rdy());
    assert!(closes(&mut host.io.stream));
    host.admin.enable();
    host.io = Peer::new(target.addr());
    assert!(host.io.connect(&Connect::io(host.cntlid, 1)).status.is_success());
    works(&mut host);
    let cc = Cc(0).with_en(true).with_iosqes(6).with_iocqes(4).with_shn(shn::NORMAL);
    assert!(host.admin.set_cc(cc).is_success());
    assert_eq!(host.admin.csts().shst(), shst::COMPLETE);
    let identify = Sqe::identify(host.admin.next_cid(), 0, cns::CONTROLLER, 0, 0, 0);
    let status = host.admin.command(&identify.with_sgl(SglDescriptor::transport(4096)), &[]).status;
    assert!(status.is(StatusCode::CommandSequenceError), "{status}");
    // A reset ends the shutdown.
    assert!(host.admin.set_cc(Cc(0)).is_success());
    assert_eq!(host.admin.csts().0, 0);
    // The end of the admin connection ends the association.
    let mut host = Host::new(target.addr());
    drop(host.admin);
    assert!(closes(&mut host.io.stream));
}

#[test]
fn wrong_lengths_are_refused_and_the_connection_goes_on() {
    let target = target();
    let mut host = Host::new(target.addr());
    let io = &mut host.io;
    let cid = io.next_cid();
    let read = |length| Sqe::read(cid, 1, 0, 8, 0, 0).with_sgl(SglDescriptor::transport(length));
    for length in [0, 512, 4095, 8192] {
        let status = io.command(&read(length), &[]).status;
        assert!(status.is(StatusCode::DataSglLengthInvalid), "{status}");
    }
    let status = io.command(&Sqe::read(cid, 1, 0, 8, 0, 0), &[]).status;
    assert!(status.is(StatusCode::InvalidFieldInCommand), "{status}");
    let write = Sqe::write(cid, 1, 0, 8, 0, 0, false).with_sgl(SglDescriptor::in_capsule(4096));
    let status = io.command(&write, &[0; 512]).status;
    assert!(status.is(StatusCode::DataSglLengthInvalid), "{status}");
    let much = Sqe::read(cid, 1, 0, 1024, 0, 0).with_sgl(SglDescriptor::transport(1024 * BLOCK));
    let status = io.command(&much, &[]).status;
    assert!(status.is(StatusCode::InvalidFieldInCommand), "{status}");
    let none = Sqe::read(cid, 9, 0, 8, 0, 0).with_sgl(SglDescriptor::transport(4096));
    let status = io.command(&none, &[]).status;
    assert!(status.is(StatusCode::InvalidNamespaceOrFormat), "{status}");
    works(&mut host);
}

/// The bytes of a session: ICReq, Connect, and commands.
fn session(target: &Target) -> Vec<u8> {
    let peer = Peer::new(target.addr());
    let mut bytes = icreq(0, 0).as_bytes().to_vec();
    let connect = Connect::default();
    let sqe = Sqe::connect(1, 0, 32, 0, 0);
    bytes.extend(peer.capsule(&sqe, connect.data().as_bytes()));
    bytes.extend(peer.capsule(&Sqe::property_get(2, 0, 8), &[]));
    bytes
}

#[test]
fn sessions_cut_anywhere_end_and_those_sent_byte_by_byte_work() {
    let target = target();
    let mut host = Host::new(target.addr());
    let bytes = session(&target);
    for cut in (0..bytes.len()).step_by(7) {
        let mut stream = TcpStream::connect(target.addr()).unwrap();
        stream.write_all(&bytes[..cut]).unwrap();
    }
    let mut peer = Peer::plain(target.addr());
    for byte in &bytes {
        peer.send(&[*byte]);
    }
    for kind in [PduType::IcResp, PduType::CapsuleResp, PduType::CapsuleResp] {
        assert_eq!(peer.receive().unwrap().kind(), kind);
    }
    works(&mut host);
    drop(peer);
    until("connections end", || {
        let c = target.tcp_counters();
        c.connections - c.ended == 2
    });
}

#[test]
fn garbage_is_answered_with_a_reason() {
    let target = target();
    let mut host = Host::new(target.addr());
    let sqe = Sqe::property_get(2, 0, 8);
    let with = |change: &dyn Fn(&mut CommonHeader)| {
        let mut pdu = CapsuleCmd::new(&sqe, 0);
        change(&mut pdu.common);
        pdu.as_bytes().to_vec()
    };
    for (fes, bytes) in [
        (1, with(&|c| c.kind = 0x55)),
        (1, with(&|c| c.kind = PduType::CapsuleResp as u8)),
        (1, with(&|c| c.hlen = 71)),
        (1, with(&|c| c.flags = 1)),
        (1, with(&|c| c.plen.set(7))),
        (1, with(&|c| c.plen.set(u32::MAX))),
        (1, with(&|c| (c.pdo, c.plen) = (73, 80.into()))),
        (5, with(&|c| (c.pdo, c.plen) = (72, (72 + 8193).into()))),
        (2, icreq(0, 0).as_bytes().to_vec()),
        (1, host.io.h2c(1, 3, 0, &[0; 512], true)),
    ] {
        let mut peer = Peer::new(target.addr());
        peer.send(&bytes);
        assert_eq!(peer.receive().unwrap().fes(), fes, "{:x?}", &bytes[..8]);
        assert!(closes(&mut peer.stream));
    }
    let mut peer = Peer::plain(target.addr());
    peer.send(&with(&|_| {}));
    assert_eq!(peer.receive().unwrap().fes(), 2);
    for (fes, change) in [(6, 8), (1, 10), (6, 11)] {
        let mut request = icreq(0, 0).as_bytes().to_vec();
        request[change] = 0x80;
        let mut peer = Peer::plain(target.addr());
        peer.send(&request);
        assert_eq!(peer.receive().unwrap().fes(), fes);
    }
    works(&mut host);
}

#[test]
fn data_that_was_not_asked_for_so_ends_the_connection() {
    let target = target();
    let mut other = Host::new(target.addr());
    let cases: [(u16, i32, u32, usize, bool); 7] = [
        (4, 0, 512, 512, false),
        (4, 0, 0, 8192, true),
        (1, 0, 0, 512, true),
        (1, 0, 0, 4096, false),
        (1, 1, 0, 4096, true),
        (1, 255, 0, 4096, true),
        (1, 300, 0, 4096, true),
    ];
    for (fes, tag, offset, len, last) in cases {
        let mut host = Host::new(target.addr());
        let cid = host.io.next_cid();
        let sqe = Sqe::write(cid, 1, 0, 8, 0, 0, false).with_sgl(SglDescriptor::transport(4096));
        let bytes = host.io.capsule(&sqe, &[]);
        host.io.send(&bytes);
        let ttag = host.io.receive().unwrap().r2t().ttag.get();
        let ttag = ttag.wrapping_add(tag as u16);
        let bytes = host.io.h2c(cid, ttag, offset, &vec![0; len], last);
        host.io.send(&bytes);
        assert_eq!(host.io.receive().unwrap().fes(), fes, "{tag} {offset} {len} {last}");
    }
    works(&mut other);
}

#[test]
fn wrong_digests_are_found() {
    let target = target();
    let mut host = Host::with(target.addr(), 3, &Connect::default());
    let cid = host.io.next_cid();
    let data = pattern(4096, 1);
    let sqe = Sqe::write(cid, 1, 0, 8, 0, 0, false).with_sgl(SglDescriptor::in_capsule(4096));
    let mut bytes = host.io.capsule(&sqe, &data);
    *bytes.last_mut().unwrap() ^= 1;
    host.io.send(&bytes);
    let status = host.io.answer(cid).unwrap().status;
    assert!(status.is(StatusCode::TransientTransportError) && !status.dnr(), "{status}");
    works(&mut host);
    let mut bytes = host.io.capsule(&sqe, &data);
    bytes[72] ^= 1;
    host.io.send(&bytes);
    assert_eq!(host.io.receive().unwrap().fes(), 3);
    assert_eq!(target.tcp_counters().data_digest_errors, 1);
}

#[test]
fn a_flood_of_connections_harms_nobody() {
    let target = target_with(|_, options| options.max_connections = 20);
    let mut host = Host::new(target.addr());
    let mut streams: Vec<_> = (0..60).map(|_| TcpStream::connect(target.addr()).unwrap()).collect();
    until("too many", || target.tcp_counters().too_many >= 42);
    works(&mut host);
    assert!(streams.iter_mut().rev().take(10).all(closes));
    drop(streams);
    until("room again", || {
        let c = target.tcp_counters();
        c.connections - c.ended == 2
    });
    Host::new(target.addr());
}

#[test]
fn faults_of_the_network_are_injected() {
    let target = target();
    let mut host = Host::with(target.addr(), 3, &Connect::default());
    target.set_net_faults(NetFaults { delay_ns: 30_000_000, ..NetFaults::NONE });
    let begun = Instant::now();
    works(&mut host);
    assert!(begun.elapsed() >= Duration::from_millis(60));
    target.set_net_faults(NetFaults { ddgst_one_in: 1, ..NetFaults::NONE });
    let sqe = Sqe::read(9, 1, 0, 8, 0, 0).with_sgl(SglDescriptor::transport(4096));
    let bytes = host.io.capsule(&sqe, &[]);
    host.io.send(&bytes);
    assert!(!host.io.receive().unwrap().digests_right);
    target.set_net_faults(NetFaults { cut_one_in: 1, ..NetFaults::NONE });
    host.io.send(&bytes);
    assert!(closes(&mut host.io.stream));
    for seed in 0..40 {
        // Each ends within its answer to the first command, whatever chance says.
        let mut peer = Peer::new(target.addr());
        target.set_net_faults(NetFaults { cut_one_in: 1, seed, ..NetFaults::NONE });
        peer.connect(&Connect::default());
        let begun = Instant::now();
        assert!(peer.try_command(&Sqe::property_get(9, 0, 8), &[]).is_none());
        assert!(begun.elapsed() < Duration::from_secs(2));
    }
    target.set_net_faults(NetFaults { drop_one_in: 1, ..NetFaults::NONE });
    let sqe = Sqe::property_get(9, 0, 8);
    assert!(host.admin.try_command(&sqe, &[]).is_none());
    target.set_net_faults(NetFaults::NONE);
    works(&mut Host::new(target.addr()));
    let c = target.tcp_counters();
    assert_eq!((c.injected_closes, c.injected_digests), (42, 1));
}

#[test]
fn a_power_cut_closes_all_connections_and_the_ssd_comes_back() {
    let target = target_with(|config, _| config.volatile_write_cache = true);
    let mut host = Host::new(target.addr());
    works(&mut host);
    target.power_cut(5);
    assert!(closes(&mut host.io.stream) && closes(&mut host.admin.stream));
    works(&mut Host::new(target.addr()));
    target.handle().unplug();
    assert!(closes(&mut TcpStream::connect(target.addr()).unwrap()));
    target.handle().plug();
    works(&mut Host::new(target.addr()));
}

#[test]
fn a_command_that_finds_no_slot_is_looked_at_again() {
    let target = target();
    let mut host = Host::new(target.addr());
    host.io = Peer::new(target.addr());
    let connect = Connect { entries: 1024, ..Connect::io(host.cntlid, 2) };
    assert!(host.io.connect(&connect).status.is_success());
    let mut other = Host::new(target.addr());
    let sqe = |cid| Sqe::read(cid, 1, 0, 256, 0, 0).with_sgl(SglDescriptor::transport(131_072));
    let mut stream = host.io.stream.try_clone().unwrap();
    let bytes: Vec<u8> = (0..1000).flat_map(|cid| host.io.capsule(&sqe(cid), &[])).collect();
    stream.write_all(&bytes).unwrap();
    // Its answers fill the socket and hold slots. Other connections have slots of their own.
    std::thread::sleep(Duration::from_millis(300));
    works(&mut other);
    assert!(host.admin.csts().rdy());
    works(&mut Host::new(target.addr()));
    for _ in 0..1000 {
        assert_eq!(host.io.receive().unwrap().data.len(), 131_072);
    }
    works(&mut host);
    assert_eq!(target.tcp_counters().too_slow, 0);
}

#[test]
fn a_command_that_finds_no_slot_need_not_be_followed_by_another() {
    let target = target();
    let mut host = Host::new(target.addr());
    host.io = Peer::new(target.addr());
    let connect = Connect { entries: 1024, ..Connect::io(host.cntlid, 2) };
    assert!(host.io.connect(&connect).status.is_success());
    target.set_net_faults(NetFaults { delay_ns: 200_000_000, ..NetFaults::NONE });
    // One more than a connection has slots.
    let begun = Instant::now();
    for cid in 0..129 {
        let sqe = Sqe::read(cid, 1, 0, 1, 0, 0).with_sgl(SglDescriptor::transport(BLOCK));
        let bytes = host.io.capsule(&sqe, &[]);
        host.io.send(&bytes);
    }
    for _ in 0..129 {
        assert_eq!(host.io.receive().unwrap().data.len(), BLOCK as usize);
    }
    assert!(begun.elapsed() >= Duration::from_millis(400));
}

#[test]
fn an_answer_that_does_not_fit_goes_on_when_the_socket_has_cooled() {
    let target = target();
    let mut host = Host::new(target.addr());
    host.io = Peer::new(target.addr());
    let connect = Connect { entries: 1024, ..Connect::io(host.cntlid, 2) };
    assert!(host.io.connect(&connect).status.is_success());
    // When the answers come, the socket is left to epoll.
    target.set_net_faults(NetFaults { delay_ns: 100_000_000, ..NetFaults::NONE });
    for cid in 0..120 {
        let sqe = Sqe::read(cid, 1, 0, 256, 0, 0).with_sgl(SglDescriptor::transport(131_072));
        let bytes = host.io.capsule(&sqe, &[]);
        host.io.send(&bytes);
    }
    std::thread::sleep(Duration::from_millis(500));
    for _ in 0..120 {
        assert_eq!(host.io.receive().unwrap().data.len(), 131_072);
    }
}

#[test]
fn commands_do_not_keep_a_connection_that_owes_data() {
    let target = target();
    let mut host = Host::new(target.addr());
    let cid = host.io.next_cid();
    let sqe = Sqe::write(cid, 1, 0, 8, 0, 0, false).with_sgl(SglDescriptor::transport(4096));
    let bytes = host.io.capsule(&sqe, &[]);
    host.io.send(&bytes);
    host.io.receive().unwrap().r2t();
    let begun = Instant::now();
    let read = |cid| Sqe::read(cid, 1, 0, 1, 0, 0).with_sgl(SglDescriptor::transport(BLOCK));
    while host.io.try_command(&read(9), &[]).is_some() {
        assert!(begun.elapsed() < Duration::from_secs(15));
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(target.tcp_counters().too_slow, 1);
}

#[test]
fn who_does_not_close_after_a_term_request_is_closed() {
    let target = target();
    let mut peer = Peer::new(target.addr());
    peer.send(icreq(0, 0).as_bytes());
    assert_eq!(peer.receive().unwrap().fes(), 2);
    let begun = Instant::now();
    while target.tcp_counters().ended == 0 {
        let _ = peer.stream.write(&[0]);
        assert!(begun.elapsed() < Duration::from_secs(5));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn discards_describe_a_page_as_those_of_linux_do() {
    let target = target();
    let mut host = Host::new(target.addr());
    for (ranges, length, is_right) in
        [(1, 16, true), (1, 4096, true), (256, 4096, true), (2, 16, false), (1, 4112, false)]
    {
        let mut sqe = Sqe::new(io::DATASET_MANAGEMENT, host.io.next_cid(), 1)
            .with_sgl(SglDescriptor::in_capsule(length));
        sqe.cdw10.set(ranges - 1);
        sqe.cdw11.set(1 << 2);
        let mut data = vec![0; length as usize];
        for range in data.chunks_mut(16).take(ranges as usize) {
            range[4] = 1;
        }
        let status = host.io.command(&sqe, &data).status;
        assert_eq!(status.is_success(), is_right, "{ranges} {length}: {status}");
    }
}

/// A host that leaves gives its event requests up, and goes on with their identifiers.
#[test]
fn the_identifier_of_an_event_request_can_be_used_again() {
    let target = target();
    let mut host = Host::new(target.addr());
    let request =
        |cid| Sqe::new(admin::ASYNC_EVENT_REQUEST, cid, 0).with_sgl(SglDescriptor::transport(0));
    for _ in 0..100 {
        // The host submits as many requests as there may be, and uses all again.
        let bytes: Vec<u8> =
            (1..=4).flat_map(|cid| host.admin.capsule(&request(cid), &[])).collect();
        host.admin.send(&bytes);
        let sqe = Sqe::property_get(1, CSTS, 4);
        assert!(Csts(host.admin.command(&sqe, &[]).dw0).rdy());
        for cid in 2..=4 {
            let sqe = Sqe::keep_alive(cid).with_sgl(SglDescriptor::transport(0));
            let status = host.admin.command(&sqe, &[]).status;
            assert!(status.is_success(), "{status}");
        }
    }
    assert_eq!(target.counters().cid_conflicts, 400);
    // One that is used for a request again is held anew.
    let bytes = host.admin.capsule(&request(1), &[]).repeat(20);
    host.admin.send(&bytes);
    let cc = Cc(0).with_en(true).with_iosqes(6).with_iocqes(4).with_shn(shn::NORMAL);
    let sqe = Sqe::property_set(1, CC, 4, cc.0.into());
    assert!(host.admin.command(&sqe, &[]).status.is_success());
    let csts = Csts(host.admin.command(&Sqe::property_get(1, CSTS, 4), &[]).dw0);
    assert_eq!(csts.shst(), shst::COMPLETE);
}

#[test]
fn a_duplicate_identifier_is_refused_each_time() {
    let target = target_with(|config, _| config.strict = true);
    let mut host = Host::new(target.addr());
    let sqe = Sqe::new(admin::ASYNC_EVENT_REQUEST, 9, 0).with_sgl(SglDescriptor::transport(0));
    let bytes = host.admin.capsule(&sqe, &[]);
    host.admin.send(&bytes);
    for _ in 0..3 {
        assert!(host.admin.command(&sqe, &[]).status.is(StatusCode::CommandIdConflict));
    }
}

#[test]
fn admin_commands_that_are_lost_hold_no_slots_for_ever() {
    let target = target();
    let rule = FaultRule::parse_line("lost-completion opcode=get-log-page").unwrap();
    target.handle().add_fault(rule).unwrap();
    for _ in 0..20 {
        let mut host = Host::new(target.addr());
        let capsules: Vec<u8> = (0..30)
            .flat_map(|cid| {
                let sqe = Sqe::get_log_page(cid + 500, u32::MAX, 2, 0, true, 128, 0, 0, 0)
                    .with_sgl(SglDescriptor::transport(512));
                host.admin.capsule(&sqe, &[])
            })
            .collect();
        host.admin.send(&capsules);
        assert!(host.admin.csts().rdy());
        works(&mut host);
    }
}

#[test]
fn it_stops_before_it_flushes() {
    let target = target_with(|config, _| config.volatile_write_cache = true);
    let mut host = Host::new(target.addr());
    works(&mut host);
    assert!(target.is_running());
    let handle = target.handle();
    assert!(target.stop());
    assert!(closes(&mut host.io.stream) && closes(&mut host.admin.stream));
    assert_eq!(handle.tcp_counters().ended, 2);
}
