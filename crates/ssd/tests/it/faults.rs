//! Faults to order, as a host sees them entry by entry; and docs/faults.md, whose example does what
//! it says.

use std::time::Duration;

use meantime_nvme_spec::regs::{CSTS, GONE};
use meantime_nvme_spec::sqe::Sqe;
use meantime_nvme_spec::status::{Status, StatusCode};
use meantime_ssd::{Fault, FaultControl, FaultPlan, FaultRule, Model, SsdConfig, SteppedSsd, When};
use meantime_testkit::host::*;

const MS: u64 = 1_000_000;

fn example() -> FaultPlan {
    let text = include_str!("../../../../docs/faults.md");
    let (_, rest) = text.split_once("```toml\n").expect("an example");
    let (plan, _) = rest.split_once("```").expect("its end");
    FaultPlan::parse(plan).expect("the documented plan is one")
}

struct Rig {
    ssd: SteppedSsd,
    host: Host,
    area: u64,
}

impl Rig {
    fn new(config: SsdConfig) -> Self {
        let (ssd, mut host) = stepped(config);
        host.create_queues(1, 64, None);
        let area = host.alloc(4096);
        Self { ssd, host, area }
    }

    fn order(&self, line: &str) {
        self.ssd.add_fault(FaultRule::parse_line(line).expect("a rule")).expect("room");
    }

    fn read(&self, lba: u64) -> Sqe {
        Sqe::read(0, 1, lba, 1, self.area, 0)
    }

    fn write(&self, lba: u64) -> Sqe {
        Sqe::write(0, 1, lba, 1, self.area, 0, false)
    }

    /// Returns the status that `sqe` ends with, and how long that took in ns. Returns `None` if it
    /// does not end within 10 ms.
    fn ends(&mut self, mut sqe: Sqe) -> Option<(Status, u64)> {
        let cid = self.host.cid();
        sqe.set_cid(cid);
        let clock = self.ssd.clock();
        let before_ns = self.ssd.peek_ns();
        self.host.submit(1, &sqe);
        for _ in 0..1000 {
            self.ssd.run_until_idle();
            if let Some(cqe) = self.host.poll(1) {
                assert_eq!(cqe.cid.get(), cid);
                return Some((cqe.status(), self.ssd.peek_ns() - before_ns));
            }
            clock.advance(MS / 100);
        }
        None
    }
}

#[test]
fn the_documented_example_does_what_it_says() {
    let mut rig = Rig::new(config(1 << 20, 512));
    rig.ssd.set_faults(example());
    let failed = Status::from_code(StatusCode::UnrecoveredReadError).with_dnr();
    let busy = Status::from_code(StatusCode::CommandInterrupted);
    let (mut late, mut interrupted) = (0, 0);
    // These 450 commands end before the 500th.
    for n in 0..450u64 {
        // Reads, and writes of which each tenth is turned away.
        let (sqe, expected) = match n % 3 {
            0 => (rig.read(100 + n % 100), failed),
            1 => (rig.read(if n % 2 == 0 { 99 } else { 200 }), Status::SUCCESS),
            _ => (rig.write(150), if n / 3 % 10 == 0 { busy } else { Status::SUCCESS }),
        };
        let (status, took_ns) = rig.ends(sqe).expect("it is answered");
        assert_eq!(status, expected, "command {n}");
        interrupted += u32::from(status == busy);
        if took_ns > 0 {
            assert!((3 * MS..3 * MS + MS / 50).contains(&took_ns), "{took_ns}");
            late += 1;
        }
    }
    assert_eq!(interrupted, 15);
    assert!(late <= 8, "one in a thousand: {late}");
    for n in 451..=502 {
        let lost = rig.ends(rig.read(0)).is_none();
        assert_eq!(lost, n == 500, "command {n}");
    }
    let hits: Vec<(&str, u64)> =
        rig.ssd.faults().iter().map(|f| (f.rule.fault.name(), f.hits)).collect();
    assert_eq!(hits[0], ("status", 150));
    assert_eq!(hits[3..], [("lost-completion", 1), ("surprise-removal", 0)]);
    // A second after the first command.
    rig.ssd.clock().advance(1_000 * MS);
    assert_eq!(rig.ends(rig.read(0)), None);
    assert_eq!(rig.ssd.port().read32(CSTS), GONE);
}

#[test]
fn every_fault_and_key_is_documented() {
    let text = include_str!("../../../../docs/faults.md");
    let error = FaultRule::parse_line("nonsense").unwrap_err().to_string();
    let (_, names) = error.split_once("there are ").expect("a list");
    for name in names.split(", ") {
        assert!(text.contains(&format!("| `{name}` |")), "{name}");
    }
    let error = FaultRule::parse_line("stray-cqe nonsense=1").unwrap_err().to_string();
    let (_, keys) = error.split_once("it has ").expect("a list");
    for key in keys.split(", ").chain(["status", "sct", "sc", "dnr", "crd", "by", "sqhd", "bits"]) {
        assert!(text.contains(&format!("`{key}`")) || text.contains(&format!("`{key} =")), "{key}");
    }
}

#[test]
fn after_a_wrong_phase_nothing_is_seen_until_the_queue_is_new() {
    for at in [1, 62, 63, 64, 65, 127] {
        let mut rig = Rig::new(config(1 << 20, 512));
        for n in 1..at {
            assert!(rig.ends(rig.read(0)).is_some(), "{n}");
        }
        rig.order("wrong-phase times=1");
        assert_eq!(rig.ends(rig.read(0)), None, "the one at {at}");
        for _ in 0..3 {
            assert_eq!(rig.ends(rig.read(0)), None, "those after {at}");
        }
        assert_eq!(rig.ssd.counters().injected_bad_phase, 1);
        // The entries are there, behind the gap: the phase of those after it is right.
        rig.host.queue(1).head = (rig.host.queue(1).head + 1) % 64;
        if rig.host.queue(1).head == 0 {
            let phase = rig.host.queue(1).phase;
            rig.host.queue(1).phase = !phase;
        }
        for _ in 0..3 {
            assert!(rig.host.poll(1).is_some(), "at {at}");
        }
        assert!(rig.host.peek(1).is_none());
    }
}

#[test]
fn a_wrong_sq_head_is_what_was_asked_for() {
    let mut rig = Rig::new(config(1 << 20, 512));
    rig.order("wrong-sqhd sqhd=0x1234 every=2");
    for n in 0..4 {
        let sqe = rig.read(0);
        let cqe = rig.host.io(1, sqe);
        assert_eq!(cqe.sqhd.get(), if n % 2 == 0 { 0x1234 } else { n + 1 });
    }
}

#[test]
fn admin_commands_are_slow_lost_refused_or_corrupted_by_order() {
    let mut rig = Rig::new(config(1 << 20, 512));
    let data = rig.area;
    let identify = || Sqe::identify(0, 0, 1, 0, data, 0);
    rig.order("slow-admin by=3ms opcode=identify");
    rig.order("status status=internal-error opcode=get-features times=1");
    rig.order("corrupt-read bits=3 opcode=identify from=2");
    let before_ns = rig.ssd.peek_ns();
    ok(rig.host.admin(identify()));
    let took_ns = rig.ssd.peek_ns() - before_ns;
    assert!(took_ns >= 3 * MS, "{took_ns}");
    let right = rig.host.read(data, 4096);
    ok(rig.host.admin(identify()));
    let wrong = rig.host.read(data, 4096);
    let differing: u32 = right.iter().zip(&wrong).map(|(a, b)| (a ^ b).count_ones()).sum();
    assert_eq!(differing, 3);
    let get = || Sqe::get_features(0, 0, 7, 0, 0);
    assert!(rig.host.admin(get()).status().is(StatusCode::InternalError));
    let before_ns = rig.ssd.peek_ns();
    ok(rig.host.admin(get()));
    assert!(rig.ssd.peek_ns() - before_ns < MS, "others are as fast as ever");
    // I/O is none of it.
    assert!(
        rig.ends(rig.read(0)).is_some_and(|(status, took_ns)| status.is_success() && took_ns == 0)
    );
}

#[test]
fn a_device_that_comes_back_holds_what_it_held() {
    let (ssd, mut host) = stepped(SsdConfig { volatile_write_cache: true, ..config(1 << 20, 512) });
    host.create_queues(1, 64, None);
    let area = host.alloc(4096);
    host.write(area, &[7; 512]);
    ok(host.io(1, Sqe::write(0, 1, 3, 1, area, 0, false)));
    ssd.unplug();
    assert_eq!(ssd.port().read32(CSTS), GONE);
    ssd.plug();
    assert_eq!(host.csts().0, 0, "disabled");
    ssd.port().unmap_dma(BASE).unwrap();
    let mut host = Host::new(ssd.port());
    host.enable();
    host.create_queues(1, 64, None);
    let area = host.alloc(4096);
    ok(host.io(1, Sqe::read(0, 1, 3, 1, area, 0)));
    assert_eq!(host.read(area, 512), [7; 512]);
    ssd.plug();
    assert!(host.csts().rdy(), "one that is there is left alone");
}

#[test]
fn one_with_a_thread_is_controlled_while_it_runs() {
    let (ssd, mut host) =
        threaded(SsdConfig { model: Model::named("optane").unwrap(), ..config(1 << 20, 512) });
    host.create_queues(1, 64, None);
    let area = host.alloc(4096);
    let read = || Sqe::read(0, 1, 0, 1, area, 0);
    let control = ssd.handle();
    ok(host.io(1, read()));
    let denied = Status::from_code(StatusCode::AccessDenied).with_dnr();
    control
        .add_fault(FaultRule::new(Fault::Status(denied), When { times: Some(2), ..When::ALWAYS }))
        .unwrap();
    for expected in [denied, denied, Status::SUCCESS] {
        assert_eq!(host.io(1, read()).status(), expected);
    }
    let hits = control.faults();
    assert_eq!((hits.len(), hits[0].seen, hits[0].hits), (1, 3, 2));
    control.clear_faults();
    assert!(control.faults().is_empty());
    control.unplug();
    assert_eq!(ssd.port().read32(CSTS), GONE);
    control.plug();
    assert_eq!(host.csts().0, 0);
    drop(ssd);
    // The SSD is gone: calls fail or return nothing, without waiting for an answer.
    assert!(control.add_fault(FaultRule::new(Fault::StrayCqe, When::ONCE)).is_err());
    assert!(control.faults().is_empty() && control.refusals().is_empty());
    control.plug();
    std::thread::sleep(Duration::from_millis(1));
}
