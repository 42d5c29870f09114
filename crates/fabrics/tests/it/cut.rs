//! Connections that are lost for one side only, for a while, or in part: a write that was on its
//! way must not come after a newer one.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use meantime_block::{BlockChannel, NvmeChannel, NvmeDevice, Request, Ticket};
use meantime_completion::Policy;
use meantime_random::Rng;
use meantime_ssd::tcp::Target;
use meantime_testkit::proxy::Proxy;
use meantime_testkit::setting;

use super::ours::{opened_at, started, verified};
use super::{channel, pattern, verify};

const KATO: Duration = Duration::from_millis(500);
/// Where a test compares times with it.
const LONG_KATO: Duration = Duration::from_secs(2);

/// The number of a device's first connection.
const ADMIN: u64 = 0;

/// A target, a host that reaches it through a proxy, and its only channel.
struct Cut {
    channel: NvmeChannel,
    _device: NvmeDevice,
    proxy: Proxy,
    target: Target,
}

impl Cut {
    fn new(has_cache: bool, policy: Policy, kato: Duration) -> Self {
        let target = started(|config| config.volatile_write_cache = has_cache);
        let proxy = Proxy::start(target.addr(), 1).unwrap();
        let device = opened_at(proxy.address(), &format!("&kato_ms={}", kato.as_millis()));
        let mut channel = channel(&device, policy);
        verify(&mut channel);
        Self { channel, _device: device, proxy, target }
    }

    /// The number of the last connection: the channel's.
    fn last(&self) -> u64 {
        self.proxy.connections() - 1
    }

    fn submit(&mut self, seed: u64) -> Ticket {
        submit(&mut self.channel, seed)
    }

    fn write(&mut self, seed: u64) {
        write(&mut self.channel, seed);
    }

    fn holds(&self, seed: u64) -> bool {
        holds(&self.target, seed)
    }
}

fn submit(channel: &mut NvmeChannel, seed: u64) -> Ticket {
    let mut buf = channel.alloc(4096).unwrap();
    buf.copy_from_slice(&pattern(seed, 4096));
    channel.submit(Request::write(0, buf)).map_err(|rejected| rejected.error).unwrap()
}

fn write(channel: &mut NvmeChannel, seed: u64) {
    let ticket = submit(channel, seed);
    channel.wait(ticket).result.unwrap();
}

/// Whether the target has that, as another host reads it.
fn holds(target: &Target, seed: u64) -> bool {
    let device = opened_at(target.addr(), "");
    let mut channel = channel(&device, Policy::Poll);
    let buf = channel.alloc(4096).unwrap();
    channel.read(0, buf).unwrap()[..] == pattern(seed, 4096)[..]
}

/// A write is held on its way; then the connections are lost for the host. It repeats the write,
/// and overwrites it. Then the first copy comes to the target.
#[test]
fn a_stale_write_comes_too_late() {
    for policy in [Policy::Poll, Policy::Interrupt] {
        let mut cut = Cut::new(false, policy, KATO);
        cut.write(1);
        cut.proxy.hold(None);
        let ticket = cut.submit(2);
        sleep(Duration::from_millis(50));
        assert!(cut.holds(1), "it is held");
        let (lost, last) = (Instant::now(), cut.last());
        cut.proxy.hang_up(None);
        cut.channel.wait(ticket).result.unwrap();
        assert!(lost.elapsed() >= KATO, "{:?}", lost.elapsed());
        cut.write(3);
        assert!(cut.target.tcp_counters().keep_alives_expired >= 1);
        // The end of the admin connection, which is held, too, would end the association.
        cut.proxy.let_go(last);
        sleep(Duration::from_millis(50));
        assert!(cut.holds(3));
        cut.proxy.let_go(None);
        verify(&mut cut.channel);
    }
}

/// What makes the wait necessary: the target executes a write that comes late, but before its Keep
/// Alive Timer expires. The host repeats it, and writes what follows, only afterwards.
#[test]
fn a_late_write_is_executed_before_it_is_repeated() {
    let mut cut = Cut::new(false, Policy::Interrupt, LONG_KATO);
    cut.write(1);
    cut.proxy.hold(None);
    let (ticket, last) = (cut.submit(2), cut.last());
    sleep(Duration::from_millis(20));
    cut.proxy.hang_up(None);
    let Cut { channel, proxy, target, .. } = &mut cut;
    std::thread::scope(|scope| {
        let writes = scope.spawn(|| {
            channel.wait(ticket).result.unwrap();
            write(channel, 3);
        });
        sleep(LONG_KATO / 2);
        assert!(holds(target, 1), "it is held, and not repeated");
        proxy.let_go(last);
        let until = Instant::now() + LONG_KATO / 2;
        while !holds(target, 2) {
            assert!(Instant::now() < until, "the late copy is executed");
        }
        writes.join().unwrap();
    });
    assert!(cut.holds(3));
}

/// The same with the I/O queue's connection alone: the target has confirmed the reset, so that
/// nothing is waited for.
#[test]
fn a_stale_write_comes_after_a_reset() {
    for policy in [Policy::Poll, Policy::Interrupt] {
        let mut cut = Cut::new(false, policy, LONG_KATO);
        for round in 0..5 {
            let first = cut.last();
            cut.write(round);
            cut.proxy.hold(first);
            let ticket = cut.submit(100 + round);
            sleep(Duration::from_millis(10));
            let lost = Instant::now();
            cut.proxy.hang_up(first);
            cut.channel.wait(ticket).result.unwrap();
            assert!(lost.elapsed() < LONG_KATO, "{:?}", lost.elapsed());
            cut.write(200 + round);
            cut.proxy.let_go(first);
            sleep(Duration::from_millis(10));
            assert!(cut.holds(200 + round));
        }
        assert_eq!(cut.target.tcp_counters().keep_alives_expired, 0, "nothing was waited for");
    }
}

#[test]
fn the_admin_connection_alone_all_at_once_and_a_stall() {
    type Act = fn(&Proxy);
    let ways: [(&str, Act); 3] = [
        ("admin", |proxy| proxy.cut_one(ADMIN)),
        ("all", Proxy::cut_now),
        ("stall", |proxy| proxy.stall(KATO * 3)),
    ];
    for (way, act) in ways {
        for has_cache in [false, true] {
            let mut cut = Cut::new(has_cache, Policy::Interrupt, KATO);
            cut.write(1);
            let (lost, before) = (Instant::now(), cut.proxy.connections());
            act(&cut.proxy);
            cut.write(2);
            assert!(cut.holds(2), "{way}");
            if way != "admin" {
                assert!(lost.elapsed() >= KATO, "{way}: {:?}", lost.elapsed());
            }
            verify(&mut cut.channel);
            // The admin connection's loss is noticed without any I/O.
            let until = Instant::now() + 4 * KATO;
            while cut.proxy.connections() < before + 2 && Instant::now() < until {
                sleep(Duration::from_millis(10));
            }
            assert!(cut.proxy.connections() >= before + 2, "{way}");
            let flushed = cut.channel.flush().map_err(|error| error.to_string());
            match flushed {
                Err(error) if has_cache => assert!(error.contains("lost power"), "{way}: {error}"),
                flushed => assert!(flushed.is_ok() && !has_cache, "{way}: {flushed:?}"),
            }
            cut.channel.flush().unwrap();
            verify(&mut cut.channel);
        }
    }
}

/// The I/O queue's connection is lost, and while the host resets the controller for that, the
/// target loses power: its cache is lost, and a flush must say so.
#[test]
fn a_power_cut_during_a_reset_is_told() {
    let mut cut = Cut::new(true, Policy::Interrupt, KATO);
    cut.channel.flush().unwrap();
    cut.write(1);
    cut.proxy.refuse(true);
    let before = cut.proxy.connections();
    cut.proxy.cut_one(cut.last());
    sleep(Duration::from_millis(50));
    // Without any I/O nobody would notice.
    let ticket = cut.submit(2);
    let until = Instant::now() + Duration::from_secs(5);
    while cut.proxy.connections() == before {
        assert!(Instant::now() < until, "it is lost");
        sleep(Duration::from_millis(1));
    }
    cut.target.power_cut(1);
    cut.proxy.refuse(false);
    cut.channel.wait(ticket).result.unwrap();
    let error = cut.channel.flush().unwrap_err();
    assert!(error.to_string().contains("lost power"), "{error}");
    cut.channel.flush().unwrap();
}

/// Verified commands while connections are lost in every way, at random.
#[test]
fn verified_commands_under_every_kind_of_cut() {
    let count = setting("MEANTIME_TCP_CUTS").unwrap_or(10);
    let target = started(|config| config.volatile_write_cache = false);
    let proxy = Proxy::start(target.addr(), 1).unwrap();
    let device = opened_at(proxy.address(), &format!("&kato_ms={}", KATO.as_millis()));
    let (done, has_ended) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let runs = scope.spawn(|| {
            for (seed, policy) in (0..).zip([Policy::Poll, Policy::Interrupt].into_iter().cycle()) {
                verified(&mut channel(&device, policy), 1_000, seed);
                done.fetch_add(1_000, Ordering::Relaxed);
                if has_ended.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let mut random = Rng::new(1);
        let mut some = |n: u64| random.next_u64() % n;
        for cut in 0..count {
            // Some come while the host still recovers from the last.
            let before = done.load(Ordering::Relaxed);
            let until = Instant::now() + Duration::from_millis(100 + some(3_000));
            while done.load(Ordering::Relaxed) == before && Instant::now() < until {
                sleep(Duration::from_millis(5));
            }
            let last = proxy.connections() - 1;
            match cut % 5 {
                0 => proxy.cut_one(last),
                1 => proxy.cut_now(),
                2 => proxy.stall(KATO * (1 + some(2) as u32)),
                // What is held comes in time or too late, for one connection or for all.
                way => {
                    let which = (way == 3).then_some(last);
                    proxy.hold(which);
                    sleep(Duration::from_millis(some(20)));
                    proxy.hang_up(which);
                    sleep(Duration::from_millis(some(1_000)));
                    // In this order: the end of the admin connection ends all of the association.
                    proxy.let_go(last);
                    proxy.let_go(which);
                }
            }
            assert!(!runs.is_finished(), "it has failed");
        }
        has_ended.store(true, Ordering::Relaxed);
    });
    println!("{count} cuts in {done:?} commands, {:?}", target.tcp_counters());
}
