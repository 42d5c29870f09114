//! An I/O connection that goes away with commands in flight: what the target sends on it, and how
//! it closes it, with each setting of digests. They are the same but for the digests.

use std::io::{ErrorKind, Read as _};
use std::net::Shutdown;
use std::time::Duration;

use meantime_nvme_spec::regs::{CC, Cc};
use meantime_nvme_spec::sgl::SglDescriptor;
use meantime_nvme_spec::sqe::Sqe;
use meantime_nvme_spec::tcp::{
    CapsuleCmd, CapsuleResp, CommonHeader, DataHeader, PduType, R2t, TermReq,
};
use meantime_ssd::tcp::{NetFaults, Wire};
use meantime_ssd::{Medium, SsdConfig};
use zerocopy::{FromBytes as _, IntoBytes as _};

use crate::basics::{BLOCK, pattern, target};
use crate::peer::{Connect, Host, Peer, icreq};
use crate::trouble::{until, works};

/// Everything that comes on a connection until it is closed, as lines without digests, and how it
/// is closed.
fn record(peer: &mut Peer) -> Vec<String> {
    let mut lines = Vec::new();
    loop {
        let mut begin = [0; 8];
        let end = match peer.stream.read(&mut begin[..1]) {
            Ok(0) => "closed",
            Ok(_) => "",
            Err(error) if error.kind() == ErrorKind::ConnectionReset => "reset",
            Err(error) => panic!("after {lines:?}: {error}"),
        };
        if !end.is_empty() {
            lines.push(end.to_owned());
            return lines;
        }
        peer.stream.read_exact(&mut begin[1..]).unwrap();
        let common = CommonHeader::read_from_bytes(&begin).unwrap();
        let mut bytes = begin.to_vec();
        bytes.resize(common.plen.get() as usize, 0);
        if peer.stream.read_exact(&mut bytes[8..]).is_err() {
            lines.push("cut".to_owned());
            continue;
        }
        lines.push(line(&bytes, common));
    }
}

fn line(bytes: &[u8], common: CommonHeader) -> String {
    let kind = PduType::try_from(common.kind).unwrap();
    let hlen = usize::from(common.hlen);
    let header = &bytes[..hlen];
    // Bits 0 and 1 are those of digests.
    let flags = common.flags & !3;
    match kind {
        PduType::CapsuleResp => {
            let cqe = CapsuleResp::read_from_bytes(header).unwrap().cqe();
            format!("response to {}: {}", cqe.cid.get(), cqe.status())
        }
        PduType::C2hData => {
            let data = DataHeader::read_from_bytes(header).unwrap();
            format!("{} bytes for {}, flags {flags}", data.datal.get(), data.cccid.get())
        }
        PduType::R2t => {
            let r2t = R2t::read_from_bytes(header).unwrap();
            format!("R2T for {} bytes of {}", r2t.r2tl.get(), r2t.cccid.get())
        }
        PduType::TargetTermReq => {
            let term = TermReq::read_from_bytes(header).unwrap();
            let offending = &bytes[hlen..];
            assert_eq!(common.flags, 0, "a TermReq has no digests");
            format!(
                "TermReq {}, with {} bytes of a PDU of type {}",
                term.fes.get(),
                offending.len(),
                offending[0]
            )
        }
        other => panic!("{other}"),
    }
}

/// How an I/O connection ends.
#[derive(Clone, Copy, Debug)]
enum End {
    HostCloses,
    HostStopsSending,
    HostResets,
    HostTerminates,
    /// The host closes after this many bytes of a write with its data in the capsule. A negative
    /// number counts from the end.
    InCapsule(isize),
    /// The same into H2CData.
    InData(isize),
    UnknownPdu,
    WrongHeaderLength,
    WrongTag,
    TargetCuts,
}

const ENDS: [End; 16] = [
    End::HostCloses,
    End::HostStopsSending,
    End::HostResets,
    End::HostTerminates,
    End::InCapsule(1),
    End::InCapsule(73),
    End::InCapsule(100),
    End::InCapsule(-1),
    End::InData(5),
    End::InData(25),
    End::InData(100),
    End::InData(-1),
    End::UnknownPdu,
    End::WrongHeaderLength,
    End::WrongTag,
    End::TargetCuts,
];

fn cut(bytes: &[u8], at: isize) -> &[u8] {
    let at = if at < 0 { bytes.len() - at.unsigned_abs() } else { at as usize };
    &bytes[..at]
}

/// Ends the connection of a host's I/O queue with commands in flight. Returns what came on it.
fn ended(host: &mut Host, end: End) -> Vec<String> {
    let io = &mut host.io;
    let data = pattern(4096, 3);
    // A write that was asked for its data, and reads.
    let asked = Sqe::write(1, 1, 64, 8, 0, 0, false).with_sgl(SglDescriptor::transport(4096));
    let mut bytes = io.capsule(&asked, &[]);
    for cid in 2..6 {
        let read = Sqe::read(cid, 1, 0, 8, 0, 0).with_sgl(SglDescriptor::transport(8 * BLOCK));
        bytes.extend(io.capsule(&read, &[]));
    }
    io.send(&bytes);
    let ttag = io.receive().unwrap().r2t().ttag.get();
    let write = Sqe::write(9, 1, 0, 8, 0, 0, false).with_sgl(SglDescriptor::in_capsule(4096));
    let capsule = io.capsule(&write, &data);
    let in_data = io.h2c(1, ttag, 0, &data, true);
    match end {
        End::HostCloses | End::HostStopsSending | End::TargetCuts => {}
        End::HostResets => {
            rustix::net::sockopt::set_socket_linger(&io.stream, Some(Duration::ZERO)).unwrap();
        }
        End::HostTerminates => {
            let mut pdu = TermReq::default();
            pdu.common = CommonHeader::new(PduType::HostTermReq, 24, 24);
            pdu.common.pdo = 0;
            pdu.fes.set(2);
            let bytes = [pdu.as_bytes(), &capsule[..24]].concat();
            io.send(&bytes);
        }
        End::InCapsule(at) => io.send(cut(&capsule, at)),
        End::InData(at) => io.send(cut(&in_data, at)),
        End::UnknownPdu => io.send(&[&[0x55], &capsule[1..]].concat()),
        End::WrongHeaderLength => io.send(&[&capsule[..2], &[71], &capsule[3..]].concat()),
        End::WrongTag => {
            let bytes = io.h2c(1, ttag.wrapping_add(1), 0, &data, true);
            io.send(&bytes);
        }
    }
    match end {
        End::HostCloses | End::HostResets => {
            host.io = Peer::new(host.io.stream.peer_addr().unwrap());
            Vec::new()
        }
        End::HostStopsSending | End::InCapsule(_) | End::InData(_) => {
            io.stream.shutdown(Shutdown::Write).unwrap();
            record(io)
        }
        _ => record(io),
    }
}

#[test]
fn an_io_connection_ends_alike_with_and_without_digests() {
    for end in ENDS {
        let mut without = None;
        for digests in 0..4 {
            let target = target();
            let mut host = Host::with(target.addr(), digests, &Connect::default());
            let mut faults = NetFaults::NONE;
            if let End::TargetCuts = end {
                faults.cut_one_in = 1;
            } else {
                // The commands are in flight until the connection has ended.
                faults.delay_ns = 100_000_000;
            }
            target.set_net_faults(faults);
            let lines = ended(&mut host, end);
            target.set_net_faults(NetFaults::NONE);
            let (cntlid, before) = (host.cntlid, without.get_or_insert_with(|| lines.clone()));
            assert_eq!(lines, *before, "{end:?} with digests {digests}");
            // The queue can be had again, from the same controller; after a TermReq also by a host
            // that has not closed yet.
            let connect = Connect::io(cntlid, 1);
            let former = std::mem::replace(&mut host.io, Peer::with(target.addr(), digests, 0));
            let kept = lines.iter().any(|line| line.starts_with("TermReq")).then_some(former);
            let answer = host.io.connect(&connect);
            drop(kept);
            assert!(answer.status.is_success(), "{end:?}, digests {digests}: {}", answer.status);
            works(&mut host);
            assert!(host.admin.csts().rdy());
            // And everything from another.
            drop(host);
            let mut host = Host::with(target.addr(), digests, &Connect::default());
            works(&mut host);
            drop(host);
            until("connections end", || {
                let c = target.tcp_counters();
                c.connections == c.ended && c.associations == c.associations_ended
            });
        }
        println!("{end:?}: {without:?}");
    }
}

/// The end of a connection is noticed while commands of it wait for slots, so that its queue can be
/// had again at once.
#[test]
fn a_queue_whose_connection_ends_while_it_waits_for_slots_can_be_had_again() {
    for digests in 0..4 {
        let target = target();
        let mut host = Host::with(target.addr(), digests, &Connect::default());
        host.io = Peer::with(target.addr(), digests, 0);
        let connect = Connect { entries: 1024, ..Connect::io(host.cntlid, 2) };
        assert!(host.io.connect(&connect).status.is_success());
        target.set_net_faults(NetFaults { delay_ns: 500_000_000, ..NetFaults::NONE });
        let read = |cid| Sqe::read(cid, 1, 0, 1, 0, 0).with_sgl(SglDescriptor::transport(BLOCK));
        let bytes: Vec<u8> = (0..300).flat_map(|cid| host.io.capsule(&read(cid), &[])).collect();
        host.io.send(&bytes);
        until("commands come", || target.counters().reads >= 128);
        host.io = Peer::with(target.addr(), digests, 0);
        target.set_net_faults(NetFaults::NONE);
        let answer = host.io.connect(&connect);
        assert!(answer.status.is_success(), "digests {digests}: {}", answer.status);
        works(&mut host);
    }
}

/// The end of a connection may come to the target after the one that is to replace it.
#[test]
fn a_connect_waits_for_the_end_of_the_connection_that_it_replaces() {
    let config = SsdConfig::with_namespace(8 << 20, BLOCK);
    let medium = Medium::dram(config.total_bytes()).unwrap();
    let mut wire = Wire::new(config, medium).unwrap();
    let opened = |wire: &mut Wire, connect: &Connect| {
        let connection = wire.open().unwrap();
        let sqe = Sqe::connect(1, connect.qid, connect.entries, connect.cattr, 0);
        let capsule = CapsuleCmd::new(&sqe, 1024);
        let data = connect.data();
        let bytes = [icreq(0, 0).as_bytes(), capsule.as_bytes(), data.as_bytes()].concat();
        let mut answer = Vec::new();
        assert!(wire.exchange(connection, &bytes, &mut answer));
        (connection, answer.split_off(128))
    };
    let cqe = |answer: &[u8]| CapsuleResp::read_from_bytes(answer).unwrap().cqe();
    let (admin, answer) = opened(&mut wire, &Connect::default());
    let connect = Connect::io(cqe(&answer).dw0.get() as u16, 1);
    let cc = Cc(0).with_en(true).with_iosqes(6).with_iocqes(4);
    let enable = CapsuleCmd::new(&Sqe::property_set(2, CC, 4, cc.0.into()), 0);
    assert!(wire.exchange(admin, enable.as_bytes(), &mut Vec::new()));
    let (former, answer) = opened(&mut wire, &connect);
    assert!(cqe(&answer).status().is_success());
    let (latter, mut answer) = opened(&mut wire, &connect);
    assert!(answer.is_empty(), "not before the end of the former");
    wire.close(former);
    assert!(wire.exchange(latter, &[], &mut answer));
    assert!(cqe(&answer).status().is_success());
    for connection in [latter, admin] {
        wire.close(connection);
    }
    assert!(wire.is_clean());
}
