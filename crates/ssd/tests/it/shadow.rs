//! Shadow doorbells.

use std::sync::atomic::{AtomicU32, Ordering, fence};

use meantime_nvme_spec::dbbuf::{cq_head_offset, must_ring, sq_tail_offset};
use meantime_nvme_spec::features::{NumberOfQueues, fid};
use meantime_nvme_spec::identify::{IdentifyController, cns, oacs};
use meantime_nvme_spec::regs;
use meantime_nvme_spec::soft_port::SOFT_DSTRD;
use meantime_nvme_spec::sqe::Sqe;
use meantime_nvme_spec::status::StatusCode as S;
use meantime_ssd::SsdConfig;
use meantime_testkit::host::*;
use zerocopy::FromBytes;

const POLLED: u32 = 0xffff;

fn offering() -> SsdConfig {
    SsdConfig { shadow_doorbells: true, ..config(1 << 20, 512) }
}

/// The host's two pages.
struct Pages {
    shadows: u64,
    events: u64,
}

impl Pages {
    fn new(host: &mut Host) -> Self {
        Self { shadows: host.alloc(4096), events: host.alloc(4096) }
    }

    fn config(host: &mut Host) -> Self {
        let pages = Self::new(host);
        ok(host.admin(Sqe::doorbell_buffer_config(0, pages.shadows, pages.events)));
        pages
    }

    fn cell(host: &Host, at: u64) -> &AtomicU32 {
        let word = host.arena.word((at - BASE) as usize);
        // SAFETY: the first half of an aligned word of the arena, only accessed as an atomic.
        unsafe { AtomicU32::from_ptr(word.as_ptr().cast()) }
    }

    fn tail<'h>(&self, host: &'h Host, qid: u16) -> (&'h AtomicU32, &'h AtomicU32) {
        let offset = sq_tail_offset(qid, SOFT_DSTRD);
        (Self::cell(host, self.shadows + offset), Self::cell(host, self.events + offset))
    }

    /// Announces the entries put, as a host does that follows the specification. Whether the
    /// register was rung.
    fn ring(&self, host: &mut Host, qid: u16, old: u32) -> bool {
        let new = host.queue(qid).tail;
        let (shadow, event) = self.tail(host, qid);
        shadow.store(new, Ordering::Release);
        fence(Ordering::SeqCst);
        let rung = must_ring(event.load(Ordering::Relaxed), new, old);
        if rung {
            host.port.write32(regs::sq_tail_doorbell(qid, SOFT_DSTRD), new);
        }
        rung
    }

    fn take(&self, host: &mut Host, qid: u16) -> Option<meantime_nvme_spec::cqe::Cqe> {
        let cqe = host.peek(qid)?;
        let head = host.queue(qid).head;
        Self::cell(host, self.shadows + cq_head_offset(qid, SOFT_DSTRD))
            .store(head, Ordering::Release);
        Some(cqe)
    }
}

#[test]
fn queues_go_by_their_shadows() {
    let (ssd, mut host) = stepped(offering());
    let pages = Pages::config(&mut host);
    host.create_queues(1, 8, None);
    let area = host.alloc(4096);
    assert_eq!(pages.tail(&host, 1).1.load(Ordering::Relaxed), POLLED);
    // Many times around, without a ring of any register but once a lap.
    let mut rings = 0;
    for n in 0..100u16 {
        let old = host.queue(1).tail;
        host.put(1, &Sqe::read(n, 1, 0, 1, area, 0));
        rings += u32::from(pages.ring(&mut host, 1, old));
        host.run_until_idle();
        assert_eq!(ok(pages.take(&mut host, 1).expect("a completion")).cid.get(), n);
    }
    assert_eq!(rings, 100 / 8, "once around");
    // A register alone is no doorbell.
    host.put(1, &Sqe::read(1, 1, 0, 1, area, 0));
    host.ring(1);
    host.run_until_idle();
    assert!(host.peek(1).is_none());
    // Values that make no sense are found here as well.
    pages.tail(&host, 1).0.store(8, Ordering::Release);
    host.run_until_idle();
    assert_eq!(ssd.counters().bad_doorbells, 1);
    // A reset forgets the pages.
    host.port.write32(regs::CC, 0);
    host.enable();
    host.create_queues(1, 8, None);
    ok(host.io(1, Sqe::read(0, 1, 0, 1, area, 0)));
}

#[test]
fn queues_that_exist_go_on() {
    let (_ssd, mut host) = stepped(offering());
    host.create_queues(1, 8, None);
    let area = host.alloc(4096);
    for _ in 0..5 {
        ok(host.io(1, Sqe::read(0, 1, 0, 1, area, 0)));
    }
    let pages = Pages::config(&mut host);
    assert_eq!(pages.tail(&host, 1).0.load(Ordering::Relaxed), 5);
    host.put(1, &Sqe::read(99, 1, 0, 1, area, 0));
    pages.ring(&mut host, 1, 5);
    host.run_until_idle();
    assert_eq!(ok(pages.take(&mut host, 1).unwrap()).cid.get(), 99);
    // The admin queue has its register still.
    ok(host.admin(Sqe::delete_io_sq(0, 1)));
    // A value that a former queue left behind is no doorbell of a new one.
    let sq = host.alloc(4096);
    ok(host.admin(Sqe::create_io_sq(0, 1, 8, sq, 1, 0)));
    host.run_until_idle();
    assert_eq!(pages.tail(&host, 1).0.load(Ordering::Relaxed), 0);
    assert!(pages.take(&mut host, 1).is_none());
}

#[test]
fn what_is_refused_and_granted() {
    let (ssd, mut host) = stepped(offering());
    let page = host.alloc(8192);
    ok(host.admin(Sqe::identify(0, 0, cns::CONTROLLER, 0, page, 0)));
    let id = IdentifyController::read_from_bytes(&host.read(page, 4096)).unwrap();
    assert_ne!(id.oacs.get() & oacs::DOORBELL_BUFFER_CONFIG, 0);
    // 4096 / 128 cells are 16 pairs, one of them the admin queue's.
    let all = Sqe::set_features(0, 0, fid::NUMBER_OF_QUEUES, false, NumberOfQueues::new(64, 64).0);
    assert_eq!(ok(host.admin(all)).dw0.get(), NumberOfQueues::new(15, 15).0);
    for (shadows, events) in [
        (page + 64, page + 4096),
        (page, page + 4096 + 8),
        (0x9000_0000_0000, page),
        (page, 0),
        (page, page),
    ] {
        let cqe = host.admin(Sqe::doorbell_buffer_config(0, shadows, events));
        refused(cqe, S::InvalidFieldInCommand);
    }
    ok(host.admin(Sqe::doorbell_buffer_config(0, page, page + 4096)));
    host.create_queues(15, 8, None);
    // Unmapping their memory is fatal, and nothing is written there any more.
    host.port.unmap_dma(BASE).unwrap();
    assert!(host.csts().cfs() && ssd.counters().fatal == 1);
    let (_ssd, mut host) = stepped(config(1 << 20, 512));
    let page = host.alloc(8192);
    refused(host.admin(Sqe::doorbell_buffer_config(0, page, page + 4096)), S::InvalidCommandOpcode);
}

#[test]
fn a_thread_that_sleeps_is_rung_and_one_that_polls_is_not() {
    let mut c = offering();
    c.park_after_ns = 200_000;
    let (ssd, mut host) = threaded(c);
    let pages = Pages::config(&mut host);
    host.create_queues(1, 64, None);
    let area = host.alloc(4096);
    let (mut rings, mut n) = (0u64, 0u16);
    let start = std::time::Instant::now();
    // Longer where the two threads have to take turns.
    while start.elapsed() < std::time::Duration::from_millis(700) || n < 200 {
        let old = host.queue(1).tail;
        host.put(1, &Sqe::read(n, 1, 0, 1, area, 0));
        rings += u64::from(pages.ring(&mut host, 1, old));
        let begun = std::time::Instant::now();
        let cqe = loop {
            if let Some(cqe) = pages.take(&mut host, 1) {
                break cqe;
            }
            assert!(begun.elapsed().as_secs() < 30, "a doorbell was left unseen");
            std::hint::spin_loop();
        };
        assert_eq!(ok(cqe).cid.get(), n);
        n = n.wrapping_add(1);
        // Now and then long enough for it to fall asleep, or just about.
        if n.is_multiple_of(50) {
            std::thread::sleep(std::time::Duration::from_micros(u64::from(n % 400)));
        }
    }
    let counters = ssd.counters();
    assert!(counters.reads > 100, "{counters:?}");
    // Once a lap, and once for each sleep at most.
    assert!(rings <= counters.reads / 64 + 1 + counters.parks, "{rings} rings, {counters:?}");
}
